"""The ledger in memory: ports ``Ledger`` and ``PositionLedger``, as strict as those in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from kafka_ingest.errors import Busy, CommitStateUnknown, ConfigError, Fenced, IngestError, LedgerMoved
from kafka_ingest.protocol.batch import Batch, BatchStanding, BatchState, Hold, PartitionOutcome, RecordCounts, Request
from kafka_ingest.protocol.decisions import ChangeRequest, ChangeView, NewChange, NewPlan, needs_table
from kafka_ingest.protocol.ledger_view import (
    LedgerWrite,
    PipelineRecord,
    PlanView,
    PositionMove,
    RecordedChange,
    ServedTopic,
    Violation,
)
from kafka_ingest.protocol.new_columns import with_added_columns
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.staging import DeadLetterGroup, StageProgress
from kafka_ingest.settings import PROTOCOL_VERSION, TargetSettings
from tests.fakes.database import FakePort, at_once, lies_in


class FakeLedger(FakePort):
    """Port ``Ledger``."""

    @at_once
    def plan_view(self, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
        return self.database.plan_view(pipeline, request, target)

    @at_once
    def loaded_from(self, pipeline: str, since_ms: int) -> Mapping[TopicPartition, int]:
        since = datetime.fromtimestamp(since_ms / 1_000, UTC)
        found: dict[TopicPartition, int] = {}
        for part in self._published(self._committed(pipeline)):
            place = part.range.topic_partition
            current = self.database.positions.get((pipeline, place))
            is_current = current is not None and current.generation == part.range.generation
            if is_current and part.record_time_max is not None and part.record_time_max >= since:
                found[place] = min(part.range.start, found.get(place, part.range.start))
        return found

    @at_once
    def record_plan(self, plan: NewPlan, seen: PlanView) -> Batch:
        write = LedgerWrite(plan.pipeline, seen, plan.supersedes)
        later = self.plan_view(plan.pipeline, plan.request, plan.settings.target)
        with self.database.write(write, later, busy=Busy):
            if seen.own and seen.own.state is BatchState.COMMITTED:
                raise write.moved("the request has a committed batch")
            self._bind(plan, write)
            return self._insert_batch(plan)

    @at_once
    def batch_of(self, pipeline: str, request: Request) -> Batch | None:
        return self.database.batch_of(pipeline, request)

    @at_once
    def batch(self, batch_id: str) -> Batch | None:
        return self.database.batches.get(batch_id)

    @at_once
    def claim(self, batch_id: str, heartbeat_timeout_seconds: int) -> Batch:
        db, batch = self.database, self._lock(batch_id)
        if batch.state is BatchState.COMMITTED:
            return batch
        if batch.state is not BatchState.PLANNED:
            raise Fenced("the batch can no longer be loaded", batch_id=batch_id)
        db.batches[batch_id] = replace(batch, claim=batch.claim + 1)
        self._hold_on(batch_id, "claim", StageProgress(), heartbeat_timeout_seconds)
        added = db.added_columns(batch.pipeline, batch.settings.target)
        return replace(db.batches[batch_id], settings=with_added_columns(batch.settings, added))

    @at_once
    def heartbeat(
        self, batch_id: str, claim: int, *, step: str, progress: StageProgress, hold_seconds: int
    ) -> BatchStanding:
        batch = self._existing(batch_id)
        if batch_id in self.database.holds and batch.claim == claim:
            self._hold_on(batch_id, step, progress, hold_seconds)
        return BatchStanding(batch.state, batch.claim)

    @at_once
    def release_hold(self, batch_id: str, claim: int) -> None:
        db = self.database
        hold = db.holds.get(batch_id)
        if hold and db.batches[batch_id].claim == claim:
            db.holds[batch_id] = replace(hold, hold_until=min(hold.hold_until, db.now))

    @at_once
    def caught_up(self, pipeline: str) -> Mapping[TopicPartition, datetime | None]:
        return {position.topic_partition: None for position in self.database.positions_of(pipeline)}

    @at_once
    def settle(self, batch_id: str) -> BatchStanding:
        batch = self._lock(batch_id, CommitStateUnknown)
        return BatchStanding(batch.state, batch.claim)

    @at_once
    def hold(self, batch_id: str) -> Hold | None:
        return self.database.holds.get(batch_id)

    @at_once
    def unannounced(self, pipeline: str, request: Request) -> Sequence[Batch]:
        announced_by = self.database.announced_by
        return [
            batch
            for batch in self._committed(pipeline)
            if batch.announced_at is None
            or request.identity in (announced_by[batch.batch_id].identity, batch.request.identity)
        ]

    @at_once
    def mark_announced(self, batch_ids: Sequence[str], request: Request) -> None:
        db = self.database
        for batch_id in batch_ids:
            batch = db.batches.get(batch_id)
            if batch and batch.state is BatchState.COMMITTED and batch.announced_at is None:
                db.batches[batch_id] = replace(batch, announced_at=db.now)
                db.announced_by[batch_id] = request

    @at_once
    def dead_letter_groups(self, batch_id: str) -> Sequence[DeadLetterGroup]:
        letters = [letter for letter in self.database.dead_letters if letter.batch_id == batch_id]
        groups = []
        for reason in {str(letter.reason) for letter in letters}:
            same = [letter for letter in letters if letter.reason == reason]
            first = min(same, key=lambda letter: (letter.topic, letter.partition, letter.generation, letter.offset))
            place = TopicPartition(first.topic, first.partition)
            groups.append(DeadLetterGroup(reason, len(same), place, first.offset))
        return sorted(groups, key=lambda group: (-group.records, group.reason))

    @at_once
    def violations(self, pipeline: str) -> Sequence[Violation]:
        """Check what somebody else can break: rows of the newest committed batch. The rest cannot be stored here."""
        db, newest = self.database, self._committed(pipeline)[-1:]
        found = []
        for part in self._published(newest):
            r = part.range
            if self._is_partly_undone(newest[0], r):
                continue
            rows = [row.identity for row in db.rows if lies_in(row.identity, r, r.start, r.end)]
            offsets = [identity[-1] for identity in rows if identity not in db.resolved]
            if len(offsets) != part.counts.rows or len(set(offsets)) != len(offsets):
                found.append(Violation("target_rows", f"{r}: rows {part.counts.rows}, rows_found {len(offsets)}"))
        return found

    def _is_partly_undone(self, batch: Batch, r: OffsetRange) -> bool:
        """Whether a roll-back took the end of a published range, or a later batch that had replaced a part of it."""
        place, batches = (r.topic, r.generation, r.partition), self.database.batches_of(batch.pipeline)
        spans = [
            s for key, record in self.database.roll_backs.items() if key[0] == batch.pipeline for s in record.spans
        ]
        undone = [b for b in batches[batches.index(batch) + 1 :] if b.state is BatchState.ROLLED_BACK]
        return any(s.to_timeline > r.timeline and lies_in((*place, s.to_offset), s, 0, r.end) for s in spans) or any(
            (other.topic, other.generation, other.partition) == place and other.start < r.end and r.start < other.end
            for later in undone
            for other in later.ranges
        )

    def _committed(self, pipeline: str) -> list[Batch]:
        return [batch for batch in self.database.batches_of(pipeline) if batch.state is BatchState.COMMITTED]

    def _published(self, batches: Sequence[Batch]) -> Iterator[PartitionOutcome]:
        return (part for batch in batches for part in self.database.published.get(batch.batch_id, ()))

    def _bind(self, plan: NewPlan, write: LedgerWrite) -> None:
        db, settings, choice = self.database, plan.settings, plan.choice
        target = settings.target
        bound = PipelineRecord(
            plan.pipeline,
            target.schema,
            target.table,
            plan.cluster_id,
            settings.isolation_level,
            plan.first_run,
            settings.metadata.identity,
            settings.upsert,
        )
        db.pipelines.setdefault(plan.pipeline, bound)
        for topic in choice.new_topics:
            served = ServedTopic(plan.pipeline, plan.cluster_id, topic, is_upsert=settings.upsert is not None)
            before = db.served.setdefault((target.schema, target.table, plan.cluster_id, topic), served)
            if before is not served:
                raise self._served_already(before, plan)
        begins = [PositionMove(None, position) for position in choice.new_positions]
        db.move(write, [*begins, *choice.adopted, *choice.skips])
        for observation in choice.observations:
            db.observations[plan.pipeline, observation.topic_partition] = observation
        for place, time in choice.valid_through.items():
            if (key := (plan.pipeline, place)) in db.positions:
                db.positions[key] = replace(db.positions[key], valid_through=time, updated_at=db.now)

    def _served_already(self, before: ServedTopic, plan: NewPlan) -> IngestError:
        if before.pipeline == plan.pipeline:
            return LedgerMoved("the topic is served already", pipeline=plan.pipeline)
        found = f"{before.topic}: pipeline {before.pipeline}"
        return ConfigError("another pipeline loads this topic", found=found, pipeline=plan.pipeline)

    def _insert_batch(self, plan: NewPlan) -> Batch:
        db = self.database
        batch = Batch(
            batch_id=str(uuid4()),
            pipeline=plan.pipeline,
            request=plan.request,
            kind=plan.kind,
            state=BatchState.PLANNED,
            claim=0,
            settings=plan.settings,
            settings_hash=plan.settings_hash,
            protocol_version=PROTOCOL_VERSION,
            cluster_id=plan.cluster_id,
            ranges=tuple(sorted(plan.choice.ranges, key=lambda r: r.topic_partition)),
            planned_at=plan.planned_at,
            left_out=tuple(str(fault) for fault in plan.choice.left_out),
            warnings=plan.choice.warnings,
        )
        if batch.ranges:
            hold_until = db.now + timedelta(seconds=plan.hold.start_timeout_seconds)
            total = batch.span_offsets
            db.holds[batch.batch_id] = Hold(batch.batch_id, plan.request, hold_until, "plan", total_offsets=total)
        else:
            valid_through, counts = db.valid_through(plan.pipeline), RecordCounts()
            batch = replace(
                batch, state=BatchState.COMMITTED, committed_at=db.now, counts=counts, valid_through=valid_through
            )
        db.batches[batch.batch_id] = batch
        return batch

    def _hold_on(self, batch_id: str, step: str, progress: StageProgress, seconds: int) -> None:
        self.database.holds[batch_id] = replace(
            self.database.holds[batch_id],
            hold_until=self.database.now + timedelta(seconds=seconds),
            step=step,
            staged_records=progress.records,
            staged_offsets=progress.offsets,
        )

    def _lock(self, batch_id: str, busy: type[IngestError] = Busy) -> Batch:
        batch = self._existing(batch_id)
        if batch_id in self.database.locked:
            raise busy("the batch row is locked", batch_id=batch_id)
        return batch

    def _existing(self, batch_id: str) -> Batch:
        if batch_id not in self.database.batches:
            raise ConfigError("the ledger has no such batch", batch_id=batch_id)
        return self.database.batches[batch_id]


class FakePositionLedger(FakePort):
    """Port ``PositionLedger``."""

    @at_once
    def change_view(self, request: ChangeRequest, target: TargetSettings) -> ChangeView:
        db = self.database
        recorded = db.changes.get((request.pipeline, request.request_id))
        return ChangeView(
            ledger=db.plan_view(request.known_name, Request("position change", request.request_id), target),
            target=target,
            recorded=replace(recorded, pipeline=request.pipeline) if recorded else None,
            target_columns=db.tables.get((target.schema, target.table)) if needs_table(request.change) else None,
            name_is_taken=request.known_name != request.pipeline and request.pipeline in db.pipelines,
        )

    @at_once
    def record_change(self, change: NewChange, seen: ChangeView) -> RecordedChange:
        db, request, plan, bound = self.database, change.request, change.plan, seen.ledger.pipeline
        write = change.write_from(seen)
        with db.write(write, self.change_view(request, seen.target)):
            if bound is None:
                raise write.moved("nobody has planned")
            db.move(write, plan.moves)
            self._retire(plan.retired_topic, bound, is_retired=True)
            self._retire(plan.topic_read_again, bound, is_retired=False)
            self._bind(plan.binding or bound, bound, write)
            return db.record(
                RecordedChange(
                    pipeline=request.pipeline,
                    request_id=request.request_id,
                    kind=request.change.kind.value,
                    arguments=request.arguments,
                    who=request.who,
                    why=request.why,
                    at=db.now,
                    positions=plan.positions,
                    settings=plan.settings,
                    superseded=change.supersedes,
                )
            )

    def _retire(self, topic: str | None, bound: PipelineRecord, *, is_retired: bool) -> None:
        if topic is not None:
            key = (*_place(bound), topic)
            self.database.served[key] = replace(self.database.served[key], is_retired=is_retired)

    def _bind(self, after: PipelineRecord, bound: PipelineRecord, write: LedgerWrite) -> None:
        """Serve the topics in the new place, mark them as retired in the former one, and let the name follow."""
        db, place, former = self.database, _place(after), _place(bound)
        own = {key: s for key, s in db.served.items() if key[:3] == former and s.pipeline == bound.pipeline}
        for key, served in own.items() if place != former else ():
            there = db.served.get((*place, key[3]))
            if there and there.pipeline != bound.pipeline:
                raise write.moved(f"another pipeline serves {key[3]}")
            db.served[*place, key[3]] = replace(served, cluster_id=after.cluster_id)
            db.served[key] = replace(served, is_retired=True)
        del db.pipelines[bound.pipeline]
        db.pipelines[after.pipeline] = after
        if after.pipeline != bound.pipeline:
            self._rename(bound.pipeline, after.pipeline)

    def _rename(self, old: str, new: str) -> None:
        db = self.database
        for name in ("positions", "observations", "bound_timelines", "changes", "roll_backs"):
            table = getattr(db, name)
            setattr(db, name, {(new if key[0] == old else key[0], key[1]): row for key, row in table.items()})
        db.served = {key: replace(s, pipeline=new) if s.pipeline == old else s for key, s in db.served.items()}
        db.added = {(new if key[0] == old else key[0], *key[1:]): columns for key, columns in db.added.items()}
        db.batches = {key: replace(b, pipeline=new) if b.pipeline == old else b for key, b in db.batches.items()}


def _place(record: PipelineRecord) -> tuple[str, str, str]:
    return (record.target_schema, record.target_table, record.cluster_id)

"""The ledger in memory: port ``Ledger``, as strict as the one in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from kafka_ingest.errors import Busy, CommitStateUnknown, ConfigError, Fenced, LedgerMoved
from kafka_ingest.protocol.batch import Batch, BatchStanding, BatchState, Hold, RecordCounts, Request
from kafka_ingest.protocol.decisions import NewPlan
from kafka_ingest.protocol.ledger_view import (
    LedgerWrite,
    PipelineRecord,
    PlanView,
    PositionMove,
    ServedTopic,
    Violation,
)
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.staging import DeadLetterGroup, StageProgress
from kafka_ingest.settings import PROTOCOL_VERSION, TargetSettings
from tests.fakes.database import FakeDatabase


class FakeLedger:
    """A ledger whose state a test can look at: ``ledger.database``."""

    def __init__(self, database: FakeDatabase | None = None) -> None:
        self.database = database or FakeDatabase()

    def plan_view(self, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
        db = self.database
        with db.mutex:
            outstanding = db.outstanding(pipeline)
            return PlanView(
                now=db.now,
                pipeline=db.pipelines.get(pipeline),
                positions=db.positions_of(pipeline),
                served=tuple(s for key, s in sorted(db.served.items()) if key[:2] == (target.schema, target.table)),
                outstanding=outstanding,
                hold=db.holds.get(outstanding.batch_id) if outstanding else None,
                own=self.batch_of(pipeline, request),
                observations=db.observations_of(pipeline),
            )

    def loaded_from(self, pipeline: str, since_ms: int) -> Mapping[TopicPartition, int]:
        db = self.database
        since = datetime.fromtimestamp(since_ms / 1_000, UTC)
        found: dict[TopicPartition, int] = {}
        with db.mutex:
            for batch in db.batches_of(pipeline):
                if batch.state is not BatchState.COMMITTED:
                    continue
                for part in db.published.get(batch.batch_id, ()):
                    place = part.range.topic_partition
                    current = db.positions.get((pipeline, place))
                    is_current = current is not None and current.generation == part.range.generation
                    if is_current and part.record_time_max is not None and part.record_time_max >= since:
                        found[place] = min(part.range.start, found.get(place, part.range.start))
        return found

    def record_plan(self, plan: NewPlan, seen: PlanView) -> Batch:
        db = self.database
        with db.mutex:
            later = self.plan_view(plan.pipeline, plan.request, plan.settings.target)
            db.require(LedgerWrite(plan.pipeline, seen, plan.supersedes), later, busy=Busy)
            self._refuse(plan, seen)
            db.change_state(plan.supersedes, BatchState.SUPERSEDED)
            self._bind(plan)
            return self._insert_batch(plan)

    def batch_of(self, pipeline: str, request: Request) -> Batch | None:
        with self.database.mutex:
            batches = self.database.batches_of(pipeline)
            own = [b for b in batches if b.request.identity[:-1] == request.identity[:-1]]
            return own[-1] if own else None

    def batch(self, batch_id: str) -> Batch | None:
        with self.database.mutex:
            return self.database.batches.get(batch_id)

    def claim(self, batch_id: str, heartbeat_timeout_seconds: int) -> Batch:
        db = self.database
        with db.mutex:
            batch = self._lock(batch_id)
            if batch.state is BatchState.COMMITTED:
                return batch
            if batch.state is not BatchState.PLANNED:
                raise Fenced("the batch can no longer be loaded", batch_id=batch_id)
            db.batches[batch_id] = replace(batch, claim=batch.claim + 1)
            db.holds[batch_id] = replace(
                db.holds[batch_id],
                hold_until=db.now + timedelta(seconds=heartbeat_timeout_seconds),
                step="claim",
                staged_records=0,
                staged_offsets=0,
            )
            return db.batches[batch_id]

    def heartbeat(
        self, batch_id: str, claim: int, *, step: str, progress: StageProgress, hold_seconds: int
    ) -> BatchStanding:
        db = self.database
        with db.mutex:
            batch = self._existing(batch_id)
            if batch_id in db.holds and batch.claim == claim:
                db.holds[batch_id] = replace(
                    db.holds[batch_id],
                    hold_until=db.now + timedelta(seconds=hold_seconds),
                    step=step,
                    staged_records=progress.records,
                    staged_offsets=progress.offsets,
                )
            return BatchStanding(batch.state, batch.claim)

    def release_hold(self, batch_id: str, claim: int) -> None:
        db = self.database
        with db.mutex:
            hold = db.holds.get(batch_id)
            if hold and db.batches[batch_id].claim == claim:
                db.holds[batch_id] = replace(hold, hold_until=min(hold.hold_until, db.now))

    def settle(self, batch_id: str) -> BatchStanding:
        with self.database.mutex:
            try:
                batch = self._lock(batch_id)
            except Busy as error:
                raise CommitStateUnknown("the batch row is locked", batch_id=batch_id) from error
            return BatchStanding(batch.state, batch.claim)

    def hold(self, batch_id: str) -> Hold | None:
        with self.database.mutex:
            return self.database.holds.get(batch_id)

    def unannounced(self, pipeline: str, request: Request) -> Sequence[Batch]:
        db = self.database
        with db.mutex:
            return [
                batch
                for batch in db.batches_of(pipeline)
                if batch.state is BatchState.COMMITTED
                and (
                    batch.announced_at is None
                    or db.announced_by[batch.batch_id].identity == request.identity
                    or batch.request.identity == request.identity
                )
            ]

    def mark_announced(self, batch_ids: Sequence[str], request: Request) -> None:
        db = self.database
        with db.mutex:
            for batch_id in batch_ids:
                batch = db.batches.get(batch_id)
                if batch and batch.state is BatchState.COMMITTED and batch.announced_at is None:
                    db.batches[batch_id] = replace(batch, announced_at=db.now)
                    db.announced_by[batch_id] = request

    def dead_letter_groups(self, batch_id: str) -> Sequence[DeadLetterGroup]:
        with self.database.mutex:
            letters = [letter for letter in self.database.dead_letters if letter.batch_id == batch_id]
        groups = []
        for reason in {str(letter.reason) for letter in letters}:
            same = [letter for letter in letters if letter.reason == reason]
            first = min(same, key=lambda letter: (letter.topic, letter.partition, letter.generation, letter.offset))
            place = TopicPartition(first.topic, first.partition)
            groups.append(DeadLetterGroup(reason, len(same), place, first.offset))
        return sorted(groups, key=lambda group: (-group.records, group.reason))

    def violations(self, pipeline: str) -> Sequence[Violation]:
        """Checks what somebody else can break: rows of the newest committed batch. The rest cannot be stored here."""
        db = self.database
        with db.mutex:
            newest = [b for b in db.batches_of(pipeline) if b.state is BatchState.COMMITTED][-1:]
            parts = [part for batch in newest for part in db.published.get(batch.batch_id, ())]
            found = []
            for part in parts:
                r = part.range
                if db.is_partly_undone(newest[0], r):
                    continue
                offsets = [
                    row.offset
                    for row in db.rows
                    if (row.topic, row.generation, row.partition) == (r.topic, r.generation, r.partition)
                    and r.start <= row.offset < r.end
                    and (row.topic, row.generation, row.partition, row.offset) not in db.resolved
                ]
                if len(offsets) != part.counts.rows or len(set(offsets)) != len(offsets):
                    found.append(Violation("target_rows", f"{r}: rows {part.counts.rows}, rows_found {len(offsets)}"))
            return found

    def _refuse(self, plan: NewPlan, seen: PlanView) -> None:
        db, target = self.database, plan.settings.target
        for topic in plan.choice.new_topics:
            served = db.served.get((target.schema, target.table, plan.cluster_id, topic))
            if served and served.pipeline != plan.pipeline:
                raise ConfigError(
                    "another pipeline loads this topic",
                    found=f"{topic}: pipeline {served.pipeline}",
                    pipeline=plan.pipeline,
                )
            if served:
                raise LedgerMoved("the topic is served already", pipeline=plan.pipeline)
        if any((plan.pipeline, p.topic_partition) in db.positions for p in plan.choice.new_positions):
            raise LedgerMoved("a new position is there already", pipeline=plan.pipeline)
        if seen.own and seen.own.state is BatchState.COMMITTED:
            raise LedgerMoved("the request has a committed batch", pipeline=plan.pipeline)

    def _bind(self, plan: NewPlan) -> None:
        db, target, choice = self.database, plan.settings.target, plan.choice
        db.pipelines.setdefault(
            plan.pipeline,
            PipelineRecord(
                plan.pipeline,
                target.schema,
                target.table,
                plan.cluster_id,
                plan.settings.isolation_level,
                plan.first_run,
                plan.settings.metadata.identity,
            ),
        )
        for topic in choice.new_topics:
            served = ServedTopic(plan.pipeline, plan.cluster_id, topic)
            db.served[target.schema, target.table, plan.cluster_id, topic] = served
        begins = [PositionMove(None, position) for position in choice.new_positions]
        db.move(plan.pipeline, [*begins, *choice.adopted, *choice.skips])
        for observation in choice.observations:
            db.observations[plan.pipeline, observation.topic_partition] = observation
        for place, time in plan.choice.valid_through.items():
            if (key := (plan.pipeline, place)) in db.positions:
                db.positions[key] = replace(db.positions[key], valid_through=time, updated_at=db.now)

    def _insert_batch(self, plan: NewPlan) -> Batch:
        db = self.database
        is_empty = not plan.choice.ranges
        batch = Batch(
            batch_id=str(uuid4()),
            pipeline=plan.pipeline,
            request=plan.request,
            kind=plan.kind,
            state=BatchState.COMMITTED if is_empty else BatchState.PLANNED,
            claim=0,
            settings=plan.settings,
            settings_hash=plan.settings_hash,
            protocol_version=PROTOCOL_VERSION,
            cluster_id=plan.cluster_id,
            ranges=tuple(sorted(plan.choice.ranges, key=lambda r: r.topic_partition)),
            planned_at=plan.planned_at,
            committed_at=db.now if is_empty else None,
            counts=RecordCounts() if is_empty else None,
            valid_through=db.valid_through(plan.pipeline) if is_empty else None,
            left_out=tuple(str(fault) for fault in plan.choice.left_out),
            warnings=plan.choice.warnings,
        )
        db.batches[batch.batch_id] = batch
        if not is_empty:
            hold_until = db.now + timedelta(seconds=plan.hold.start_timeout_seconds)
            db.holds[batch.batch_id] = Hold(
                batch.batch_id, plan.request, hold_until, "plan", total_offsets=batch.span_offsets
            )
        return batch

    def _lock(self, batch_id: str) -> Batch:
        batch = self._existing(batch_id)
        if batch_id in self.database.locked:
            raise Busy("the batch row is locked", batch_id=batch_id)
        return batch

    def _existing(self, batch_id: str) -> Batch:
        if batch_id not in self.database.batches:
            raise ConfigError("the ledger has no such batch", batch_id=batch_id)
        return self.database.batches[batch_id]

"""Rolling back in memory: port ``RollBackLedger``, as strict as the one in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

from kafka_ingest.errors import LockTimeout
from kafka_ingest.protocol.batch import BatchState, Request
from kafka_ingest.protocol.ledger_view import RecordedChange
from kafka_ingest.protocol.position import OffsetRange, Position, TopicPartition
from kafka_ingest.protocol.roll_back import (
    RollBackPlan,
    RollBackRecord,
    RollBackRequest,
    RollBackView,
    Writer,
    WrittenCounts,
    WrittenRange,
)
from kafka_ingest.settings import TargetSettings
from tests.fakes.database import FakePort, FakeSession, StoredRecord, at_once, lies_in


class FakeRollBackLedger(FakePort):
    """Port ``RollBackLedger``."""

    @at_once
    def roll_back_view(self, request: RollBackRequest) -> RollBackView:
        db, pipeline, key = self.database, request.pipeline, (request.pipeline, request.request_id)
        bound, changed = db.pipelines.get(pipeline), db.changes.get(key)
        target = TargetSettings(bound.target_schema, bound.target_table) if bound else TargetSettings("", "")
        places = [position.topic_partition for position in db.positions_of(pipeline)]
        return RollBackView(
            ledger=db.plan_view(pipeline, Request("roll-back", ""), target),
            bound_timelines={place: db.bound_timelines.get((pipeline, place), 0) for place in places},
            writers=tuple(self._writers(request)),
            used_for=changed.kind if changed else None,
            recorded=db.roll_backs.get(key),
        )

    def begin_roll_back(self, plan: RollBackPlan) -> closing[FakeRollBack]:
        return closing(FakeRollBack(self, plan))

    def _writers(self, request: RollBackRequest) -> Iterator[Writer]:
        left = request.batches
        published = [b for b in self.database.batches_of(request.pipeline) if b.committed_at is not None]
        for batch in reversed(published):
            if not left:
                return
            parts = self.database.published.get(batch.batch_id, ())
            ranges = [WrittenRange(p.range, WrittenCounts(p.counts.rows, p.counts.dead_letters)) for p in parts]
            writer = Writer(batch, tuple(sorted(ranges, key=lambda written: written.range.topic_partition)))
            left -= writer.can_be_undone
            yield writer


class FakeRollBack(FakeSession):
    """The transaction of one roll-back."""

    def __init__(self, ledger: FakeRollBackLedger, plan: RollBackPlan) -> None:
        super().__init__(ledger.database)
        self._ledger = ledger
        self._plan = plan

    @at_once
    def lock(self, seen: RollBackView) -> None:
        plan, pipeline = self._plan, self._plan.request.pipeline
        self._write = plan.write_from(seen)
        self.database.require(self._write, self._ledger.roll_back_view(plan.request))
        batches = [plan.supersedes, *(batch.batch_id for batch in plan.batches)]
        self._lock([pipeline, *filter(None, batches)], LockTimeout("a batch row is locked", pipeline=pipeline))

    @at_once
    def count(self, ranges: Sequence[WrittenRange]) -> Sequence[WrittenCounts]:
        return [self._counts(*self._within(w.range, w.range.start, w.range.end)) for w in ranges]

    @at_once
    def delete(self) -> Mapping[TopicPartition, WrittenCounts]:
        deleted: dict[TopicPartition, WrittenCounts] = {}
        for lowered in self._plan.positions:
            before, after = lowered.before, lowered.after
            rows, dead_letters = self._within(before, after.committed_offset, before.committed_offset)
            deleted[before.topic_partition] = WrittenCounts(len(rows), len(dead_letters))
            self._changes.append(partial(self.database.delete, [*rows, *dead_letters]))
        return deleted

    def record(self, record: RollBackRecord) -> None:
        self._changes.append(partial(self._record, record))

    def commit(self) -> None:
        self._apply()
        self.close()

    def _record(self, record: RollBackRecord) -> None:
        db, plan, request = self.database, self._plan, self._plan.request
        db.move(self._write, plan.moves, binds=False)
        for batch_id in record.batch_ids:
            db.change_state(batch_id, BatchState.ROLLED_BACK)
        db.change_state(record.superseded, BatchState.SUPERSEDED)
        moves = tuple(move.change for move in plan.moves)
        reason = (request.pipeline, request.request_id, "rolled_back", "", request.who, request.why)
        db.record(RecordedChange(*reason, at=db.now, positions=moves, superseded=record.superseded))
        db.roll_backs[request.pipeline, request.request_id] = record

    def _within(
        self, place: OffsetRange | Position, start: int, end: int
    ) -> tuple[list[StoredRecord], list[StoredRecord]]:
        rows = [row for row in self.database.rows if lies_in(row.identity, place, start, end)]
        return rows, [letter for letter in self.database.dead_letters if lies_in(letter.identity, place, start, end)]

    def _counts(self, rows: Sequence[StoredRecord], dead_letters: Sequence[StoredRecord]) -> WrittenCounts:
        """Count as a batch does: the row that a resolved dead letter was turned into is of no batch."""
        own = [row for row in rows if row.identity not in self.database.resolved]
        return WrittenCounts(len(own), len(dead_letters))

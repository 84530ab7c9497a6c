"""Position changes in memory: port ``PositionLedger``, as strict as the one in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest.protocol.batch import BatchState, Request
from kafka_ingest.protocol.decisions import ChangeRequest, ChangeView, NewChange, needs_table
from kafka_ingest.protocol.ledger_view import PipelineRecord, RecordedChange
from kafka_ingest.settings import TargetSettings
from tests.fakes.database import FakeDatabase
from tests.fakes.ledger import FakeLedger


class FakePositionLedger:
    """Changes the positions of a fake database."""

    def __init__(self, database: FakeDatabase) -> None:
        self.database = database

    def change_view(self, request: ChangeRequest, target: TargetSettings) -> ChangeView:
        db = self.database
        asker = Request("position change", request.request_id)
        with db.mutex:
            return ChangeView(
                ledger=FakeLedger(db).plan_view(request.known_name, asker, target),
                target=target,
                recorded=db.changes.get((request.pipeline, request.request_id)),
                target_columns=self._columns(target) if needs_table(request.change) else None,
                name_is_taken=request.known_name != request.pipeline and request.pipeline in db.pipelines,
            )

    def record_change(self, change: NewChange, seen: ChangeView) -> RecordedChange:
        db, request, bound = self.database, change.request, seen.ledger.pipeline
        with db.mutex:
            write = change.write_from(seen)
            db.require(write, self.change_view(request, seen.target))
            if bound is None or self._is_served_by_others(change.plan.binding or bound, bound):
                raise write.moved("another pipeline serves a topic, or nobody has planned")
            db.change_state(change.supersedes, BatchState.SUPERSEDED)
            db.move(bound.pipeline, change.plan.moves)
            self._retire(change.plan.retired_topic, bound, is_retired=True)
            self._retire(change.plan.topic_read_again, bound, is_retired=False)
            self._bind(change.plan.binding, bound)
            return self._record(change)

    def _columns(self, target: TargetSettings) -> dict[str, str] | None:
        columns = self.database.tables.get((target.schema, target.table))
        return dict(columns) if columns is not None else None

    def _retire(self, topic: str | None, bound: PipelineRecord, *, is_retired: bool) -> None:
        if topic is not None:
            key = (bound.target_schema, bound.target_table, bound.cluster_id, topic)
            self.database.served[key] = replace(self.database.served[key], is_retired=is_retired)

    def _is_served_by_others(self, after: PipelineRecord, bound: PipelineRecord) -> bool:
        served, place = self.database.served, (after.target_schema, after.target_table, after.cluster_id)
        former = (bound.target_schema, bound.target_table, bound.cluster_id)
        topics = {key[3] for key, s in served.items() if key[:3] == former and s.pipeline == bound.pipeline}
        there = [s for key, s in served.items() if key[:3] == place and key[3] in topics]
        return any(s.pipeline != bound.pipeline for s in there)

    def _bind(self, after: PipelineRecord | None, bound: PipelineRecord) -> None:
        if after is None:
            return
        db = self.database
        former = (bound.target_schema, bound.target_table, bound.cluster_id)
        place = (after.target_schema, after.target_table, after.cluster_id)
        for key, served in list(db.served.items()):
            if place != former and key[:3] == former and served.pipeline == bound.pipeline:
                db.served[(*place, key[3])] = replace(served, cluster_id=after.cluster_id)
                db.served[key] = replace(served, is_retired=True)
        del db.pipelines[bound.pipeline]
        db.pipelines[after.pipeline] = after
        self._rename(bound.pipeline, after.pipeline)

    def _rename(self, old: str, new: str) -> None:
        db = self.database
        db.served = {k: replace(s, pipeline=new) if s.pipeline == old else s for k, s in db.served.items()}
        db.positions = {(new if k[0] == old else k[0], k[1]): p for k, p in db.positions.items()}
        db.changes = {(new if k[0] == old else k[0], k[1]): c for k, c in db.changes.items()}
        db.batches = {k: replace(b, pipeline=new) if b.pipeline == old else b for k, b in db.batches.items()}

    def _record(self, change: NewChange) -> RecordedChange:
        request = change.request
        recorded = RecordedChange(
            pipeline=request.pipeline,
            request_id=request.request_id,
            kind=request.change.kind.value,
            arguments=request.arguments,
            who=request.who,
            why=request.why,
            at=self.database.now,
            positions=change.plan.positions,
            settings=change.plan.settings,
            superseded=change.supersedes,
        )
        self.database.changes[request.pipeline, request.request_id] = recorded
        return recorded

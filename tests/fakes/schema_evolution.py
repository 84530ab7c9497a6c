"""Columns for new fields in memory: port ``SchemaEvolution``, as strict as the one in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_ingest.column_types import can_hold
from kafka_ingest.errors import Busy, Fenced, TargetMismatch
from kafka_ingest.protocol.batch import Batch, BatchStanding
from kafka_ingest.protocol.new_columns import ColumnsBefore, columns_for
from kafka_ingest.protocol.publish import owns
from kafka_ingest.protocol.staging import NewField
from kafka_ingest.protocol.target import AddedColumn
from tests.fakes.database import FakePort, at_once


class FakeSchemaEvolution(FakePort):
    """Port ``SchemaEvolution``."""

    @at_once
    def add_columns(self, batch: Batch, fields: Sequence[NewField]) -> Sequence[AddedColumn]:
        db, target = self.database, batch.settings.target
        self._require_own(batch)
        place = (batch.pipeline, target.schema, target.table)
        recorded = db.added.get(place, ())
        table = db.tables[target.schema, target.table]
        of_batch = sum(batch_id == batch.batch_id for _, batch_id in recorded)
        columns = columns_for(fields, batch.settings, ColumnsBefore(table, len(recorded), of_batch))
        unfit = [c for c in columns if c.name in table and not can_hold(table[c.name], c.type)]
        if unfit:
            raise TargetMismatch("a column cannot hold the values", found=str(unfit), batch_id=batch.batch_id)
        db.tables[target.schema, target.table] = {**{c.name: c.type for c in columns}, **table}
        db.added[place] = (*recorded, *((column, batch.batch_id) for column in columns))
        return columns

    def _require_own(self, batch: Batch) -> None:
        stored = self.database.batches.get(batch.batch_id)
        if batch.batch_id in self.database.locked:
            raise Busy("another session has the batch locked", batch_id=batch.batch_id)
        if stored is None or not owns(BatchStanding(stored.state, stored.claim), batch):
            raise Fenced("this attempt no longer owns the batch", batch_id=batch.batch_id)

"""Kafka records into the target's columns: every record is a row, a dead letter, or a counted tombstone."""

from __future__ import annotations

import pyarrow as pa

from kafka_ingest.core.dead_letters import DeadLetterReason
from kafka_ingest.core.settings import BatchSettings, Tombstones, ValueFormat
from kafka_ingest.core.target_shape import TargetShape, written_columns
from spark_jobs.decode.column_plan import key_plan, metadata_plan, value_plans
from spark_jobs.decode.decoded import DeadRow, DecodedBatch
from spark_jobs.decode.headers import Headers
from spark_jobs.decode.json_columns import JsonColumns
from spark_jobs.decode.json_values import positions
from spark_jobs.decode.metadata import Metadata
from spark_jobs.decode.misfits import Misfit
from spark_jobs.decode.parts import DecodedPart
from spark_jobs.decode.whole_values import PartDecoder, whole_part


class RecordDecoder:
    """Decodes batches of ``RECORD_SCHEMA`` for one pipeline. Built once a task; keeps no state between batches.

    Strict: a value that is present is stored exactly or its record is a dead letter; nothing is rounded, truncated or
    turned into NULL. A record with several faults is told with one of them: value before key, headers and record time,
    and by column order within the value.

    Args:
        settings: The batch's frozen settings.
        shape: The target's columns, which may be stricter about NULL than the settings.
        batch_id: The batch, for the rows' metadata.
    """

    def __init__(self, settings: BatchSettings, shape: TargetShape, *, batch_id: str) -> None:
        self._names = [column.name for column in written_columns(settings)]
        self._tombstones = settings.tombstones
        self._value_plans = value_plans(settings, shape)
        self._value = _value_part(settings, shape)
        self._key_plan = key_plan(settings, shape)
        self._key = whole_part(settings.key.format, self._key_plan) if settings.key and self._key_plan else None
        self._headers: Headers | None = None
        if settings.headers_column:
            self._headers = Headers(metadata_plan(settings.headers_column, "jsonb", "the headers", shape))
        self._metadata = Metadata(settings.metadata, shape, batch_id=batch_id)

    def decode(self, batch: pa.RecordBatch, *, generation: int) -> DecodedBatch:
        """Decodes a batch of one topic's records.

        Args:
            batch: Records, one a row, in the schema ``RECORD_SCHEMA``; any number of rows.
            generation: Generation of the topic.
        """
        null_values = positions(batch.column("value").is_null())
        counted = null_values if self._tombstones is Tombstones.COUNT else []
        parts = [self._value.decode(batch.column("value")), *self._other_parts(batch, generation)]
        misfits = self._tombstone_misfits(null_values)
        for part in parts:
            misfits = {**part.misfits, **misfits}
        for row in counted:
            misfits.pop(row, None)
        left_out = {*misfits, *counted}
        kept = range(len(batch)) if not left_out else [row for row in range(len(batch)) if row not in left_out]
        columns = pa.RecordBatch.from_arrays([array for part in parts for array in part.arrays], self._names)
        dead = [DeadRow(row, misfits[row].reason, misfits[row].detail) for row in sorted(misfits)]
        return DecodedBatch(columns.take(pa.array(kept, pa.int64())) if left_out else columns, kept, dead, counted)

    def _other_parts(self, batch: pa.RecordBatch, generation: int) -> list[DecodedPart]:
        parts = []
        if self._key:
            parts.append(self._decode_key(self._key, batch.column("key")))
        if self._headers:
            parts.append(self._headers.decode(batch))
        return [*parts, self._metadata.decode(batch, generation=generation)]

    def _decode_key(self, decoder: PartDecoder, keys: pa.Array) -> DecodedPart:
        part = decoder.decode(keys)
        plan = self._key_plan
        if plan is None or not plan.refuses_null or not keys.null_count:
            return part
        missing = {row: plan.null_misfit("a null key") for row in positions(keys.is_null())}
        return DecodedPart(part.arrays, {**part.misfits, **missing})

    def _tombstone_misfits(self, rows: list[int]) -> dict[int, Misfit]:
        if self._tombstones is Tombstones.DEAD_LETTER:
            detail = "the value: expected one, found a tombstone, which this pipeline makes a dead letter"
            misfit = Misfit(DeadLetterReason.TOMBSTONE, detail)
        elif self._tombstones is Tombstones.ROW and any(plan.refuses_null for plan in self._value_plans):
            plan = next(plan for plan in self._value_plans if plan.refuses_null)
            misfit = plan.null_misfit("a tombstone (a null value)")
        else:
            return {}
        return dict.fromkeys(rows, misfit)


def _value_part(settings: BatchSettings, shape: TargetShape) -> PartDecoder:
    plans = value_plans(settings, shape)
    if settings.value.format is ValueFormat.JSON_COLUMNS:
        return JsonColumns(plans)
    return whole_part(settings.value.format, plans[0])

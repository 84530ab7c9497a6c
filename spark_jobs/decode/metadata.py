"""The columns that tell where a row came from."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.core.dead_letters import DeadLetterReason
from kafka_ingest.core.settings import MetadataColumns
from kafka_ingest.core.target_shape import TargetShape
from spark_jobs.decode.column_plan import ColumnPlan, metadata_plan
from spark_jobs.decode.decoded import RECORD_TIME
from spark_jobs.decode.json_values import positions
from spark_jobs.decode.misfits import Misfit
from spark_jobs.decode.parts import DecodedPart
from spark_jobs.records import CREATE_TIME, LOG_APPEND_TIME

#: 0001-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z, in ms since 1970: the years that every client can read.
FIRST_RECORD_TIME_MS, LAST_RECORD_TIME_MS = -62_135_596_800_000, 253_402_300_799_999

_TIME_TYPES = {CREATE_TIME: "create", LOG_APPEND_TIME: "log_append"}


class Metadata:
    """Topic, generation, partition, offset, record time, time type (where wanted) and batch id, in that order.

    The record time is exact to the millisecond, in UTC; a record without a time gives NULL.
    """

    def __init__(self, columns: MetadataColumns, shape: TargetShape, *, batch_id: str) -> None:
        self._batch_id = batch_id
        self._time = metadata_plan(columns.timestamp, "timestamptz", "the record time", shape)
        self._time_type: ColumnPlan | None = None
        if columns.timestamp_type:
            self._time_type = metadata_plan(columns.timestamp_type, "text", "the record time's type", shape)

    def decode(self, batch: pa.RecordBatch, *, generation: int) -> DecodedPart:
        """Gives the columns for a batch of ``RECORD_SCHEMA``."""
        times = batch.column("timestamp_ms")
        misfits = self._time_misfits(times)
        arrays = [
            batch.column("topic"),
            pa.repeat(pa.scalar(generation, pa.int32()), len(batch)),
            batch.column("partition"),
            batch.column("offset"),
            _stored_times(times),
        ]
        if self._time_type:
            types = [_TIME_TYPES.get(number) for number in batch.column("timestamp_type").to_pylist()]
            arrays.append(pa.array(types, pa.string()))
            for row in positions(pc.is_null(arrays[-1])) if self._time_type.not_null else ():
                misfits.setdefault(row, self._time_type.null_misfit("a record without a time"))
        arrays.append(pa.repeat(pa.scalar(self._batch_id, pa.string()), len(batch)))
        return DecodedPart(tuple(arrays), misfits)

    def _time_misfits(self, times: pa.Array) -> dict[int, Misfit]:
        outside = pc.or_(pc.less(times, FIRST_RECORD_TIME_MS), pc.greater(times, LAST_RECORD_TIME_MS))
        misfits = {}
        for row in positions(outside):
            detail = f"expected a record time in the years 1 to 9999, found {times[row]} ms since 1970"
            misfits[row] = Misfit(DeadLetterReason.RECORD_TIME_OUT_OF_RANGE, detail).at(self._time.place)
        if self._time.not_null:
            misfits |= {row: self._time.null_misfit("a record without a time") for row in positions(pc.is_null(times))}
        return misfits


def _stored_times(times: pa.Array) -> pa.Array:
    inside = pc.and_(pc.greater_equal(times, FIRST_RECORD_TIME_MS), pc.less_equal(times, LAST_RECORD_TIME_MS))
    return pc.if_else(inside, times, pa.scalar(None, pa.int64())).cast(RECORD_TIME)

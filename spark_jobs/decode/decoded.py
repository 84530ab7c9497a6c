"""What decoding gives: the columns of the records that fit, and what became of every other record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from kafka_ingest.core.column_types import ColumnType
from kafka_ingest.core.dead_letters import DeadLetterReason

_ARROW_TYPES = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "bytea": pa.large_binary(),
}

#: Record times, which Kafka gives as numbers, are not made a text that COPY's format would have to read again.
RECORD_TIME = pa.timestamp("ms", tz="UTC")


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Gives the Arrow type in which a column of this PostgreSQL type is handed to COPY.

    Booleans, integers, floats and bytea keep their type. Everything else (numeric, text, varchar, dates and times,
    uuid, jsonb, and every array as an array literal) is ``pa.string()`` with PostgreSQL's input text.
    """
    if column_type.is_array:
        return pa.string()
    return _ARROW_TYPES.get(column_type.name, pa.string())


@dataclass(frozen=True, slots=True)
class DeadRow:
    """A record that does not fit.

    Attributes:
        row_index: Index of the record in the input batch.
        reason: One reason of the closed list.
        detail: For a person: column, JSON path, what was expected and what was found. It quotes the payload only in
            escaped excerpts and never more than 100 characters of it.
    """

    row_index: int
    reason: DeadLetterReason
    detail: str


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """One input batch, decoded. Every input row is in exactly one of the three parts.

    Attributes:
        columns: The records that fit, in input order: the columns of ``written_columns(settings)`` in that order,
            with the types of :func:`arrow_type`; the record time is ``RECORD_TIME``.
        row_index: Input index of each row of ``columns``; rising.
        dead: Records that do not fit, by rising input index.
        tombstones: Input indices of null values that the rule ``count`` counts; rising.
    """

    columns: pa.RecordBatch
    row_index: Sequence[int]
    dead: Sequence[DeadRow]
    tombstones: Sequence[int]


def without_refused(decoded: DecodedBatch, refused: Sequence[DeadRow]) -> DecodedBatch:
    """Makes rows that the target refuses dead ones; what was no row anyway stays what it is.

    Args:
        decoded: One input batch.
        refused: Its refused records, by rising input index.
    """
    known = {row.row_index: row for row in refused}
    stays = [index not in known for index in decoded.row_index]
    gone = [known[index] for index in decoded.row_index if index in known]
    return DecodedBatch(
        decoded.columns.filter(pa.array(stays, pa.bool_())),
        [index for index in decoded.row_index if index not in known],
        sorted((*decoded.dead, *gone), key=lambda row: row.row_index),
        decoded.tombstones,
    )

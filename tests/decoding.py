"""Records and settings for tests of decoding, and what became of one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.protocol.target import TargetShape, written_columns
from kafka_ingest.settings import BatchSettings, ColumnSettings, Conversion, ValueFormat, ValueSettings
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.record import RecordDecoder
from spark_jobs.decode.values import ColumnPlan, DecodedBatch, DecodeError
from spark_jobs.records import CREATE_TIME, RECORD_SCHEMA
from tests.builders import batch_settings

BATCH_ID = "6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10"

#: A value that decoded, or the decode_error of a dead letter.
Outcome = Sequence[Any] | DecodeError


def record(value: bytes | None = b"{}", **fields: Any) -> dict[str, Any]:
    """Return one record of RECORD_SCHEMA."""
    plain = {
        "topic": "orders",
        "partition": 3,
        "offset": 0,
        "timestamp_ms": 0,
        "timestamp_type": CREATE_TIME,
        "key": None,
        "value": value,
        "headers": None,
        "headers_readable": True,
    }
    return {**plain, **fields}


def batch_of(*records: Mapping[str, Any]) -> pa.RecordBatch:
    """Return a batch with rising offsets."""
    numbered = [{**fields, "offset": offset} for offset, fields in enumerate(records)]
    return pa.RecordBatch.from_pylist(numbered, schema=RECORD_SCHEMA)


def json_settings(*columns: ColumnSettings, **changes: Any) -> BatchSettings:
    """Return settings with typed JSON columns."""
    return replace(batch_settings(), value=ValueSettings(ValueFormat.JSON_COLUMNS, columns), **changes)


def target_of(settings: BatchSettings, *not_null: str) -> TargetShape:
    """Return the target that the pipeline would create, with more columns NOT NULL."""
    columns = (replace(c, is_not_null=c.is_not_null or c.name in not_null) for c in written_columns(settings))
    return TargetShape(tuple(columns), ())


def decode(settings: BatchSettings, *records: Mapping[str, Any], not_null: Sequence[str] = ()) -> DecodedBatch:
    """Decode records, and check that each is in exactly one of the three parts, under the names that are written."""
    batch = batch_of(*records)
    decoder = RecordDecoder(settings, target_of(settings, *not_null), batch_id=BATCH_ID)
    decoded = decoder.decode(batch, generation=0)
    rows = [*decoded.row_index, *(dead.row_index for dead in decoded.dead), *decoded.tombstones]
    assert sorted(rows) == list(range(len(records)))
    assert len(decoded.row_index) == decoded.columns.num_rows
    assert decoded.columns.schema.names == [column.name for column in written_columns(settings)]
    return decoded


def read_columns(plans: Sequence[ColumnPlan], *values: bytes) -> list[Outcome]:
    """Read JSON values the quick way and the exact way, and check that both give the same."""
    quick, exact = (_outcomes(_decoder(tuple(plans), way), values) for way in (True, False))
    assert [_comparable(outcome) for outcome in quick] == [_comparable(outcome) for outcome in exact]
    return exact


def read_value(type_name: str, raw: str) -> Any:
    """Return what a column of a type makes of a JSON value: the decoded value, or the reason of the dead letter.

    A good record stands on either side, and must stay itself.
    """
    before, outcome, after = read_columns([plan_of(type_name)], b"{}", document_of(raw), b'{"a": null}')
    assert before == after == [None]
    return outcome.reason if isinstance(outcome, DecodeError) else outcome[0]


def plan_of(type_name: str) -> ColumnPlan:
    """Plan one column of a type (or ``date as epoch_days``) for the documents of :func:`document_of`."""
    column, _, conversion = type_name.partition(" as ")
    return ColumnPlan("a", parse_column_type(column), ("a",), conversion=Conversion(conversion) if conversion else None)


def document_of(raw: str) -> bytes:
    """Write the document whose only member is a JSON value."""
    return f'{{"a": {raw}}}'.encode()


def reasons(decoded: DecodedBatch) -> dict[int, DeadLetterReason]:
    """Return the reasons of the dead letters by row."""
    return {dead.row_index: dead.reason for dead in decoded.dead}


@cache
def _decoder(plans: tuple[ColumnPlan, ...], quick: bool) -> JsonColumns:
    return JsonColumns(plans, quick=quick)


def _outcomes(decoder: JsonColumns, values: Sequence[bytes]) -> list[Outcome]:
    part = decoder.decode(pa.array(values, pa.large_binary()))
    columns = [array.to_pylist() for array in part.arrays]
    return [part.decode_errors.get(row) or [column[row] for column in columns] for row in range(len(values))]


def _comparable(outcome: Outcome) -> object:
    """Tell also -0.0 from 0.0, and True from 1."""
    return (outcome.reason, outcome.detail) if isinstance(outcome, DecodeError) else repr(list(outcome))

"""Drawn schemas and values, written by fastavro: what is read is what was drawn, and both ways read the same."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.settings import Conversion
from spark_jobs.decode import avro_columns
from spark_jobs.decode.avro import AvroSchema
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.values import (
    ColumnPlan,
    DecodeError,
    QuickColumn,
)
from tests.drawn_avro import RECORDS, TYPES, Drawn, Pair, written
from tests.drawn_columns import ANY_COLUMN, damaged


def numbers_as_decimals(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: numbers_as_decimals(each) for key, each in value.items()}
    if isinstance(value, list):
        return [numbers_as_decimals(each) for each in value]
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return str(Decimal(value)) if is_number else value


@given(TYPES.flatmap(lambda of: st.tuples(st.just(of.schema), of.pairs)))
def test_a_document_says_what_was_written(drawn: tuple[Any, Pair]) -> None:
    schema, (value, expected) = drawn
    (document,) = AvroSchema(json.dumps(schema)).documents([written(schema, value)])
    assert not isinstance(document, DecodeError)
    found = json.loads(document, parse_float=Decimal)
    assert numbers_as_decimals(found) == numbers_as_decimals(expected)


CONVERSIONS = ((Conversion.EPOCH_MILLIS, "timestamptz"), (Conversion.NUMBER_TEXT, "numeric"), (Conversion.HEX, "bytea"))


@st.composite
def columns_of(draw: st.DrawFn, record: Drawn) -> list[ColumnPlan]:
    paths: list[tuple[tuple[str, ...], tuple[str, ...]]] = [(("missing",), ("text",))]
    todo: list[tuple[tuple[str, ...], Drawn]] = [((), record)]
    while todo:
        path, of = todo.pop()
        for name, field in (of.fields or {}).items():
            paths.append(((*path, name), field.columns))
            todo.append(((*path, name), field))
    plans = []
    for number, (path, likely) in enumerate(draw(st.permutations(paths))):
        conversion, name = draw(
            st.sampled_from([(None, name) for name in likely])
            | st.sampled_from([(None, name) for name in ANY_COLUMN])
            | st.sampled_from(CONVERSIONS)
            if draw(st.integers(0, 3)) == 0
            else st.sampled_from([(None, name) for name in likely])
        )
        others = draw(st.lists(st.sampled_from([path for path, _ in paths]), max_size=1))
        kind = parse_column_type(name)
        plans.append(ColumnPlan(f"c{number}", kind, path, conversion=conversion, other_paths=tuple(others)))
    return plans


@st.composite
def groups(draw: st.DrawFn) -> tuple[Any, list[bytes], list[ColumnPlan]]:
    record = draw(RECORDS)
    values = draw(st.lists(record.pairs, min_size=1, max_size=6))
    payloads = [written(record.schema, value) for value, _ in values]
    some = [draw(damaged(payload, payloads)) if draw(st.integers(0, 3)) == 0 else payload for payload in payloads]
    return record.schema, some, draw(columns_of(record))


def both_ways(schema: AvroSchema, payloads: list[bytes], plans: list[ColumnPlan]) -> tuple[list[Any], list[Any] | None]:
    """Return the rows of both ways; ``None`` for one that is refused, or doubtful."""
    documents = schema.documents(payloads)
    fits = [document if isinstance(document, bytes) else b"" for document in documents]
    part = JsonColumns(plans, quick=False).decode(pa.array(fits, pa.large_binary()))
    rows = list(zip(*(array.to_pylist() for array in part.arrays), strict=True))
    exact = [None if number in part.decode_errors else repr(row) for number, row in enumerate(rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_columns, "FEWEST_RECORDS", 1)
        columns = avro_columns.quick_columns(schema, payloads, plans)
        # A frame, and a row before and behind them that the array leaves out.
        framed = pa.array([b"x", *(b"frame" + payload for payload in payloads), b"y"], pa.large_binary())[1:-1]
        behind_frames = avro_columns.quick_columns(schema, framed, plans, skip=5)
    if columns is None or behind_frames is None:
        assert columns is behind_frames
        return exact, None
    for column, array in zip(columns, part.arrays, strict=True):
        assert column.array.type == array.type
        assert column.array.validate(full=True) is None
    quick = rows_of(columns)
    assert rows_of(behind_frames) == quick
    return exact, quick


def rows_of(columns: list[QuickColumn]) -> list[str | None]:
    doubtful = {row for column in columns for row in column.doubtful}
    rows = zip(*(column.array.to_pylist() for column in columns), strict=True)
    return [None if number in doubtful else repr(row) for number, row in enumerate(rows)]


@given(groups())
def test_the_quick_way_reads_what_the_exact_way_reads(group: tuple[Any, list[bytes], list[ColumnPlan]]) -> None:
    schema, payloads, plans = group
    exact, quick = both_ways(AvroSchema(json.dumps(schema)), payloads, plans)
    for slow, fast in zip(exact, quick or exact, strict=True):
        assert fast in (None, slow)


@given(st.data())
def test_bytes_that_are_no_record_are_never_one(data: st.DataObject) -> None:
    record = data.draw(RECORDS)
    schema = AvroSchema(json.dumps(record.schema))
    payloads = data.draw(st.lists(st.binary(max_size=30), min_size=1, max_size=5))
    exact, quick = both_ways(schema, payloads, data.draw(columns_of(record)))
    for slow, fast in zip(exact, quick or exact, strict=True):
        assert fast in (None, slow)

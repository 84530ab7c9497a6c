"""Avro that Java wrote: change events of Debezium, against what had been inserted into their tables."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.kafka.registry import VALUE_SCHEMA_HEADER, RegisteredSchema
from spark_jobs.decode.framed import FramedColumns, Schemas
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.record import opened_schema
from spark_jobs.decode.values import ColumnPlan
from spark_jobs.records import RECORD_SCHEMA
from tests.debezium_samples import recorded_events

SCHEMAS = json.loads((Path(__file__).parents[1] / "data" / "debezium" / "avro-schemas.json").read_text())


class RecordedRegistry:
    def schema(self, schema_id: int | str) -> RegisteredSchema:
        found = SCHEMAS[str(schema_id)]
        return RegisteredSchema("AVRO", found if isinstance(found, str) else json.dumps(found), {})


def rows(topic: str, columns: dict[str, str]) -> list[tuple[object, ...]]:
    """Return columns of the rows after each event: the SQL type by the name of the table's column."""
    plans = [ColumnPlan(name, parse_column_type(of), ("after", name)) for name, of in columns.items()]
    values = pa.array([event.value for event in recorded_events("avro-confluent-framing")[topic]], pa.large_binary())
    schemas = Schemas(RecordedRegistry(), "AVRO", None, opened_schema)  # type: ignore[arg-type]
    framed = FramedColumns(plans, JsonColumns(plans, of_binary=True).decode, schemas, VALUE_SCHEMA_HEADER)
    part = framed.decode(values, pa.nulls(len(values), RECORD_SCHEMA.field("headers").type))
    assert part.decode_errors == {}
    return list(zip(*(array.to_pylist() for array in part.arrays), strict=True))


def test_the_row_that_was_inserted_is_read_exactly() -> None:
    [inserted] = rows(
        "g.inventory.alltypes",
        {
            "i2": "smallint",
            "i4": "integer",
            "f4": "real",
            "f8": "double precision",
            "b": "boolean",
            "ts": "timestamp",
            "ts3": "timestamp",
            "tstz": "timestamptz",
            "d": "date",
            "t": "time",
            "t3": "time",
            "v": "varchar(10)",
            "mon": "numeric(19,2)",
            "bt8": "bytea",
            "ia": "integer[]",
            "na": "numeric(8,2)[]",
            "ea": "text[]",
            "o": "bigint",
            "x": "text",
        },
    )
    assert inserted == (
        -1,
        -2,
        1.5,
        0.1,
        False,
        "1969-12-31T23:59:59.999999",
        "2026-03-04T05:06:07.089",
        "1969-12-31T23:59:59.999999Z",
        "1969-12-31",
        "23:59:59.999999",
        "01:02:03.004",
        "vc",
        "-12.34",
        b"\xa0",
        "{1,NULL,3}",
        "{1.10,NULL}",
        '{"sad","happy"}',
        4_000_000_000,
        None,
    )


def test_events_of_three_schemas_are_read_each_with_its_own() -> None:
    found = rows("g.inventory.items", {"id": "bigint", "price": "numeric(12,3)", "extra": "integer", "uid": "uuid"})
    uid = "123e4567-e89b-12d3-a456-426614174000"
    nothing = (None, None, None, None)
    assert found == [
        (1, "1234.500", None, uid),
        (2, "1234.500", None, uid),
        (2, "99.990", None, uid),
        nothing,  # a delete
        nothing,  # its tombstone
        (20, "99.990", None, uid),
        (4, "1234.500", 6, uid),
        nothing,  # a truncate
    ]

"""The orders of the benchmarks are the same rows in every format, or their comparison would say nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.kafka.registry import VALUE_SCHEMA_HEADER, RegisteredSchema
from spark_jobs.decode.framed import FramedColumns, Schemas
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.record import opened_schema
from spark_jobs.decode.values import ColumnPlan
from spark_jobs.records import RECORD_SCHEMA
from tests.benchmarks.workloads import ORDERS, ORDERS_AVRO, ORDERS_JSON_SCHEMA, ORDERS_PROTOBUF, Workload

NUMBERS = (0, 1, 7, 999_999)
SCHEMA_ID = 258


class OneSchema:
    def __init__(self, workload: Workload) -> None:
        self._schema = RegisteredSchema(workload.schema_type, workload.schema, {})

    def schema(self, schema_id: int) -> RegisteredSchema:
        assert schema_id == SCHEMA_ID
        return self._schema


def rows_of(workload: Workload) -> list[dict[str, object]]:
    plans = [ColumnPlan(name, parse_column_type(kind), (name,)) for name, kind in workload.columns.items()]
    frame = workload.frame(SCHEMA_ID) if workload.schema else b""
    values = pa.array([frame + workload.value(number) for number in NUMBERS], pa.large_binary())
    if not workload.schema:
        part = JsonColumns(plans).decode(values)
    else:
        schemas = Schemas(OneSchema(workload), workload.schema_type, None, opened_schema)  # type: ignore[arg-type]
        read = JsonColumns(plans, of_binary=True).decode
        headers = pa.nulls(len(NUMBERS), RECORD_SCHEMA.field("headers").type)
        part = FramedColumns(plans, read, schemas, VALUE_SCHEMA_HEADER).decode(values, headers)
    assert part.decode_errors == {}
    columns = zip(workload.columns, part.arrays, strict=True)
    rows = pa.RecordBatch.from_pydict(dict(columns)).to_pylist()
    # The column is the text that PostgreSQL gets, with or without a fraction of zeros.
    return [{**row, "ordered_at": datetime.fromisoformat(row["ordered_at"])} for row in rows]


def test_an_order_is_a_row_of_eight_columns() -> None:
    # 7 * 2,654,435,761 leaves 994,587 when it is divided by 1,000,003.
    assert rows_of(ORDERS)[2] == {
        "order_id": 7,
        "customer": 994_587,
        "status": "returned",
        "currency": "GBP",
        "amount": "9945.87",
        "ordered_at": datetime(2026, 4, 28, 3, 27, 7, tzinfo=UTC),
        "note": "call before delivery; call before delivery; ticket 00000000000000007",
        "items": '[{"sku":7260,"qty":1},{"sku":7,"qty":1}]',
    }


@pytest.mark.parametrize("workload", [ORDERS_AVRO, ORDERS_PROTOBUF, ORDERS_JSON_SCHEMA], ids=lambda one: one.name)
def test_the_orders_of_a_format_are_those_of_json(workload: Workload) -> None:
    assert rows_of(workload) == rows_of(ORDERS)

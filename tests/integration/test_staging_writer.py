from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from typing import Any

import psycopg2
import pyarrow as pa
import pytest

from kafka_ingest.errors import DeadLetterReason, TargetMismatch
from kafka_ingest.postgres.database import transaction
from kafka_ingest.protocol.staging import Split
from kafka_ingest.protocol.target import written_columns
from kafka_ingest.settings import BatchSettings, ColumnSettings, TargetSettings
from spark_jobs import staging
from spark_jobs.copy_format import CopyFormat, Pieces, binary_format
from spark_jobs.decode.values import DecodedBatch, Rejected
from spark_jobs.staging import StagingWriter
from tests.kafka_records import NOON_MS, Record, record_batch
from tests.staging_bench import METADATA_COLUMNS, StagingBench, json_settings

SUBRANGE = Split(0, "orders", 3, 2, 0, 1_000_000)
NOON_TEXT = "2026-01-02T12:00:00+00:00"
TABLE = TargetSettings("public", "orders")


def decoded(settings: BatchSettings, *columns: pa.Array, first_offset: int = 0) -> DecodedBatch:
    """Columns of the value, completed by metadata with rising offsets."""
    count = len(columns[0])
    metadata = [
        pa.array(["orders"] * count),
        pa.array([2] * count, pa.int32()),
        pa.array([3] * count, pa.int32()),
        pa.array(range(first_offset, first_offset + count), pa.int64()),
        pa.array([NOON_TEXT] * count),
        pa.array(["6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10"] * count),
    ]
    names = [column.name for column in written_columns(settings)]
    return DecodedBatch(pa.RecordBatch.from_arrays([*columns, *metadata], names=names), range(count), (), ())


def write(bench: StagingBench, *batches: DecodedBatch) -> list[Sequence[Rejected]]:
    with closing(psycopg2.connect(**bench.params)) as connection, transaction(connection):
        writer = StagingWriter(connection, bench.stem, bench.context(), 5, 77)
        return [writer.write(batch) for batch in batches]


def bench_with_table(database: dict[str, Any], settings: BatchSettings, definition: str) -> StagingBench:
    bench = StagingBench(database, settings)
    bench.run(definition)
    bench.prepare()
    return bench


TYPED_VALUES: dict[str, tuple[pa.DataType, list[Any], list[Any] | None]] = {
    "boolean": (pa.bool_(), [True, False, None], [True, False, None]),
    "smallint": (pa.int16(), [-32768, 32767, None], [-32768, 32767, None]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1, None], [-(2**63), 2**63 - 1, None]),
    "double precision": (pa.float64(), [0.1, 5e-324, math.inf], [0.1, 5e-324, math.inf]),
    "numeric(20,10)": (pa.string(), ["0.1234567890", "-9999999999.9999999999", None], None),
    "text": (
        pa.string(),
        ["", 'q"uote, \\back\\. \t', "line\nfeed\r\n\\.\n end"],
        ["", 'q"uote, \\back\\. \t', "line\nfeed\r\n\\.\n end"],
    ),
    "character varying(3)": (pa.string(), ["\\N", "€é ", None], ["\\N", "€é ", None]),
    "bytea": (pa.large_binary(), [b"", b'\x00\xff\\"\n', None], [b"", b'\x00\xff\\"\n', None]),
    "jsonb": (pa.string(), ['{"a": "x\\"\\\\u0000"}', "[1, null]", '""'], [{"a": 'x"\\u0000'}, [1, None], ""]),
    "text[]": (
        pa.string(),
        ['{"a\\"b","c\\\\d",NULL,"NULL",""}', "{}", None],
        [['a"b', "c\\d", None, "NULL", ""], [], None],
    ),
    "bigint[]": (pa.string(), ["{1,NULL}", "{}", None], [[1, None], [], None]),
    "uuid": (pa.string(), ["6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10", None, None], None),
    "date": (pa.string(), ["0001-01-01", "9999-12-31", None], None),
}


@pytest.mark.parametrize("type_name", TYPED_VALUES)
def test_values_of_every_kind_are_staged_exactly(database: dict[str, Any], type_name: str) -> None:
    arrow_type, given, stored = TYPED_VALUES[type_name]
    settings = json_settings(ColumnSettings("v", type_name), target=TargetSettings("shop", "t", create_table=True))
    bench = StagingBench(database, settings)
    bench.prepare()

    assert write(bench, decoded(settings, pa.array(given, arrow_type))) == [()]

    found = [row[0] for row in bench.rows("v")]
    if stored is None:
        assert [None if value is None else str(value) for value in found] == given
    else:
        assert [bytes(value) if isinstance(value, memoryview) else value for value in found] == stored


def test_rows_carry_the_tag_of_their_task_attempt(database: dict[str, Any]) -> None:
    settings = json_settings(ColumnSettings("v", "integer"), target=TargetSettings("shop", "t", create_table=True))
    bench = StagingBench(database, settings)
    bench.prepare()

    write(
        bench,
        decoded(settings, pa.array([1], pa.int32())),
        decoded(settings, pa.array([2], pa.int32()), first_offset=1),
    )

    assert bench.rows("v", "kafka_generation", "kafka_partition", "kafka_offset", "stage_task", "stage_attempt") == [
        (1, 2, 3, 0, 5, 77),
        (2, 2, 3, 1, 5, 77),
    ]


def without_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_rows: pa.RecordBatch) -> Pieces:
        raise AssertionError("rows were copied as CSV")

    monkeypatch.setattr(staging, "CSV", CopyFormat("FORMAT csv", refuse))


def test_rows_are_copied_in_binary_where_the_types_are_those_that_were_decoded(
    database: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (ColumnSettings("n", "int"), ColumnSettings("t", "varchar(5)"), ColumnSettings("d", "decimal(4, 2)"))
    settings = json_settings(*columns, target=TargetSettings("shop", "t", create_table=True))
    bench = StagingBench(database, settings)
    bench.prepare()
    without_csv(monkeypatch)

    values = pa.array([1, None], pa.int32()), pa.array(["é", None]), pa.array(["1.5", None])
    assert write(bench, decoded(settings, *values)) == [()]

    assert bench.rows("n", "t", "d", "kafka_offset") == [
        (1, "é", Decimal("1.50"), 0),
        (None, None, None, 1),
    ]


@pytest.mark.parametrize(
    ("decoded_type", "column_type", "value", "stored"),
    [
        ("integer", "bigint", pa.array([7, None, 8], pa.int32()), [7, None, 8]),
        ("numeric(4,2)", "numeric", pa.array(["1.5", None, "2"]), [Decimal("1.5"), None, Decimal(2)]),
        ("numeric(4,2)", "numeric(6,3)", pa.array(["1.5", None, "2"]), [Decimal("1.500"), None, Decimal("2.000")]),
        ("varchar(3)", "text", pa.array(["a", None, "b"]), ["a", None, "b"]),
    ],
)
def test_values_stay_themselves_where_the_targets_type_is_a_wider_one(
    database: dict[str, Any], decoded_type: str, column_type: str, value: pa.Array, stored: list[Any]
) -> None:
    settings = json_settings(ColumnSettings("v", decoded_type), target=TABLE)
    bench = StagingBench(database, settings)
    bench.run(f"CREATE TABLE orders (v {column_type}, {METADATA_COLUMNS})")
    bench.prepare()

    assert write(bench, decoded(settings, value)) == [()]

    assert [str(row[0]) for row in bench.rows("v")] == [str(one) for one in stored]


def test_text_is_the_same_whatever_the_sessions_encoding(database: dict[str, Any]) -> None:
    settings = json_settings(ColumnSettings("v", "text"), target=TargetSettings("shop", "t", create_table=True))
    bench = StagingBench(database, settings)
    bench.prepare()

    with closing(psycopg2.connect(**database, client_encoding="LATIN1")) as connection, transaction(connection):
        StagingWriter(connection, bench.stem, bench.context(), 5, 77).write(decoded(settings, pa.array(["é €"])))

    assert bench.rows("v") == [("é €",)]


CHECKED = f"""
CREATE TABLE orders (
    id integer NOT NULL, amount integer, {METADATA_COLUMNS},
    CONSTRAINT amount_is_positive CHECK (amount > 0), CONSTRAINT id_is_small CHECK (id < 100)
)"""


def test_rows_that_violate_not_null_or_a_check_come_back_with_the_constraint_and_the_others_are_staged(
    database: dict[str, Any],
) -> None:
    settings = json_settings(ColumnSettings("id", "integer"), ColumnSettings("amount", "integer"), target=TABLE)
    bench = bench_with_table(database, settings, CHECKED)
    ids = pa.array([1, None, 3, 4, 500], pa.int32())
    amounts = pa.array([10, -1, 0, None, 50], pa.int32())

    (refused,) = write(bench, decoded(settings, ids, amounts))

    assert refused == (
        Rejected(1, DeadLetterReason.NOT_NULL_VIOLATION, "column id of the target is NOT NULL"),
        Rejected(2, DeadLetterReason.CHECK_VIOLATION, "CHECK amount_is_positive of the target is false: (amount > 0)"),
        Rejected(4, DeadLetterReason.CHECK_VIOLATION, "CHECK id_is_small of the target is false: (id < 100)"),
    )
    assert bench.rows("id", "amount", "stage_attempt") == [(1, 10, 77), (4, None, 77)]


def test_every_chunk_of_a_task_can_violate_constraints(database: dict[str, Any]) -> None:
    settings = json_settings(ColumnSettings("id", "integer"), ColumnSettings("amount", "integer"), target=TABLE)
    bench = bench_with_table(database, settings, CHECKED)
    chunks = [
        decoded(settings, pa.array([1, 2], pa.int32()), pa.array([first, -5], pa.int32()), first_offset=first)
        for first in (10, 20, 30)
    ]

    refused = write(bench, *chunks)

    assert [[row.row_index for row in chunk] for chunk in refused] == [[1], [1], [1]]
    assert bench.rows("amount") == [(10,), (20,), (30,)]


def test_a_record_that_postgres_refuses_is_found_by_halving(database: dict[str, Any]) -> None:
    settings = json_settings(ColumnSettings("v", "numeric(4,2)"), target=TargetSettings("shop", "t", create_table=True))
    bench = StagingBench(database, settings)
    bench.prepare()
    values = [f"{n % 90}.25" for n in range(101)]
    values[17] = "100.00"
    values[100] = "no number"

    (refused,) = write(bench, decoded(settings, pa.array(values)))

    assert refused == (
        Rejected(17, DeadLetterReason.REFUSED_BY_DATABASE, "numeric field overflow (SQLSTATE 22003)"),
        Rejected(
            100,
            DeadLetterReason.REFUSED_BY_DATABASE,
            'invalid input syntax for type numeric: "no number" (SQLSTATE 22P02)',
        ),
    )
    assert len(bench.rows("v")) == 99


def test_a_check_that_cannot_be_computed_and_one_that_is_false_are_told_apart(database: dict[str, Any]) -> None:
    settings = json_settings(ColumnSettings("id", "integer"), target=TABLE)
    definition = f"CREATE TABLE orders (id integer, {METADATA_COLUMNS}, CONSTRAINT ratio CHECK (10 / id >= 1))"
    bench = bench_with_table(database, settings, definition)

    (refused,) = write(bench, decoded(settings, pa.array([5, 11, 0, 10], pa.int32())))

    assert refused == (
        Rejected(1, DeadLetterReason.CHECK_VIOLATION, "CHECK ratio of the target is false: ((10 / id) >= 1)"),
        Rejected(2, DeadLetterReason.REFUSED_BY_DATABASE, "division by zero (SQLSTATE 22012)"),
    )
    assert bench.rows("id") == [(5,), (10,)]


def test_a_constraint_added_after_the_shape_was_read_is_still_a_dead_letter(database: dict[str, Any]) -> None:
    settings = json_settings(ColumnSettings("id", "integer"), target=TABLE)
    bench = bench_with_table(database, settings, f"CREATE TABLE orders (id integer, {METADATA_COLUMNS})")
    context = bench.context()
    bench.staging.drop(bench.batch)
    bench.run("ALTER TABLE orders ADD CONSTRAINT late CHECK (id <> 2)")
    bench.staging.create(bench.batch)

    with closing(psycopg2.connect(**database)) as connection, transaction(connection):
        refused = StagingWriter(connection, bench.stem, context, 5, 77).write(
            decoded(settings, pa.array([1, 2, 3], pa.int32()))
        )

    assert refused == (Rejected(1, DeadLetterReason.CHECK_VIOLATION, "CHECK late of the target is false"),)
    assert bench.rows("id") == [(1,), (3,)]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("REVOKE INSERT ON {} FROM loader", psycopg2.errors.InsufficientPrivilege),
        ("DROP TABLE {}", psycopg2.errors.UndefinedTable),
        ("ALTER TABLE {} DROP COLUMN v", psycopg2.errors.UndefinedColumn),
    ],
)
def test_a_fault_of_the_database_is_never_a_dead_letter(
    database: dict[str, Any], fault: str, error: type[Exception]
) -> None:
    settings = json_settings(ColumnSettings("v", "integer"), target=TargetSettings("shop", "t", create_table=True))
    bench = StagingBench(database, settings)
    bench.prepare()
    context = bench.context()
    table = f'kafka_ingest_staging."{bench.stem}_rows"'
    role = f"loader_{uuid.uuid4().hex[:8]}"
    bench.run(
        f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA kafka_ingest_staging TO {role}; GRANT INSERT ON {table} TO {role}"
    )
    bench.run(fault.format(table).replace("loader", role))

    with closing(psycopg2.connect(**database)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET ROLE {role}")
        writer = StagingWriter(connection, bench.stem, context, 5, 77)
        with pytest.raises(error):
            writer.write(decoded(settings, pa.array([1, 2], pa.int32())))
    bench.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_wrong_encoding_of_copy_is_never_a_dead_letter(
    database: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = json_settings(ColumnSettings("v", "integer"), target=TargetSettings("shop", "t", create_table=True))
    bench = StagingBench(database, settings)
    bench.prepare()
    monkeypatch.setattr(staging, "binary_format", lambda types: binary_format(["bigint", *types[1:]]))

    with pytest.raises(psycopg2.errors.InvalidBinaryRepresentation):
        write(bench, decoded(settings, pa.array([1, 2], pa.int64())))

    assert bench.rows("v") == []


def test_dead_letters_keep_bytes_headers_and_time(database: dict[str, Any]) -> None:
    bench = StagingBench(database, json_settings(ColumnSettings("v", "integer"), target=TargetSettings("s", "t", True)))
    bench.prepare()
    records = record_batch(
        [
            Record(7, b"\x00\xff", b"", [("a", b"\x01"), ("a", None), ('q"\\', b"")], partition=3),
            Record(8, None, None, None, partition=3, timestamp_ms=None, timestamp_type=-1),
            Record(9, b"", b"k", None, headers_readable=False, partition=3, timestamp_ms=-1_000, timestamp_type=1),
            Record(10, b"x", None, [("nul\x00", b"")], partition=3),
        ]
    )
    dead = [
        Rejected(0, DeadLetterReason.MALFORMED, "it is \x00 no JSON \ud800"),
        Rejected(1, DeadLetterReason.TOMBSTONE, "n" * 501),
        Rejected(2, DeadLetterReason.UNREADABLE_HEADERS, ""),
        Rejected(3, DeadLetterReason.NOT_UTF8, "why"),
    ]

    with closing(psycopg2.connect(**database)) as connection, transaction(connection):
        StagingWriter(connection, bench.stem, bench.context(), 5, 77).write_dead_letters(records, dead, SUBRANGE)

    found = bench.dead_letters(
        "topic", "generation", "partition", "offset", "record_time_ms", "record_time_type", "key", "value",
        "header_names", "header_values", "reason", "detail", "stage_task", "stage_attempt",
    )  # fmt: skip
    assert [tuple(map(_plain, row)) for row in found] == [
        ("orders", 2, 3, 7, NOON_MS + 7, "create", b"", b"\x00\xff", ["a", "a", 'q"\\'], [b"\x01", None, b""],
         "malformed", "it is \\u0000 no JSON \\ud800", 5, 77),
        ("orders", 2, 3, 8, None, None, None, None, [], [], "tombstone", "n" * 500, 5, 77),
        ("orders", 2, 3, 9, -1_000, "log_append", b"k", b"", None, None, "unreadable_headers", "", 5, 77),
        ("orders", 2, 3, 10, NOON_MS + 10, "create", None, b"x", ["nul\\u0000"], [b""],
         "not_utf8", "(a header name is stored with U+0000 as \\u0000) why", 5, 77),
    ]  # fmt: skip


def _plain(value: object) -> object:
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return value


def test_identifiers_of_any_kind_are_quoted(database: dict[str, Any]) -> None:
    settings = json_settings(
        ColumnSettings('Am"ount %s {x}', "integer", path=("a",)),
        target=TargetSettings('Sch"ema %', "Ta ble {}", create_table=True),
    )
    bench = StagingBench(database, settings)
    bench.prepare()
    bench.run("""ALTER TABLE "Sch""ema %"."Ta ble {}" ADD CONSTRAINT "is % {pos}" CHECK ("Am""ount %s {x}" % 7 > 0)""")
    bench.staging.drop(bench.batch)
    bench.staging.create(bench.batch)

    (refused,) = write(bench, decoded(settings, pa.array([1, 7], pa.int32())))

    assert [(row.row_index, row.detail) for row in refused] == [
        (1, 'CHECK is % {pos} of the target is false: (("Am""ount %s {x}" % 7) > 0)')
    ]
    assert bench.rows('Am"ount %s {x}') == [(1,)]


def test_columns_that_only_the_target_fills_do_not_disturb_staging(database: dict[str, Any]) -> None:
    settings = json_settings(ColumnSettings("price", "integer"), ColumnSettings("pieces", "integer"), target=TABLE)
    definition = f"""
        CREATE TABLE orders (
            number bigint GENERATED ALWAYS AS IDENTITY, serial_number bigserial, note text,
            loaded_at timestamptz NOT NULL DEFAULT now(), least integer NOT NULL DEFAULT 10,
            price integer, pieces integer, {METADATA_COLUMNS},
            total integer GENERATED ALWAYS AS (price * pieces) STORED,
            CONSTRAINT total_is_enough CHECK (total >= least)
        )"""
    bench = bench_with_table(database, settings, definition)

    (refused,) = write(bench, decoded(settings, pa.array([5, 3], pa.int32()), pa.array([2, 3], pa.int32())))

    assert [(row.row_index, row.reason) for row in refused] == [(1, DeadLetterReason.CHECK_VIOLATION)]
    assert bench.rows("price", "note", "least") == [(5, None, 10)]
    assert bench.query("SELECT last_value, is_called FROM orders_serial_number_seq") == [(1, False)]


def test_a_partitioned_target_is_staged_like_any_other(database: dict[str, Any]) -> None:
    settings = json_settings(ColumnSettings("id", "integer"), target=TABLE)
    definition = f"""
        CREATE TABLE orders (id integer CHECK (id > 0), {METADATA_COLUMNS}) PARTITION BY RANGE (kafka_timestamp);
        CREATE TABLE orders_2026 PARTITION OF orders FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')"""
    bench = bench_with_table(database, settings, definition)

    (refused,) = write(bench, decoded(settings, pa.array([1, -1], pa.int32())))

    assert [row.reason for row in refused] == [DeadLetterReason.CHECK_VIOLATION]
    assert bench.rows("id") == [(1,)]


def test_a_value_that_passes_a_limit_of_postgresql_is_a_dead_letter(database: dict[str, Any]) -> None:
    settings = json_settings(ColumnSettings("body", "text"), target=TABLE)
    search = "search tsvector GENERATED ALWAYS AS (to_tsvector('simple', body)) STORED"
    bench = bench_with_table(database, settings, f"CREATE TABLE orders (body text, {METADATA_COLUMNS}, {search})")
    # A tsvector holds 1,048,575 bytes of words and positions (MAXSTRPOS in ts_type.h, PostgreSQL 18).
    too_long = " ".join(f"word{number:07d}" for number in range(100_000))

    (refused,) = write(bench, decoded(settings, pa.array(["a", too_long, "c"])))

    assert [(row.row_index, row.reason) for row in refused] == [(1, DeadLetterReason.REFUSED_BY_DATABASE)]
    assert refused[0].detail.endswith("(SQLSTATE 54000)")
    assert bench.rows("body", "kafka_offset") == [("a", 0), ("c", 2)]


@pytest.mark.parametrize("use", ["CHECK (ok(body))", "fine boolean GENERATED ALWAYS AS (ok(body)) STORED"])
def test_a_record_for_which_a_function_raises_stops_the_task_and_is_named_without_its_values(
    database: dict[str, Any], use: str
) -> None:
    settings = json_settings(ColumnSettings("body", "text"), target=TABLE)
    bench = StagingBench(database, settings)
    bench.run(
        "CREATE FUNCTION ok(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
        " $$ BEGIN IF $1 LIKE 'bad%' THEN RAISE EXCEPTION 'not ok: %', $1; END IF; RETURN true; END $$"
    )
    bench.run(f"CREATE TABLE orders (body text, {METADATA_COLUMNS}, {use})")
    bench.prepare()

    with pytest.raises(TargetMismatch) as stopped:
        write(bench, decoded(settings, pa.array(["a", "b", "bad: card 4111", "d"]), first_offset=40))

    assert stopped.value.found == "orders[3] offset 42: function ok(text) raised SQLSTATE P0001"
    assert bench.rows("body") == []

"""With five million rows in the ledger no statement reads a table that grows from end to end: each has its index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg2
import pytest
from psycopg2 import sql

from kafka_ingest.postgres.database import sql_names, sql_text
from kafka_ingest.protocol.batch import RecordCounts
from sandbox.postgres import PostgresServer
from tests.integration.grown_ledger import BATCHES, OFFSETS, PARTITIONS, batch_id_of, fill
from tests.services import fresh_database

#: Filling takes half a minute on an idle machine of two cores.
pytestmark = pytest.mark.slow

GROWING = {"batch", "batch_partition", "dead_letter", "position_change"}
#: Housekeeping, once a day: it looks for what nobody knows by name. And what all pipelines of a table have given up: in
#: this ledger all pipelines load into one, which has a test of its own.
LOOKS_EVERYWHERE = {"queries/delete_old_attempts", "queries/delete_superseded_ranges", "queries/given_up_at"}

_MENTIONS = re.compile(rf"\bkafka_ingest\.({'|'.join(sorted(GROWING))})\b")
_PIPELINE = 25
_TARGET = "kafka_topic text, kafka_generation integer, kafka_partition integer, kafka_offset bigint"
_STAGING = f"stage_task integer, stage_attempt bigint, {_TARGET}"
_STAGED = (
    'stage_task integer, stage_attempt bigint, topic text, generation integer, partition integer, "offset" bigint,'
    " key bytea, value bytea, header_names text[], header_values bytea[], record_time_ms bigint,"
    " record_time_type text, reason text, detail text"
)
_RELATIONS = {
    "target": ("shop", "orders"),
    "staging": ("kafka_ingest_staging", "dead_letters"),
    "staged_rows": ("kafka_ingest_staging", "rows"),
    "staged_deletes": ("kafka_ingest_staging", "rows"),
    "staged_dead_letters": ("kafka_ingest_staging", "dead_letters"),
    "staged_counted": ("kafka_ingest_staging", "dead_letters"),
}

#: One value a parameter; a statement that casts it to an array gets one for each partition.
PARAMETERS: dict[str, Any] = {
    "pipeline": f"pipeline_{_PIPELINE}",
    "pipelines": f"pipeline_{_PIPELINE}",
    "batch_id": batch_id_of(_PIPELINE, BATCHES),
    "batch_ids": batch_id_of(_PIPELINE, BATCHES - 1),
    "claim": 1,
    "dag_id": f"dag_{_PIPELINE}",
    "run_id": f"run_{BATCHES - 1}",
    "task_group": "",
    "map_index": -1,
    "request_number": 0,
    "request_id": f"request-{_PIPELINE}-7",
    "announced_by": f"request {_PIPELINE}-{BATCHES - 1}",
    "topic": f"topic_{_PIPELINE}",
    "generation": 0,
    "partition": 0,
    **dict.fromkeys(("range_start", "replaced_from"), (BATCHES - 1) * OFFSETS),
    **dict.fromkeys(("range_end", "replaced_to"), BATCHES * OFFSETS),
    **asdict(RecordCounts()),
    **dict.fromkeys(("record_time_min", "record_time_max", "valid_through")),
    "since_ms": int((datetime.now(UTC) - timedelta(hours=4)).timestamp() * 1000),
    "with_resolved": False,
    "first_offsets": 5,
    "task": 0,
    "attempt": 0,
    "batches": 10,
    "limit": 50,
    "newest_batches": 1_000,
    "days": 7,
    "starts": 0,
    "given_up_at": None,
    "schema": "shop",
    "table": "orders",
    "before": BATCHES,
    "newest": BATCHES - 5,
    "newest_change": 2**62,
    "most": 100_001,
    "records": 10_000,
    "bytes": 8_000_000,
    **dict.fromkeys(("after", "bytes_before", "after_offset", "after_partition", "after_generation"), 0),
    "after_topic": "",
    "excerpt": 200,
    "is_resolved": False,
    "reason": "malformed",
    "reasons": "malformed",
    **dict.fromkeys(("before_at", "before_topic", "before_generation", "before_partition", "before_offset")),
    "warnings": "",
    "named": f"pipeline_{_PIPELINE}",
    "only": f"pipeline_{_PIPELINE}",
    "short_seconds": 21_600,
    "most_dead_letters": 100_001,
    "marks": False,
}


def reading_statements() -> list[str]:
    """Every SQL file that reads or changes a table that grows, as ``folder/name``."""
    names = [f"{folder}/{name}" for folder in ("queries", "invariants") for name in sql_names(folder)]
    found = [name for name in names if _MENTIONS.search(statement_of(name)) and not name.startswith("queries/insert_")]
    return [name for name in found if name not in LOOKS_EVERYWHERE]


def statement_of(name: str) -> str:
    """The statement without comments, whose words are no names."""
    return re.sub(r"--.*", "", sql_text(name))


@pytest.fixture(scope="module")
def grown(postgres_server: PostgresServer) -> Iterator[dict[str, Any]]:
    """A database with five million rows in the ledger."""
    with fresh_database(postgres_server) as params:
        with closing(psycopg2.connect(**params)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA shop; CREATE TABLE shop.orders ({_TARGET}, batch_id uuid)")
            cursor.execute(f"CREATE TABLE kafka_ingest_staging.rows ({_STAGING})")
            cursor.execute(f"CREATE TABLE kafka_ingest_staging.dead_letters ({_STAGED})")
        fill(params)
        yield params


@pytest.fixture
def cursor(grown: dict[str, Any]) -> Iterator[Any]:
    """A transaction that is rolled back."""
    with closing(psycopg2.connect(**grown)) as connection, connection.cursor() as found:
        yield found


def whole_table_reads(cursor: Any, name: str, **changed: Any) -> set[str]:
    """Return the tables that grow and that the plan of a statement reads from end to end."""
    text = statement_of(name)
    relations = {key: sql.Identifier(*place) for key, place in _RELATIONS.items()}
    columns = ("topic", "generation", "partition", "offset")
    names: dict[str, sql.Composable] = {f"{column}_column": sql.Identifier(f"kafka_{column}") for column in columns}
    names |= {column: sql.Identifier(f"kafka_{column}") for column in columns}
    names |= {"batch_column": sql.Identifier("batch_id"), "applies": sql.SQL("true")}
    values = {
        key: [value] * PARTITIONS if re.search(rf"%\({key}\)s::\w+\[\]", text) else value
        for key, value in (PARAMETERS | changed).items()
    }
    _make_temporary_tables(cursor, text, values)
    # A regular expression may hold braces, too, where a statement has no identifiers.
    statement = sql.SQL(text).format(**relations, **names) if re.search(r"\{[a-z_]+\}", text) else sql.SQL(text)
    cursor.execute(sql.SQL("EXPLAIN (FORMAT json) ") + statement, values)
    [(plan,)] = cursor.fetchall()
    return {node["Relation Name"] for node in _nodes(plan[0]["Plan"]) if node["Node Type"] == "Seq Scan"} & GROWING


def _make_temporary_tables(cursor: Any, text: str, values: dict[str, Any]) -> None:
    """Make what an earlier statement of the transaction would have left."""
    if "pg_temp.kafka_ingest_chosen" in text:
        everywhere: dict[str, list[object]] = {key: [] for key in ("topic", "partition", "range_start", "range_end")}
        cursor.execute(statement_of("queries/choose_dead_letters"), values | everywhere | {"reasons": None})
    if "pg_temp.kafka_ingest_read" in text:
        cursor.execute(
            "CREATE TEMPORARY TABLE kafka_ingest_read (topic text, generation integer, partition integer,"
            ' "offset" bigint) ON COMMIT DROP'
        )
    if "pg_temp.kafka_ingest_fold" in text:
        cursor.execute(
            "CREATE TEMPORARY TABLE kafka_ingest_fold (number bigint, topic text, generation integer,"
            ' partition integer, "offset" bigint) ON COMMIT DROP'
        )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


@pytest.mark.parametrize("name", reading_statements())
def test_a_statement_reads_the_grown_ledger_by_an_index(cursor: Any, name: str) -> None:
    assert whole_table_reads(cursor, name) == set()


def test_what_the_pipeline_of_a_table_has_given_up_is_found_by_an_index(cursor: Any) -> None:
    cursor.execute("UPDATE kafka_ingest.pipeline SET target_table = 'alone' WHERE pipeline = %(pipeline)s", PARAMETERS)
    cursor.execute("ANALYZE kafka_ingest.pipeline")
    assert whole_table_reads(cursor, "queries/given_up_at", table="alone") == set()


def test_dead_letters_of_all_batches_are_listed_by_an_index(cursor: Any) -> None:
    assert whole_table_reads(cursor, "queries/list_dead_letters", batch_id=None) == set()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("DROP INDEX kafka_ingest.ranges_by_record_time", "queries/loaded_from"),
        (
            "DROP INDEX kafka_ingest.position_changes_of_a_partition, kafka_ingest.position_changes_of_a_pipeline",
            "queries/bound_lines",
        ),
        (
            "ALTER TABLE kafka_ingest.batch_partition DROP CONSTRAINT one_range_per_batch_and_partition",
            "queries/select_ranges",
        ),
    ],
)
def test_a_statement_without_its_index_is_found_out(cursor: Any, change: str, name: str) -> None:
    cursor.execute(change)
    assert whole_table_reads(cursor, name) != set()


def test_the_ledger_has_grown_to_five_million_rows(cursor: Any) -> None:
    cursor.execute(
        "SELECT sum(reltuples) FROM pg_class WHERE relnamespace = 'kafka_ingest'::regnamespace AND relname = ANY (%s)",
        (sorted(GROWING),),
    )
    assert cursor.fetchall()[0][0] >= 5_000_000

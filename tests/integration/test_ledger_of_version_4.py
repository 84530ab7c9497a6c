"""A ledger in use from before pipelines of one row a key is brought to version 5, and goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import pytest

from kafka_ingest.errors import LedgerOutdated
from kafka_ingest.postgres import migrations
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.migrations import migrate
from kafka_ingest.postgres.rows import first_run_to_json, settings_hash, settings_to_json
from kafka_ingest.protocol.batch import BatchState, RecordCounts
from kafka_ingest.settings import FirstRun, FirstRunKind
from tests.builders import batch_settings
from tests.contracts.ledger_values import load
from tests.contracts.ledger_worlds import PostgresWorld
from tests.integration.test_ledger_schema import empty, run, uuid_of

__all__ = ["empty"]  # a fixture

MIGRATION = "0005_current_state"

FIRST_RUN = first_run_to_json(FirstRun(FirstRunKind.EARLIEST))
PIPELINE = (
    "INSERT INTO kafka_ingest.pipeline (pipeline, target_schema, target_table, cluster_id, isolation_level, first_run,"
    " topic_column, generation_column, partition_column, offset_column) VALUES ('orders', 'shop', 'orders',"
    f" 'cluster-1', 'read_committed', '{FIRST_RUN}', 'kafka_topic', 'kafka_generation', 'kafka_partition',"
    " 'kafka_offset');"
    "INSERT INTO kafka_ingest.served_topic VALUES ('shop', 'orders', 'cluster-1', 'orders', 'orders', 'first_plan');"
)


def batch(number: int, state: str, counts: str = "") -> str:
    done = f"now(), {counts}" if counts else "NULL, NULL, NULL, NULL, NULL, NULL"
    settings = batch_settings()
    return (
        "INSERT INTO kafka_ingest.batch (batch_id, pipeline, dag_id, run_id, task_group, map_index, request_number,"
        " clear_number, parameters, kind, state, settings, settings_hash, protocol_version, target_schema,"
        " target_table, cluster_id, planned_at, committed_at, rows, dead_letters, tombstones, filtered, invisible)"
        f" VALUES ('{uuid_of(number)}', 'orders', 'orders', 'run {number}', '', -1, 0, 0, '{{}}', 'live', '{state}',"
        f" '{settings_to_json(settings)}', '{settings_hash(settings)}', 1, 'shop', 'orders', 'cluster-1', now(),"
        f" {done});"
    )


def range_of(number: int, start: int, end: int, *, line: int, counts: str = "") -> str:
    return (
        "INSERT INTO kafka_ingest.batch_partition (batch_id, pipeline, topic, generation, partition, topic_id, line,"
        " range_start, range_end, committed_before, committed_after, loaded_to, reaches_high_watermark, published,"
        f" rows, dead_letters, tombstones, filtered, invisible) VALUES ('{uuid_of(number)}', 'orders', 'orders', 0, 0,"
        f" 'topic-id-1', {line}, {start}, {end}, {start}, {end}, {start}, false, {bool(counts)},"
        f" {counts or 'NULL, NULL, NULL, NULL, NULL'});"
    )


POSITION = (
    "INSERT INTO kafka_ingest.committed_offset (pipeline, topic, partition, generation, topic_id, cluster_id,"
    " committed_offset, loaded_to, line) VALUES ('orders', 'orders', 0, 0, 'topic-id-1', 'cluster-1', 5, 5, 1);"
    "INSERT INTO kafka_ingest.position_change (request_id, kind, pipeline, topic, partition, who, why, to_offset,"
    " to_generation, to_line) VALUES ('first', 'initialised', 'orders', 'orders', 0, 'plan', 'first plan', 0, 0, 0),"
    " ('undone', 'rolled_back', 'orders', 'orders', 0, 'ada', 'wrong prices', 3, 0, 1);"
)
DEAD_LETTER = (
    "INSERT INTO kafka_ingest.dead_letter_request (pipeline, request_id, action, arguments, who, why, replay_id,"
    " target_schema, target_table, replayed, counted, discarded, stayed) VALUES ('orders', 'gone', 'discard', '{}',"
    f" 'ada', 'a trial', '{uuid_of(90)}', 'shop', 'orders', 0, 0, 1, '[]');"
    'INSERT INTO kafka_ingest.dead_letter (pipeline, topic, generation, partition, "offset", value, reason, detail,'
    " batch_id, resolved_at, resolution, request_id) VALUES ('orders', 'orders', 0, 0, 1, 'x', 'malformed', '',"
    f" '{uuid_of(1)}', now(), 'discarded', 'gone');"
)
ROWS = "INSERT INTO shop.orders (kafka_topic, kafka_generation, kafka_partition, kafka_offset, batch_id) VALUES" + (
    ",".join(f"('orders', 0, 0, {offset}, '{uuid_of(number)}')" for offset, number in ((0, 1), (2, 1), (4, 4)))
)
#: Offsets 0 to 4 are loaded: two rows and a dead letter; a load that was rolled back; a row and a counted tombstone.
IN_USE = (
    PIPELINE
    + batch(1, "committed", "2, 1, 0, 0, 0")
    + range_of(1, 0, 3, line=0, counts="2, 1, 0, 0, 0")
    + batch(2, "rolled_back", "2, 0, 0, 0, 0")
    + range_of(2, 3, 5, line=0, counts="2, 0, 0, 0, 0")
    + batch(3, "committed", "0, 0, 0, 0, 0")
    + batch(4, "committed", "1, 0, 1, 0, 0")
    + range_of(4, 3, 5, line=1, counts="1, 0, 1, 0, 0")
    + batch(5, "superseded")
    + range_of(5, 5, 8, line=1)
    + batch(6, "planned")
    + range_of(6, 5, 9, line=1)
    + "INSERT INTO kafka_ingest.batch_hold (batch_id, hold_until, step, total_offsets)"
    f" VALUES ('{uuid_of(6)}', now(), 'plan', 4);" + POSITION + DEAD_LETTER + ROWS
)


@pytest.fixture
def old_package(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Does something as a package that ends with migration 4."""
    known = migrations.migrations()

    def do(something: Callable[[], object]) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(migrations, "migrations", lambda: known[:4])
            something()

    return do


@pytest.fixture
def old(empty: dict[str, Any], old_package: Callable[[Callable[[], object]], None]) -> PostgresWorld:
    """A ledger of version 4 in use, with its target."""
    old_package(lambda: migrate(empty))
    world = PostgresWorld(empty)
    run(empty, IN_USE)
    return world


def content(params: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the ledger by table, without the record of migrations; tables without rows are left out."""
    tables = run(params, "SELECT tablename FROM pg_tables WHERE schemaname = 'kafka_ingest'")
    names = sorted({name for (name,) in tables} - {"schema_migration"})
    rows = {
        name: [row for (row,) in run(params, f"SELECT to_jsonb(t) FROM kafka_ingest.{name} AS t")] for name in names
    }
    return {name: found for name, found in rows.items() if found}


def added_to(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the migration adds to a row."""
    zero = 0 if row.get("rows") is not None else None
    added: dict[str, dict[str, Any]] = {
        "batch": {"deletes": zero, "superseded": zero},
        "batch_partition": {"deletes": zero, "superseded": zero},
        "pipeline": {"upsert": None},
        "committed_offset": {"caught_up_at": None},
        "dead_letter_request": {"superseded": 0},
    }
    return added.get(table, {})


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def test_everything_stays_and_nothing_was_deleted_or_superseded(old: PostgresWorld) -> None:
    before = content(old.params)
    assert migrate(old.params)[0] == MIGRATION
    after = content(old.params)
    assert {table: in_order(rows) for table, rows in after.items()} == {
        table: in_order([{**row, **added_to(table, row)} for row in rows]) for table, rows in before.items()
    }
    assert old.ledger.violations("orders") == []


def test_only_rows_without_counts_are_written(old: PostgresWorld) -> None:
    place = "SELECT batch_id::text, ctid::text, xmin::text FROM kafka_ingest.{} WHERE rows IS NOT NULL ORDER BY 1"
    places = [place.format(table) for table in ("batch", "batch_partition")]
    before = [run(old.params, query) for query in places]
    assert [len(rows) for rows in before] == [4, 3]
    migrate(old.params)
    assert [run(old.params, query) for query in places] == before


def test_a_batch_that_was_planned_before_is_loaded_after(old: PostgresWorld) -> None:
    migrate(old.params)
    counts = [old.ledger.batch(uuid_of(number)) for number in (1, 2, 3, 4, 5, 6)]
    assert [found.counts if found else found for found in counts] == [
        RecordCounts(rows=2, dead_letters=1),
        RecordCounts(rows=2),
        RecordCounts(),
        RecordCounts(rows=1, tombstones=1),
        None,
        None,
    ]
    planned = old.ledger.batch(uuid_of(6))
    assert planned is not None
    loaded = load(old, planned, 7)
    assert (loaded.state, loaded.counts) == (BatchState.COMMITTED, RecordCounts(rows=3, dead_letters=1))
    assert old.ledger.violations("orders") == []


def test_it_is_refused_until_it_is_migrated(old: PostgresWorld) -> None:
    with pytest.raises(LedgerOutdated, match=rf"not applied: {MIGRATION}"):
        old.ledger.batch(uuid_of(6))


def test_a_package_from_before_refuses_the_new_ledger(
    database: dict[str, Any], old_package: Callable[[Callable[[], object]], None]
) -> None:
    with pytest.raises(LedgerOutdated, match="newer than this package"):
        old_package(lambda: migrate(database))
    with pytest.raises(LedgerOutdated, match=r"expected: migrations up to 0004"):
        old_package(lambda: PostgresLedger(database).claim(str(uuid4()), 60))

"""Housekeeping in a real PostgreSQL, through the command line: locks, privileges, BRIN indexes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
import pytest

from kafka_ingest.__main__ import main
from kafka_ingest.errors import LedgerOutdated
from kafka_ingest.postgres.staging_tables import PostgresHousekeeper
from kafka_ingest.preflight.database import PostgresPreflight
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.housekeeping import Chore, Outcome, keep_house
from kafka_ingest.protocol.staging import staging_name
from sandbox.postgres import PostgresServer
from tests.builders import offset_range
from tests.contracts.ledger_values import first_plan, next_plan, staged
from tests.contracts.ledger_worlds import IMPATIENT, PostgresWorld

INDEX = "shop.orders_by_offset"
CREATE_INDEX = (
    "CREATE INDEX orders_by_offset ON shop.orders USING brin (kafka_partition, kafka_offset)"
    " WITH (pages_per_range = 1, autosummarize = off)"
)
#: Fills more than one page of 8 kB.
FILL = (
    "INSERT INTO shop.orders (payload, kafka_topic, kafka_generation, kafka_partition, kafka_offset, batch_id)"
    " SELECT repeat('x', 1000)::bytea, 'orders', 0, 0, n, gen_random_uuid() FROM generate_series(1, 100) AS n"
)


@pytest.fixture
def world(database: dict[str, Any]) -> PostgresWorld:
    return PostgresWorld(database)


@pytest.fixture
def batches(world: PostgresWorld) -> tuple[Batch, Batch]:
    """A superseded batch and a live one, both with staging tables."""
    superseded = staged(world, first_plan(world))
    return superseded, staged(world, next_plan(world, offset_range(0, 0, 3), supersedes=superseded.batch_id))


def test_leftovers_count_as_old_by_the_age_of_their_batch_and_never_those_of_a_planned_batch(
    world: PostgresWorld, batches: tuple[Batch, Batch], database: dict[str, Any]
) -> None:
    probe = PostgresPreflight(database)
    left_over = len(tables_of(world, batches[0]))
    assert left_over > 0
    world.run("UPDATE kafka_ingest.batch SET planned_at = clock_timestamp() - interval '47 hours' RETURNING 1")
    assert probe.old_leftovers(2) == 0
    world.run("UPDATE kafka_ingest.batch SET planned_at = clock_timestamp() - interval '49 hours' RETURNING 1")
    assert probe.old_leftovers(2) == left_over


def tables_of(world: PostgresWorld, batch: Batch) -> list[str]:
    """The staging tables of a batch that are there, by name."""
    return sorted(name for name in staging(world) if name.startswith(f"{staging_name(batch.batch_id, batch.claim)}_"))


def staging(world: PostgresWorld) -> set[str]:
    found = world.run("SELECT tablename::text FROM pg_tables WHERE schemaname = 'kafka_ingest_staging'")
    return {name for (name,) in found}


@contextmanager
def reading(world: PostgresWorld, table: str) -> Iterator[None]:
    """An open transaction that has read a staging table, as a hanging attempt has."""
    with closing(psycopg2.connect(**world.params)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT FROM kafka_ingest_staging.{table}")
        yield


def connect_by_default(world: PostgresWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    params = world.params
    connection = {
        "conn_type": "postgres",
        "host": params["host"],
        "port": params["port"],
        "login": params["user"],
        "password": params["password"],
        "schema": params["dbname"],
    }
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(connection))


def test_the_command_says_what_it_would_do_then_does_it_then_has_nothing_left_to_do(
    world: PostgresWorld,
    batches: tuple[Batch, Batch],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    superseded, live = batches
    connect_by_default(world, monkeypatch)

    def command(*arguments: str) -> list[tuple[str, str, str, int | None]]:
        capfd.readouterr()
        code = main(["housekeeping", "--connection", "warehouse", "--older-than-days", "0", "--json", *arguments])
        assert code == 0
        rows = json.loads(capfd.readouterr().out)
        assert {(row["connection"], row["reason"]) for row in rows} <= {("warehouse", "")}
        return [(row["chore"], row["thing"], row["outcome"], row["count"]) for row in rows]

    kept, leftover = set(tables_of(world, live)), tables_of(world, superseded)
    drops = [("drop staging table", name) for name in leftover]
    assert drops
    deletion = ("delete ranges of superseded batches", "kafka_ingest.batch_partition")
    assert command("--dry-run") == [
        *((*drop, "would be done", None) for drop in drops),
        (*deletion, "would be done", 2),
    ]
    assert staging(world) == {*leftover, *kept}
    assert command() == [*((*drop, "done", None) for drop in drops), (*deletion, "done", 2)]
    assert staging(world) == kept
    assert command() == []
    assert world.ledger.violations("orders") == []


def test_a_leftover_that_is_in_use_stays_and_is_named(world: PostgresWorld, batches: tuple[Batch, Batch]) -> None:
    superseded, live = batches
    kept, leftover = set(tables_of(world, live)), tables_of(world, superseded)
    used = leftover[-1]
    with reading(world, used):
        reports = keep_house(PostgresHousekeeper(world.params, IMPATIENT), older_than_days=90)
    assert [(r.thing, r.outcome, r.reason) for r in reports] == [
        *((name, Outcome.DONE, "") for name in leftover[:-1]),
        (used, Outcome.LEFT, "canceling statement due to lock timeout"),
    ]
    assert staging(world) == {used, *kept}
    assert [r.thing for r in keep_house(PostgresHousekeeper(world.params), older_than_days=90)] == [used]


def test_a_leftover_of_another_role_stays_and_is_named(world: PostgresWorld, batches: tuple[Batch, Batch]) -> None:
    superseded, _ = batches
    role = f"loader_{uuid.uuid4().hex[:8]}"
    world.run(f"""
        CREATE ROLE {role} LOGIN PASSWORD 'secret';
        GRANT USAGE ON SCHEMA kafka_ingest, kafka_ingest_staging, shop TO {role};
        GRANT SELECT, DELETE ON ALL TABLES IN SCHEMA kafka_ingest TO {role}""")
    world.run(CREATE_INDEX)
    limited = PostgresHousekeeper({**world.params, "user": role, "password": "secret"})
    try:
        reports = keep_house(limited, older_than_days=90)
    finally:
        world.run(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert [(r.thing, r.outcome, r.reason) for r in reports] == [
        *((name, Outcome.LEFT, f"must be owner of table {name}") for name in tables_of(world, superseded)),
        (INDEX, Outcome.LEFT, "must be owner of index orders_by_offset"),
    ]


def test_tables_that_are_not_named_like_staging_are_left_alone(world: PostgresWorld) -> None:
    names = {"notes", "b1_c1_rows", "b" + "0" * 32 + "_c_rows", "b" + "g" * 32 + "_c1_rows"}
    for name in names:
        world.run(f"CREATE TABLE kafka_ingest_staging.{name} ()")
    assert keep_house(PostgresHousekeeper(world.params), older_than_days=0) == ()
    assert staging(world) == names


def test_page_ranges_that_a_brin_index_has_not_summarised_are_summarised(world: PostgresWorld) -> None:
    first_plan(world)  # binds the target to the pipeline
    world.run(CREATE_INDEX)
    world.run(FILL)
    pages = world.run("SELECT pg_relation_size('shop.orders') / 8192")[0][0]
    assert pages > 1
    housekeeper = PostgresHousekeeper(world.params)
    [report] = keep_house(housekeeper, older_than_days=90)
    # The first page range of an empty table is summarised when the index is made.
    assert (report.chore, report.thing, report.outcome) == (Chore.SUMMARIZE_INDEX, INDEX, Outcome.DONE)
    assert report.count in (pages - 1, pages)
    [again] = keep_house(housekeeper, older_than_days=90)
    assert (again.outcome, again.count) == (Outcome.DONE, 0)


def test_the_indexes_of_partitions_are_found_and_other_kinds_are_not(world: PostgresWorld) -> None:
    first_plan(world)
    world.run("DROP TABLE shop.orders")
    world.run(
        "CREATE TABLE shop.orders (kafka_partition integer, kafka_offset bigint) PARTITION BY LIST (kafka_partition)"
    )
    world.run('CREATE TABLE shop."orders ""0""" PARTITION OF shop.orders FOR VALUES IN (0)')
    world.run("CREATE INDEX by_offset ON shop.orders USING brin (kafka_offset)")
    world.run("CREATE INDEX by_partition ON shop.orders (kafka_partition)")
    found = PostgresHousekeeper(world.params).brin_indexes()
    assert found == ['shop."orders ""0""_kafka_offset_idx"']
    assert PostgresHousekeeper(world.params).summarize(found[0]) == 0


def test_an_index_that_is_gone_or_in_use_is_left(world: PostgresWorld) -> None:
    housekeeper = PostgresHousekeeper(world.params, IMPATIENT)
    assert housekeeper.summarize("shop.nothing") == "the index is gone"
    world.run(CREATE_INDEX)
    with closing(psycopg2.connect(**world.params)) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE shop.orders IN SHARE UPDATE EXCLUSIVE MODE")
        assert housekeeper.summarize(INDEX) == "canceling statement due to lock timeout"


def test_a_database_without_a_ledger_is_told(postgres_server: PostgresServer) -> None:
    with pytest.raises(LedgerOutdated):
        keep_house(PostgresHousekeeper(postgres_server.params()), older_than_days=90)

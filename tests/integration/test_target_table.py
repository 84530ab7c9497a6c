from __future__ import annotations

import threading
import uuid
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from kafka_ingest.errors import TargetMismatch
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.preflight.database import PostgresPreflight
from kafka_ingest.protocol.target import CheckConstraint, TargetColumn, TargetShape
from kafka_ingest.settings import ColumnSettings, KeyFormat, KeySettings, MetadataColumns, TargetSettings
from tests.staging_bench import METADATA_COLUMNS, StagingBench, json_settings

TARGET = TargetSettings("shop", "orders", create_table=True)

COLUMNS = """
SELECT attname::text, format_type(atttypid, atttypmod), attnotnull
  FROM pg_attribute WHERE attrelid = 'shop.orders'::regclass AND attnum > 0 ORDER BY attnum"""
INDEXES = "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'shop.orders'::regclass"


def bench_of(database: dict[str, Any], *columns: ColumnSettings, **changes: Any) -> StagingBench:
    return StagingBench(database, json_settings(*columns, **{"target": TARGET, **changes}))


def test_a_created_table_has_the_written_columns_and_finds_offset_ranges(database: dict[str, Any]) -> None:
    bench = bench_of(
        database,
        ColumnSettings("id", "bigint", required=True),
        ColumnSettings("amount", "numeric(12,2)"),
        ColumnSettings("tags", "text[]"),
        key=KeySettings(KeyFormat.TEXT, "customer", required=True),
        headers_column="headers",
        metadata=MetadataColumns(timestamp_type="time_type"),
    )

    bench.target.prepare(bench.settings)

    assert bench.query(COLUMNS) == [
        ("id", "bigint", True),
        ("amount", "numeric(12,2)", False),
        ("tags", "text[]", False),
        ("customer", "text", True),
        ("headers", "jsonb", False),
        ("kafka_topic", "text", True),
        ("kafka_generation", "integer", True),
        ("kafka_partition", "integer", True),
        ("kafka_offset", "bigint", True),
        ("kafka_timestamp", "timestamp with time zone", False),
        ("time_type", "text", False),
        ("batch_id", "uuid", True),
    ]
    assert bench.query("SELECT relpersistence::text FROM pg_class WHERE oid = 'shop.orders'::regclass") == [("p",)]
    ((index,),) = bench.query(INDEXES)
    assert "USING brin (kafka_partition, kafka_offset)" in index


def test_a_unique_key_is_the_primary_key_of_a_created_table(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"), target=replace(TARGET, unique_key=True))

    bench.target.prepare(bench.settings)

    ((index,),) = bench.query(INDEXES)
    assert index.endswith("USING btree (kafka_topic, kafka_generation, kafka_partition, kafka_offset)")


def test_preparing_again_changes_nothing(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))
    bench.target.prepare(bench.settings)
    before = bench.query("SELECT oid, xmin::text FROM pg_class WHERE oid = 'shop.orders'::regclass")

    bench.target.prepare(bench.settings)

    assert bench.query("SELECT oid, xmin::text FROM pg_class WHERE oid = 'shop.orders'::regclass") == before
    assert len(bench.query(INDEXES)) == 1


def test_several_can_prepare_the_same_table_at_once(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))
    start = threading.Barrier(4)
    failures: list[BaseException] = []

    def prepare() -> None:
        start.wait()
        try:
            PostgresTarget(database).prepare(bench.settings)
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            failures.append(error)

    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert failures == []
    assert len(bench.query(INDEXES)) == 1


def test_a_missing_table_is_told_with_its_create_statement(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("Id", "bigint", required=True), target=TargetSettings("shop", "orders"))

    with pytest.raises(TargetMismatch) as stop:
        bench.target.prepare(bench.settings)

    statement = stop.value.found.split("set create_table: true, or ")[1]
    bench.run("CREATE SCHEMA shop")
    bench.run(statement)
    bench.target.prepare(bench.settings)


def test_every_mismatch_of_a_real_table_is_told_at_once_and_its_statements_remove_it(database: dict[str, Any]) -> None:
    bench = bench_of(
        database,
        ColumnSettings("id", "bigint"),
        ColumnSettings("Amount", "numeric(12,2)"),
        ColumnSettings("total", "integer"),
        ColumnSettings("number", "integer"),
        ColumnSettings("name", "text"),
    )
    bench.run(f"""
        CREATE DOMAIN amount_of_money AS numeric(10,2);
        CREATE SCHEMA shop;
        CREATE UNLOGGED TABLE shop.orders (
            id integer, "Amount" amount_of_money, total integer GENERATED ALWAYS AS (1 + 1) STORED,
            number integer GENERATED ALWAYS AS IDENTITY, seller text NOT NULL, {METADATA_COLUMNS}
        )""")

    with pytest.raises(TargetMismatch) as stop:
        bench.target.prepare(bench.settings)

    lines = [line.strip() for line in stop.value.found.strip().splitlines()]
    assert [line.split(":")[0] for line in lines] == [
        "shop.orders",
        "column id",
        "column Amount",
        "column total",
        "column number",
        "column name",
        "column seller",
    ]
    assert "found public.amount_of_money, a domain over numeric(10,2)" in lines[2]
    for line in lines:
        bench.run(line.split("; ", maxsplit=2)[2])
    bench.target.prepare(bench.settings)


@pytest.mark.parametrize("relation", ["VIEW", "MATERIALIZED VIEW"])
def test_a_view_is_refused(database: dict[str, Any], relation: str) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))
    bench.run(f"CREATE SCHEMA shop; CREATE {relation} shop.orders AS SELECT 1 AS id")

    with pytest.raises(TargetMismatch, match="does not fit") as stop:
        bench.target.prepare(bench.settings)

    assert f"found a {relation.lower()}" in stop.value.found


def test_missing_rights_are_told_with_their_grants(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))
    bench.target.prepare(bench.settings)
    role = f"loader_{uuid.uuid4().hex[:8]}"
    bench.run(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA shop TO {role}")
    limited = PostgresTarget({**database, "user": role, "password": "secret"})

    with pytest.raises(TargetMismatch) as stop:
        limited.prepare(bench.settings)

    lines = stop.value.found.strip().splitlines()
    assert len(lines) == 3  # SELECT, INSERT, the staging schema
    for line in lines:
        bench.run(line.split("; ", maxsplit=2)[2])
    limited.prepare(bench.settings)
    bench.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_sequence_that_the_role_may_not_use_is_told_with_its_grant(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))
    role = f"loader_{uuid.uuid4().hex[:8]}"
    bench.run(f"""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (
            id bigserial, "Nr" bigserial, counted bigint GENERATED ALWAYS AS IDENTITY, {METADATA_COLUMNS}
        );
        CREATE ROLE {role} LOGIN PASSWORD 'secret';
        GRANT USAGE ON SCHEMA shop TO {role};
        GRANT SELECT, INSERT, DELETE ON shop.orders TO {role};
        GRANT USAGE, CREATE ON SCHEMA kafka_ingest_staging TO {role}""")
    params = {**database, "user": role, "password": "secret"}

    with pytest.raises(TargetMismatch) as stop:
        PostgresTarget(params).prepare(bench.settings)

    [line] = stop.value.found.strip().splitlines()  # the pipeline fills id, and identity columns need no right
    assert "found not granted" in line
    grant = line.split("; ", maxsplit=2)[2]
    assert grant == f'GRANT USAGE ON SEQUENCE shop."orders_Nr_seq" TO "{role}";'
    bench.run(grant)
    PostgresTarget(params).prepare(bench.settings)
    with closing(psycopg2.connect(**params)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO shop.orders (kafka_topic, kafka_generation, kafka_partition, kafka_offset, batch_id, id)"
            " VALUES ('t', 0, 0, 0, gen_random_uuid(), 1)"
        )
    bench.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def weaknesses_of(bench: StagingBench) -> dict[str, str]:
    """What preflight warns of beside the missing index, with the statement that mends it."""
    facts = PostgresPreflight(bench.params).target(bench.settings)
    assert facts.faults == ()
    return {weakness.found: weakness.fix for weakness in facts.weaknesses if "offset range" not in weakness.found}


def test_rows_of_other_tables_that_a_reload_would_change_are_a_weakness(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))
    bench.run(f"""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (id bigint UNIQUE, {METADATA_COLUMNS});
        CREATE TABLE shop.notes ("order" bigint CONSTRAINT note_of REFERENCES shop.orders (id) ON DELETE CASCADE);
        CREATE TABLE shop.marks ("order" bigint CONSTRAINT mark_of REFERENCES shop.orders (id) ON DELETE SET NULL);
        CREATE TABLE shop.late ("order" bigint REFERENCES shop.orders (id) DEFERRABLE INITIALLY DEFERRED)""")
    advice = "or make it DEFERRABLE INITIALLY DEFERRED without an action"
    expected = "expected no action on DELETE; found ON DELETE"
    assert weaknesses_of(bench) == {
        f"foreign key mark_of: {expected} SET NULL: a reload or roll-back changes rows of shop.marks": (
            f'ALTER TABLE shop.marks DROP CONSTRAINT "mark_of"; {advice}'
        ),
        f"foreign key note_of: {expected} CASCADE: a reload or roll-back changes rows of shop.notes": (
            f'ALTER TABLE shop.notes DROP CONSTRAINT "note_of"; {advice}'
        ),
    }


@pytest.mark.parametrize("publication", ["FOR ALL TABLES", "FOR TABLE shop.orders"])
@pytest.mark.parametrize("is_partitioned", [False, True], ids=["a table", "a partition"])
@pytest.mark.parametrize("through_root", ["", "WITH (publish_via_partition_root = true)"], ids=["itself", "its root"])
def test_a_published_table_without_replica_identity_is_a_weakness_until_it_has_one(
    database: dict[str, Any], publication: str, through_root: str, *, is_partitioned: bool
) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))
    part = "shop.orders_1" if is_partitioned else "shop.orders"
    kind = "PARTITION BY RANGE (id)" if is_partitioned else ""
    bench.run(f"CREATE SCHEMA shop; CREATE TABLE shop.orders (id bigint, {METADATA_COLUMNS}) {kind}")
    if is_partitioned:
        bench.run("CREATE TABLE shop.orders_1 PARTITION OF shop.orders DEFAULT")
    bench.run(f"CREATE PUBLICATION inserts {publication} WITH (publish = 'insert')")
    assert weaknesses_of(bench) == {}
    bench.run(f"CREATE PUBLICATION feed {publication} {through_root}")

    [(found, fix)] = weaknesses_of(bench).items()

    assert found == (
        f"{part}: expected a replica identity; found publication feed publishes deletes, and there is none:"
        " a reload or roll-back fails"
    )
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState):
        bench.run("DELETE FROM shop.orders")
    bench.run(fix)
    assert weaknesses_of(bench) == {}
    bench.run("DELETE FROM shop.orders")


def test_the_shape_is_that_of_the_catalog(database: dict[str, Any]) -> None:
    bench = bench_of(
        database, ColumnSettings("id", "integer", required=True), ColumnSettings("name", "text"), target=TARGET
    )
    bench.run(f"""
        CREATE SCHEMA shop;
        CREATE FUNCTION shop.is_odd(n bigint) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN n % 2 = 1;
        CREATE TABLE shop.orders (
            other text, name text NOT NULL, id bigint, {METADATA_COLUMNS},
            CONSTRAINT id_is_odd CHECK (shop.is_odd(id)), CONSTRAINT "a name" CHECK (name <> '')
        )""")

    assert bench.target.shape(bench.settings) == TargetShape(
        columns=(
            TargetColumn("id", "integer", False),
            TargetColumn("name", "text", True),
            TargetColumn("kafka_topic", "text", True),
            TargetColumn("kafka_generation", "integer", True),
            TargetColumn("kafka_partition", "integer", True),
            TargetColumn("kafka_offset", "bigint", True),
            TargetColumn("kafka_timestamp", "timestamp with time zone", False),
            TargetColumn("batch_id", "uuid", True),
        ),
        checks=(
            CheckConstraint("a name", "(name <> ''::text)", ("name",)),
            CheckConstraint("id_is_odd", "shop.is_odd(id)", ("id",)),
        ),
    )


def test_staging_is_made_once_for_a_claim_and_replaces_that_of_older_claims(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))
    bench.prepare()
    bench.staging.create(bench.batch)
    assert bench.tables() == ["dead_letters", "progress", "rows"]

    bench.staging.create(replace(bench.batch, claim=12))

    assert bench.tables() == []
    assert bench.tables(claim=12) == ["dead_letters", "progress", "rows"]


def test_an_older_claim_does_not_drop_the_staging_of_a_newer_one(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))
    bench.target.prepare(bench.settings)
    for claim in (1, 2):
        bench.staging.create(replace(bench.batch, claim=claim))

    bench.staging.drop(bench.batch)
    assert bench.tables(claim=2) == ["dead_letters", "progress", "rows"]

    bench.staging.drop(replace(bench.batch, claim=2))
    assert bench.tables(claim=2) == []


def test_staging_of_another_batch_is_left_alone(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))
    bench.prepare()

    bench.staging.drop(replace(bench.batch, batch_id=str(uuid.uuid4()), claim=9))

    assert bench.tables() == ["dead_letters", "progress", "rows"]


def test_staging_says_that_the_target_is_gone(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))

    with pytest.raises(TargetMismatch, match="is gone"):
        bench.staging.create(bench.batch)


def test_there_is_no_progress_without_tables(database: dict[str, Any]) -> None:
    bench = bench_of(database, ColumnSettings("id", "bigint"))

    progress = bench.staging.progress(bench.batch)

    assert (progress.records, progress.offsets) == (0, 0)

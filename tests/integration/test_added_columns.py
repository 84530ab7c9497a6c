"""Columns that a load adds to a real table: who owns it, what it has already, and who else is at it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from kafka_ingest.errors import CommitStateUnknown, Fenced, LockTimeout, TargetMismatch
from kafka_ingest.postgres import database as postgres_database
from kafka_ingest.postgres.database import TransactionLimits
from kafka_ingest.postgres.faults import CommitAnswerLost
from kafka_ingest.postgres.schema_changes import PostgresSchemaEvolution
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.preflight.checks import Verdict
from kafka_ingest.preflight.database import PostgresPreflight, target_results
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.new_columns import with_added_columns
from kafka_ingest.protocol.staging import NewField
from tests.builders import offset_range, position
from tests.contracts.ledger_values import LATER, claimed, load, new_plan, view
from tests.contracts.ledger_worlds import PostgresWorld
from tests.contracts.test_schema_evolution_contract import NOTE, NOTE_COLUMN, SETTINGS, TOTAL, TOTAL_COLUMN
from tests.integration.test_ledger_concurrency import waiting

PATIENT = TransactionLimits(lock_timeout_seconds=20)


@pytest.fixture
def world(database: dict[str, Any]) -> PostgresWorld:
    return PostgresWorld(database)


def batch_of(world: PostgresWorld, pipeline: str = "orders") -> Batch:
    """The first batch of a pipeline that loads the topic of its name into shop.orders, claimed."""
    planned = replace(offset_range(0, 0, 3), topic=pipeline)
    plan = new_plan(planned, begins=(position(0, 0, topic=pipeline),))
    recorded = world.ledger.record_plan(
        replace(plan, pipeline=pipeline, settings=SETTINGS), view(world, pipeline=pipeline)
    )
    return claimed(world, recorded)


def columns(world: PostgresWorld, table: str = "shop.orders") -> dict[str, tuple[str, bool]]:
    """Type and whether NULL is refused, of the columns that are not there from the beginning."""
    found = world.run(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute WHERE attrelid = %s::regclass"
        " AND attnum > 0 AND NOT attisdropped AND attname !~ '^(kafka_|batch_id|payload)' ORDER BY attnum",
        (table,),
    )
    return {name: (type_, not_null) for name, type_, not_null in found}


def recorded(world: PostgresWorld) -> list[tuple[Any, ...]]:
    listed = "pipeline, target_schema, target_table, column_name, column_type, path, batch_id::text, claim, who, why"
    return world.run(f"SELECT {listed} FROM kafka_ingest.schema_change ORDER BY change_number")


def test_columns_are_nullable_and_the_ledger_says_who_and_why(world: PostgresWorld) -> None:
    batch = batch_of(world)
    world.add_column("note", "jsonb")
    assert world.evolution.add_columns(batch, [NOTE, TOTAL]) == (NOTE_COLUMN, TOTAL_COLUMN)
    assert columns(world) == {"note": ("jsonb", False), "order_total": ("numeric(10,2)", False)}
    who = "DAG orders, run scheduled__2026-01-02T12:00:00+00:00"
    place, by = ("orders", "shop", "orders"), (batch.batch_id, 1, who)
    assert recorded(world) == [
        (*place, "note", "jsonb", ["note"], *by, "value.new_fields: add_column; the table had the column"),
        (*place, "order_total", "numeric(10,2)", ["order", "total"], *by, "value.new_fields: add_column"),
    ]


def test_all_columns_are_added_by_one_statement_that_rewrites_no_row(world: PostgresWorld) -> None:
    load(world, batch_of(world))
    file = "SELECT relfilenode FROM pg_class WHERE oid = 'shop.orders'::regclass"
    before = world.run(file)
    world.run(
        "CREATE TABLE shop.told (tag text); CREATE FUNCTION shop.tell() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO shop.told SELECT command_tag FROM pg_event_trigger_ddl_commands(); END $$;"
        " CREATE EVENT TRIGGER tell ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION shop.tell()"
    )
    plan = new_plan(offset_range(0, 3, 6), request=LATER)
    later = claimed(world, world.ledger.record_plan(replace(plan, settings=SETTINGS), view(world, LATER)))
    world.evolution.add_columns(later, [NOTE, TOTAL])
    assert world.run("SELECT tag FROM shop.told") == [("ALTER TABLE",)]
    assert world.run(file) == before


def test_names_that_need_quotes_are_names(world: PostgresWorld) -> None:
    batch = batch_of(world)
    fields = [NewField(path, "jsonb") for path in (("Größe",), ('say "x"', "y"), ("select",), ("a.b",))]
    world.evolution.add_columns(batch, fields)
    assert list(columns(world)) == ["Größe", 'say "x"_y', "select", "a.b"]
    assert load(world, batch).counts is not None


# Whose the table is.


@contextmanager
def role_of(world: PostgresWorld) -> Iterator[tuple[str, dict[str, Any]]]:
    """A role that may do all that loading needs, and its connection."""
    role = f"loader_{uuid.uuid4().hex[:8]}"
    world.run(f"""
        CREATE ROLE {role} LOGIN PASSWORD 'secret';
        GRANT USAGE ON SCHEMA shop, kafka_ingest TO {role};
        GRANT ALL ON SCHEMA kafka_ingest_staging TO {role};
        GRANT SELECT, INSERT, DELETE ON ALL TABLES IN SCHEMA shop TO {role};
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kafka_ingest TO {role}""")
    try:
        yield role, {**world.params, "user": role, "password": "secret"}
    finally:
        world.run(f"REASSIGN OWNED BY {role} TO CURRENT_USER; DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_table_of_another_role_is_told_by_preflight_plan_and_load_with_what_helps(world: PostgresWorld) -> None:
    batch = batch_of(world)
    with role_of(world) as (role, params):
        evolution = PostgresSchemaEvolution(params)
        with pytest.raises(TargetMismatch) as stop:
            evolution.add_columns(batch, [NOTE])
        with pytest.raises(TargetMismatch) as plan_stop:
            PostgresTarget(params).prepare(SETTINGS)
        results = target_results(SETTINGS.target, PostgresPreflight(params).target(SETTINGS))
        [line] = [result for result in results if result.result is Verdict.FAIL]
        assert f"role {role}: expected the owner of shop.orders, to add columns" in line.found
        for found in (stop.value.found, plan_stop.value.found):
            assert line.found in found
        assert (columns(world), recorded(world)) == ({}, [])

        world.run(line.fix.split("; ")[0])
        PostgresTarget(params).prepare(SETTINGS)
        assert evolution.add_columns(batch, [NOTE]) == (NOTE_COLUMN,)


def test_a_table_of_another_role_is_no_matter_where_no_column_is_ever_added(world: PostgresWorld) -> None:
    settings = replace(SETTINGS, value=replace(SETTINGS.value, new_fields=type(SETTINGS.value.new_fields).IGNORE))
    with role_of(world) as (_, params):
        PostgresTarget(params).prepare(settings)


def test_a_column_that_is_there_is_taken_without_owning_the_table(world: PostgresWorld) -> None:
    batch = batch_of(world)
    world.add_column("note", "jsonb")
    with role_of(world) as (_, params):
        assert PostgresSchemaEvolution(params).add_columns(batch, [NOTE]) == (NOTE_COLUMN,)


def test_a_member_of_the_owner_may_add_columns(world: PostgresWorld) -> None:
    batch = batch_of(world)
    owner = f"owner_{uuid.uuid4().hex[:8]}"
    with role_of(world) as (role, params):
        world.run(f"CREATE ROLE {owner}; GRANT ALL ON SCHEMA shop TO {owner}; ALTER TABLE shop.orders OWNER TO {owner}")
        try:
            [fault] = PostgresPreflight(params).target(SETTINGS).faults
            assert fault.fix == f'ALTER TABLE shop.orders OWNER TO "{role}"; or GRANT "{owner}" TO "{role}";'
            world.run(f"GRANT {owner} TO {role}")
            assert PostgresSchemaEvolution(params).add_columns(batch, [NOTE]) == (NOTE_COLUMN,)
        finally:
            world.run(f"REASSIGN OWNED BY {owner} TO CURRENT_USER; DROP OWNED BY {owner}; DROP ROLE {owner}")


# What the table is like.


def partitioned(world: PostgresWorld) -> None:
    world.run("""
        ALTER TABLE shop.orders RENAME TO plain;
        CREATE TABLE shop.orders (LIKE shop.plain) PARTITION BY RANGE (kafka_offset);
        CREATE TABLE shop.low PARTITION OF shop.orders FOR VALUES FROM (0) TO (2);
        CREATE TABLE shop.high PARTITION OF shop.orders DEFAULT""")


def test_a_partitioned_table_and_its_partitions_get_the_column(world: PostgresWorld) -> None:
    partitioned(world)
    batch = batch_of(world)
    world.evolution.add_columns(batch, [NOTE])
    for table in ("shop.orders", "shop.low", "shop.high"):
        assert columns(world, table) == {"note": ("jsonb", False)}
    assert load(world, batch).counts is not None
    assert [row.offset for row in world.rows()] == [0, 1, 2]


def test_a_partition_of_another_owner_is_named(world: PostgresWorld) -> None:
    partitioned(world)
    batch = batch_of(world)
    with role_of(world) as (role, params):
        world.run(f"ALTER TABLE shop.orders OWNER TO {role}; ALTER TABLE shop.low OWNER TO {role}")
        with pytest.raises(TargetMismatch, match=r"the owner of shop\.high") as stop:
            PostgresSchemaEvolution(params).add_columns(batch, [NOTE])
    assert "shop.low" not in stop.value.found
    assert columns(world) == {}


def test_a_table_that_is_itself_a_partition_cannot_get_a_column(world: PostgresWorld) -> None:
    world.run("""
        ALTER TABLE shop.orders RENAME TO plain;
        CREATE TABLE shop.every (LIKE shop.plain) PARTITION BY RANGE (kafka_offset);
        CREATE TABLE shop.orders PARTITION OF shop.every DEFAULT""")
    with pytest.raises(TargetMismatch, match="cannot add column to a partition"):
        world.evolution.add_columns(batch_of(world), [NOTE])
    assert recorded(world) == []


def test_a_child_with_a_column_of_that_name_and_another_type_stops(world: PostgresWorld) -> None:
    batch = batch_of(world)
    world.run("CREATE TABLE shop.child (note integer) INHERITS (shop.orders)")
    with pytest.raises(TargetMismatch, match="child table"):
        world.evolution.add_columns(batch, [NOTE])
    assert (columns(world), recorded(world)) == ({}, [])


def test_triggers_of_the_table_see_the_new_column(world: PostgresWorld) -> None:
    world.run("""
        CREATE FUNCTION shop.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$;
        CREATE TRIGGER look BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.look()""")
    batch = batch_of(world)
    world.evolution.add_columns(batch, [NOTE])
    load(world, batch)
    assert [row.offset for row in world.rows()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("definition", "found"),
    [
        ("text GENERATED ALWAYS AS (kafka_topic) STORED", "a generated column"),
        ("integer GENERATED ALWAYS AS IDENTITY", "GENERATED ALWAYS AS IDENTITY"),
        ("text NOT NULL DEFAULT ''", "NOT NULL"),
        ("integer", "integer"),
        ("varchar(10)", "character varying(10)"),
    ],
)
def test_a_column_that_cannot_take_the_values_stops(world: PostgresWorld, definition: str, found: str) -> None:
    batch = batch_of(world)
    world.run(f"ALTER TABLE shop.orders ADD COLUMN note {definition}")
    with pytest.raises(TargetMismatch) as stop:
        world.evolution.add_columns(batch, [NewField(("note",), "text")])
    assert f"found {found}" in stop.value.found
    assert recorded(world) == []


@pytest.mark.parametrize("definition", ["varchar", "text DEFAULT 'x'", "shop.words", "shop.kind"])
def test_a_column_that_can_take_the_values_is_taken(world: PostgresWorld, definition: str) -> None:
    batch = batch_of(world)
    world.run("CREATE DOMAIN shop.words AS text CHECK (value <> ''); CREATE TYPE shop.kind AS ENUM ('a', 'b')")
    world.run(f"ALTER TABLE shop.orders ADD COLUMN note {definition}")
    before = columns(world)
    assert len(world.evolution.add_columns(batch, [NewField(("note",), "text")])) == 1
    assert columns(world) == before


def test_a_generated_column_that_reads_none_of_ours_stays_beside_new_ones(world: PostgresWorld) -> None:
    world.run("ALTER TABLE shop.orders ADD COLUMN size integer GENERATED ALWAYS AS (length(payload)) STORED")
    batch = batch_of(world)
    world.evolution.add_columns(batch, [NOTE])
    assert load(world, batch).counts is not None
    assert world.run("SELECT DISTINCT size FROM shop.orders") == [(7,)]


def test_an_event_trigger_that_forbids_it_stops_and_nothing_is_recorded(world: PostgresWorld) -> None:
    batch = batch_of(world)
    world.run("""
        CREATE FUNCTION shop.forbid() RETURNS event_trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'ask the DBA'; END $$;
        CREATE EVENT TRIGGER forbid ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION shop.forbid()""")
    with pytest.raises(TargetMismatch, match="ask the DBA"):
        world.evolution.add_columns(batch, [NOTE])
    assert (columns(world), recorded(world)) == ({}, [])


def test_a_table_that_is_gone_stops(world: PostgresWorld) -> None:
    batch = batch_of(world)
    world.run("DROP TABLE shop.orders")
    with pytest.raises(TargetMismatch, match="is gone"):
        world.evolution.add_columns(batch, [NOTE])


def test_a_created_table_gets_the_columns_that_were_added_before(world: PostgresWorld) -> None:
    """As after a reset of a lost table to the beginning of the log."""
    world.evolution.add_columns(batch_of(world), [NOTE, TOTAL])
    world.run("DROP TABLE shop.orders")
    added = view(world).added_columns
    PostgresTarget(world.params).prepare(with_added_columns(SETTINGS, added))
    assert columns(world) == {"note": ("jsonb", False), "order_total": ("numeric(10,2)", False)}


def test_another_table_has_columns_of_its_own(world: PostgresWorld) -> None:
    """After change-target the pipeline's fields are new to the other table, and may be columns of it already."""
    batch = batch_of(world)
    world.evolution.add_columns(batch, [NOTE])
    world.run("CREATE TABLE shop.other (LIKE shop.orders)")
    moved = replace(batch, settings=replace(SETTINGS, target=replace(SETTINGS.target, table="other")))
    assert world.evolution.add_columns(moved, [NOTE]) == (NOTE_COLUMN,)
    assert [row[2] for row in recorded(world)] == ["orders", "other"]


# Who else is at it.


def test_a_table_that_somebody_uses_for_too_long_is_a_lock_time_out_that_alters_nothing(
    world: PostgresWorld,
) -> None:
    batch = batch_of(world)
    with closing(psycopg2.connect(**world.params)) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM shop.orders")
        with pytest.raises(LockTimeout):
            world.evolution.add_columns(batch, [NOTE])
    assert (columns(world), recorded(world)) == ({}, [])
    assert world.evolution.add_columns(batch, [NOTE]) == (NOTE_COLUMN,)


def test_a_column_that_is_there_is_taken_beside_a_reader(world: PostgresWorld) -> None:
    batch = batch_of(world)
    world.add_column("note", "jsonb")
    with closing(psycopg2.connect(**world.params)) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM shop.orders")
        assert world.evolution.add_columns(batch, [NOTE]) == (NOTE_COLUMN,)


def test_two_pipelines_on_one_table_add_a_column_once_and_both_fill_it(world: PostgresWorld) -> None:
    orders, returns = batch_of(world), batch_of(world, "returns")
    patient = PostgresSchemaEvolution(world.params, PATIENT)
    with closing(psycopg2.connect(**world.params)) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM shop.orders")
        with (
            waiting(world, lambda: patient.add_columns(orders, [NOTE])) as first,
            waiting(world, lambda: patient.add_columns(returns, [NOTE, TOTAL])) as second,
        ):
            reader.rollback()
            assert first.result(20) == (NOTE_COLUMN,)
            assert second.result(20) == (NOTE_COLUMN, TOTAL_COLUMN)
    assert list(columns(world)) == ["note", "order_total"]
    assert sorted((row[0], row[3]) for row in recorded(world)) == [
        ("orders", "note"),
        ("returns", "note"),
        ("returns", "order_total"),
    ]
    assert [column.name for column in claimed(world, orders).settings.value.columns] == ["payload", "note"]
    for batch in (orders, returns):
        load(world, batch)
    assert len(world.rows()) == 6


def test_a_column_that_somebody_adds_meanwhile_is_taken(world: PostgresWorld) -> None:
    batch = batch_of(world)
    patient = PostgresSchemaEvolution(world.params, PATIENT)
    with closing(psycopg2.connect(**world.params)) as other, other.cursor() as cursor:
        cursor.execute("ALTER TABLE shop.orders ADD COLUMN note jsonb, ADD COLUMN theirs text")
        with waiting(world, lambda: patient.add_columns(batch, [NOTE, TOTAL])) as adding:
            other.commit()
            assert adding.result(20) == (NOTE_COLUMN, TOTAL_COLUMN)
    assert list(columns(world)) == ["note", "theirs", "order_total"]


def test_a_column_of_another_type_that_somebody_adds_meanwhile_stops(world: PostgresWorld) -> None:
    batch = batch_of(world)
    patient = PostgresSchemaEvolution(world.params, PATIENT)
    with closing(psycopg2.connect(**world.params)) as other, other.cursor() as cursor:
        cursor.execute("ALTER TABLE shop.orders ADD COLUMN note date")
        with waiting(world, lambda: patient.add_columns(batch, [NOTE, TOTAL])) as adding:
            other.commit()
            with pytest.raises(TargetMismatch, match="found date"):
                adding.result(20)
    assert (list(columns(world)), recorded(world)) == (["note"], [])


def test_a_claim_waits_for_columns_under_way_and_reads_them(world: PostgresWorld) -> None:
    batch = batch_of(world)
    patient = PostgresSchemaEvolution(world.params, PATIENT)
    with closing(psycopg2.connect(**world.params)) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM shop.orders")
        with waiting(world, lambda: patient.add_columns(batch, [NOTE])) as adding:
            reader.rollback()
            assert adding.result(20) == (NOTE_COLUMN,)
    assert [column.name for column in claimed(world, batch).settings.value.columns] == ["payload", "note"]


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_lost_answer_to_commit_is_unknown_and_the_next_claim_reads_what_became_of_it(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch, took_effect: bool
) -> None:
    batch, commit = batch_of(world), postgres_database.commit

    def lost(cursor: Any) -> None:
        if took_effect:
            commit(cursor)
        raise CommitAnswerLost("the connection broke")

    with monkeypatch.context() as patched:
        patched.setattr(postgres_database, "commit", lost)
        with pytest.raises(CommitStateUnknown):
            world.evolution.add_columns(batch, [NOTE])
    again = claimed(world, batch)
    added = ["note"] if took_effect else []
    assert [column.name for column in again.settings.value.columns] == ["payload", *added]
    assert list(columns(world)) == added


def test_an_older_claim_does_not_even_ask_for_the_lock(world: PostgresWorld) -> None:
    batch = batch_of(world)
    claimed(world, batch)
    with closing(psycopg2.connect(**world.params)) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM shop.orders")
        with pytest.raises(Fenced):
            world.evolution.add_columns(batch, [NOTE])

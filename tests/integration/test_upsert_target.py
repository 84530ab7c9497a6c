"""Tables that hold the current state, on a real PostgreSQL: what is created, what is refused, and what mends it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from kafka_ingest.errors import TargetMismatch
from kafka_ingest.postgres.catalog import read_table
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.preflight.database import Finding, PostgresPreflight
from kafka_ingest.protocol.batch import Request
from kafka_ingest.protocol.ledger_view import ServedTopic
from kafka_ingest.protocol.target import TargetColumn
from kafka_ingest.settings import BatchSettings, ColumnSettings, Deletes, OrderBy, TargetSettings, UpsertSettings
from tests.staging_bench import METADATA_COLUMNS, StagingBench, json_settings

TARGET = TargetSettings("shop", "orders", create_table=True)
BY_ID = UpsertSettings(("id",), OrderBy.OFFSET, Deletes.REMOVE)
MARKING = replace(BY_ID, deletes=Deletes.MARK, deleted_at="deleted_at")
ID, NAME = ColumnSettings("id", "bigint", required=True), ColumnSettings("name", "text")


def bench_of(database: dict[str, Any], *columns: ColumnSettings, upsert: UpsertSettings = BY_ID) -> StagingBench:
    return StagingBench(database, json_settings(*(columns or (ID, NAME)), target=TARGET, upsert=upsert))


def made(
    database: dict[str, Any],
    definitions: str,
    *also: str,
    columns: tuple[ColumnSettings, ...] = (),
    upsert: UpsertSettings = BY_ID,
) -> StagingBench:
    """A bench with the table ``shop.orders`` of these definitions and the metadata columns."""
    bench = bench_of(database, *columns, upsert=upsert)
    table = definitions if "{metadata}" in definitions else f"({definitions}, {{metadata}})"
    bench.run(f"CREATE SCHEMA shop; CREATE TABLE shop.orders {table.format(metadata=METADATA_COLUMNS)}")
    for statement in also:
        bench.run(statement)
    return bench


def faults_of(bench: StagingBench, params: dict[str, Any] | None = None) -> tuple[Finding, ...]:
    return PostgresPreflight(params or bench.params).target(bench.settings).faults


def weaknesses_of(bench: StagingBench) -> tuple[Finding, ...]:
    facts = PostgresPreflight(bench.params).target(bench.settings)
    assert facts.faults == ()
    return facts.weaknesses


def require_refused_until_mended(bench: StagingBench, *expected: str, params: dict[str, Any] | None = None) -> None:
    """The plan and preflight tell these differences and no others; the statements of all of them make the table fit."""
    found = faults_of(bench, params)
    assert [text for text, fault in zip(expected, found, strict=True) if text not in fault.found] == []
    target = PostgresTarget(params or bench.params)
    with pytest.raises(TargetMismatch) as stop:
        target.prepare(bench.settings)
    for fault in found:
        assert fault.fix in stop.value.found
        bench.run(fault.fix)
    target.prepare(bench.settings)


def test_a_created_table_has_the_key_as_its_one_index_in_the_order_of_the_settings(database: dict[str, Any]) -> None:
    shop = ColumnSettings("shop", "text", required=True)
    bench = bench_of(database, ID, NAME, shop, upsert=replace(MARKING, key=("shop", "id")))

    bench.target.prepare(bench.settings)

    indexes = "SELECT pg_get_indexdef(indexrelid), indisprimary FROM pg_index WHERE indrelid = 'shop.orders'::regclass"
    [(index, is_primary)] = bench.query(indexes)
    assert (index.partition(" USING ")[2], is_primary) == ("btree (shop, id)", True)
    nullable = """
        SELECT attname::text FROM pg_attribute
         WHERE attrelid = 'shop.orders'::regclass AND attnum > 0 AND NOT attnotnull ORDER BY attnum"""
    assert bench.query(nullable) == [("name",), ("kafka_timestamp",), ("deleted_at",)]
    assert weaknesses_of(bench) == ()


def test_a_missing_table_is_told_with_a_statement_that_makes_the_key(database: dict[str, Any]) -> None:
    bench = bench_of(database, ID, NAME)
    bench = StagingBench(database, replace(bench.settings, target=TargetSettings("shop", "orders")))
    [missing] = faults_of(bench)
    bench.run("CREATE SCHEMA shop")
    bench.run(missing.fix.partition("or ")[2])
    assert faults_of(bench) == ()


@pytest.mark.parametrize(
    "definitions",
    [
        "id bigint, shop bigint, UNIQUE (shop, id)",
        "id bigint, shop bigint, note text, UNIQUE (id, shop) INCLUDE (note)",
        "id bigint, shop bigint, PRIMARY KEY (id, shop)",
    ],
    ids=["another order", "further columns in its leaves", "a primary key"],
)
def test_any_unique_index_over_just_the_key_fits(database: dict[str, Any], definitions: str) -> None:
    columns = (ID, ColumnSettings("shop", "bigint", required=True))
    bench = made(database, definitions, columns=columns, upsert=replace(BY_ID, key=("id", "shop")))
    bench.target.prepare(bench.settings)


@pytest.mark.parametrize(
    ("index", "found"),
    [
        ("", "found none"),
        ("CREATE INDEX odd ON shop.orders (id)", "found none"),
        ("CREATE UNIQUE INDEX odd ON shop.orders (id, name)", "found none"),
        ("CREATE UNIQUE INDEX odd ON shop.orders ((id + 0))", "found none"),
        ("CREATE UNIQUE INDEX odd ON shop.orders (id) WHERE id > 0", "found unique index shop.odd, but it is partial"),
        (
            "ALTER TABLE shop.orders ADD CONSTRAINT odd UNIQUE (id) DEFERRABLE",
            "found unique index shop.odd, but it is deferrable",
        ),
    ],
    ids=["none", "not unique", "wider", "an expression", "partial", "deferrable"],
)
def test_an_index_that_does_not_keep_one_row_a_key_is_refused_until_there_is_one(
    database: dict[str, Any], index: str, found: str
) -> None:
    bench = made(database, "id bigint, name text", *([index] if index else []))
    require_refused_until_mended(bench, f'key: expected a unique index over exactly ("id"); {found}')


def test_an_index_that_was_left_unfinished_is_refused(database: dict[str, Any]) -> None:
    bench = made(database, "id bigint, name text", "CREATE UNIQUE INDEX odd ON shop.orders (id)")
    bench.run("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'shop.odd'::regclass")
    require_refused_until_mended(bench, "found unique index shop.odd, but it is invalid")


@pytest.mark.parametrize(
    ("index", "found"),
    [
        ('shop COLLATE "C"', "has another collation than its column (shop)"),
        ("shop text_pattern_ops", "has another operator class than its type's default (shop)"),
        ("shop bpchar_ops", "has another operator class than its type's default (shop)"),
        ('shop COLLATE "C" text_pattern_ops', "and has another operator class than its type's default (shop)"),
    ],
)
@pytest.mark.parametrize("type_", ["varchar", "shop.name"], ids=["plain", "a domain"])
def test_an_index_that_compares_otherwise_than_the_column_does_is_refused(
    database: dict[str, Any], type_: str, index: str, found: str
) -> None:
    shop = ColumnSettings("shop", "character varying", required=True)
    bench = bench_of(database, ID, shop, upsert=replace(BY_ID, key=("id", "shop")))
    bench.run("CREATE SCHEMA shop; CREATE DOMAIN shop.base AS varchar; CREATE DOMAIN shop.name AS shop.base")
    bench.run(f"CREATE TABLE shop.orders (id bigint, shop {type_}, {METADATA_COLUMNS})")
    bench.run(f"CREATE UNIQUE INDEX odd ON shop.orders (id, {index})")
    require_refused_until_mended(bench, found)


KEY_TYPES = [
    ("boolean", "boolean"),
    ("integer", "bigint"),
    ("smallint", "smallint"),
    ("bigint", "bigint"),
    ("numeric(8,2)", "numeric"),
    ("character varying(5)", "text"),
    ("text", "text"),
    ("date", "date"),
    ("time without time zone", "time"),
    ("timestamp without time zone", "timestamp"),
    ("timestamp with time zone", "timestamptz"),
    ("uuid", "uuid"),
    ("bytea", "bytea"),
]


def test_every_type_of_a_key_has_an_index_that_is_known_as_its_own(database: dict[str, Any]) -> None:
    columns = [ColumnSettings(f"c{n}", written, required=True) for n, (written, _) in enumerate(KEY_TYPES)]
    names = [column.name for column in columns]
    definitions = ", ".join(f"{name} {type_}" for name, (_, type_) in zip(names, KEY_TYPES, strict=True))
    bench = made(
        database,
        f"{definitions}, UNIQUE ({', '.join(names)})",
        columns=tuple(columns),
        upsert=replace(BY_ID, key=tuple(names)),
    )
    bench.target.prepare(bench.settings)


@pytest.mark.parametrize(
    ("type_", "found"),
    [
        ("public.citext", "found public.citext"),
        ("shop.mail", "found shop.mail, a domain over public.citext"),
        ("shop.mood", "found shop.mood"),
        ("char(5)", "found character(5)"),
    ],
)
def test_a_key_column_that_takes_different_texts_for_equal_is_refused(
    database: dict[str, Any], type_: str, found: str
) -> None:
    bench = bench_of(database, ColumnSettings("code", "text", required=True), upsert=replace(BY_ID, key=("code",)))
    bench.run("CREATE EXTENSION IF NOT EXISTS citext SCHEMA public; CREATE SCHEMA shop")
    bench.run("CREATE TYPE shop.mood AS ENUM ('good'); CREATE DOMAIN shop.mail AS public.citext")
    bench.run(f"CREATE TABLE shop.orders (code {type_} PRIMARY KEY, {METADATA_COLUMNS})")
    require_refused_until_mended(bench, f"column code: expected text; {found}")


@pytest.mark.parametrize("type_", ["text COLLATE shop.loose", "shop.loose_text"], ids=["plain", "a domain"])
def test_a_key_column_with_a_nondeterministic_collation_is_refused(database: dict[str, Any], type_: str) -> None:
    bench = bench_of(database, ColumnSettings("code", "text", required=True), upsert=replace(BY_ID, key=("code",)))
    bench.run("CREATE SCHEMA shop")
    try:
        bench.run("CREATE COLLATION shop.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    except psycopg2.errors.FeatureNotSupported:  # a server built without ICU: only the catalog can say so
        bench.run("CREATE COLLATION shop.loose (provider = libc, locale = 'C')")
        bench.run("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'loose'")
    bench.run("CREATE DOMAIN shop.loose_text AS text COLLATE shop.loose")
    bench.run(f"CREATE TABLE shop.orders (code {type_} PRIMARY KEY, {METADATA_COLUMNS})")
    require_refused_until_mended(bench, "expected a deterministic collation; found shop.loose")


def test_what_marks_cannot_fill_must_allow_null_and_other_deletes_do_not_ask(database: dict[str, Any]) -> None:
    columns = (ID, NAME, ColumnSettings("size", "integer"))
    bench = bench_of(database, *columns, upsert=MARKING)
    bench.run("CREATE SCHEMA shop; CREATE DOMAIN shop.size AS integer NOT NULL")
    bench.run(f"""
        CREATE TABLE shop.orders (
            id bigint PRIMARY KEY, name text NOT NULL, size shop.size, deleted_at timestamptz NOT NULL,
            {METADATA_COLUMNS})""")
    bench.run("ALTER TABLE shop.orders ALTER COLUMN kafka_timestamp SET NOT NULL")
    ignoring = replace(bench.settings, upsert=replace(BY_ID, deletes=Deletes.IGNORE))

    assert [f.found.partition(":")[0] for f in PostgresPreflight(database).target(ignoring).faults] == [
        "column deleted_at"  # the pipeline does not know it
    ]
    text = "expected NULL allowed: the row of a delete has no value there; found NOT NULL"
    require_refused_until_mended(bench, f"column name: {text}", f"column size: {text}", f"column deleted_at: {text}")


def test_every_difference_is_told_at_once(database: dict[str, Any]) -> None:
    bench = made(
        database,
        "id integer, name text NOT NULL, deleted_at timestamptz",
        "CREATE RULE keep AS ON DELETE TO shop.orders DO INSTEAD NOTHING",
        "CREATE RULE stay AS ON UPDATE TO shop.orders DO INSTEAD NOTHING",
        "CREATE RULE none AS ON INSERT TO shop.orders DO INSTEAD NOTHING",
        "CREATE TABLE shop.more () INHERITS (shop.orders)",
        upsert=MARKING,
    )
    require_refused_until_mended(
        bench,
        "rule none on shop.orders: expected no rule that takes the place of INSERT",
        "column id: expected bigint",
        "key: expected a unique index",
        "column name: expected NULL allowed",
        "rule keep on shop.orders: expected no rule that takes the place of DELETE; found a rule ON DELETE DO INSTEAD",
        "rule stay on shop.orders: expected no rule that takes the place of UPDATE; found a rule ON UPDATE DO INSTEAD",
        "shop.more: expected no table that inherits from the target",
    )


def test_a_partitioned_table_fits_where_its_key_holds_the_partition_key(database: dict[str, Any]) -> None:
    bench = made(
        database,
        "(id bigint, name text, {metadata}, UNIQUE (id)) PARTITION BY HASH (id)",
        "CREATE TABLE shop.orders_0 PARTITION OF shop.orders FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
    )
    bench.target.prepare(bench.settings)


def test_a_partitioned_index_that_a_partition_lacks_is_refused(database: dict[str, Any]) -> None:
    bench = made(
        database,
        "(id bigint, name text, {metadata}) PARTITION BY HASH (id)",
        "CREATE TABLE shop.orders_0 PARTITION OF shop.orders FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        "CREATE UNIQUE INDEX odd ON ONLY shop.orders (id)",
    )
    require_refused_until_mended(bench, "found unique index shop.odd, but it is invalid")


@pytest.fixture
def role(database: dict[str, Any]) -> Iterator[str]:
    """A role that may stage, and look into the schema ``shop``, which it makes."""
    name, bench = f"loader_{uuid.uuid4().hex[:8]}", bench_of(database)
    bench.run(f"""
        CREATE ROLE {name} LOGIN PASSWORD 'secret';
        GRANT USAGE, CREATE ON SCHEMA kafka_ingest_staging TO {name}""")
    yield name
    bench.run(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_rights_to_update_and_delete_are_needed_and_told_with_their_grants(database: dict[str, Any], role: str) -> None:
    also = f"GRANT USAGE ON SCHEMA shop TO {role}; GRANT SELECT, INSERT ON shop.orders TO {role}"
    bench = made(database, "id bigint PRIMARY KEY, name text", also)
    require_refused_until_mended(
        bench,
        'expected UPDATE on "shop"."orders"; found not granted',
        'expected DELETE on "shop"."orders"; found not granted',
        params={**database, "user": role, "password": "secret"},
    )


def test_update_on_each_written_column_is_enough(database: dict[str, Any], role: str) -> None:
    bench = made(database, "id bigint PRIMARY KEY, name text, other text")
    written = "id, name, kafka_topic, kafka_generation, kafka_partition, kafka_offset, kafka_timestamp"
    bench.run(f"""
        GRANT USAGE ON SCHEMA shop TO {role}; GRANT SELECT, INSERT, DELETE ON shop.orders TO {role};
        GRANT UPDATE ({written}) ON shop.orders TO {role}""")
    params = {**database, "user": role, "password": "secret"}

    assert ["UPDATE" in fault.found for fault in faults_of(bench, params)] == [True]  # batch_id

    bench.run(f"GRANT UPDATE (batch_id) ON shop.orders TO {role}")
    PostgresTarget(params).prepare(bench.settings)


SEEN, MADE, GONE, EVERYTHING = (
    "CREATE POLICY seen ON shop.orders FOR SELECT USING (true)",
    "CREATE POLICY made ON shop.orders FOR INSERT WITH CHECK (true)",
    "CREATE POLICY gone ON shop.orders FOR DELETE USING (true)",
    "CREATE POLICY everything ON shop.orders USING (true)",
)


@pytest.mark.parametrize(
    ("policies", "allows"),
    [
        ([EVERYTHING], True),
        ([SEEN, MADE, GONE, "CREATE POLICY changed ON shop.orders FOR UPDATE USING (true)"], True),
        ([SEEN, MADE, GONE], False),
        ([SEEN, MADE, GONE, "CREATE POLICY changed ON shop.orders FOR UPDATE USING (id > 1)"], False),
        ([SEEN, MADE, GONE, "CREATE POLICY c ON shop.orders FOR UPDATE USING (true) WITH CHECK (id > 1)"], False),
        ([SEEN, MADE, GONE, "CREATE POLICY c ON shop.orders FOR UPDATE WITH CHECK (true)"], False),
        ([EVERYTHING, "CREATE POLICY less ON shop.orders AS RESTRICTIVE FOR UPDATE USING (id > 1)"], False),
        (
            [EVERYTHING, "CREATE POLICY l ON shop.orders AS RESTRICTIVE FOR UPDATE USING (true) WITH CHECK (id > 1)"],
            False,
        ),
    ],
)
def test_row_security_must_let_every_row_be_updated(
    database: dict[str, Any], role: str, policies: list[str], *, allows: bool
) -> None:
    bench = made(database, "id bigint PRIMARY KEY, name text", *policies)
    bench.run(f"""
        GRANT USAGE ON SCHEMA shop TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON shop.orders TO {role};
        ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY""")
    found = faults_of(bench, {**database, "user": role, "password": "secret"})
    assert ["SELECT, INSERT, UPDATE and DELETE" in fault.found for fault in found] == ([] if allows else [True])
    appending = replace(bench.settings, upsert=None)
    of_append = PostgresPreflight({**database, "user": role, "password": "secret"}).target(appending)
    assert of_append.faults == ()


@pytest.mark.parametrize("published", ["update", "delete"])
def test_a_published_table_without_replica_identity_is_refused(database: dict[str, Any], published: str) -> None:
    bench = made(
        database,
        "id bigint UNIQUE, name text",
        f"CREATE PUBLICATION feed FOR TABLE shop.orders WITH (publish = 'insert, {published}')",
    )
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState):
        bench.run("UPDATE shop.orders SET name = 'a'" if published == "update" else "DELETE FROM shop.orders")
    require_refused_until_mended(bench, "shop.orders: expected a replica identity; found publication feed")


def test_updates_that_are_published_are_no_weakness_of_an_append_table(database: dict[str, Any]) -> None:
    feed = "CREATE PUBLICATION feed FOR TABLE shop.orders WITH (publish = 'update')"
    bench = made(database, "id bigint, name text", feed)
    facts = PostgresPreflight(database).target(replace(bench.settings, upsert=None))
    assert (facts.faults, [w.found for w in facts.weaknesses if "offset range" not in w.found]) == ((), [])


@pytest.mark.parametrize(
    ("index", "keys"),
    [
        ("ALTER TABLE shop.orders ADD CONSTRAINT odd UNIQUE (email)", "email"),
        ("CREATE UNIQUE INDEX odd ON shop.orders (email, note)", "email, note"),
        ("CREATE UNIQUE INDEX odd ON shop.orders (lower(email))", "lower(email)"),
        ("CREATE UNIQUE INDEX odd ON shop.orders (email) WHERE email <> ''", "email"),
    ],
)
def test_a_unique_index_beside_the_key_is_a_weakness_until_it_is_deferred(
    database: dict[str, Any], index: str, keys: str
) -> None:
    columns = (ID, ColumnSettings("email", "text"))
    bench = made(database, "id bigint PRIMARY KEY, email text, note text", index, columns=columns)
    [weakness] = weaknesses_of(bench)
    expected = f"unique index shop.odd on ({keys}): expected none beside the key, or one that is DEFERRABLE INITIALLY"
    found = "found a value that moves from one key to another in one batch stops the publish"
    assert weakness.found == f"{expected} DEFERRED; {found}"
    bench.run(weakness.fix)
    assert weaknesses_of(bench) == ()


@pytest.mark.parametrize(
    "index",
    [
        "UNIQUE (id, email)",
        "UNIQUE (nr)",
        "UNIQUE (kafka_topic, kafka_generation, kafka_partition, kafka_offset)",
        "UNIQUE (email) DEFERRABLE INITIALLY DEFERRED",
    ],
)
def test_a_unique_index_that_no_move_can_run_into_is_no_weakness(database: dict[str, Any], index: str) -> None:
    columns = (ID, ColumnSettings("email", "text"))
    definitions = "id bigint PRIMARY KEY, email text, nr bigint GENERATED ALWAYS AS IDENTITY"
    bench = made(database, definitions, f"ALTER TABLE shop.orders ADD {index}", columns=columns)
    assert weaknesses_of(bench) == ()


def test_rows_of_other_tables_that_a_delete_changes_are_a_weakness(database: dict[str, Any]) -> None:
    notes = 'CREATE TABLE shop.notes ("order" bigint CONSTRAINT note_of REFERENCES shop.orders ON DELETE CASCADE)'
    bench = made(database, "id bigint PRIMARY KEY, name text", notes)
    [weakness] = weaknesses_of(bench)
    assert "ON DELETE CASCADE: a delete or reload changes rows of shop.notes" in weakness.found


ROW = "INSERT INTO shop.orders VALUES ({id}, 'a', {topic}, {generation}, {partition}, {offset}, NULL, '{batch}')"


def insert(bench: StagingBench, number: int, **version: object) -> None:
    of_record: dict[str, object] = {"topic": "'orders'", "generation": 0, "partition": 0, "offset": 7}
    bench.run(ROW.format(id=number, batch=uuid.uuid4(), **{**of_record, **version}))


def test_rows_without_a_version_are_refused_with_their_number(database: dict[str, Any]) -> None:
    bench = made(database, "id bigint PRIMARY KEY, name text")
    for column in ("topic", "generation", "partition", "offset"):
        bench.run(f"ALTER TABLE shop.orders ALTER COLUMN kafka_{column} DROP NOT NULL")
    insert(bench, 1)
    bench.target.require_versions(bench.settings)
    for number, column in enumerate(("topic", "generation", "partition", "offset"), start=2):
        insert(bench, number, **{column: "NULL"})
        with pytest.raises(TargetMismatch, match=f"{number - 1} rows without a version"):
            bench.target.require_versions(bench.settings)
    bench.run("DELETE FROM shop.orders WHERE id > 1")
    bench.target.require_versions(bench.settings)


def test_a_table_of_an_append_pipeline_needs_none_of_it(database: dict[str, Any]) -> None:
    bench = made(database, "id bigint, name text NOT NULL", "CREATE TABLE shop.more () INHERITS (shop.orders)")
    settings: BatchSettings = replace(bench.settings, upsert=None)
    bench.target.prepare(settings)


FUNCTION = "CREATE FUNCTION shop.leave() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$"
EACH = "FOR EACH ROW EXECUTE FUNCTION shop.leave()"
EVENTS = {
    "before_update": "BEFORE UPDATE",
    "before_column": "BEFORE UPDATE OF name",
    "after_update": "AFTER UPDATE",
    "before_delete": "BEFORE DELETE",
}


def test_triggers_and_rules_of_updates_are_known_and_do_not_keep_staging_from_judging(database: dict[str, Any]) -> None:
    rule = "CREATE RULE also AS ON UPDATE TO shop.orders DO ALSO SELECT 1"
    bench = made(database, "id bigint PRIMARY KEY, name text NOT NULL", FUNCTION, rule)
    for name, event in EVENTS.items():
        bench.run(f"CREATE TRIGGER {name} {event} ON shop.orders {EACH}")

    with bench.connection() as connection, connection.cursor() as cursor:
        table = read_table(cursor, TARGET)

    assert table is not None
    found = {hook.name: (hook.on_insert, hook.on_update, hook.on_delete, hook.changes_rows) for hook in table.hooks}
    assert found == {
        "also": (False, True, False, False),
        "before_update": (False, True, False, True),
        "before_column": (False, True, False, True),
        "after_update": (False, True, False, False),
        "before_delete": (False, False, True, False),
    }
    assert not table.changes_rows
    bench.target.prepare(bench.settings)
    assert TargetColumn("name", "text", True) in bench.target.shape(bench.settings).columns

    bench.run(f"CREATE TRIGGER before_both BEFORE INSERT OR UPDATE ON shop.orders {EACH}")
    assert TargetColumn("name", "text", False) in bench.target.shape(bench.settings).columns


BOUND = """
    INSERT INTO kafka_ingest.pipeline (
        pipeline, target_schema, target_table, cluster_id, isolation_level, first_run, topic_column, generation_column,
        partition_column, offset_column, upsert
    )
    VALUES (
        '{pipeline}', 'shop', '{table}', 'cluster-1', 'read_committed', '{{"kind": "earliest"}}', 'kafka_topic',
        'kafka_generation', 'kafka_partition', 'kafka_offset', {upsert}
    );
    INSERT INTO kafka_ingest.served_topic (target_schema, target_table, cluster_id, topic, pipeline, joined_by)
    VALUES ('shop', '{table}', 'cluster-1', '{pipeline}', '{pipeline}', 'first_plan')"""


def test_the_ledger_tells_which_pipeline_holds_the_current_state_in_the_table(database: dict[str, Any]) -> None:
    bench = bench_of(database)
    bench.run(BOUND.format(pipeline="billing", table="orders", upsert="NULL"))
    bench.run(BOUND.format(pipeline="sales", table="orders", upsert="'{}'"))
    bench.run(BOUND.format(pipeline="other", table="others", upsert="'{}'"))

    view = PostgresLedger(database).plan_view("orders", Request("orders", "run-1"), TARGET)

    assert view.served == (
        ServedTopic("billing", "cluster-1", "billing"),
        ServedTopic("sales", "cluster-1", "sales", is_upsert=True),
    )

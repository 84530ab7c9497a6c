"""The schema: migrations, what they refuse, and the constraints that carry the rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from psycopg2 import sql

from kafka_ingest.errors import ConfigError, DeadLetterReason, LedgerOutdated
from kafka_ingest.postgres import migrations
from kafka_ingest.postgres.database import SNAPSHOT, connect, sql_names, sql_text, transaction
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.migrations import Migration, migrate, require_current_ledger
from kafka_ingest.protocol.decisions import ChangeKind
from sandbox.paths import CHECKOUT
from sandbox.postgres import PostgresServer
from tests.builders import REQUEST, batch_settings

CATALOG_QUERIES = (
    """SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default, generation_expression,
    identity_generation FROM information_schema.columns WHERE table_schema = 'kafka_ingest'""",
    # PostgreSQL 18 lists NOT NULL among the constraints, under names that it makes up.
    """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'kafka_ingest'::regnamespace AND contype <> 'n'""",
    "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'kafka_ingest'",
    "SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'kafka_ingest'::regnamespace",
    "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'kafka_ingest'::regnamespace AND relkind = 'r'",
    "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'kafka_ingest%'",
)


@contextmanager
def empty_database(server: PostgresServer) -> Iterator[dict[str, Any]]:
    name = f"empty_{uuid4().hex[:12]}"
    administer(server, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield server.params(name)
    finally:
        administer(server, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def administer(server: PostgresServer, statement: sql.Composable) -> None:
    with closing(psycopg2.connect(**server.params())) as connection:
        connection.autocommit = True
        connection.cursor().execute(statement)


def run(params: dict[str, Any], statement: str, parameters: object = None) -> list[tuple[Any, ...]]:
    with closing(psycopg2.connect(**params)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def empty(postgres_server: PostgresServer) -> Iterator[dict[str, Any]]:
    with empty_database(postgres_server) as params:
        yield params


def catalog(params: dict[str, Any]) -> list[list[tuple[Any, ...]]]:
    return [sorted(run(params, query), key=repr) for query in CATALOG_QUERIES]


def test_schema_file_and_migrations_make_the_same_database(database: dict[str, Any], empty: dict[str, Any]) -> None:
    run(empty, sql_text("schema"))
    assert catalog(empty) == catalog(database)


def test_migrating_twice_applies_nothing(empty: dict[str, Any]) -> None:
    assert migrate(empty) == sql_names("migrations")
    before = catalog(empty)
    assert migrate(empty) == []
    assert catalog(empty) == before


def test_a_ledger_that_is_missing_names_the_command_that_makes_it(empty: dict[str, Any]) -> None:
    with pytest.raises(LedgerOutdated, match="python -m kafka_ingest migrate"):
        PostgresLedger(empty).plan_view("orders", REQUEST, batch_settings().target)
    with pytest.raises(LedgerOutdated, match="python -m kafka_ingest migrate"):
        PostgresLedger(empty).batch(str(uuid4()))


def test_a_newer_ledger_is_refused(database: dict[str, Any]) -> None:
    run(database, "INSERT INTO kafka_ingest.schema_migration VALUES (9999, '9999_later', 'x')")
    with pytest.raises(LedgerOutdated, match="newer than this package"):
        migrate(database)
    with pytest.raises(LedgerOutdated, match="9999_later"):
        PostgresLedger(database).claim(str(uuid4()), 60)


def test_a_migration_that_was_changed_after_it_was_applied_is_refused(database: dict[str, Any]) -> None:
    run(database, "UPDATE kafka_ingest.schema_migration SET sha256 = 'other' WHERE number = 1")
    with pytest.raises(LedgerOutdated, match="differs"):
        migrate(database)


def test_an_older_ledger_is_refused_and_migrates(database: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    known = migrations.migrations()
    monkeypatch.setattr(migrations, "migrations", lambda: [*known, Migration(len(known) + 1, "0009_next", "x")])
    with (
        closing(connect(database, application_name="test")) as connection,
        transaction(connection, SNAPSHOT) as cursor,
        pytest.raises(LedgerOutdated, match="0009_next"),
    ):
        require_current_ledger(cursor)


OLD_LEDGER = """
INSERT INTO kafka_ingest.pipeline (pipeline, target_schema, target_table, cluster_id, isolation_level, first_run)
SELECT name, 's', 't', 'c', 'read_committed', '{}'
FROM unnest('{loaded,never_loaded,empty,moved}'::text[]) AS name;
INSERT INTO kafka_ingest.served_topic VALUES ('s', 't', 'c', 'orders', 'loaded', 'first_plan');
INSERT INTO kafka_ingest.position_change (request_id, kind, pipeline, who, why) VALUES ('1', 'reset', 'loaded', '', '');
"""


def old_batch(batch: int, pipeline: str, offset_column: str, state: str, rows: int | None, table: str = "t") -> str:
    names = f'{{"topic": "k_topic", "generation": "g", "partition": "p", "offset": "{offset_column}"}}'
    done = f"now(), {rows}, 0, 0, 0, 0" if rows is not None else "NULL, NULL, NULL, NULL, NULL, NULL"
    return (
        "INSERT INTO kafka_ingest.batch (batch_id, pipeline, dag_id, run_id, task_group, map_index, request_number,"
        " clear_number, parameters, kind, state, settings, settings_hash, protocol_version, target_schema,"
        " target_table, cluster_id, planned_at, committed_at, rows, dead_letters, tombstones, filtered, invisible)"
        f" VALUES ('{uuid_of(batch)}', '{pipeline}', 'd', 'run {batch}', '', -1, 0, 0, '{{}}', 'live', '{state}',"
        f" '{{\"metadata\": {names}}}', 'h', 1, 's', '{table}', 'c', now(), {done});"
    )


def test_an_old_ledger_binds_the_columns_under_which_its_newest_rows_stand(empty: dict[str, Any]) -> None:
    first = migrations.migrations()[0]
    run(empty, sql_text(f"migrations/{first.name}"))
    run(
        empty,
        "INSERT INTO kafka_ingest.schema_migration VALUES (%s, %s, %s)",
        (first.number, first.name, first.sha256),
    )
    run(
        empty,
        OLD_LEDGER
        + old_batch(1, "loaded", "first_name", "committed", 3)
        + old_batch(2, "loaded", "second_name", "committed", 3)
        + old_batch(3, "loaded", "nothing_to_read", "committed", 0)
        + old_batch(4, "loaded", "planned", "planned", None)
        + old_batch(5, "never_loaded", "given_up", "superseded", None)
        + old_batch(6, "never_loaded", "planned", "planned", None)
        + old_batch(7, "moved", "here", "committed", 0)
        + old_batch(8, "moved", "elsewhere", "committed", 3, table="other"),
    )
    assert migrate(empty) == sql_names("migrations")[1:]
    assert run(
        empty,
        "SELECT pipeline, topic_column, generation_column, partition_column, offset_column"
        " FROM kafka_ingest.pipeline ORDER BY pipeline",
    ) == [
        ("empty", "kafka_topic", "kafka_generation", "kafka_partition", "kafka_offset"),
        ("loaded", "k_topic", "g", "p", "second_name"),
        ("moved", "k_topic", "g", "p", "here"),
        ("never_loaded", "k_topic", "g", "p", "planned"),
    ]


def test_the_ledger_knows_just_the_kinds_of_changes_that_are_made(database: dict[str, Any]) -> None:
    (definition,) = run(
        database, "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'position_change_kind_is_known'"
    )[0]
    made_elsewhere = {"initialised", "rolled_back", "topic_read_again", "topic_id_adopted"}
    assert set(re.findall(r"'(\w+)'::text", definition)) == made_elsewhere | {kind.value for kind in ChangeKind}


@pytest.mark.xfail(
    not any(name.startswith("0003_") for name in sql_names("migrations")),
    reason="0003 comes with the dead letters' requests",
    strict=True,
)
def test_migrations_are_numbered_without_gaps() -> None:
    assert [int(name.split("_")[0]) for name in sql_names("migrations")] == list(
        range(1, len(sql_names("migrations")) + 1)
    )


@pytest.fixture
def weak_role(postgres_server: PostgresServer, empty: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Connection parameters of a role that may connect and nothing else."""
    name = f"weak_{uuid4().hex[:12]}"
    administer(postgres_server, sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'weak'").format(sql.Identifier(name)))
    yield {**empty, "user": name, "password": "weak"}
    run(empty, f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_role_that_may_not_create_is_told_what_to_grant(weak_role: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"GRANT CREATE ON DATABASE {weak_role['dbname']}"):
        migrate(weak_role)


def test_schemas_that_an_administrator_made_are_enough(empty: dict[str, Any], weak_role: dict[str, Any]) -> None:
    run(empty, "CREATE SCHEMA kafka_ingest; CREATE SCHEMA kafka_ingest_staging")
    with pytest.raises(ConfigError, match=r"GRANT USAGE ON SCHEMA kafka_ingest .*; to migrate, USAGE, CREATE"):
        migrate(weak_role)
    run(empty, f"GRANT USAGE, CREATE ON SCHEMA kafka_ingest, kafka_ingest_staging TO {weak_role['user']}")
    assert migrate(weak_role) == sql_names("migrations")


def test_a_role_that_may_not_write_is_told_what_to_grant(empty: dict[str, Any], weak_role: dict[str, Any]) -> None:
    migrate(empty)
    run(empty, f"GRANT USAGE ON SCHEMA kafka_ingest TO {weak_role['user']}")
    with pytest.raises(ConfigError, match=r"GRANT SELECT ON kafka_ingest\.schema_migration TO the role [a-z ]+$"):
        PostgresLedger(weak_role).plan_view("orders", REQUEST, batch_settings().target)


def test_the_ledger_knows_just_the_reasons_of_the_closed_list(database: dict[str, Any]) -> None:
    (definition,) = run(
        database, "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'reason_is_known'"
    )[0]
    assert set(re.findall(r"'(\w+)'::text", definition)) == {reason.value for reason in DeadLetterReason}


PIPELINE = (
    "INSERT INTO kafka_ingest.pipeline (pipeline, target_schema, target_table, cluster_id, isolation_level, first_run,"
    " topic_column, generation_column, partition_column, offset_column)"
    " SELECT name, 's', 't', 'c', 'read_committed', '{}', 't', 'g', 'p', 'o' FROM unnest('{p,q}'::text[]) AS name;"
)


def batch_sql(batch: int, *, state: str = "planned", run_id: str = "r", pipeline: str = "p") -> str:
    done = "now()" + ", 0" * 7 if state in ("committed", "rolled_back") else "NULL" + ", NULL" * 7
    return (
        "INSERT INTO kafka_ingest.batch (batch_id, pipeline, dag_id, run_id, task_group, map_index, request_number,"
        " clear_number, parameters, kind, state, settings, settings_hash, protocol_version, target_schema,"
        " target_table, cluster_id, planned_at, committed_at, rows, deletes, superseded, dead_letters, tombstones,"
        " filtered, invisible) VALUES"
        f" ('{uuid_of(batch)}', '{pipeline}', 'd', '{run_id}', '', -1, 0, 0, '{{}}', 'live', '{state}', '{{}}', 'h', 1,"
        f" 's', 't', 'c', now(), {done});"
    )


def uuid_of(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def range_sql(
    batch: int, start: int, end: int, before: int, *, after: int | None = None, published: bool = False
) -> str:
    counts = f"{end - start}" + ", 0" * 6 if published else "NULL" + ", NULL" * 6
    after = max(before, end) if after is None else after
    return (
        "INSERT INTO kafka_ingest.batch_partition (batch_id, pipeline, topic, generation, partition, line, range_start,"
        " range_end, committed_before, committed_after, loaded_to, reaches_high_watermark, published, rows, deletes,"
        " superseded, dead_letters, tombstones, filtered, invisible) VALUES"
        f" ('{uuid_of(batch)}', 'p', 'orders', 0, 0, 0, {start}, {end}, {before}, {after}, {before}, false,"
        f" {published}, {counts});"
    )


def dead_letter_sql(values: str) -> str:
    return (
        'INSERT INTO kafka_ingest.dead_letter (pipeline, topic, generation, partition, "offset", batch_id, detail,'
        f" reason, record_time_ms, record_time_type, header_names, header_values) VALUES ('p', 'orders', 0, 0, 0,"
        f" '{uuid_of(1)}', '', {values});"
    )


def position_sql(committed: int, loaded_to: int) -> str:
    return (
        "INSERT INTO kafka_ingest.committed_offset (pipeline, topic, partition, generation, cluster_id,"
        f" committed_offset, loaded_to, line) VALUES ('p', 'orders', 0, 0, 'c', {committed}, {loaded_to}, 0);"
    )


def removed_key_sql(*, pipeline: str = "p", key_hash: str = "sha256('{7}')", offset: int = 3) -> str:
    return (
        'INSERT INTO kafka_ingest.removed_key (pipeline, key_hash, key, topic, generation, partition, "offset",'
        f" batch_id) VALUES ('{pipeline}', {key_hash}, '{{7}}', 'orders', 0, 0, {offset}, '{uuid_of(9)}');"
    )


COMMITTED = batch_sql(1, state="committed", run_id="r1") + batch_sql(2, state="committed", run_id="r2")
UPDATE_STATE = "UPDATE kafka_ingest.batch SET state = '{}'"
WITH_COUNTS = (
    UPDATE_STATE + ", committed_at = now(), rows = 0, deletes = 0, superseded = 0, dead_letters = 0, tombstones = 0,"
    " filtered = 0, invisible = 0"
)

REFUSED = {
    "a second outstanding batch of a pipeline": (
        batch_sql(1) + batch_sql(2, run_id="other"),
        "one_outstanding_batch_per_pipeline",
    ),
    "a second standing batch of a request": (
        batch_sql(1, state="committed") + batch_sql(2, state="committed"),
        "one_standing_batch_per_request",
    ),
    "a committed batch without counts": (batch_sql(1) + UPDATE_STATE.format("committed"), "committed_batch_has_counts"),
    "a batch that is planned again": (
        batch_sql(1, state="superseded") + UPDATE_STATE.format("planned"),
        "batch_state_changes_only_forward",
    ),
    "a superseded batch that is committed": (
        batch_sql(1, state="superseded") + WITH_COUNTS.format("committed"),
        "batch_state_changes_only_forward",
    ),
    "a planned batch that is rolled back": (
        batch_sql(1) + WITH_COUNTS.format("rolled_back"),
        "batch_state_changes_only_forward",
    ),
    "a claim that falls": (
        batch_sql(1) + "UPDATE kafka_ingest.batch SET claim = 2; UPDATE kafka_ingest.batch SET claim = 1;",
        "batch_state_changes_only_forward",
    ),
    "a batch that is deleted": (batch_sql(1) + "DELETE FROM kafka_ingest.batch", "batch_rows_are_never_deleted"),
    "batches that are truncated": ("TRUNCATE kafka_ingest.batch CASCADE", "batch_rows_are_never_deleted"),
    "an empty range": (batch_sql(1) + range_sql(1, 5, 5, 5), "range_is_not_empty"),
    "a negative range": (batch_sql(1) + range_sql(1, -1, 5, 5), "range_is_not_empty"),
    "a gap before a range": (batch_sql(1) + range_sql(1, 5, 9, 4), "no_gap_before_range"),
    "a position that would fall": (
        batch_sql(1) + range_sql(1, 1, 3, 9, after=3),
        "committed_after_is_the_greater",
    ),
    "counts that do not add up": (
        COMMITTED + range_sql(1, 0, 5, 0, published=True) + "UPDATE kafka_ingest.batch_partition SET rows = 4",
        "offsets_are_accounted_for",
    ),
    **{
        f"a committed batch without a count of {count}": (
            batch_sql(1) + WITH_COUNTS.format("committed").replace(f"{count} = 0", f"{count} = NULL"),
            "committed_batch_has_counts",
        )
        for count in ("deletes", "superseded")
    },
    **{
        f"counts that do not add up with {count}": (
            COMMITTED + range_sql(1, 0, 5, 0, published=True) + f"UPDATE kafka_ingest.batch_partition SET {count} = 1",
            "offsets_are_accounted_for",
        )
        for count in ("deletes", "superseded")
    },
    **{
        f"a published range without a count of {count}": (
            COMMITTED
            + range_sql(1, 0, 5, 0, published=True)
            + f"UPDATE kafka_ingest.batch_partition SET {count} = NULL",
            "published_range_has_counts",
        )
        for count in ("deletes", "superseded")
    },
    **{
        f"a negative count of {count}": (
            COMMITTED
            + range_sql(1, 0, 5, 0, published=True)
            + f"UPDATE kafka_ingest.batch_partition SET rows = 6, {count} = -1",
            "counts_are_not_negative",
        )
        for count in ("deletes", "superseded")
    },
    "two pipelines that each keep one row a key in one table": (
        "UPDATE kafka_ingest.pipeline SET upsert = '{}'",
        "one_upsert_pipeline_per_table",
    ),
    "a key that is removed twice": (2 * removed_key_sql(), "one_entry_per_removed_key"),
    "a removed key of no pipeline": (removed_key_sql(pipeline="nobody"), "removed_key_belongs_to_a_pipeline"),
    "a removed key under another hash": (removed_key_sql(key_hash="sha224('{7}')"), "key_hash_is_sha256"),
    "a removed key at a negative offset": (removed_key_sql(offset=-1), "offset_is_not_negative"),
    "a published range without counts": (
        batch_sql(1) + range_sql(1, 0, 5, 0) + "UPDATE kafka_ingest.batch_partition SET published = true",
        "published_range_has_counts",
    ),
    "negative counts": (
        COMMITTED
        + range_sql(1, 0, 5, 0, published=True)
        + "UPDATE kafka_ingest.batch_partition SET rows = 6, filtered = -1",
        "counts_are_not_negative",
    ),
    "two ranges that begin at one position": (
        COMMITTED + range_sql(1, 0, 5, 0, published=True) + range_sql(2, 0, 6, 0, published=True),
        "ranges_form_a_chain",
    ),
    "two ranges that end at one position": (
        COMMITTED + range_sql(1, 0, 5, 0, published=True) + range_sql(2, 3, 5, 3, published=True),
        "ranges_end_a_chain_once",
    ),
    "a range of another pipeline's batch": (
        batch_sql(1, pipeline="q") + range_sql(1, 0, 5, 0),
        "range_belongs_to_a_batch",
    ),
    "a position above what was loaded": (position_sql(5, 4), "loaded_to_is_the_greatest"),
    "a negative position": (position_sql(-1, 4), "committed_offset_is_not_negative"),
    "a dead letter with an unknown reason": (
        COMMITTED + dead_letter_sql("'bad_luck', NULL, NULL, NULL, NULL"),
        "reason_is_known",
    ),
    "a record time without a type": (
        COMMITTED + dead_letter_sql("'malformed', 5, NULL, NULL, NULL"),
        "record_time_has_a_type",
    ),
    "header names without values": (
        COMMITTED + dead_letter_sql("'malformed', NULL, NULL, '{a,b}', '{x}'"),
        "headers_are_pairs",
    ),
    "the same topic served by two pipelines": (
        "".join(
            f"INSERT INTO kafka_ingest.served_topic VALUES ('s', 't', 'c', 'orders', '{pipeline}', 'first_plan');"
            for pipeline in "pq"
        ),
        "one_pipeline_per_target_cluster_topic",
    ),
    "the same position change twice": (
        2
        * (
            "INSERT INTO kafka_ingest.position_change (request_id, kind, pipeline, who, why)"
            " VALUES ('1', 'target_changed', 'p', 'who', 'why');"
        ),
        "one_change_per_request_and_partition",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_ledger_refuses(what: str, database: dict[str, Any]) -> None:
    statements, constraint = REFUSED[what]
    with pytest.raises(psycopg2.IntegrityError) as refused:
        run(database, PIPELINE + statements)
    assert refused.value.diag.constraint_name == constraint


def test_a_reload_does_not_disturb_the_chain(database: dict[str, Any]) -> None:
    run(
        database,
        PIPELINE + COMMITTED + range_sql(1, 0, 5, 0, published=True) + range_sql(2, 0, 5, 5, published=True),
    )


def test_one_pipeline_that_keeps_one_row_a_key_may_share_its_table_with_pipelines_that_append(
    database: dict[str, Any],
) -> None:
    run(database, PIPELINE + "UPDATE kafka_ingest.pipeline SET upsert = '{}' WHERE pipeline = 'p'")


def test_removed_keys_follow_a_pipeline_that_is_renamed(database: dict[str, Any]) -> None:
    run(database, PIPELINE + removed_key_sql() + "UPDATE kafka_ingest.pipeline SET pipeline = 'r' WHERE pipeline = 'p'")
    assert run(database, "SELECT pipeline, key FROM kafka_ingest.removed_key") == [("r", ["7"])]


def test_a_superseded_request_can_be_planned_again(database: dict[str, Any]) -> None:
    run(database, PIPELINE + batch_sql(1) + UPDATE_STATE.format("superseded") + ";" + batch_sql(2))


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (1_700_000_000_123, "2023-11-14 22:13:20.123+00"),
        (-62_135_596_800_000, "0001-01-01 00:00:00+00"),
        (253_402_300_799_999, "9999-12-31 23:59:59.999+00"),
        (253_402_300_800_000, None),
        (9_223_372_036_854_775_807, None),
    ],
)
def test_the_record_time_of_a_dead_letter_is_readable_where_it_can_be(
    database: dict[str, Any], milliseconds: int, text: str | None
) -> None:
    run(database, PIPELINE + COMMITTED + dead_letter_sql(f"'malformed', {milliseconds}, 'create', NULL, NULL"))
    found = run(database, "SET LOCAL TimeZone = 'UTC'; SELECT record_time::text FROM kafka_ingest.dead_letter")
    assert found == [(text,)]


def test_every_query_says_purpose_parameters_locks_and_why_it_can_run_twice() -> None:
    for name in sql_names("queries"):
        text = sql_text(f"queries/{name}")
        head = "\n".join(line for line in text.splitlines() if line.startswith("--"))
        if "%(" in text or "{" in text:
            assert re.search(r"(Parameters|Identifiers): ", head), f"sql/queries/{name}.sql names no parameters"
        assert "Locks: " in head, f"sql/queries/{name}.sql names no locks"
        assert re.search(r"\b(twice|[Oo]nce)\b", head), f"sql/queries/{name}.sql: what if it runs twice?"


def test_every_query_is_used() -> None:
    folders = [CHECKOUT / "plugins" / "kafka_ingest", CHECKOUT / "spark_jobs"]
    code = "\n".join(path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py"))
    called = re.findall(r'["/](\w+)(?:"|\{)', code)  # a name may end in a part that is filled in
    assert [
        name
        for name in sql_names("queries")
        if not {name, name.rsplit("_", 1)[0] + "_", name.rsplit("_", 2)[0] + "_"} & set(called)
    ] == []

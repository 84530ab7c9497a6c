"""The SQL that ``roles`` prints is enough for the roles that it is for, and no right of it can be left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from kafka_ingest.cli.command import world_of
from kafka_ingest.errors import IngestError
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.postgres.rights import CHANGE_RIGHTS, LOAD_RIGHTS
from kafka_ingest.preflight.checks import Verdict, answered
from kafka_ingest.preflight.database import database_results
from kafka_ingest.protocol.target import quoted
from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer
from tests.integration.pipeline_under_test import produced
from tests.roles_world import CUSTOMERS, ORDERS, PIPELINES, RolesWorld, Topics, fresh_roles, records_of
from tests.services import FreshTopics, Producers

OWNER, LOADER, READER, OPERATOR = "owner", "loader", "reader", "operator"
Worlds = Callable[..., AbstractContextManager[RolesWorld]]


@pytest.fixture(scope="module")
def topics(kafka_broker: KafkaBroker) -> Iterator[Topics]:
    made, producers = FreshTopics(kafka_broker.bootstrap), Producers(kafka_broker.bootstrap)
    names = Topics(made.create(), made.create(), kafka_broker.bootstrap)
    with produced(producers.create()) as sender:
        for topic, pairs in ((names.orders, ORDERS), (names.customers, CUSTOMERS)):
            for key, value in records_of(pairs):
                sender.produce(topic, key=key, value=value)
    yield names
    made.delete_all()


@pytest.fixture
def worlds(
    postgres_server: PostgresServer,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Worlds:
    return lambda *roles: fresh_roles(postgres_server, topics, tmp_path, monkeypatch, capfd, *roles)


@contextmanager
def ready(worlds: Worlds, *roles: str, options: tuple[str, ...] = ()) -> Iterator[RolesWorld]:
    """Yield a world whose ledger is there, by the printed SQL alone."""
    with worlds(*roles) as world:
        text = world.printed(*options)
        world.grant(text)
        world.migrate()
        world.grant(text)
        yield world


@pytest.mark.parametrize("roles", [(OWNER, LOADER, READER), (OWNER, LOADER, READER, OPERATOR)], ids=["3", "4"])
def test_every_role_can_do_its_work(worlds: Worlds, roles: tuple[str, ...]) -> None:
    with ready(worlds, *roles) as world:
        world.act_as(LOADER)
        for name in PIPELINES:
            world.preflight(name)
        world.work()
        # The newest of key 1, key 2 deleted, and the dead letter that fits by now; a row of each of these changes.
        assert world.run("SELECT id, note FROM shop.customers ORDER BY id") == [(1, "b"), (9, None)]
        assert world.run("SELECT count(*) FROM shop.customers_history") == [(5,)]


def test_one_role_may_be_all(worlds: Worlds) -> None:
    with worlds(OWNER) as world:
        world.names = dict.fromkeys((OWNER, LOADER, READER), world.names[OWNER])
        text = world.printed()
        world.grant(text)
        world.migrate()
        world.grant(text)
        world.work()
        # The next migration notes itself, which no load does.
        held = "SELECT has_table_privilege(%(who)s, 'kafka_ingest.schema_migration', 'INSERT')"
        assert world.run(held, who=world.names[OWNER]) == [(True,)]


def test_a_role_that_comes_later_is_granted_the_table_that_a_load_has_made(worlds: Worlds) -> None:
    with worlds(OWNER, LOADER, READER, OPERATOR) as world:
        names = world.names
        world.names = {**names, READER: names[LOADER]}
        del world.names[OPERATOR]
        for _ in range(2):
            world.grant(world.printed())
            if not world.run("SELECT to_regnamespace('kafka_ingest')")[0][0]:
                world.migrate()
        world.act_as(LOADER)
        world.load("landing")
        world.names = names
        world.grant(world.printed())
        for role in (READER, OPERATOR):
            assert world.run("SELECT count(*) FROM landing.events", role) == [(3,)]
        assert world.run("DELETE FROM landing.events WHERE id = 1 RETURNING kafka_offset", OPERATOR) == [(0,)]


def test_what_was_granted_on_the_ledger_before_is_taken_away(worlds: Worlds) -> None:
    with ready(worlds, OWNER, LOADER, READER) as world:
        reader, loader = quoted(world.names[READER]), quoted(world.names[LOADER])
        world.run(f"GRANT ALL ON ALL TABLES IN SCHEMA kafka_ingest TO {reader}, {loader}")
        world.grant(world.printed())
        for role, statement in (
            (READER, "DELETE FROM kafka_ingest.dead_letter"),
            (LOADER, "UPDATE kafka_ingest.position_change SET who = 'somebody else'"),
            (LOADER, "DELETE FROM kafka_ingest.batch"),
        ):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                world.run(statement, role)


def test_with_an_operator_the_loader_resolves_no_dead_letter_and_the_reader_changes_nothing(worlds: Worlds) -> None:
    with ready(worlds, OWNER, LOADER, READER, OPERATOR) as world:
        world.act_as(LOADER)
        world.load("sales")
        for role, change in (
            (LOADER, ("dead-letters", "discard", "sales")),
            (LOADER, ("change", "sales", "retire-topic", world.topics.orders)),
            (READER, ("change", "sales", "reset", "--to", "earliest")),
        ):
            world.act_as(role)
            code, _, notes = world.pipeline("sales").command(*change, "--reason", "trial", "--apply")
            assert code == 78
            assert "permission denied" in notes
            assert "GRANT" in notes


def test_a_reader_without_payload_sees_where_things_are_and_no_content(worlds: Worlds) -> None:
    with ready(worlds, OWNER, LOADER, READER, options=("--without-payload",)) as world:
        world.act_as(LOADER)
        world.load("sales")
        world.load("customers")
        world.act_as(READER)
        for command in ("status", "lag", "batches"):
            world.done(command, "sales")
        assert world.run(
            "SELECT \"offset\", reason FROM kafka_ingest.dead_letter WHERE pipeline = 'sales'", READER
        ) == [(1, "wrong_type")]
        assert world.run('SELECT partition, "offset" FROM kafka_ingest.removed_key', READER) == [(0, 3)]
        assert world.run("SELECT outcome, fault FROM kafka_ingest.attempt", READER) == []
        hidden = {
            "attempt": ("message",),
            "dead_letter": ("key", "value", "header_values", "detail"),
            "removed_key": ("key", "key_hash"),
        }
        columns = [f"kafka_ingest.{table}.{column}" for table, names in hidden.items() for column in names]
        for column in [*columns, "shop.sales.id", "shop.customers.note", "shop.customers_history.note"]:
            table, _, name = column.rpartition(".")
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                world.run(f"SELECT {name} FROM {table}", READER)


def test_every_table_of_the_ledger_has_its_rights(database: dict[str, Any]) -> None:
    with closing(psycopg2.connect(**database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'kafka_ingest'")
        tables = {name for (name,) in cursor.fetchall()}
    assert tables == LOAD_RIGHTS.keys()
    assert tables >= CHANGE_RIGHTS.keys()


def without_each_right(text: str, grantee: str) -> Iterator[tuple[str, str]]:
    """Yield each right of a role, and the text that grants everything but that."""
    pattern = re.compile(r"GRANT (?P<rights>.+?) ON (?P<thing>.+?) TO (?P<to>.+);$")
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = pattern.search(line)
        # What is granted on a table that a load has made before is shown by a test of its own.
        if found is None or grantee not in found["to"] or found["thing"].startswith('"landing"."'):
            continue
        others = [name for name in re.split(r'(?<="), (?=")', found["to"]) if name != grantee]
        rights = [found["rights"]] if "(" in found["rights"] else found["rights"].split(", ")
        for right in rights:
            left = [one for one in rights if one != right]
            head, thing, to = line[: found.start()], found["thing"], found["to"]
            kept = [f"{head}GRANT {', '.join(left)} ON {thing} TO {to};"] if left else []
            kept += [f"{head}GRANT {right} ON {thing} TO {', '.join(others)};"] if others else []
            yield f"{right} ON {thing}", "\n".join([*lines[:number], *kept, *lines[number + 1 :]])


@pytest.mark.slow
@pytest.mark.parametrize("role", [OWNER, LOADER, READER, OPERATOR])
def test_no_right_of_a_role_can_be_left_out(worlds: Worlds, role: str) -> None:
    """Each right in turn is not granted: some work of somebody is then refused for it."""
    roles = (OWNER, LOADER, READER, OPERATOR)
    needless, number = [], 0
    while True:
        with worlds(*roles) as world:
            mutants = list(without_each_right(world.printed(), quoted(world.names[role])))
            if number == len(mutants):
                break
            right, text = mutants[number]
            if not is_missed(world, text):
                needless.append(right)
        number += 1
    assert number > 0
    assert not needless, "\n".join(needless)


def is_missed(world: RolesWorld, text: str) -> bool:
    """Tell whether work is refused for want of a right where the text grants everything else."""
    try:
        world.grant(text)
        world.migrate()
        world.grant(text)
        world.work()
    except (psycopg2.errors.InsufficientPrivilege, psycopg2.OperationalError, IngestError, AssertionError) as error:
        if re.search("permission denied|not granted|CONNECT privilege", str(error)):
            return True
        raise
    return False


#: What the target uses by itself: a sequence, functions and types of somebody else's, from schemas of their own.
USED = """
CREATE SCHEMA parts;
CREATE SCHEMA rules;
CREATE SEQUENCE parts.numbers;
CREATE FUNCTION parts.place() RETURNS text LANGUAGE sql AS $$ SELECT 'here' $$;
CREATE FUNCTION parts.longer(note text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT note || '!' $$;
CREATE FUNCTION parts.is_fine(note text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT true $$;
CREATE FUNCTION rules.is_short(note text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT length(note) < 9 $$;
CREATE DOMAIN parts.fine AS text CHECK (parts.is_fine(value));
CREATE TYPE parts.mood AS ENUM ('good', 'bad');
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA parts, rules FROM PUBLIC;
REVOKE ALL ON TYPE parts.fine, parts.mood FROM PUBLIC;
ALTER TABLE shop.sales ADD COLUMN nr bigint DEFAULT nextval('parts.numbers'), ADD COLUMN moods parts.mood[],
    ADD COLUMN place text DEFAULT parts.place(), ADD CHECK (rules.is_short(note)), ALTER COLUMN note TYPE parts.fine;
CREATE INDEX ON shop.sales (parts.longer(note));
"""


def test_preflight_names_what_the_tables_own_expressions_need_and_its_grants_are_enough(worlds: Worlds) -> None:
    with ready(worlds, OWNER, LOADER, READER) as world:
        world.run(USED)
        loader = quoted(world.names[LOADER])
        named = {
            f"GRANT {right} TO {loader};"
            for right in (
                "USAGE ON SEQUENCE parts.numbers",
                "EXECUTE ON FUNCTION parts.place()",
                "EXECUTE ON FUNCTION parts.longer(note text)",
                "EXECUTE ON FUNCTION parts.is_fine(note text)",
                "EXECUTE ON FUNCTION rules.is_short(note text)",
                "USAGE ON SCHEMA rules",
                "USAGE ON TYPE parts.fine",
                "USAGE ON TYPE parts.mood",
            )
        }
        assert set(fixes(world, "sales")) == named
        for one in sorted(named):
            world.run("; ".join(sorted(named - {one})))
            with pytest.raises(IngestError):
                world.load("sales")
            world.run(one)
            assert fixes(world, "sales") == []
            if one == max(named):
                break
            world.run(" ".join(fix.replace("GRANT", "REVOKE", 1).replace(" TO ", " FROM ") for fix in named))
        assert world.load("sales")["counts"]["rows"] == 3


def fixes(world: RolesWorld, name: str) -> list[str]:
    """Return the statements with which preflight would mend what fails for the loader."""
    world.act_as(LOADER)
    settings = find_pipeline(name)
    lines = answered("postgresql", lambda: database_results(settings.batch, world_of(settings).database_probe()))
    return [line.fix for line in lines if line.result is Verdict.FAIL]


def test_preflight_names_each_right_that_is_taken_away_and_its_grant_mends_it(worlds: Worlds) -> None:
    with ready(worlds, OWNER, LOADER, READER) as world:
        loader, database = quoted(world.names[LOADER]), world.admin["dbname"]
        taken = [
            (right, f"kafka_ingest.{table}") for table, rights in LOAD_RIGHTS.items() for right in rights.split(", ")
        ]
        taken += [("USAGE", "SCHEMA kafka_ingest_staging"), ("CREATE", "SCHEMA kafka_ingest_staging")]
        taken += [("USAGE", "SCHEMA kafka_ingest"), ("TEMPORARY", f"DATABASE {database}"), ("USAGE", 'SCHEMA "shop"')]
        taken += [(right, '"shop"."customers"') for right in ("SELECT", "INSERT", "UPDATE", "DELETE")]
        taken += [(right, '"shop"."customers_history"') for right in ("SELECT", "INSERT", "UPDATE")]
        assert fixes(world, "customers") == []
        for right, thing in taken:
            world.run(f"REVOKE {right} ON {thing} FROM {loader}")
            # Where the ledger cannot be read, its own line says so, too; the line of the right has the whole statement.
            named = [fix for fix in fixes(world, "customers") if fix.endswith(f"TO {loader};")]
            assert f"GRANT {right} ON {thing} TO {loader};" in named
            world.run(" ".join(named))
            assert fixes(world, "customers") == [], f"{right} on {thing}"

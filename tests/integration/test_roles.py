"""The SQL that ``roles`` prints is enough for the roles that it is for, and no right of it can be left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from kafka_ingest.errors import IngestError
from kafka_ingest.postgres.rights import CHANGE_RIGHTS, LOAD_RIGHTS
from kafka_ingest.protocol.target import quoted
from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer
from tests.integration.pipeline_under_test import produced
from tests.roles_world import CUSTOMERS, ORDERS, RolesWorld, Topics, fresh_roles, records_of
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
        world.work()
        # What everybody did: rows 1, 3, 4; the newest of key 1, key 2 deleted; a column for the unknown field.
        assert world.run("SELECT id FROM shop.sales ORDER BY id") == [(1,), (3,), (4,)]
        assert world.run("SELECT id, note FROM shop.customers") == [(1, "b")]
        assert world.run("SELECT count(*) FROM shop.customers_history") == [(4,)]


def test_one_role_may_be_all(worlds: Worlds) -> None:
    with worlds(OWNER) as world:
        world.names = dict.fromkeys((OWNER, LOADER, READER), world.names[OWNER])
        text = world.printed()
        world.grant(text)
        world.migrate()
        world.grant(text)
        world.work()


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
        hidden = {"dead_letter": ("key", "value", "header_values", "detail"), "removed_key": ("key", "key_hash")}
        columns = [f"kafka_ingest.{table}.{column}" for table, names in hidden.items() for column in names]
        for column in [*columns, "shop.sales.id", "shop.customers.note", "shop.customers_history.note"]:
            table, _, name = column.rpartition(".")
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                world.run(f"SELECT {name} FROM {table}", READER)


def test_every_table_of_the_ledger_has_its_rights(database: dict[str, Any]) -> None:
    with closing(psycopg2.connect(**database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'kafka_ingest'")
        tables = {name for (name,) in cursor.fetchall()}
    assert tables == LOAD_RIGHTS.keys() == CHANGE_RIGHTS.keys()


def without_each_right(text: str, grantee: str) -> Iterator[tuple[str, str]]:
    """Yield each right of a role, and the text that grants everything but that."""
    pattern = re.compile(r"GRANT (?P<rights>.+?) ON (?P<thing>.+?) TO (?P<to>.+);$")
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = pattern.search(line)
        # What is granted on a table that a load has made before is shown by a test of its own.
        if found is None or grantee not in found["to"] or found["thing"] == '"landing"."events"':
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

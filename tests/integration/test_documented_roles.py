"""The grants of docs/deploying.md, word for word, are enough for the roles that they are for, and no more."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from psycopg2 import sql

from kafka_ingest.__main__ import main
from sandbox.paths import CHECKOUT
from sandbox.postgres import PostgresServer
from tests.integration.pipeline_under_test import PipelineUnderTest, produced
from tests.integration.test_ledger_schema import administer, empty_database, run
from tests.services import ProducerFactory, TopicFactory

TARGET = (
    "CREATE SCHEMA shop; CREATE TABLE shop.orders (id bigint, kafka_topic text NOT NULL, kafka_generation int NOT NULL,"
    " kafka_partition int NOT NULL, kafka_offset bigint NOT NULL, kafka_timestamp timestamptz, batch_id uuid NOT NULL)"
)
VALUE = {"format": "json", "columns": [{"name": "id", "type": "bigint"}]}
ROLES = ("migrator", "loader", "reader")


def documented(first_words: str) -> str:
    """Return the SQL block of the page that begins with this comment."""
    page = (CHECKOUT / "docs" / "deploying.md").read_text(encoding="utf-8")
    (block,) = [text for text in re.findall(r"```sql\n(.*?)```", page, re.S) if text.startswith(f"-- {first_words}")]
    return str(block)


class Roles:
    """The roles of the page under names of this test's own, in a database of its own."""

    def __init__(self, admin: dict[str, Any], environment: pytest.MonkeyPatch) -> None:
        self.admin, self._environment = admin, environment
        self._names = {role: f"{role}_{uuid4().hex[:10]}" for role in ROLES}

    def create(self) -> None:
        for name in self._names.values():
            run(self.admin, f"CREATE ROLE {name} LOGIN PASSWORD 'x'")

    def drop(self) -> None:
        for name in self._names.values():
            run(self.admin, f"DROP OWNED BY {name}; DROP ROLE {name}")

    def grant(self, first_words: str, *, as_role: str = "") -> None:
        statements = documented(first_words).replace("DATABASE shop", f"DATABASE {self.admin['dbname']}")
        for role, name in self._names.items():
            statements = re.sub(rf"\b{role}\b(?=[;, ])", name, statements)
        run(self.params(as_role) if as_role else self.admin, statements)

    def params(self, role: str) -> dict[str, Any]:
        return {**self.admin, "user": self._names[role], "password": "x"}

    def use(self, role: str, connection: str = "postgres_default") -> None:
        """Lets an Airflow connection be that of the role."""
        params = self.params(role)
        values = {"conn_type": "postgres", "host": params["host"], "port": params["port"], "login": params["user"]}
        text = json.dumps({**values, "password": params["password"], "schema": params["dbname"]})
        self._environment.setenv(f"AIRFLOW_CONN_{connection.upper()}", text)


@pytest.fixture
def roles(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Roles]:
    with empty_database(postgres_server) as admin:
        administer(
            postgres_server, sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(admin["dbname"]))
        )
        found = Roles(admin, monkeypatch)
        found.create()
        for role in ROLES:
            run(admin, f"GRANT CONNECT ON DATABASE {admin['dbname']} TO {found.params(role)['user']}")
        try:
            yield found
        finally:
            found.drop()


@pytest.fixture
def loaded(
    roles: Roles, raw_pipeline: PipelineUnderTest, topic: TopicFactory, producer: ProducerFactory
) -> PipelineUnderTest:
    """A pipeline whose loader has loaded a row and a dead letter, with the documented grants alone."""
    roles.grant("An administrator")
    roles.use("migrator", "postgres_migrator")
    assert main(["migrate", "--connection", "postgres_migrator"]) == 0
    roles.grant("migrator. The default", as_role="migrator")
    run(roles.admin, TARGET)
    roles.grant("The owner of the target table")
    roles.use("loader")
    pipeline = replace(raw_pipeline, database=roles.admin)
    name = topic()
    target = {"table": "shop.orders"}
    pipeline.write(name, value=VALUE, key=None, headers=None, metadata_columns=None, target=target)
    with produced(producer()) as sender:
        sender.produce(name, value=b'{"id": 1}')
        sender.produce(name, value=b'{"id": "a secret"}')
    assert pipeline.load()["counts"]["rows"] == 1
    return pipeline


def test_the_loader_can_preflight_load_reload_and_audit(loaded: PipelineUnderTest) -> None:
    code, rows, notes = loaded.command("preflight", loaded.name)
    assert code == 0, notes
    assert [row for row in rows if row["result"] == "fail"] == []
    (topic,) = loaded.query("SELECT DISTINCT topic FROM kafka_ingest.committed_offset")[0]
    reload = ("--mode", "reload", "--offsets", f"{topic} 0 0 2", "--reason", "trial")
    assert loaded.load(*reload)["counts"]["rows"] == 1
    assert loaded.command("audit", loaded.name)[0] == 0


def test_the_loader_can_replay_dead_letters(loaded: PipelineUnderTest) -> None:
    replay = ("dead-letters", "replay", loaded.name, "--reason", "trial", "--apply")
    code, told, notes = loaded.command(*replay)
    assert code == 0, notes
    assert [group["reason"] for group in told["outcome"]["stayed"]] == ["wrong_type"]


REMOVED_KEY = (
    'INSERT INTO kafka_ingest.removed_key (pipeline, key_hash, key, topic, generation, partition, "offset", batch_id)'
    " SELECT pipeline, sha256('{7}'), '{7}', 'orders', 0, 0, 3, gen_random_uuid() FROM kafka_ingest.pipeline"
)


def test_the_loader_can_remember_removed_keys_and_forget_them(roles: Roles, loaded: PipelineUnderTest) -> None:
    loader = roles.params("loader")
    run(loader, REMOVED_KEY)
    assert run(loader, "UPDATE kafka_ingest.removed_key SET partition = 1 RETURNING key") == [(["7"],)]
    assert run(roles.params("reader"), "SELECT key FROM kafka_ingest.removed_key") == [(["7"],)]
    assert run(loader, "DELETE FROM kafka_ingest.removed_key RETURNING partition") == [(1,)]


def test_a_table_of_a_later_migration_is_granted_by_default(roles: Roles, loaded: PipelineUnderTest) -> None:
    run(roles.params("migrator"), "CREATE TABLE kafka_ingest.later (n int)")
    assert run(roles.params("loader"), "INSERT INTO kafka_ingest.later VALUES (1) RETURNING n") == [(1,)]
    assert run(roles.params("reader"), "SELECT n FROM kafka_ingest.later") == [(1,)]


def test_the_reader_looks_at_everything_and_changes_nothing(roles: Roles, loaded: PipelineUnderTest) -> None:
    roles.use("reader")
    for command in (["status"], ["lag"], ["batches"], ["dead-letters", "list"], ["audit"], ["size"]):
        code, _, notes = loaded.command(*command, loaded.name)
        assert code == 0, f"{command}: {notes}"
    code, _, notes = loaded.command("change", loaded.name, "reset", "--to", "earliest", "--reason", "trial", "--apply")
    assert code == 78
    assert "permission denied" in notes


def test_a_reader_without_payload_sees_where_dead_letters_and_removed_keys_are_and_no_content(
    roles: Roles, loaded: PipelineUnderTest
) -> None:
    run(roles.params("loader"), REMOVED_KEY)
    roles.grant("migrator: the reader sees", as_role="migrator")
    roles.use("reader")
    code, rows, notes = loaded.command("status", loaded.name)
    assert code == 0, notes
    assert rows[0]["unresolved_dead_letters"] == 1
    assert run(roles.params("reader"), 'SELECT partition, "offset", reason FROM kafka_ingest.dead_letter') == [
        (0, 1, "wrong_type")
    ]
    assert run(roles.params("reader"), 'SELECT partition, "offset" FROM kafka_ingest.removed_key') == [(0, 3)]
    for column in ("key", "key_hash", "order_value"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            run(roles.params("reader"), f"SELECT {column} FROM kafka_ingest.removed_key")
    code, _, notes = loaded.command("dead-letters", "list", loaded.name)
    assert code == 78
    assert "permission denied" in notes

"""What every role does in its work, with the rights that ``python -m kafka_ingest roles`` prints, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from psycopg2 import sql

from kafka_ingest.__main__ import main
from kafka_ingest.cli.command import world_of
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.preflight.checks import Verdict, answered
from kafka_ingest.preflight.database import database_results
from kafka_ingest.protocol.attempts import Attempt, Step
from kafka_ingest.protocol.batch import COMMAND_LINE, OffsetSpan, Request, RunMode, RunOptions
from kafka_ingest.protocol.dead_letters import DeadLetterAction, DeadLetterChoice, DeadLetterRequest
from kafka_ingest.spark.replay import ReplayOrder
from sandbox.postgres import PostgresServer
from spark_jobs.replay_job import replay
from tests.integration.pipeline_under_test import PipelineUnderTest, set_connections

PASSWORD = "A-password-1"
PIPELINES = ("sales", "customers", "landing", "made")
COLUMNS: list[dict[str, str]] = [{"name": "id", "type": "bigint"}, {"name": "note", "type": "text"}]
METADATA = (
    "kafka_topic text NOT NULL, kafka_generation int NOT NULL, kafka_partition int NOT NULL,"
    " kafka_offset bigint NOT NULL, kafka_timestamp timestamptz, batch_id uuid NOT NULL"
)
#: Tables of somebody else's: neither owner nor loader owns them.
TARGETS = f"""
CREATE SCHEMA shop;
CREATE TABLE shop.sales (id bigint, note text, {METADATA});
CREATE TABLE shop.customers (id bigint PRIMARY KEY, note text, {METADATA});
CREATE TABLE shop.customers_history (
    id bigint, note text, {METADATA}, kafka_change text NOT NULL, unavailable_columns text[],
    UNIQUE (kafka_topic, kafka_generation, kafka_partition, kafka_offset)
);
"""
#: Value by key of the topic of orders, and of that of customers.
ORDERS = [("1", {"id": 1}), ("2", {"id": "no number"}), ("3", {"id": 3, "note": "c"}), ("4", {"id": 4, "more": 5})]
CUSTOMERS = [("1", {"id": 1, "note": "a"}), ("2", {"id": 2}), ("1", {"id": 1, "note": "b"}), ("2", None), ("x", {})]


@dataclass
class Topics:
    """Topics that hold :data:`ORDERS` and :data:`CUSTOMERS`, and the broker."""

    orders: str
    customers: str
    bootstrap: str


@dataclass
class RolesWorld:
    """One database, its roles under names of a test's own, and the pipelines of a test.

    Attributes:
        admin: A superuser's parameters for ``psycopg2.connect``.
        names: Names of the roles by what they are for.
    """

    admin: Mapping[str, Any] = field(repr=False)
    names: Mapping[str, str]
    topics: Topics
    folder: Path
    environment: pytest.MonkeyPatch = field(repr=False)
    capture: pytest.CaptureFixture[str] = field(repr=False)

    def pipeline(self, name: str) -> PipelineUnderTest:
        return PipelineUnderTest(name, self.folder, self.admin, self.capture)

    def write_pipelines(self, *, made: str = "landing.made") -> None:
        """Write the files; landing and made make their tables, landing a column for a field that it does not know."""
        common: dict[str, Any] = {"key": None, "headers": None, "metadata_columns": None}
        value = {"format": "json", "columns": COLUMNS}
        self.pipeline("sales").write(self.topics.orders, value=value, target={"table": "shop.sales"}, **common)
        upsert: dict[str, Any] = {"mode": "upsert", "key": ["id"], "order": "offset", "deletes": "remove"}
        keyed = {"format": "json", "columns": [{**COLUMNS[0], "from": "key", "path": "$"}, COLUMNS[1]]}
        target = {"table": "shop.customers", **upsert, "history": "shop.customers_history"}
        self.pipeline("customers").write(self.topics.customers, value=keyed, target=target, **common)
        adding = {**value, "new_fields": "add_column"}
        # A plan that gives lag up moves positions itself: here the first of the four.
        lag = {"made": {"lag_policy": {"action": "skip_to", "max_lag_offsets": 3, "keep_offsets": 3}}}
        for name, table, fields in (("landing", "landing.events", adding), ("made", made, value)):
            target = {"table": table, "create_table": True}
            self.pipeline(name).write(self.topics.orders, value=fields, target=target, **common, **lag.get(name, {}))

    def act_as(self, role: str) -> None:
        """Let the pipelines' connection be that of a role; ``admin`` is the superuser."""
        set_connections(self.environment, bootstrap=self.topics.bootstrap, database=self.params(role))

    def params(self, role: str) -> dict[str, Any]:
        if role == "admin":
            return dict(self.admin)
        return {**self.admin, "user": self.names[role], "password": PASSWORD}

    def printed(self, *options: str) -> str:
        """Return the SQL that the command prints for the roles."""
        self.act_as("admin")
        self.capture.readouterr()
        named = [text for role, name in self.names.items() for text in (f"--{role}", name)]
        assert main(["roles", *PIPELINES, *named, *options]) == 0
        return self.capture.readouterr().out

    def run(self, statements: str, role: str = "admin", **bound: object) -> list[tuple[Any, ...]]:
        """Run statements as a role, committed together."""
        with closing(psycopg2.connect(**self.params(role))) as connection, connection, connection.cursor() as cursor:
            cursor.execute(statements, bound or None)
            return cursor.fetchall() if cursor.description else []

    def grant(self, statements: str) -> None:
        """Run the printed SQL as an administrator does, and set passwords, which it never does."""
        self.run(statements)
        for name in self.names.values():
            role, password = sql.Identifier(name), sql.Literal(PASSWORD)
            with closing(psycopg2.connect(**self.admin)) as connection, connection, connection.cursor() as cursor:
                cursor.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, password))

    def migrate(self) -> None:
        """Migrate as the owner."""
        self.act_as("owner")
        self.done("migrate", "--connection", "postgres_default")

    def done(self, *command: str) -> Any:
        """Run a command that has to succeed; return its document."""
        code, document, notes = self.pipeline("sales").command(*command)
        assert code == 0, notes or document
        return document

    def load(self, name: str, options: RunOptions | None = None) -> dict[str, Any]:
        return self.pipeline(name).load_here(options)

    # What each role does.

    def work(self) -> None:
        """Let every role do all that it is for, on a ledger without batches, and with a table of a later migration."""
        self.run("CREATE TABLE kafka_ingest.later (n int)", "owner")
        for writer in {"loader", "operator"} & self.names.keys():
            self.run("INSERT INTO kafka_ingest.later VALUES (1); UPDATE kafka_ingest.later SET n = 2", writer)
            assert self.run("DELETE FROM kafka_ingest.later RETURNING n", writer) == [(2,)]
        self.run("SELECT n FROM kafka_ingest.later", "reader")
        self.load_everything()
        self.look_at_everything()
        self.change_everything()

    def load_everything(self) -> None:
        """Load, load again, rebuild, audit."""
        self.act_as("loader")
        for name in PIPELINES:
            self.load(name)
            self.record_a_try(name)
        again = (OffsetSpan(self.topics.orders, 0, 0, 4),)
        self.load("sales", RunOptions(RunMode.RELOAD, offsets=again, reason="trial"))
        self.load("customers", RunOptions(RunMode.REBUILD, reason="trial"))
        for name in PIPELINES:
            self.done("audit", name)
        self.done("status")

    def change_everything(self) -> None:
        """Replay, discard, roll back, reset, retire, read again, load elsewhere, rename; the loader loads between."""
        self.act_as("operator" if "operator" in self.names else "loader")
        # As if a mended producer had sent it: each replay has a record that fits.
        mended = "UPDATE kafka_ingest.dead_letter SET key = '9', value = '{\"id\": 9}'"
        self.run(f"{mended} WHERE resolution IS NULL")
        for name in ("sales", "customers", "made"):
            self.resolve(name, DeadLetterAction.REPLAY)
        self.resolve("sales", DeadLetterAction.DISCARD)
        self.done("roll-back", "made", "--batches", "1", "--reason", "trial", "--apply")
        self.change("sales", "reset", "--to", "earliest")
        self.act_as("loader")
        self.load("made")
        self.pipeline("sales").plan_only("left-open")
        self.act_as("operator" if "operator" in self.names else "loader")
        self.change("sales", "reset", "--to-offset", self.topics.orders, "0", "1", "--supersede")
        self.act_as("loader")
        self.load("sales", RunOptions(replace_resolved=True))
        self.done("housekeeping", "--older-than-days", "0")
        self.act_as("operator" if "operator" in self.names else "loader")
        self.change("customers", "retire-topic", self.topics.customers)
        self.change("customers", "read-topic-again", self.topics.customers)
        self.done("roll-back", "sales", "--batches", "1", "--reason", "trial", "--apply")
        self.write_pipelines(made="landing.others")
        self.change("made", "change-target")
        self.rename("landing", "arrivals")
        self.done("status")

    def preflight(self, name: str) -> None:
        """Ask of the database what preflight asks; nothing may fail."""
        settings = find_pipeline(name)
        probe = world_of(settings).database_probe()
        lines = answered("postgresql", lambda: database_results(settings.batch, probe))
        assert [line for line in lines if line.result is Verdict.FAIL] == []

    def record_a_try(self, name: str) -> None:
        """Record a try, and then how it ended. A step that may not do it says so and goes on; this fails."""
        world = world_of(find_pipeline(name))
        attempt = Attempt(name, Step.LOAD, Request(COMMAND_LINE, uuid4().hex), "run.load")
        world.attempts().record(attempt)
        attempt.end(None)
        world.attempts().record(attempt)
        world.close_session()

    def resolve(self, name: str, action: DeadLetterAction) -> None:
        """Replay or discard dead letters, without the process that the command starts for it."""
        settings = find_pipeline(name)
        request = DeadLetterRequest(uuid4().hex, name, action, DeadLetterChoice(), "somebody", "trial")
        replay(ReplayOrder(world_of(settings).postgres_params(), settings, request, apply=True))

    def change(self, pipeline: str, *change: str) -> None:
        self.done("change", pipeline, *change, "--reason", "trial", "--apply")

    def rename(self, name: str, new: str) -> None:
        """Rename a pipeline, and its file as long as that takes."""
        file, renamed = self.folder / f"{name}.yaml", self.folder / f"{new}.yaml"
        text = file.read_text(encoding="utf-8").replace(f"pipeline: {name}\n", f"pipeline: {new}\n")
        file.unlink()
        renamed.write_text(text, encoding="utf-8")
        try:
            self.change(new, "rename", "--from", name)
        finally:
            renamed.unlink()

    def look_at_everything(self) -> None:
        """Ask all that changes nothing, as the reader."""
        self.act_as("reader")
        for name in PIPELINES:
            for command in (["status"], ["lag"], ["batches"], ["dead-letters", "list"], ["audit"], ["size"]):
                self.done(*command, name)
        self.run("SELECT id FROM shop.customers_history", "reader")


@contextmanager
def fresh_roles(
    server: PostgresServer,
    topics: Topics,
    folder: Path,
    environment: pytest.MonkeyPatch,
    capture: pytest.CaptureFixture[str],
    *roles: str,
) -> Iterator[RolesWorld]:
    """Yield a database with the tables of the pipelines, where nobody has a right by being there; drop all of it."""
    suffix = uuid4().hex[:10]
    database = f"roles_{suffix}"
    administer(server, "CREATE DATABASE {}", database)
    administer(server, "REVOKE ALL ON DATABASE {} FROM PUBLIC", database)
    # Odd on purpose: they need quotes, and hold what ends a literal or a block.
    names = {role: f"{role}'s $roles$ \"{suffix}" for role in roles}
    world = RolesWorld(server.params(database), names, topics, folder, environment, capture)
    environment.setenv("KAFKA_INGEST_PIPELINES", str(folder))
    world.write_pipelines()
    world.run(TARGETS)
    try:
        yield world
    finally:
        administer(server, "DROP DATABASE {} WITH (FORCE)", database)
        for name in names.values():
            administer(server, "DROP ROLE IF EXISTS {}", name)


def administer(server: PostgresServer, statement: str, name: str) -> None:
    with closing(psycopg2.connect(**server.params())) as connection:
        connection.autocommit = True
        connection.cursor().execute(sql.SQL(statement).format(sql.Identifier(name)))


def records_of(pairs: list[tuple[str, Any]]) -> Iterator[tuple[bytes, bytes | None]]:
    """Return key and value of each record as JSON; a value of None is a tombstone."""
    for key, value in pairs:
        yield key.encode(), None if value is None else json.dumps(value).encode()

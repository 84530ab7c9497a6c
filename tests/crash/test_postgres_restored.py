"""The database is restored from a dump of before the last batches: rows and positions go back together (C38)."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from psycopg2 import sql

from kafka_ingest.errors import Fenced
from sandbox.postgres import PostgresServer
from tests.crash.eventful_run import STAGED, EventfulRun
from tests.crash.pipeline_at_risk import PipelineAtRisk


class Backup:
    """A dump of one database, made with the server's own ``pg_dump``."""

    def __init__(self, server: PostgresServer, database: str, file: Path) -> None:
        self._server = server
        self._database = database
        self._file = file

    def take(self) -> None:
        self._run("pg_dump", "--format=custom", f"--file={self._file}", self._database)

    def restore(self) -> None:
        """Throws the database away, whoever uses it, and makes it again from the dump."""
        with closing(psycopg2.connect(**self._server.params())) as connection:
            connection.autocommit = True
            name = sql.Identifier(self._database)
            connection.cursor().execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
            connection.cursor().execute(sql.SQL("CREATE DATABASE {}").format(name))
        self._run("pg_restore", "--exit-on-error", f"--dbname={self._database}", str(self._file))

    def _run(self, program: str, *arguments: str) -> None:
        address = self._server.params()
        environment = {"PGHOST": address["host"], "PGPORT": str(address["port"]), "PGUSER": address["user"]}
        subprocess.run(
            [str(self._server.program(program)), *arguments],
            env={**os.environ, **environment, "PGPASSWORD": address["password"]},
            check=True,
        )


@pytest.fixture
def backup(pipeline: PipelineAtRisk, postgres_server: PostgresServer, tmp_path: Path) -> Backup:
    return Backup(postgres_server, pipeline.files.database["dbname"], tmp_path / "dump")


def test_c38_batches_after_the_dump_are_loaded_again_once_from_where_the_dump_stands(
    pipeline: PipelineAtRisk, backup: Backup
) -> None:
    pipeline.run("before")
    backup.take()
    lost = pipeline.run("after")
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()
    backup.restore()
    pipeline.require_all_or_nothing()
    again = pipeline.run("next")
    assert again.ranges == lost.ranges
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


def test_c38_a_run_whose_batch_the_restored_ledger_does_not_know_is_planned_anew(
    pipeline: PipelineAtRisk, backup: Backup
) -> None:
    pipeline.run("before")
    backup.take()
    lost = pipeline.run("after")
    backup.restore()
    again = pipeline.run("after")
    assert again.batch_id != lost.batch_id
    assert again.ranges == lost.ranges
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


def test_c38_a_load_that_is_under_way_while_the_database_is_restored_publishes_nothing(
    pipeline: PipelineAtRisk, backup: Backup
) -> None:
    pipeline.run("before")
    backup.take()
    with pytest.raises(Fenced) as caught:
        EventfulRun(pipeline.name, {STAGED: backup.restore}).run("under way")
    assert caught.value.found == "no such batch in the ledger"
    pipeline.require_all_or_nothing()
    pipeline.run("under way")
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()

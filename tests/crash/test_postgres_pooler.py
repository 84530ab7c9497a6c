"""Everything works through a pooler in transaction mode, and nothing is left behind in its sessions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from kafka_ingest.errors import DatabaseUnavailable
from kafka_ingest.postgres.database import connect
from kafka_ingest.postgres.migrations import migrate, require_current_ledger
from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer
from sandbox.postgres_binaries import reachable_home, unprivileged_user
from tests.crash.eventful_run import PUBLISHING, EventfulRun
from tests.crash.mixed_topic import MixedTopic
from tests.crash.pipeline_at_risk import SECTIONS, PipelineAtRisk
from tests.crash.pooler import POOL_SIZE, Pooler
from tests.integration.pipeline_under_test import PipelineUnderTest, set_connections
from tests.services import TestServices

if not Pooler.is_installed() and os.geteuid() != 0:
    pytest.skip("PgBouncer is not installed (Debian: apt-get install pgbouncer)", allow_module_level=True)


@pytest.fixture(scope="module")
def pooler(services: TestServices, postgres_server: PostgresServer) -> Iterator[Pooler]:
    assert Pooler.is_installed(), "root can install it: apt-get install pgbouncer"
    folder = reachable_home(unprivileged_user(), services.folder / f"pooler-{os.getpid()}")
    found = Pooler(folder, postgres_server.params())
    try:
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder)


@pytest.fixture
def pooled(
    pooler: Pooler,
    database: dict[str, Any],
    kafka_broker: KafkaBroker,
    mixed_topic: MixedTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> PipelineAtRisk:
    """A pipeline that knows the database behind the pooler only. The target has a CHECK that some values violate."""
    params = pooler.params(database["dbname"])
    set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=params)
    monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
    files = PipelineUnderTest("events", tmp_path, params, capfd)
    files.write(mixed_topic.name, **{**SECTIONS, "limit": {"offsets_per_run": 1}})
    pipeline = PipelineAtRisk(files, mixed_topic)
    pipeline.run("makes the table")
    files.query("ALTER TABLE shop.events ADD CHECK (n <> 3)")
    files.write(mixed_topic.name, **SECTIONS)
    return pipeline


def test_loads_through_a_pooler_end_with_every_record_once(pooled: PipelineAtRisk) -> None:
    pooled.files.load("--run-id", "as a process of its own")
    pooled.run_until_nothing_is_left()
    pooled.require_every_record_once()
    violating = "SELECT count(*) FROM kafka_ingest.dead_letter WHERE reason = 'check_violation'"
    assert pooled.files.query(violating) == [(3,)]


def test_a_pooler_that_goes_away_while_a_batch_is_published_leaves_the_outcome_to_the_ledger(
    pooled: PipelineAtRisk, pooler: Pooler
) -> None:
    def restart() -> None:
        pooler.stop()
        pooler.start()

    with pytest.raises(DatabaseUnavailable):
        EventfulRun(pooled.name, {PUBLISHING: restart}).run("cut off")
    pooled.require_all_or_nothing()
    assert pooled.run("cut off").claim == 2
    pooled.run_until_nothing_is_left()
    pooled.require_every_record_once()


def test_nothing_of_a_load_is_left_in_the_sessions_that_others_get(pooled: PipelineAtRisk) -> None:
    pooled.run("some load")
    with ExitStack() as clients:
        # As many transactions at once as there are sessions: each of them is seen.
        for _ in range(POOL_SIZE):
            session = clients.enter_context(closing(psycopg2.connect(**pooled.files.database)))
            assert left_overs(session) == []


def left_overs(session: Any) -> list[tuple[str, str]]:
    """Settings that differ from those of a new session, advisory locks, temporary tables."""
    cursor = session.cursor()
    cursor.execute(
        "SELECT name, setting FROM pg_settings"
        " WHERE setting IS DISTINCT FROM reset_val AND source = 'session' AND name <> 'application_name'"
        " UNION ALL SELECT 'lock', objid::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        " UNION ALL SELECT 'table', relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()"
    )
    found: list[tuple[str, str]] = cursor.fetchall()
    return found


def test_migrations_work_through_a_pooler(pooler: Pooler, postgres_server: PostgresServer) -> None:
    name = f"pooled_{os.getpid()}"
    postgres_server.create_database(name)
    try:
        assert migrate(pooler.params(name))
        with closing(connect(pooler.params(name), application_name="test")) as connection:
            require_current_ledger(connection.cursor())
    finally:
        with closing(psycopg2.connect(**postgres_server.params())) as connection:
            connection.autocommit = True
            connection.cursor().execute(f"DROP DATABASE {name} WITH (FORCE)")

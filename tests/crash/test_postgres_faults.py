"""PostgreSQL stops, crashes, or ends a session in the middle of a load: 0 rows are visible or all, then all once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from kafka_ingest.errors import (
    Busy,
    CommitDidNotHappen,
    DatabaseUnavailable,
    IngestError,
    LockTimeout,
    RetryLater,
    StagingLost,
)
from kafka_ingest.postgres.database import TransactionLimits
from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer
from tests.crash.eventful_run import COPYING, PUBLISHING, READING, STAGED, EventfulRun
from tests.crash.mixed_topic import MixedTopic
from tests.crash.pipeline_at_risk import SECTIONS, PipelineAtRisk
from tests.deadlines import until
from tests.integration.pipeline_under_test import PipelineUnderTest, set_connections
from tests.services import as_role, fresh_database, services_of_one_test

BEFORE_COMMIT, COMMITTED = "load.publication.commit:before", "load.publication.commit:after"


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that the tests of this module stop and kill."""
    services = services_of_one_test()
    try:
        services.postgres.start()
        yield services.postgres
    finally:
        services.remove()


@pytest.fixture
def on_own_server(
    own_server: PostgresServer,
    kafka_broker: KafkaBroker,
    mixed_topic: MixedTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[PipelineAtRisk]:
    """A pipeline whose database is on a server of its own; one run is behind it."""
    with fresh_database(own_server) as database:
        set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=as_role("loader", database))
        monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
        files = PipelineUnderTest("events", tmp_path, database, capfd)
        files.write(mixed_topic.name, **SECTIONS)
        pipeline = PipelineAtRisk(files, mixed_topic)
        pipeline.run("before")
        yield pipeline


def restarted(server: PostgresServer) -> None:
    server.stop()
    server.start()


def crashed(server: PostgresServer) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize(
    ("interrupt", "moment", "expected"),
    [
        pytest.param(restarted, COPYING, DatabaseUnavailable, id="restarted during COPY"),
        pytest.param(crashed, COPYING, DatabaseUnavailable, id="crashed during COPY"),
        # Crash recovery empties unlogged tables: https://www.postgresql.org/docs/18/sql-createtable.html
        pytest.param(crashed, STAGED, StagingLost, id="crashed between stage and publish"),
        pytest.param(restarted, PUBLISHING, DatabaseUnavailable, id="restarted during publish"),
        pytest.param(crashed, PUBLISHING, DatabaseUnavailable, id="crashed during publish"),
        pytest.param(restarted, BEFORE_COMMIT, CommitDidNotHappen, id="restarted before COMMIT"),
        pytest.param(crashed, BEFORE_COMMIT, CommitDidNotHappen, id="crashed before COMMIT"),
    ],
)
def test_c35_a_server_that_goes_away_ends_the_attempt_and_the_retry_loads_the_whole_batch(
    on_own_server: PipelineAtRisk,
    own_server: PostgresServer,
    interrupt: Callable[[PostgresServer], None],
    moment: str,
    expected: type[RetryLater],
) -> None:
    pipeline = on_own_server
    with pytest.raises(expected):
        EventfulRun(pipeline.name, {moment: lambda: interrupt(own_server)}).run("interrupted")
    pipeline.require_all_or_nothing()
    assert pipeline.files.query("SELECT state FROM kafka_ingest.batch WHERE run_id = 'interrupted'") == [("planned",)]
    assert pipeline.run("interrupted").claim == 2
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


@pytest.mark.parametrize(
    ("interrupt", "moment"),
    [
        pytest.param(restarted, STAGED, id="restarted between stage and publish"),
        pytest.param(crashed, COMMITTED, id="crashed after COMMIT"),
    ],
)
def test_a_server_that_goes_away_without_losing_anything_does_not_fail_the_load(
    on_own_server: PipelineAtRisk, own_server: PostgresServer, interrupt: Callable[[PostgresServer], None], moment: str
) -> None:
    pipeline = on_own_server
    assert EventfulRun(pipeline.name, {moment: lambda: interrupt(own_server)}).run("interrupted").claim == 1
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


@pytest.mark.parametrize(
    ("application", "moment", "expected"),
    [
        ("kafka_ingest stage task 0", COPYING, DatabaseUnavailable),
        ("kafka_ingest publish", PUBLISHING, DatabaseUnavailable),
        ("kafka_ingest publish", BEFORE_COMMIT, CommitDidNotHappen),
    ],
)
def test_c35_a_session_that_is_terminated_ends_the_attempt_and_is_never_a_dead_letter(
    pipeline: PipelineAtRisk, application: str, moment: str, expected: type[RetryLater]
) -> None:
    def terminate() -> None:
        ended = pipeline.files.query(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE application_name = %s AND datname = current_database()",
            application,
        )
        assert ended == [(True,)]

    with pytest.raises(expected):
        EventfulRun(pipeline.name, {moment: terminate}).run("terminated")
    pipeline.require_all_or_nothing()
    assert pipeline.files.query("SELECT count(*) FROM kafka_ingest.dead_letter") == [(0,)]
    assert pipeline.run("terminated").claim == 2
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param("LOCK TABLE shop.events IN ACCESS EXCLUSIVE MODE", LockTimeout, id="target"),
        pytest.param("SELECT FROM kafka_ingest.committed_offset FOR UPDATE", LockTimeout, id="positions"),
        pytest.param("SELECT FROM kafka_ingest.batch FOR UPDATE", Busy, id="batch"),
    ],
)
def test_what_somebody_else_has_locked_is_waited_for_a_while_and_then_left_to_a_later_try(
    pipeline: PipelineAtRisk, held: str, expected: type[IngestError]
) -> None:
    limits = TransactionLimits(lock_timeout_seconds=0.5)
    with ExitStack() as until_released:
        at = {STAGED: lambda: until_released.enter_context(closing(holding(pipeline, held)))}
        with pytest.raises(expected):
            EventfulRun(pipeline.name, at, publish_limits=limits).run("waiting")
    pipeline.require_all_or_nothing()
    assert pipeline.run("waiting").claim == 2
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


def holding(pipeline: PipelineAtRisk, statement: str) -> Any:
    """Opens a session that holds locks until it is closed."""
    connection = psycopg2.connect(**pipeline.files.database)
    connection.cursor().execute(statement)
    return connection


def test_c36_while_kafka_is_read_no_lock_on_the_ledger_is_held_and_an_idle_timeout_does_not_end_the_task(
    pipeline: PipelineAtRisk,
) -> None:
    """The database ends transactions that are idle for 200 ms; reading takes longer than that."""
    name = pipeline.files.database["dbname"]
    pipeline.files.query(f'ALTER DATABASE "{name}" SET idle_in_transaction_session_timeout = 200')
    others = holding(pipeline, "SELECT 1")
    seen = []

    def look() -> None:
        until(lambda: was_ended(others), "somebody else's idle transaction was ended")
        seen.extend(locks_on_the_ledger(pipeline))

    with closing(others):
        EventfulRun(pipeline.name, {READING: look}).run("slow read")
    assert seen == []
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


def was_ended(connection: Any) -> bool:
    try:
        # Reading does not send anything: it would make the transaction less idle.
        connection.poll()
    except psycopg2.Error:
        return True
    return False


def locks_on_the_ledger(pipeline: PipelineAtRisk) -> list[tuple[Any, ...]]:
    return pipeline.files.query(
        "SELECT relation::regclass::text, mode FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
        " WHERE c.relnamespace = 'kafka_ingest'::regnamespace AND l.pid <> pg_backend_pid()"
    )

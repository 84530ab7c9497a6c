"""Fixtures that every rung shares. A service is started by the first test that asks for it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sandbox.connect import ConnectWorker
    from sandbox.kafka import KafkaBroker
    from sandbox.postgres import PostgresServer
    from tests.debezium_source import DebeziumSource
    from tests.integration.pipeline_under_test import PipelineUnderTest
    from tests.services import ProducerFactory, TestServices, TopicFactory

RUNGS = {
    "unit": "no I/O beyond a temporary folder",
    "properties": "no I/O, generated cases",
    "protocol_model": "no I/O, random schedules of the steps and every pair of crash points",
    "dags": "every DAG is loaded, without services",
    "contracts": "fakes and real adapters pass the same tests",
    "integration": "real Kafka, PostgreSQL or Spark",
    "crash": "real processes are killed",
    "e2e": "a running Airflow",
    "browser": "a running Airflow, seen with a browser",
}
#: What a rung may take on two idle cores beside another one. Half of the sum is 37 minutes, what CI needs after ``make
#: check``; without the crash rung ``make test`` takes as long as its longest rung.
#: Nothing fails by it, machines differ: who sees a rung over its budget moves a test to ``slow`` or makes it quicker.
BUDGET_SECONDS = {
    "unit": 80,
    "properties": 120,
    "protocol_model": 120,
    "dags": 100,
    "contracts": 160,
    "integration": 2_000,
    "crash": 1_500,
    "e2e": 400,
}
#: ``make test`` and CI leave these out, ``make test-all`` runs them.
SLOW = "slow: minutes, for what another test shows in less time with less of the real thing"
_HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", SLOW)
    for name, meaning in RUNGS.items():
        config.addinivalue_line("markers", f"{name}: {meaning} (set by the folder)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        rung = item.path.relative_to(_HERE).parts[0] if item.path.is_relative_to(_HERE) else ""
        if rung in RUNGS:
            item.add_marker(rung)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long each rung took, set-up of services included; tools/rungs.py shows the lines again at its end."""
    counts: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    reports = chain.from_iterable(terminalreporter.stats.values())
    for report in (report for report in reports if isinstance(report, pytest.TestReport)):
        rung = next((name for name in RUNGS if name in report.keywords), "other")
        counts[rung] += report.when == "call"
        seconds[rung] += report.duration
    terminalreporter.section("rungs")
    for rung, count in counts.items():
        budget = BUDGET_SECONDS.get(rung)
        limit = f" of {budget} s" + (", OVER BUDGET" if seconds[rung] > budget else "") if budget else ""
        terminalreporter.write_line(f"{rung:14} {count:5} tests  {seconds[rung]:7.1f} s{limit}")


@pytest.fixture(scope="session")
def services() -> Iterator[TestServices]:
    """Where this run's services live; nothing is started by asking for it."""
    from tests.services import remove_left_overs, services_of_this_run

    found = services_of_this_run()
    if found.shared:
        yield found
        return
    remove_left_overs()
    try:
        yield found
    finally:
        found.remove()


@pytest.fixture(scope="session")
def postgres_server(services: TestServices) -> PostgresServer:
    """A running PostgreSQL server; tests that stop or kill it use ``own_services``."""
    server = services.postgres
    server.start()
    return server


@pytest.fixture(scope="session")
def kafka_broker(services: TestServices) -> KafkaBroker:
    """A running Kafka broker; tests that stop or kill it use ``own_services``."""
    broker = services.kafka
    broker.start()
    return broker


@pytest.fixture(scope="session")
def registry_url(services: TestServices) -> str:
    """The address of a running schema registry for all tests: give subjects names of their own.

    Tests that stop or kill it use ``own_services``.
    """
    return services.start_registry().url


@pytest.fixture(scope="session")
def connect_worker(services: TestServices, kafka_broker: KafkaBroker) -> ConnectWorker:
    """A running Kafka Connect with Debezium for all tests (500 MB): give connectors names of their own.

    Tests that stop or kill it start one of their own.
    """
    return services.start_connect()


@pytest.fixture(scope="session")
def source_server(services: TestServices) -> PostgresServer:
    """A running PostgreSQL server with ``wal_level=logical``, whose changes are captured."""
    return services.start_source()


@pytest.fixture
def debezium_source(
    source_server: PostgresServer, connect_worker: ConnectWorker, kafka_broker: KafkaBroker
) -> Iterator[DebeziumSource]:
    """A new database whose tables Debezium captures to topics of the test's own."""
    from tests.debezium_source import fresh_source

    with fresh_source(source_server, connect_worker, kafka_broker.bootstrap) as source:
        yield source


@pytest.fixture
def own_services() -> Iterator[TestServices]:
    """Servers of one test's own, not started: ``own_services.postgres``, ``.kafka``, ``.registry`` and so on."""
    from tests.services import services_of_one_test

    found = services_of_one_test()
    try:
        yield found
    finally:
        found.remove()


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[dict[str, Any]]:
    """A superuser's parameters for ``psycopg2.connect`` of a new database with the current ledger.

    What works in it as the product does connects as ``as_role("loader", database)``.
    """
    from tests.services import fresh_database

    with fresh_database(postgres_server) as params:
        yield params


@pytest.fixture
def topic(kafka_broker: KafkaBroker) -> Iterator[TopicFactory]:
    """Makes topics: ``topic(partitions=1, config=None) -> name``."""
    from tests.services import FreshTopics

    topics = FreshTopics(kafka_broker.bootstrap)
    yield topics.create
    topics.delete_all()


@pytest.fixture
def producer(kafka_broker: KafkaBroker) -> Iterator[ProducerFactory]:
    """Makes producers: ``producer(transactional_id="t") -> confluent_kafka.Producer``, idempotent, acks=all."""
    from tests.services import Producers

    producers = Producers(kafka_broker.bootstrap)
    yield producers.create
    producers.flush_all()


@pytest.fixture
def raw_pipeline(
    tmp_path: Path,
    database: dict[str, Any],
    kafka_broker: KafkaBroker,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> PipelineUnderTest:
    """A pipeline on the shared broker for topics that a test makes and changes; its file is not written yet.

    It connects as the loader; the test itself asks and changes the database as a superuser.
    """
    from tests.integration.pipeline_under_test import PipelineUnderTest, set_connections
    from tests.services import as_role

    set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=as_role("loader", database))
    monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
    return PipelineUnderTest("events", tmp_path, database, capfd)

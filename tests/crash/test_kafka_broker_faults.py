"""A broker that is killed while it is read from, and a connection that suddenly leads to another cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.errors import BrokerUnavailable, ClusterChanged, RetryLater
from sandbox.kafka import KafkaBroker
from tests.crash.changing_topics import ChangingTopic
from tests.crash.eventful_run import PLANNED, READING, EventfulRun
from tests.integration.pipeline_under_test import PipelineUnderTest, set_connections
from tests.services import FreshTopics, TopicFactory, as_role, services_of_one_test

RECORDS = 30_000
#: Fetches so little ahead that most of the log is not yet read when its first chunk is staged.
LITTLE_AHEAD = {"queued.max.messages.kbytes": "100", "fetch.message.max.bytes": "100000"}


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker that the tests of this module kill."""
    services = services_of_one_test()
    try:
        services.kafka.start()
        yield services.kafka
    finally:
        services.remove()


@pytest.fixture(scope="module")
def long_topic(own_broker: KafkaBroker) -> str:
    name = FreshTopics(own_broker.bootstrap).create()
    ChangingTopic(own_broker.bootstrap, name).produce([b"x" * 1_000] * RECORDS)
    return name


@pytest.fixture
def pipeline(
    own_broker: KafkaBroker,
    long_topic: str,
    database: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> PipelineUnderTest:
    set_connections(monkeypatch, bootstrap=own_broker.bootstrap, database=as_role("loader", database))
    monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
    found = PipelineUnderTest("events", tmp_path, database, capfd)
    found.write(long_topic, headers=None)
    return found


def require_every_record_once(pipeline: PipelineUnderTest) -> None:
    counted = pipeline.query("SELECT count(*), count(DISTINCT kafka_offset), max(kafka_offset) FROM shop.events")
    assert counted == [(RECORDS, RECORDS, RECORDS - 1)]
    assert pipeline.command("audit", "events")[:2] == (0, [])


def test_a_broker_that_comes_back_within_the_time_out_does_not_fail_the_load(
    pipeline: PipelineUnderTest, own_broker: KafkaBroker
) -> None:
    def bounce() -> None:
        own_broker.kill()
        own_broker.start()

    assert EventfulRun("events", {READING: bounce}, kafka=LITTLE_AHEAD).run("bounced").claim == 1
    require_every_record_once(pipeline)


def test_a_broker_that_stays_away_is_unavailable_and_the_retry_reads_the_whole_range_again(
    pipeline: PipelineUnderTest, own_broker: KafkaBroker
) -> None:
    away = EventfulRun("events", {READING: own_broker.kill}, kafka=LITTLE_AHEAD, no_progress_seconds=2)
    try:
        with pytest.raises(BrokerUnavailable):
            away.run("away")
    finally:
        own_broker.start()
    assert pipeline.query("SELECT count(*) FROM shop.events") == [(0,)]
    assert EventfulRun("events").run("away").claim == 2
    require_every_record_once(pipeline)


def test_a_connection_that_leads_to_another_cluster_stops_the_plan_and_what_was_planned_before(
    pipeline: PipelineUnderTest,
    own_broker: KafkaBroker,
    kafka_broker: KafkaBroker,
    topic: TopicFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both clusters have a topic of that name, with the same number of records."""
    name = topic()
    ChangingTopic(kafka_broker.bootstrap, name).produce([b"planned"] * 10)
    FreshTopics(own_broker.bootstrap).create(name=name)
    ChangingTopic(own_broker.bootstrap, name).produce([b"foreign"] * 10)

    def lead_to(broker: KafkaBroker) -> None:
        set_connections(monkeypatch, bootstrap=broker.bootstrap, database=as_role("loader", pipeline.database))

    def cut_off() -> None:
        raise RetryLater("the test cuts the first attempt off")

    pipeline.write(name)
    lead_to(kafka_broker)
    with pytest.raises(RetryLater):
        EventfulRun("events", {PLANNED: cut_off}).run("planned")
    lead_to(own_broker)
    with pytest.raises(ClusterChanged, match="nothing was published"):
        EventfulRun("events").run("planned")
    with pytest.raises(ClusterChanged, match="the Kafka connection"):
        EventfulRun("events").run("another run")
    assert pipeline.rows("payload") == []
    lead_to(kafka_broker)
    EventfulRun("events").run("planned")
    assert pipeline.rows("payload") == [(b"planned",)] * 10

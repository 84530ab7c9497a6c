"""Two brokers: a partition without a leader, and a log that an unclean election cut off and that then grew again.

One story, told once for the module, with what the pipeline said at each point of it:

1. ten records on both brokers; broker 12 dies; five more records, acknowledged by broker 11 alone; all 15 are loaded
2. one more record is planned; then broker 11 dies and broker 12 comes back: nobody may lead
3. an unclean election makes broker 12 the leader: its log ends at 10
4. ten new records take the offsets 10 to 19
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.errors import BrokerUnavailable, IngestError, LeaderMissing, LogTruncated
from sandbox.postgres import PostgresServer
from tests.crash.changing_topics import ChangingTopic
from tests.crash.eventful_run import PLANNED, EventfulRun
from tests.crash.kafka_cluster import KafkaCluster
from tests.deadlines import until
from tests.integration.pipeline_under_test import PipelineUnderTest, set_connections
from tests.services import as_role, fresh_database, services_of_one_test

TOPIC, FIRST, SECOND = "events", 11, 12


@dataclass
class Story:
    """What came of it."""

    said: dict[str, IngestError] = field(default_factory=dict)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    position: tuple[Any, ...] = ()

    def ask(self, moment: str, run: EventfulRun, run_id: str) -> None:
        with pytest.raises(IngestError) as caught:
            run.run(run_id)
        self.said[moment] = caught.value


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    services = services_of_one_test()
    found = KafkaCluster(services.folder / "cluster")
    try:
        found.start()
        found.create_topic(TOPIC)
        yield found
    finally:
        found.remove()
        services.remove()


@pytest.fixture(scope="module")
def story(
    cluster: KafkaCluster, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("pipelines")
    with fresh_database(postgres_server) as database, pytest.MonkeyPatch.context() as environment:
        set_connections(environment, bootstrap=cluster.bootstrap, database=as_role("loader", database))
        environment.setenv("KAFKA_INGEST_PIPELINES", str(folder))
        yield tell(cluster, database, folder)


def tell(cluster: KafkaCluster, database: dict[str, Any], folder: Path) -> Story:
    pipeline = PipelineUnderTest(TOPIC, folder, database, capture=None)  # type: ignore[arg-type] # no command is run
    pipeline.write(TOPIC)
    topic, story = ChangingTopic(cluster.bootstrap, TOPIC), Story()
    topic.produce([b"on both"] * 10)
    cluster.kill(SECOND)
    until(lambda: cluster.in_sync(TOPIC) == {FIRST}, "broker 12 is out of sync", 60)
    topic.produce([b"on 11"] * 5)
    EventfulRun(TOPIC).run("before")
    topic.produce([b"planned"])

    def lose_the_leader() -> None:
        cluster.kill(FIRST)
        cluster.start_broker(SECOND)
        until(lambda: cluster.lacks_leader(TOPIC), "nobody leads", 60)

    leaderless = EventfulRun(TOPIC, {PLANNED: lose_the_leader}, no_progress_seconds=3)
    story.ask("read without a leader", leaderless, "planned before")
    story.ask("plan without a leader", EventfulRun(TOPIC), "without a leader")
    cluster.elect_uncleanly(TOPIC)
    story.ask("plan of the cut log", EventfulRun(TOPIC), "cut")
    story.ask("read of the cut log", EventfulRun(TOPIC, no_progress_seconds=3), "planned before")
    topic.produce([b"grown"] * 10)
    story.ask("read of the grown log", EventfulRun(TOPIC, no_progress_seconds=3), "grown")
    story.rows = pipeline.rows("kafka_offset, payload")
    [story.position] = pipeline.query("SELECT committed_offset, loaded_to, line FROM kafka_ingest.committed_offset")
    return story


def test_a_partition_without_a_leader_stops_a_plan_and_is_named(story: Story) -> None:
    said = story.said["plan without a leader"]
    assert type(said) is LeaderMissing
    assert f"{TOPIC}[0]" in said.what


def test_a_partition_that_loses_its_leader_after_the_plan_is_tried_again_later(story: Story) -> None:
    said = story.said["read without a leader"]
    assert type(said) is BrokerUnavailable
    assert said.found == "no leader"


def test_c28_an_end_offset_behind_the_committed_offset_stops_the_plan(story: Story) -> None:
    said = story.said["plan of the cut log"]
    assert type(said) is LogTruncated
    assert "committed offset 15" in said.expected
    assert "high watermark 10: the log lost 5 offsets" in said.found


def test_c28_a_range_that_was_planned_before_the_log_was_cut_is_not_loaded(story: Story) -> None:
    assert type(story.said["read of the cut log"]) is LogTruncated


def test_c28_a_log_that_was_cut_and_has_grown_past_the_committed_offset_is_noticed_by_its_leader_epoch(
    story: Story,
) -> None:
    said = story.said["read of the grown log"]
    assert type(said) is LogTruncated
    assert "offsets 15 to 20 after epoch" in said.expected


def test_c28_nothing_of_another_history_is_written_and_the_position_stays(story: Story) -> None:
    assert story.rows == [(offset, b"on both" if offset < 10 else b"on 11") for offset in range(15)]
    assert story.position == (15, 15, 0)

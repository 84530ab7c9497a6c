"""The log is changed under a pipeline: what would lose or double a record stops before anything is written."""

from __future__ import annotations

import pytest

from kafka_ingest.errors import (
    DatabaseUnavailable,
    LogTruncated,
    OffsetsExpired,
    PartitionMissing,
    StopAndCall,
    TopicMissing,
    TopicRecreated,
)
from sandbox.kafka import KafkaBroker
from tests.crash.changing_topics import ChangingTopic
from tests.crash.eventful_run import PLANNED, READING, STAGED, EventfulRun
from tests.deadlines import until
from tests.integration.pipeline_under_test import PipelineUnderTest
from tests.services import TopicFactory

OLD = [b"old %d" % number for number in range(15)]
#: Fetches so little ahead that most of a log of 30 MB is not yet read when its first chunk is staged.
LITTLE_AHEAD = {"queued.max.messages.kbytes": "100", "fetch.message.max.bytes": "100000"}


@pytest.fixture
def changing(kafka_broker: KafkaBroker, topic: TopicFactory, raw_pipeline: PipelineUnderTest) -> ChangingTopic:
    """The topic of the pipeline, one partition, empty."""
    found = ChangingTopic(kafka_broker.bootstrap, topic())
    raw_pipeline.write(found.name)
    return found


def require_rows(pipeline: PipelineUnderTest, expected: list[tuple[int, int, bytes]]) -> None:
    assert pipeline.rows("kafka_partition, kafka_offset, payload") == expected
    assert pipeline.dead_letters("reason") == []
    assert pipeline.command("audit", pipeline.name)[:2] == (0, [])


def positions(pipeline: PipelineUnderTest) -> list[tuple[int, int]]:
    found = pipeline.query("SELECT partition, committed_offset FROM kafka_ingest.committed_offset ORDER BY partition")
    return [(partition, offset) for partition, offset in found]


RECREATED = [
    (PLANNED, 3, {TopicRecreated, LogTruncated}),
    (PLANNED, 40, {TopicRecreated}),
    (PLANNED, None, {TopicMissing}),
    (READING, 3, {TopicRecreated}),
    (READING, 40, {TopicRecreated}),
    (STAGED, 3, {TopicRecreated}),
    (STAGED, 40, {TopicRecreated}),
    (STAGED, None, {TopicRecreated}),
]
WHEN = {PLANNED: "between plan and read", READING: "while it is read", STAGED: "between read and publish"}
LENGTH = {3: "shorter", 40: "longer", None: "not made again"}


@pytest.mark.parametrize(
    ("moment", "records", "errors"),
    [pytest.param(m, r, e, id=f"{LENGTH[r]} {WHEN[m]}") for m, r, e in RECREATED],
)
def test_c09_a_topic_that_is_recreated_under_a_load_is_not_published(
    raw_pipeline: PipelineUnderTest,
    changing: ChangingTopic,
    moment: str,
    records: int | None,
    errors: set[type[StopAndCall]],
) -> None:
    changing.produce(OLD[:10])
    EventfulRun("events").run("before")
    changing.produce(OLD[10:])

    def change() -> None:
        if records is None:
            changing.delete()
        else:
            changing.recreate([b"new"] * records)

    with pytest.raises(StopAndCall) as caught:
        EventfulRun("events", {moment: change}, no_progress_seconds=3).run("changed")
    assert type(caught.value) in errors
    require_rows(raw_pipeline, [(0, offset, OLD[offset]) for offset in range(10)])
    assert positions(raw_pipeline) == [(0, 10)]


@pytest.mark.parametrize("records", [300, 700])
def test_c09_a_topic_that_was_recreated_between_runs_stops_the_plan_with_both_ids(
    raw_pipeline: PipelineUnderTest, changing: ChangingTopic, records: int
) -> None:
    """500 were loaded; the new log is shorter, or longer than the committed offset."""
    changing.produce([b"old"] * 500)
    EventfulRun("events").run("before")
    old_id = raw_pipeline.query("SELECT topic_id FROM kafka_ingest.committed_offset")[0][0]
    changing.recreate([b"new"] * records)
    for run_id in ("next", "after that"):
        with pytest.raises(TopicRecreated) as caught:
            EventfulRun("events").run(run_id)
    assert f"topic id {old_id}" in caught.value.expected
    assert "[0] 500" in caught.value.expected
    assert "topic id" in caught.value.found
    assert old_id not in caught.value.found
    assert positions(raw_pipeline) == [(0, 500)]
    assert raw_pipeline.query("SELECT DISTINCT payload FROM shop.events") == [(b"old",)]


def test_c10_partitions_that_join_after_the_plan_are_read_from_their_beginning_by_the_next_run(
    raw_pipeline: PipelineUnderTest, kafka_broker: KafkaBroker, topic: TopicFactory
) -> None:
    """Three planned, two join with ten records; ``first_run: latest`` must not make the pipeline skip those."""
    changing = ChangingTopic(kafka_broker.bootstrap, topic(3))
    raw_pipeline.write(changing.name, first_run="latest")
    EventfulRun("events").run("finds where the log ends")
    for partition in range(3):
        changing.produce([b"planned"], partition)

    def join() -> None:
        changing.add_partitions(5)
        changing.produce([b"joined"] * 5, 3)
        changing.produce([b"joined"] * 5, 4)

    EventfulRun("events", {PLANNED: join}).run("planned before they joined")
    planned = [(partition, 0, b"planned") for partition in range(3)]
    require_rows(raw_pipeline, planned)
    EventfulRun("events").run("next")
    require_rows(raw_pipeline, planned + [(p, offset, b"joined") for p in (3, 4) for offset in range(5)])
    changing.add_partitions(6)
    changing.produce([b"late"], 5)
    EventfulRun("events").run("after that")
    assert positions(raw_pipeline) == [(0, 1), (1, 1), (2, 1), (3, 5), (4, 5), (5, 1)]


def test_metadata_with_fewer_partitions_than_known_stops_the_plan(
    raw_pipeline: PipelineUnderTest, kafka_broker: KafkaBroker, topic: TopicFactory
) -> None:
    """Without topic ids nothing else tells that this is another log."""
    changing = ChangingTopic(kafka_broker.bootstrap, topic(2))
    kafka = {"topics": [changing.name], "topic_identity": "none"}
    raw_pipeline.write(changing.name, kafka=kafka)
    changing.produce(OLD[:1])
    EventfulRun("events").run("before")
    changing.recreate(OLD[:1])
    with pytest.raises(PartitionMissing, match=r"\[1\]"):
        EventfulRun("events").run("next")
    require_rows(raw_pipeline, [(0, 0, OLD[0])])


def test_c11_retention_that_passes_the_committed_offset_stops_the_plan_and_says_what_is_lost(
    raw_pipeline: PipelineUnderTest, kafka_broker: KafkaBroker, topic: TopicFactory
) -> None:
    """100 loaded of 200; the broker's own retention then deletes all that was written."""
    short = {"segment.ms": "1000", "retention.ms": "2000", "segment.bytes": "1048576"}
    changing = ChangingTopic(kafka_broker.bootstrap, topic(1, short))
    changing.produce([b"x"] * 200)
    raw_pipeline.write(changing.name, limit={"offsets_per_run": 100})
    EventfulRun("events").run("before")

    def log_start() -> int:
        return int(raw_pipeline.command("lag", "events")[1][0]["headroom_offsets"])

    until(lambda: log_start() == -100, "retention has deleted what was not read")
    for run_id in ("next", "after that"):
        with pytest.raises(OffsetsExpired) as caught:
            EventfulRun("events").run(run_id)
    assert f"{changing.name}[0]" in caught.value.what
    assert "committed offset 100" in caught.value.expected
    assert "log start offset 200: 100 offsets were deleted before they were read" in caught.value.found
    assert positions(raw_pipeline) == [(0, 100)]
    assert raw_pipeline.query("SELECT count(*) FROM shop.events") == [(100,)]


def test_c11_records_that_are_deleted_while_they_are_read_stop_the_load_and_nothing_is_published(
    raw_pipeline: PipelineUnderTest, changing: ChangingTopic
) -> None:
    changing.produce([b"x" * 1_000] * 30_000)
    delete = {READING: lambda: changing.delete_records_below(29_000)}
    with pytest.raises(OffsetsExpired, match="deleted while the batch was loaded"):
        EventfulRun("events", delete, kafka=LITTLE_AHEAD).run("expires")
    require_rows(raw_pipeline, [])
    assert positions(raw_pipeline) == [(0, 0)]


def test_c19_records_that_arrive_while_a_batch_is_loaded_belong_to_the_next_one(
    raw_pipeline: PipelineUnderTest, changing: ChangingTopic
) -> None:
    changing.produce(OLD[:5])
    late = {READING: lambda: changing.produce(OLD[5:10]), STAGED: lambda: changing.produce(OLD[10:])}
    EventfulRun("events", late).run("first")
    require_rows(raw_pipeline, [(0, offset, OLD[offset]) for offset in range(5)])
    EventfulRun("events").run("second")
    require_rows(raw_pipeline, [(0, offset, OLD[offset]) for offset in range(15)])


def test_compaction_between_two_attempts_changes_only_how_many_offsets_are_invisible(
    raw_pipeline: PipelineUnderTest, kafka_broker: KafkaBroker, topic: TopicFactory
) -> None:
    """40 values of four keys: the first attempt stages all and fails, the second one finds the last of each key."""
    changing = ChangingTopic(kafka_broker.bootstrap, topic())
    raw_pipeline.write(changing.name)
    for number in range(40):
        changing.produce([b"%d" % number], key=b"%d" % (number % 4))

    def compact() -> None:
        changing.compact(below=40, left=4)
        raise DatabaseUnavailable("the test cuts the first attempt off")

    with pytest.raises(DatabaseUnavailable):
        EventfulRun("events", {STAGED: compact}).run("compacted")
    batch = EventfulRun("events").run("compacted")
    assert batch.counts is not None
    assert (batch.claim, batch.counts.rows, batch.counts.invisible) == (2, 4, 36)
    require_rows(raw_pipeline, [(0, offset, b"%d" % offset) for offset in range(36, 40)])
    assert positions(raw_pipeline) == [(0, 40)]

"""What planner and publisher rely on: the same for the log in memory and for a broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_ingest.protocol.log import PartitionState, TimedOffset
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.settings import IsolationLevel, TopicSelection
from tests.builders import offset_range
from tests.contracts.log_worlds import FakeWorld, KafkaWorld, LogWorld
from tests.deadlines import until

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


@pytest.fixture(params=["fake", "kafka"])
def world(request: pytest.FixtureRequest) -> Iterator[LogWorld]:
    if request.param == "fake":
        yield FakeWorld()
        return
    found = KafkaWorld(request.getfixturevalue("kafka_broker").bootstrap, request.getfixturevalue("topic"))
    yield found
    found.close()


def state_of(
    world: LogWorld, topic: str, partition: int = 0, isolation_level: IsolationLevel = COMMITTED
) -> PartitionState:
    snapshot = world.log().snapshot(TopicSelection(names=(topic,)), isolation_level)
    return snapshot.topics[topic].partitions[partition]


def test_an_empty_partition_starts_and_ends_at_zero(world: LogWorld) -> None:
    state = state_of(world, world.create())
    assert state == PartitionState(0, has_leader=True, log_start_offset=0, high_watermark=0, end_offset=0)


def test_the_end_offset_is_one_past_the_last_record(world: LogWorld) -> None:
    topic = world.create(partitions=2)
    world.produce(topic, b"a", b"b", b"c", partition=1)
    assert state_of(world, topic, 0).end_offset == 0
    assert state_of(world, topic, 1).end_offset == 3


def test_deleted_records_raise_the_log_start_and_nothing_else(world: LogWorld) -> None:
    """C11: what the plan compares the committed offset with."""
    topic = world.create()
    world.produce(topic, *[b"x"] * 10)
    world.delete_records(topic, 0, 4)
    state = state_of(world, topic)
    assert (state.log_start_offset, state.end_offset, state.high_watermark) == (4, 10, 10)


def test_an_open_transaction_ends_the_readable_log_under_read_committed(world: LogWorld) -> None:
    """C01, C29: five records, then an open transaction of three; the high watermark tells of it."""
    topic = world.create()
    world.produce(topic, *[b"x"] * 5)
    world.begin(topic, b"1", b"2", b"3")
    state = state_of(world, topic)
    assert (state.end_offset, state.high_watermark) == (5, 8)


def test_an_open_transaction_does_not_end_the_log_under_read_uncommitted(world: LogWorld) -> None:
    topic = world.create()
    world.begin(topic, b"1", b"2", b"3")
    state = state_of(world, topic, isolation_level=UNCOMMITTED)
    assert (state.end_offset, state.high_watermark) == (3, 3)


def test_records_behind_an_open_transaction_wait_for_it(world: LogWorld) -> None:
    """C29: 2 records, an open transaction from offset 2, 4 plain records behind it."""
    topic = world.create()
    world.produce(topic, b"a", b"b")
    transaction = world.begin(topic, b"t")
    world.produce(topic, *[b"x"] * 4)
    assert state_of(world, topic).end_offset == 2
    transaction.commit()
    assert state_of(world, topic).end_offset == 8


@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_the_marker_of_an_ended_transaction_takes_an_offset(world: LogWorld, ending: str) -> None:
    """C16: two records and a marker."""
    topic = world.create()
    transaction = world.begin(topic, b"1", b"2")
    getattr(transaction, ending)()
    assert state_of(world, topic).end_offset == 3


def test_a_named_topic_that_does_not_exist_is_missing_and_stays_missing(world: LogWorld) -> None:
    """C10's kind: reading never creates a topic."""
    present = world.create()
    selection = TopicSelection(names=(present, "never-created"))
    for _ in range(2):
        assert set(world.log().snapshot(selection, COMMITTED).topics) == {present}


def test_a_pattern_selects_whole_names_only(world: LogWorld) -> None:
    first, second = world.create(), world.create()
    selection = TopicSelection(pattern=first)
    assert set(world.log().snapshot(selection, COMMITTED).topics) == {first}
    both = TopicSelection(pattern=f"{first}|{second}")
    assert set(world.log().snapshot(both, COMMITTED).topics) == {first, second}
    assert not world.log().snapshot(TopicSelection(pattern=first[:-1]), COMMITTED).topics


def test_new_partitions_are_seen_with_their_first_records(world: LogWorld) -> None:
    """C10: partitions that joined after a plan."""
    topic = world.create(partitions=3)
    world.add_partitions(topic, 5)
    until(lambda: len(partitions_of(world, topic)) == 5, "five partitions are seen")
    world.produce(topic, *[b"x"] * 10, partition=4)
    assert partitions_of(world, topic)[4].end_offset == 10
    assert partitions_of(world, topic)[3].end_offset == 0


def partitions_of(world: LogWorld, topic: str) -> dict[int, PartitionState]:
    return dict(world.log().snapshot(TopicSelection(names=(topic,)), COMMITTED).topics[topic].partitions)


def test_all_selected_topics_are_in_one_snapshot(world: LogWorld) -> None:
    topics = [world.create(partitions=2) for _ in range(3)]
    for count, topic in enumerate(topics, start=1):
        world.produce(topic, *[b"x"] * count, partition=1)
    snapshot = world.log().snapshot(TopicSelection(names=tuple(topics)), COMMITTED)
    ends = [[state.end_offset for state in snapshot.topics[topic].partitions.values()] for topic in topics]
    assert ends == [[0, 1], [0, 2], [0, 3]]


def test_a_recreated_topic_has_another_id_and_an_unchanged_one_has_not(world: LogWorld) -> None:
    recreated, unchanged = world.create(), world.create()
    before = world.log().identity([recreated, unchanged])
    world.recreate(recreated)
    until(lambda: recreated in world.log().identity([recreated]).topic_ids, "the new topic is known")
    after = world.log().identity([recreated, unchanged])
    assert before.cluster_id == after.cluster_id
    assert before.topic_ids[unchanged] == after.topic_ids[unchanged]
    assert before.topic_ids[recreated] != after.topic_ids[recreated]


def test_snapshot_and_identity_tell_the_same_ids(world: LogWorld) -> None:
    topic = world.create()
    snapshot, identity = (
        world.log().snapshot(TopicSelection(names=(topic,)), COMMITTED),
        world.log().identity([topic]),
    )
    assert snapshot.cluster_id == identity.cluster_id != ""
    assert snapshot.topics[topic].topic_id == identity.topic_ids[topic] is not None


def test_a_deleted_topic_has_no_identity(world: LogWorld) -> None:
    topic = world.create()
    world.delete(topic)
    until(lambda: topic not in world.log().identity([topic]).topic_ids, "the deletion is known")


@pytest.mark.parametrize(
    ("time_ms", "offset", "record_time_ms"),
    [
        (-1, 0, None),
        (0, 0, 1_000),
        (999, 0, 1_000),
        (1_000, 0, 1_000),
        (1_001, 1, 2_000),
        (3_000, 2, 3_000),
        (3_001, 3, None),
        (2**62, 3, None),
    ],
)
def test_a_time_is_the_first_offset_at_or_after_it_and_the_end_when_there_is_none(
    world: LogWorld, time_ms: int, offset: int, record_time_ms: int | None
) -> None:
    topic = world.create()
    for produced_ms in (1_000, 2_000, 3_000):
        world.produce(topic, b"x", timestamp_ms=produced_ms)
    where = TopicPartition(topic, 0)
    assert world.log().offsets_at(time_ms, [where]) == {where: TimedOffset(offset, record_time_ms)}


def test_of_records_out_of_order_the_first_by_offset_counts(world: LogWorld) -> None:
    topic = world.create()
    for produced_ms in (1_000, 5_000, 2_000, 6_000):
        world.produce(topic, b"x", timestamp_ms=produced_ms)
    where = TopicPartition(topic, 0)
    assert world.log().offsets_at(1_500, [where]) == {where: TimedOffset(1, 5_000)}
    assert world.log().offsets_at(5_500, [where]) == {where: TimedOffset(3, 6_000)}


def test_a_time_is_looked_up_in_every_partition(world: LogWorld) -> None:
    topic = world.create(partitions=3)
    world.produce(topic, b"x", timestamp_ms=1_000, partition=0)
    world.produce(topic, b"x", b"x", timestamp_ms=1_000, partition=1)
    world.produce(topic, b"x", timestamp_ms=2_000, partition=1)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    found = world.log().offsets_at(1_500, partitions)
    assert [found[where].offset for where in partitions] == [1, 2, 0]


def test_cleanup_policies_are_told_for_topics_that_exist(world: LogWorld) -> None:
    plain, compacted = world.create(), world.create(cleanup_policy="compact,delete")
    policies = world.log().cleanup_policies([plain, compacted, "nowhere"])
    assert policies == {plain: "delete", compacted: "compact,delete"}
    assert world.log().cleanup_policies([]) == {}


def mean_bytes(world: LogWorld, topic: str, *bounds: tuple[int, int]) -> int | None:
    """Mean bytes of an offset, where bounds are those of the ranges of partitions 0, 1 and so on."""
    return world.log().mean_offset_bytes([range_of(topic, start, end, n) for n, (start, end) in enumerate(bounds)])


def range_of(topic: str, start: int, end: int, partition: int = 0) -> OffsetRange:
    return replace(offset_range(partition, start, end), topic=topic)


def test_the_mean_size_is_that_of_the_records_in_the_range(world: LogWorld) -> None:
    topic = world.create()
    world.produce(topic, b"x" * 5_000, b"x" * 100, b"x" * 300, b"x" * 7_000)
    assert mean_bytes(world, topic, (1, 3)) == 200
    assert mean_bytes(world, topic, (0, 4)) == 3_100


def test_partitions_count_by_their_offsets(world: LogWorld) -> None:
    """Thirty offsets of 10 bytes and ten of 1,000: 10,300 bytes in 40."""
    topic = world.create(partitions=2)
    world.produce(topic, *[b"x" * 10] * 30)
    world.produce(topic, *[b"x" * 1_000] * 10, partition=1)
    assert mean_bytes(world, topic, (0, 30), (0, 10)) == round(10_300 / 40)


def test_offsets_without_a_readable_record_hold_nothing(world: LogWorld) -> None:
    """Three records and a marker, three aborted ones and a marker, one record: 4,000 bytes in nine offsets."""
    topic = world.create()
    world.begin(topic, *[b"x" * 1_000] * 3).commit()
    world.begin(topic, *[b"x" * 9_000] * 3).abort()
    world.produce(topic, b"x" * 1_000)
    assert mean_bytes(world, topic, (0, 9)) == round(4_000 / 9)
    # The last offsets are an aborted transaction.
    assert mean_bytes(world, topic, (4, 8)) == 0
    assert mean_bytes(world, topic, (0, 8)) == round(3_000 / 8)


def test_a_log_that_ends_in_a_marker_is_passed_to_its_end(world: LogWorld) -> None:
    """No record follows: only the event of the partition's end tells that these offsets were passed."""
    topic = world.create(partitions=2)
    world.begin(topic, *[b"x" * 1_000] * 3).commit()
    world.begin(topic, *[b"x" * 1_000] * 3, partition=1).abort()
    assert mean_bytes(world, topic, (0, 4)) == 750
    assert mean_bytes(world, topic, (0, 4), (0, 4)) == 375


def test_tombstones_and_empty_values_have_a_size_too(world: LogWorld) -> None:
    topic = world.create()
    world.produce(topic, None, b"", b"x" * 300)
    assert mean_bytes(world, topic, (0, 3)) == 100
    assert mean_bytes(world, topic, (0, 2)) == 0


def test_nothing_is_known_of_ranges_that_are_gone_and_the_others_are_measured(world: LogWorld) -> None:
    topic = world.create(partitions=2)
    world.produce(topic, *[b"x" * 100] * 10)
    world.produce(topic, *[b"x" * 200] * 10, partition=1)
    world.delete_records(topic, 0, 4)
    assert mean_bytes(world, topic, (0, 10)) is None
    assert mean_bytes(world, topic, (0, 10), (0, 10)) == 200
    assert mean_bytes(world, topic, (4, 10), (0, 10)) == round((6 * 100 + 10 * 200) / 16)


def test_nothing_is_known_of_a_topic_that_is_gone_and_of_no_ranges(world: LogWorld) -> None:
    topic = world.create()
    world.delete(topic)
    until(lambda: topic not in world.log().identity([topic]).topic_ids, "the deletion is known")
    assert mean_bytes(world, topic, (0, 10)) is None
    assert world.log().mean_offset_bytes([]) is None

"""What a staging task relies on: the same for the reader of the log in memory and for librdkafka's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_ingest.errors import LogTruncated, OffsetsExpired, PartitionMissing, TopicMissing
from kafka_ingest.protocol.staging import Split
from kafka_ingest.settings import IsolationLevel
from spark_jobs.records import RECORD_SCHEMA, RangeReader
from tests.contracts.log_worlds import FakeWorld, KafkaWorld, LogWorld

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


@pytest.fixture(params=["fake", "kafka"])
def world(request: pytest.FixtureRequest) -> Iterator[LogWorld]:
    if request.param == "fake":
        yield FakeWorld()
        return
    found = KafkaWorld(request.getfixturevalue("kafka_broker").bootstrap, request.getfixturevalue("topic"))
    yield found
    found.close()


@pytest.fixture
def reader(world: LogWorld) -> RangeReader:
    return world.reader(COMMITTED)


def span(topic: str, start: int, end: int, partition: int = 0, leader_epoch: int | None = None) -> Split:
    return Split(0, topic, partition, 0, start, end, leader_epoch)


def values(reader: RangeReader, split: Split) -> dict[int, bytes | None]:
    """Read a split to its end; return values by offset, and hold the order to be rising."""
    found: list[tuple[int, bytes | None]] = []
    for batch in reader.read(split):
        assert batch.schema == RECORD_SCHEMA
        assert set(batch["topic"].to_pylist()) == {split.topic}
        assert set(batch["partition"].to_pylist()) == {split.partition}
        found += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(set(offsets))
    return dict(found)


def test_a_range_is_half_open(world: LogWorld, reader: RangeReader) -> None:
    topic = world.create()
    world.produce(topic, b"0", b"1", b"2", b"3", b"4")
    assert values(reader, span(topic, 1, 3)) == {1: b"1", 2: b"2"}


def test_a_range_up_to_the_end_of_the_log_ends(world: LogWorld, reader: RangeReader) -> None:
    topic = world.create()
    world.produce(topic, b"0", b"1", b"2")
    assert values(reader, span(topic, 0, 3)) == {0: b"0", 1: b"1", 2: b"2"}


def test_null_values_and_empty_values_are_kept_apart(world: LogWorld, reader: RangeReader) -> None:
    """C18."""
    topic = world.create()
    world.produce(topic, None, b"", b"null")
    assert values(reader, span(topic, 0, 3)) == {0: None, 1: b"", 2: b"null"}


@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_a_marker_at_the_tail_ends_the_range(world: LogWorld, reader: RangeReader, ending: str) -> None:
    """C16: record, transaction of two, marker; planned end 4."""
    topic = world.create()
    world.produce(topic, b"0")
    getattr(world.begin(topic, b"1", b"2"), ending)()
    expected = {0: b"0", 1: b"1", 2: b"2"} if ending == "commit" else {0: b"0"}
    assert values(reader, span(topic, 0, 4)) == expected


def test_a_range_of_aborted_records_alone_is_empty_and_ends(world: LogWorld, reader: RangeReader) -> None:
    """C16: the whole range, also when plain records follow it."""
    topic = world.create()
    world.begin(topic, b"1", b"2", b"3").abort()
    assert values(reader, span(topic, 0, 4)) == {}
    assert values(reader, span(topic, 1, 2)) == {}
    world.produce(topic, b"4")
    assert values(reader, span(topic, 0, 4)) == {}


def test_a_range_may_start_on_a_marker_and_be_nothing_else(world: LogWorld, reader: RangeReader) -> None:
    """C16: offset 1 is the marker of a committed transaction of one record."""
    topic = world.create()
    world.begin(topic, b"0").commit()
    world.produce(topic, b"2")
    assert values(reader, span(topic, 1, 2)) == {}
    assert values(reader, span(topic, 1, 3)) == {2: b"2"}


def test_aborted_records_in_the_middle_are_left_out(world: LogWorld, reader: RangeReader) -> None:
    """C01: 2 plain, 2 aborted + marker, 2 committed + marker, 1 plain."""
    topic = world.create()
    world.produce(topic, b"0", b"1")
    world.begin(topic, b"2", b"3").abort()
    world.begin(topic, b"5", b"6").commit()
    world.produce(topic, b"8")
    assert values(reader, span(topic, 0, 9)) == {0: b"0", 1: b"1", 5: b"5", 6: b"6", 8: b"8"}


def test_read_uncommitted_gives_open_and_aborted_records(world: LogWorld) -> None:
    topic = world.create()
    world.begin(topic, b"0").abort()
    world.begin(topic, b"2")
    assert values(world.reader(UNCOMMITTED), span(topic, 0, 3)) == {0: b"0", 2: b"2"}


def test_records_before_an_open_transaction_are_read_up_to_it(world: LogWorld, reader: RangeReader) -> None:
    """C01, C29: the planned end is the last stable offset, the log goes on behind it."""
    topic = world.create()
    world.produce(topic, b"0", b"1")
    transaction = world.begin(topic, b"2")
    world.produce(topic, b"3")
    assert values(reader, span(topic, 0, 2)) == {0: b"0", 1: b"1"}
    transaction.commit()
    assert values(reader, span(topic, 2, 5)) == {2: b"2", 3: b"3"}


def test_a_range_past_an_open_transaction_never_ends_as_if_it_were_read(world: LogWorld, reader: RangeReader) -> None:
    """C01: no record of the open transaction is skipped; a plan cannot ask for this, a fault could."""
    topic = world.create()
    world.produce(topic, b"0")
    world.begin(topic, b"1")
    with pytest.raises(LogTruncated, match="readable"):
        values(reader, span(topic, 0, 2))


def test_splits_are_read_one_after_another_without_mixing(world: LogWorld, reader: RangeReader) -> None:
    """Forward, backward, twice, another partition, another topic: nothing of a former one reaches the next."""
    first, second = world.create(partitions=2), world.create()
    world.produce(first, *[b"a%d" % n for n in range(6)])
    world.produce(first, *[b"b%d" % n for n in range(4)], partition=1)
    world.produce(second, *[b"c%d" % n for n in range(3)])
    assert values(reader, span(first, 3, 6)) == {3: b"a3", 4: b"a4", 5: b"a5"}
    assert values(reader, span(first, 0, 3)) == {0: b"a0", 1: b"a1", 2: b"a2"}
    assert values(reader, span(first, 3, 6)) == {3: b"a3", 4: b"a4", 5: b"a5"}
    assert values(reader, span(first, 1, 2, partition=1)) == {1: b"b1"}
    assert values(reader, span(second, 0, 3)) == {0: b"c0", 1: b"c1", 2: b"c2"}
    assert values(reader, span(first, 5, 6)) == {5: b"a5"}


def test_a_read_that_was_given_up_leaves_nothing_behind(world: LogWorld, reader: RangeReader) -> None:
    topic = world.create()
    world.produce(topic, *[b"%d" % n for n in range(50)])
    given_up = reader.read(span(topic, 0, 50))
    next(given_up)
    getattr(given_up, "close", lambda: None)()
    assert values(reader, span(topic, 40, 42)) == {40: b"40", 41: b"41"}


def test_partitions_that_joined_after_the_plan_are_not_read(world: LogWorld, reader: RangeReader) -> None:
    """C10: exactly the planned range."""
    topic = world.create(partitions=1)
    world.produce(topic, b"0", b"1")
    world.add_partitions(topic, 3)
    assert values(reader, span(topic, 0, 2)) == {0: b"0", 1: b"1"}


def test_an_expired_start_is_told_with_partition_wanted_and_log_start(world: LogWorld, reader: RangeReader) -> None:
    """C11: planned from 3, records below 6 are gone."""
    topic = world.create()
    world.produce(topic, *[b"x"] * 10)
    world.delete_records(topic, 0, 6)
    with pytest.raises(OffsetsExpired) as caught:
        values(reader, span(topic, 3, 10))
    assert f"{topic}[0]" in str(caught.value)
    assert "6" in str(caught.value)


def test_a_start_past_the_end_of_the_log_is_a_truncated_log(world: LogWorld, reader: RangeReader) -> None:
    topic = world.create()
    world.produce(topic, b"0", b"1")
    with pytest.raises(LogTruncated):
        values(reader, span(topic, 5, 7))


def test_an_end_that_the_log_no_longer_reaches_is_a_truncated_log(world: LogWorld, reader: RangeReader) -> None:
    topic = world.create()
    world.produce(topic, b"0", b"1")
    with pytest.raises(LogTruncated):
        values(reader, span(topic, 0, 5))


def test_a_missing_topic_is_told_and_not_created(world: LogWorld, reader: RangeReader) -> None:
    topic = world.create()
    world.delete(topic)
    for _ in range(2):
        with pytest.raises(TopicMissing, match=topic):
            values(reader, span(topic, 0, 1))


def test_a_missing_partition_is_told(world: LogWorld, reader: RangeReader) -> None:
    topic = world.create(partitions=1)
    with pytest.raises(PartitionMissing, match=r"\[7\]"):
        values(reader, span(topic, 0, 1, partition=7))


def test_the_epoch_at_the_end_is_known_after_a_record_and_after_an_event(world: LogWorld, reader: RangeReader) -> None:
    """A new log is in epoch 0. The first range is ended by the record at its end, the second by the log's end."""
    topic = world.create()
    world.produce(topic, b"0", b"1", b"2")
    values(reader, span(topic, 0, 2))
    assert reader.end_leader_epoch() == 0
    values(reader, span(topic, 0, 3))
    assert reader.end_leader_epoch() == 0


def test_an_invisible_tail_still_tells_the_epoch_at_the_end(world: LogWorld, reader: RangeReader) -> None:
    topic = world.create()
    world.begin(topic, b"0").abort()
    values(reader, span(topic, 0, 2))
    assert reader.end_leader_epoch() == 0


def test_a_range_goes_on_with_the_epoch_of_the_one_before(world: LogWorld, reader: RangeReader) -> None:
    topic = world.create()
    world.produce(topic, b"0", b"1", b"2")
    values(reader, span(topic, 0, 2))
    epoch = reader.end_leader_epoch()
    assert values(reader, span(topic, 2, 3, leader_epoch=epoch)) == {2: b"2"}


def test_two_ranges_see_the_same_epoch_where_they_meet(world: LogWorld, reader: RangeReader) -> None:
    """Offset 1 is a record, 3 to 5 are aborted records and their marker, with nothing after them."""
    topic = world.create()
    world.produce(topic, b"0", b"1", b"2")
    world.begin(topic, b"3", b"4").abort()
    for seam in (1, 3, 4):
        values(reader, span(topic, 0, seam))
        end_epoch = reader.end_leader_epoch()
        values(reader, span(topic, seam, 6))
        assert (end_epoch, reader.start_leader_epoch()) == (0, 0)


def test_an_unfinished_read_has_no_epoch(world: LogWorld, reader: RangeReader) -> None:
    topic = world.create()
    world.produce(topic, b"0")
    values(reader, span(topic, 0, 1))
    with pytest.raises(LogTruncated):
        values(reader, span(topic, 5, 6))
    assert (reader.start_leader_epoch(), reader.end_leader_epoch()) == (None, None)

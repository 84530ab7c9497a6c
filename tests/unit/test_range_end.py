"""When a split has ended, and what each message on the way means."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, Message

from kafka_ingest.errors import RetryLater
from kafka_ingest.protocol.staging import Split
from spark_jobs.reader import PartitionFailure, RangeEnd
from tests.kafka_messages import TOPIC, end_of_partition, event, record


@pytest.fixture
def end() -> RangeEnd:
    return RangeEnd(Split(0, TOPIC, 0, 0, start=10, end=20))


def offsets(messages: Sequence[Message]) -> list[int]:
    return [message.offset() for message in messages]


def test_nothing_ends_a_range_but_something_at_or_past_its_end(end: RangeEnd) -> None:
    end.take([])
    end.take([record(10), record(19)])
    end.take([end_of_partition(19)])
    assert not end.ended


def test_the_last_record_inside_does_not_end_it(end: RangeEnd) -> None:
    """Its leader epoch says nothing about what comes next."""
    assert offsets(end.take([record(19)])) == [19]
    assert not end.ended


@pytest.mark.parametrize("past", [20, 21, 5_000])
def test_a_record_at_or_past_the_end_ends_it_and_is_not_given(end: RangeEnd, past: int) -> None:
    assert offsets(end.take([record(12), record(past, leader_epoch=7), record(past + 1)])) == [12]
    assert end.ended
    assert end.record_epoch == 7


@pytest.mark.parametrize("first", [10, 12, 20, 33])
def test_the_first_epoch_is_that_of_the_first_record_inside_or_past_the_end(end: RangeEnd, first: int) -> None:
    end.take([])
    assert not end.has_record
    end.take([record(first, leader_epoch=7), record(first + 1, leader_epoch=8)])
    end.take([record(40, leader_epoch=9)])
    assert (end.has_record, end.first_epoch) == (True, 7)


@pytest.mark.parametrize("past", [20, 33])
def test_an_event_at_or_past_the_end_ends_it(end: RangeEnd, past: int) -> None:
    assert offsets(end.take([record(12), end_of_partition(past)])) == [12]
    assert end.ended
    assert end.record_epoch is None


def test_nothing_is_taken_after_the_end(end: RangeEnd) -> None:
    assert offsets(end.take([end_of_partition(20), record(13)])) == []


def test_events_and_records_of_another_assignment_are_not_mistaken_for_this_one(end: RangeEnd) -> None:
    """What a former split left in the queue: its end would end this one with records unread."""
    strangers = [
        record(15, partition=1),
        record(16, topic="others"),
        record(90, partition=1),
        end_of_partition(90, partition=1),
        end_of_partition(90, topic="others"),
        event(KafkaError._AUTO_OFFSET_RESET, partition=1),
    ]
    assert offsets(end.take([*strangers, record(11)])) == [11]
    assert offsets(end.take([record(15, partition=1), record(12)])) == [12]
    assert not end.ended


def test_a_fault_of_the_group_which_is_not_used_ends_nothing(end: RangeEnd) -> None:
    """A login that is renewed ends requests that look for the group's coordinator (librdkafka 2.16)."""
    assert end.take([event(KafkaError._AUTHENTICATION, topic=None), record(11)]) != []
    assert "Authentication" in end.output_tail
    with pytest.raises(PartitionFailure):
        end.take([event(KafkaError._AUTHENTICATION)])


@pytest.mark.parametrize("wrong", [[11, 11], [12, 11], [9, 11], [10, 12, 11, 13]])
def test_offsets_that_do_not_rise_stop_the_read(end: RangeEnd, wrong: list[int]) -> None:
    with pytest.raises(RetryLater, match="out of order"):
        end.take([record(offset) for offset in wrong])


def test_offsets_rise_over_several_polls_too(end: RangeEnd) -> None:
    end.take([record(10), record(14)])
    with pytest.raises(RetryLater, match="rising offsets from 15"):
        end.take([record(14)])


def test_gaps_are_legal(end: RangeEnd) -> None:
    assert offsets(end.take([record(10), record(13), record(19)])) == [10, 13, 19]


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN,
    ],
)
def test_an_error_behind_which_librdkafka_goes_on_ends_the_read(end: RangeEnd, code: int) -> None:
    """A damaged batch is skipped by librdkafka: going on would lose its records."""
    with pytest.raises(PartitionFailure) as caught:
        end.take([record(10), event(code, 11)])
    assert caught.value.offset == 11


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_a_passing_error_neither_ends_nor_fails_the_read(end: RangeEnd, code: int) -> None:
    assert offsets(end.take([record(10), event(code, topic=None, partition=-1), record(11)])) == [10, 11]
    assert not end.ended
    assert end.output_tail

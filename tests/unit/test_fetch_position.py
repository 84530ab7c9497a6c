"""Progress in librdkafka's statistics."""

from __future__ import annotations

import json

from kafka_ingest.kafka.client import FetchPosition


def statistics(next_offset: int, topic: str = "orders", partition: int = 0) -> str:
    return json.dumps({"topics": {topic: {"partitions": {str(partition): {"next_offset": next_offset}}}}})


def followed() -> FetchPosition:
    position = FetchPosition()
    position.follow("orders", 0)
    return position


def test_the_first_position_is_no_movement_and_a_later_one_is() -> None:
    position = followed()
    position(statistics(5))
    assert not position.has_moved()
    position(statistics(9))
    assert position.has_moved()


def test_a_position_that_stands_still_is_no_movement() -> None:
    position = followed()
    for _ in range(3):
        position(statistics(5))
        assert not position.has_moved()


def test_without_new_statistics_there_is_no_movement() -> None:
    position = followed()
    position(statistics(5))
    position.has_moved()
    position(statistics(6))
    assert position.has_moved()
    assert not position.has_moved()


def test_other_partitions_do_not_count() -> None:
    position = followed()
    for offset in (1, 2):
        position(statistics(offset, partition=1))
        assert not position.has_moved()
        position(statistics(offset, topic="others"))
        assert not position.has_moved()


def test_a_new_split_starts_without_a_position() -> None:
    position = followed()
    position(statistics(5))
    position.has_moved()
    position.follow("orders", 0)
    position(statistics(100))
    assert not position.has_moved()

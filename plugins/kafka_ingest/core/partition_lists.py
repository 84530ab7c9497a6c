"""Partitions as people list them, one a line: ``topic partition offset``, or ``topic`` for a whole topic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from kafka_ingest.core.change_requests import Selection
from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.settings import PartitionOffset

_GREATEST_OFFSET = 2**63 - 1
_GREATEST_PARTITION = 2**31 - 1


def parse_partition_offsets(text: str) -> tuple[PartitionOffset, ...]:
    """Reads ``topic partition offset``, ordered by partition; empty lines count for nothing.

    Raises:
        ValueError: Says what was expected of the first line that does not fit.
    """
    found = sorted((_offset(number, words) for number, words in _lines(text)), key=lambda o: (o.topic, o.partition))
    for one, other in pairwise(found):
        if (one.topic, one.partition) == (other.topic, other.partition):
            raise ValueError(f"each partition once, not {one.topic} {one.partition} twice")
    return tuple(found)


def parse_selection(text: str) -> Selection:
    """Reads ``topic`` or ``topic partition``; empty lines count for nothing.

    Raises:
        ValueError: Says what was expected of the first line that does not fit.
    """
    topics: set[str] = set()
    partitions: set[TopicPartition] = set()
    for number, words in _lines(text):
        if len(words) == 1:
            topics.add(words[0])
        elif len(words) == 2 and _is_number(words[1], _GREATEST_PARTITION):
            partitions.add(TopicPartition(words[0], int(words[1])))
        else:
            raise ValueError(f"topic, or topic and partition (line {number})")
    return Selection(tuple(sorted(topics)), tuple(sorted(partitions)))


def _offset(number: int, words: list[str]) -> PartitionOffset:
    if len(words) == 3 and _is_number(words[1], _GREATEST_PARTITION) and _is_number(words[2], _GREATEST_OFFSET):
        return PartitionOffset(words[0], int(words[1]), int(words[2]))
    raise ValueError(f"topic, partition and offset, the next one to read (line {number})")


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def _is_number(text: str, greatest: int) -> bool:
    # The length first: Python converts no text of more than 4,300 digits.
    return len(text) <= len(str(greatest)) and text.isascii() and text.isdigit() and int(text) <= greatest

"""Values that people type: lists of partitions, spans of offsets, times."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kafka_ingest.protocol.batch import OffsetSpan
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import PartitionOffset
from kafka_ingest.times import parse_record_time

if TYPE_CHECKING:
    from kafka_ingest.protocol.change_requests import Selection

# ----------
# Kinds of arguments that several commands take; a fault is one of usage.

_GREATEST = 2**63 - 1  # what PostgreSQL's bigint can hold


def at_least_1(text: str) -> int:
    """Read a whole number above 0."""
    return _whole_number(text, 1)


def at_least_0(text: str) -> int:
    """Read a whole number that is not negative."""
    return _whole_number(text, 0)


def _whole_number(text: str, least: int) -> int:
    # At most 19 digits: Python converts no text of more than 4,300.
    if re.fullmatch(r"\+?[0-9]{1,19}", text) and least <= int(text) <= _GREATEST:
        return int(text)
    shown = text if len(text) <= 30 else f"{text[:30]}..."
    raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {_GREATEST}, found {shown}")


# ----------
# Values of a form, as Airflow's params, a run's conf or a command line give them; their faults are collected.

#: Airflow's OpenLineage provider puts this key into the conf of runs that a TriggerDagRunOperator starts
#: (``airflow/providers/standard/utils/openlineage.py``); it is no value of a form.
_NOT_OURS = frozenset({"openlineage"})

#: PostgreSQL keeps no greater one in a bigint; Airflow cannot store it, and fails the task without a word.
GREATEST_NUMBER = 2**63 - 1


@dataclass
class FormValues:
    """The values of a form while they are read.

    Attributes:
        given: What was filled in; a key that is missing holds its default.
        defaults: Every key of the form with its default.
        zone: IANA time zone of times without an offset from UTC.
        labels: What whoever fills it in sees in place of a key; a key without one is shown itself.
        faults: What does not fit, one text each.
    """

    given: Mapping[str, Any]
    defaults: Mapping[str, Any]
    zone: str
    labels: Mapping[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def fault(self, key: str, expected: str, found: object) -> None:
        """Note a fault, under the label of the key."""
        self.faults.append(f"{self.labels.get(key, key)}: expected {expected}; found {found}")

    def check_known_keys(self) -> None:
        """Note a fault for each key that is not of the form."""
        for key in sorted(set(self.given) - set(self.defaults) - _NOT_OURS):
            self.fault(key, f"one of the keys {', '.join(self.defaults)}", "an unknown key")

    def is_given(self, key: str) -> bool:
        """Whether a key holds something else than its default; an empty text counts as nothing."""
        value = self.given.get(key)
        return (value.strip() if isinstance(value, str) else value) not in (self.defaults[key], None, "")

    def read(self, key: str, parse: Callable[[Any], Any]) -> Any:
        """Read one value; its default where it is not given or has a fault."""
        if not self.is_given(key):
            return self.defaults[key]
        try:
            return parse(self.given[key])
        except ValueError as expected:
            self.fault(key, str(expected), repr(self.given[key]))
            return self.defaults[key]

    def time(self, key: str) -> int | None:
        """Read a time, in ms since 1970 UTC."""
        value: int | None = self.read(key, lambda text: parse_record_time(a_text(text), self.zone))
        return value


def a_text(value: object) -> str:
    """Read a text, without white space around it."""
    if not isinstance(value, str):
        raise ValueError("a text")
    return value.strip()


def a_flag(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def a_positive_number(value: object) -> int:
    """Read a whole number above 0."""
    return a_whole_number(value, at_least=1)


def a_whole_number(value: object, *, at_least: int | None = None) -> int:
    """Read a whole number that PostgreSQL's bigint can hold."""
    least = -GREATEST_NUMBER - 1 if at_least is None else at_least
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= GREATEST_NUMBER:
        return value
    fits = "a whole number" + ("" if at_least is None else f", at least {at_least}")
    is_too_great = isinstance(value, int) and value > GREATEST_NUMBER
    raise ValueError(fits + (f", at most {GREATEST_NUMBER}" if is_too_great else ""))


def one_of(choices: type[StrEnum]) -> Callable[[object], str]:
    """Return what reads one of the values of an enumeration."""
    values = [choice.value for choice in choices]

    def read(value: object) -> str:
        if value not in values:
            raise ValueError(f"one of {', '.join(values)}")
        return str(value)

    return read


# ----------
# Spans of offsets as people write them: one line a partition, ``topic partition start end``.

_EXPECTED = "topic, partition, start and end, the first offset after the span; without end: up to the end of the log"
_GREATEST_OFFSET = 2**63 - 1


def parse_offset_spans(text: str) -> tuple[OffsetSpan, ...]:
    """Read spans ``[start, end)``, ordered by partition; empty lines count for nothing.

    Raises:
        ValueError: Says what was expected of the first line that does not fit.
    """
    spans = sorted(_spans(text), key=lambda span: span.topic_partition)
    for one, other in pairwise(spans):
        if one.topic_partition == other.topic_partition:
            raise ValueError(f"each partition once, not {one.topic_partition} twice")
    return tuple(spans)


def _spans(text: str) -> Iterator[OffsetSpan]:
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.split():
            yield _span(words, f"{_EXPECTED} (line {number})")


def _span(words: list[str], expected: str) -> OffsetSpan:
    topic, numbers = words[0], words[1:]
    if len(numbers) not in (2, 3) or not all(_is_offset(n) for n in numbers):
        raise ValueError(expected)
    partition, start, *rest = (int(n) for n in numbers)
    end = rest[0] if rest else None
    if max(start, end or 0) > _GREATEST_OFFSET or (end is not None and end <= start):
        raise ValueError(f"a start below the end; {expected}")
    return OffsetSpan(topic, partition, start, end)


def _is_offset(text: str) -> bool:
    # The length first: Python converts no text of more than 4,300 digits.
    return len(text) <= len(str(_GREATEST_OFFSET)) and text.isascii() and text.isdigit()


# ----------
# Partitions as people list them, one a line: ``topic partition offset``, or ``topic`` for a whole topic.

_GREATEST_PARTITION = 2**31 - 1


def parse_partition_offsets(text: str) -> tuple[PartitionOffset, ...]:
    """Read ``topic partition offset``, ordered by partition; empty lines count for nothing.

    Raises:
        ValueError: Says what was expected of the first line that does not fit.
    """
    found = sorted((_offset(number, words) for number, words in _lines(text)), key=lambda o: (o.topic, o.partition))
    for one, other in pairwise(found):
        if (one.topic, one.partition) == (other.topic, other.partition):
            raise ValueError(f"each partition once, not {one.topic} {one.partition} twice")
    return tuple(found)


def parse_selection(text: str) -> Selection:
    """Read ``topic`` or ``topic partition``; empty lines count for nothing.

    Raises:
        ValueError: Says what was expected of the first line that does not fit.
    """
    # Imported now: the form of a run, which every DAG file is parsed with, has no selection.
    from kafka_ingest.protocol.change_requests import Selection

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

"""Spans of offsets as people write them: one line a partition, ``topic partition start end``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from kafka_ingest.core.run_options import OffsetSpan

_EXPECTED = "topic, partition, start and end, the first offset after the span; without end: up to the end of the log"
_GREATEST_OFFSET = 2**63 - 1


def parse_offset_spans(text: str) -> tuple[OffsetSpan, ...]:
    """Reads spans ``[start, end)``, ordered by partition; empty lines count for nothing.

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

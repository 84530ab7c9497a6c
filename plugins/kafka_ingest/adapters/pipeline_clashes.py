"""Pipelines that get in each other's way: one name twice, or one topic twice into one table.

The ledger refuses the second pipeline of a topic and table whatever the files say (``served_topic``). Saying it when
the files are read spares a failed run. Two connections may lead to the same cluster, and two different patterns may
match the same topic, and some patterns take too long here (``topic_patterns.py``): only the ledger sees that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from kafka_ingest.adapters.topic_patterns import quick_match
from kafka_ingest.adapters.yaml_document import Location
from kafka_ingest.core.settings import PipelineSettings, TopicSelection

_Loaded = tuple[Path, PipelineSettings]


@dataclass(frozen=True, slots=True)
class Clash:
    """A fault of the file ``path``, and the place in another file that it clashes with."""

    path: Path
    location: Location
    text: str
    other_path: Path
    other_location: Location


def clashes(pipelines: Sequence[_Loaded]) -> Iterator[Clash]:
    """Yields the clashes of all pairs of pipelines, each for both files."""
    by_name: defaultdict[str, list[_Loaded]] = defaultdict(list)
    by_target: defaultdict[tuple[str, str, str], list[_Loaded]] = defaultdict(list)
    for path, settings in pipelines:
        batch = settings.batch
        by_name[settings.pipeline].append((path, settings))
        by_target[batch.kafka_connection, batch.target_connection, str(batch.target)].append((path, settings))
    for group in by_name.values():
        for one, other in combinations(group, 2):
            text = f"expected a name of its own; found {one[1].pipeline}, as"
            yield from _both(one[0], other[0], ("pipeline",), ("pipeline",), text)
    for group in by_target.values():
        for one, other in combinations(group, 2):
            yield from _same_topic(one, other)


def _same_topic(one: _Loaded, other: _Loaded) -> Iterator[Clash]:
    topics, other_topics = one[1].plan.topics, other[1].plan.topics
    shared = _shared(topics, other_topics)
    if shared:
        target = one[1].batch.target
        text = f"expected one pipeline for a topic and a table; found {shared} into {target}, as"
        yield from _both(one[0], other[0], _location(topics), _location(other_topics), text)


def _shared(one: TopicSelection, other: TopicSelection) -> str | None:
    if one.pattern is not None and one.pattern == other.pattern:
        return f"the pattern {one.pattern}"
    return ", ".join(sorted(_selected(one, other) & _selected(other, one))) or None


def _selected(topics: TopicSelection, other: TopicSelection) -> set[str]:
    """Return the names, of those that either file lists, that are surely selected."""
    if topics.pattern is None:
        return set(topics.names)
    return {name for name in other.names if quick_match(topics.pattern, name)}


def _location(topics: TopicSelection) -> Location:
    return ("kafka", "topics" if topics.pattern is None else "pattern")


def _both(one: Path, other: Path, at: Location, other_at: Location, text: str) -> Iterator[Clash]:
    yield Clash(one, at, text, other, other_at)
    yield Clash(other, other_at, text, one, at)

"""The traffic of a pipeline's topics, measured in Kafka: records of a day, the busiest hour, bytes, retention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from statistics import fmean

from kafka_ingest.kafka.sample import SampledRecord, TopicSampler, windows_of
from kafka_ingest.preflight.kafka import KafkaPreflight, TopicFacts
from kafka_ingest.protocol.ports import Log
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import PipelineSettings

_HOUR_MS = 3_600_000
_HOURS, _DAYS = 24, 7
#: Records that are read for their size. Of a pipeline with many topics the largest are looked at.
_RECORDS, _TOPICS = 2_000, 10


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that was measured, and how."""

    value: float | None
    how: str


# ----------
# How many records were written, from the first offsets at or after some moments. Offsets are not records: compaction
# and transactions leave some without one, so this is a little too much rather than too little.


@dataclass(frozen=True, slots=True)
class Volume:
    """Offsets written in each hour of a day and in each day of a week, the newest last.

    Attributes:
        hours: Offsets of 24 hours.
        days: Offsets of 7 days.
        held_hours: How old the first record is that Kafka still has, in the partition with the oldest; at least 1.
    """

    hours: Sequence[int]
    days: Sequence[int]
    held_hours: float

    @property
    def records_per_day(self) -> Found:
        """Records of the busiest day. What a younger log holds is taken for as much of a day."""
        busiest = max(self.days)
        if not busiest:
            return Found(None, f"no records in {_DAYS} days")
        if self.held_hours >= _HOURS:
            return Found(busiest, f"the busiest of the last {_DAYS} days")
        how = f"{busiest:,} in the {self.held_hours:.1f} hours that Kafka has, at the same rate for a day"
        return Found(busiest * _HOURS / self.held_hours, how)

    @property
    def peak_factor(self) -> Found:
        """The busiest hour, as a multiple of the average one."""
        held = min(float(_HOURS), self.held_hours)
        if not sum(self.hours):
            return Found(None, f"no records in {_HOURS} hours")
        factor = max(self.hours) * held / sum(self.hours)
        return Found(max(1.0, factor), f"the busiest of the last {min(_HOURS, round(held))} hours: {max(self.hours):,}")


def volume(log: Log, partitions: Sequence[TopicPartition], now_ms: int) -> Volume:
    """Ask for offsets by time: 34 questions, whatever the number of partitions.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    first = log.offsets_at(0, partitions).values()
    times = [found.record_time_ms for found in first if found.record_time_ms is not None]
    held_ms = now_ms - min(times, default=now_ms)

    def written(ages_hours: Iterable[int]) -> list[int]:
        moments = (now_ms - age * _HOUR_MS for age in ages_hours)
        sums = [sum(found.offset for found in log.offsets_at(at, partitions).values()) for at in moments]
        return [later - earlier for earlier, later in pairwise(sums)]

    hours = written(range(_HOURS, -1, -1))
    days = written(range(_HOURS * _DAYS, -1, -_HOURS))
    return Volume(hours, days, max(1.0, held_ms / _HOUR_MS))


# ----------
# What Kafka says of topics, and what a sample of their records says.


def measured_traffic(
    settings: PipelineSettings,
    probe: KafkaPreflight,
    log: Log,
    sampler: Callable[[str], TopicSampler],
    now_ms: int,
) -> Mapping[str, Found]:
    """Measure what the calculation of sizes needs to know; nothing is changed and no group is joined.

    Args:
        settings: The pipeline.
        probe: Describes its topics.
        log: Tells offsets by time.
        sampler: Gives what reads records of a topic.
        now_ms: The time.

    Returns:
        By name: ``topics``, ``partitions``, ``retention_hours``, ``records_per_day``, ``peak_factor``,
        ``record_bytes``, ``largest_bytes``. What there is nothing to tell from has no value.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        ConfigError: Kafka refuses this client.
    """
    topics = probe.topics(settings)
    held = {topic.state.topic: _readable(topic) for topic in topics}
    partitions = [TopicPartition(name, number) for name, ends in held.items() for number in ends]
    written = volume(log, partitions, now_ms)
    return {
        "topics": Found(len(topics), "in Kafka"),
        "partitions": Found(sum(len(topic.state.partitions) for topic in topics), "in Kafka"),
        "retention_hours": _retention(topics),
        "records_per_day": written.records_per_day,
        "peak_factor": written.peak_factor,
        **_sizes(held, sampler),
    }


def _readable(topic: TopicFacts) -> dict[int, tuple[int, int]]:
    """Return log start and end of the partitions that have a leader."""
    return {
        number: (partition.log_start_offset, partition.end_offset)
        for number, partition in topic.state.partitions.items()
        if partition.log_start_offset is not None and partition.end_offset is not None
    }


def _retention(topics: Sequence[TopicFacts]) -> Found:
    """Return the shortest retention by time: infinite where records stay, none where settings may not be read."""
    hidden = [topic.state.topic for topic in topics if isinstance(topic.config, str)]
    limits = [
        topic.number("retention.ms") for topic in topics if "delete" in topic.settings.get("cleanup.policy", "delete")
    ]
    known = [limit for limit in limits if limit is not None and limit >= 0]
    if known:
        return Found(min(known) / _HOUR_MS, "retention.ms of the topics: the shortest")
    if hidden:
        return Found(None, f"the settings of {', '.join(hidden)} may not be read")
    return Found(inf, "records stay: compaction, or retention.ms of -1")


def _sizes(
    held: Mapping[str, Mapping[int, tuple[int, int]]], sampler: Callable[[str], TopicSampler]
) -> Mapping[str, Found]:
    """Read some records of the topics that hold the most; the mean counts a topic by what it holds."""
    spans = {name: sum(end - start for start, end in ends.values()) for name, ends in held.items()}
    largest = sorted((name for name in spans if spans[name]), key=lambda name: (-spans[name], name))[:_TOPICS]
    means: list[tuple[float, int]] = []
    sizes: list[int] = []
    for name in largest:
        records = sampler(name).read(windows_of(held[name], _RECORDS // len(largest)))
        of_topic = list(_record_bytes(records))
        if of_topic:
            means.append((fmean(of_topic), spans[name]))
            sizes += of_topic
    if not sizes:
        return dict.fromkeys(("record_bytes", "largest_bytes"), Found(None, "no record that could be read"))
    mean = sum(size * span for size, span in means) / sum(span for _, span in means)
    how = f"keys and values of {len(sizes):,} records of {len(means):,} topics"
    return {
        "record_bytes": Found(mean, f"the mean of {how}"),
        "largest_bytes": Found(max(sizes), f"the greatest of {how}"),
    }


def _record_bytes(records: Iterable[SampledRecord]) -> Iterator[int]:
    return (len(record.key or b"") + len(record.value or b"") for record in records)

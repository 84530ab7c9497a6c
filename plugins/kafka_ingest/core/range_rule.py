"""The one rule of ranges: what a run reads of a partition, given its position, its log and the run's options.

| run | start | end |
|---|---|---|
| live | committed offset | the bound: end offset, or first record at or after the interval's end, whichever is less |
| reload | first offset of the span, or the committed offset if that is less | end of the span |

There is never a gap: a span that begins above the committed offset begins at it. What lies below ``loaded_to`` is
replaced when the batch is published, what lies at or above the committed offset moves the position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kafka_ingest.core.errors import ConfigError, OffsetsExpired
from kafka_ingest.core.log_state import PartitionState, TimedOffset
from kafka_ingest.core.offsets import Position, TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.run_options import OffsetSpan, RunOptions

#: Clocks differ: only a record that is further ahead of the planner's clock is from the future. Five minutes is what
#: Kerberos lets the machines of one realm differ by (``clockskew`` of MIT's krb5.conf). A record within them ends runs
#: for as long as it is ahead, and so for five minutes at most.
CLOCK_TOLERANCE_MS = 300_000


@dataclass(frozen=True, slots=True)
class LogTimes:
    """What log and ledger said about the times that a plan needs.

    Attributes:
        first_run: First offset at or after ``first_run: timestamp``.
        until: The same for ``RunOptions.until_ms``.
        span_start: The same for the start of ``RunOptions.times``.
        span_end: The same for its end.
        loaded_from: The lowest offset of any range that the ledger holds, of the partition's generation, with records
            at or after the start of ``RunOptions.times``.
    """

    first_run: Mapping[TopicPartition, TimedOffset] = field(default_factory=dict)
    until: Mapping[TopicPartition, TimedOffset] = field(default_factory=dict)
    span_start: Mapping[TopicPartition, TimedOffset] = field(default_factory=dict)
    span_end: Mapping[TopicPartition, TimedOffset] = field(default_factory=dict)
    loaded_from: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WantedRange:
    """Offsets ``[start, end)`` that a run wants of a partition, before the limit; empty when ``end <= start``.

    ``ignored_bound`` is the record that would have ended a live run, had it not come from the future.
    """

    start: int
    end: int
    ignored_bound: TimedOffset | None = None

    @property
    def span_offsets(self) -> int:
        """Number of offsets that are wanted."""
        return max(0, self.end - self.start)


def wanted_range(
    position: Position, state: PartitionState, options: RunOptions, times: LogTimes, *, taken_at: datetime
) -> WantedRange | PartitionFault:
    """Applies the rule to a partition whose offsets are known.

    Args:
        position: Where the pipeline stands.
        state: Its log.
        options: The run's options.
        times: Offsets for the times in them.
        taken_at: When the log was asked.

    Returns:
        What the run wants to read, or the fault that prevents it.
    """
    if options.times is not None:
        return _reload_of_times(position, state, options, times)
    if options.offsets:
        return _reload_of_offsets(position, state, options)
    bound = times.until.get(position.topic_partition) if times.until else None
    return _live(position, state, bound, taken_at)


def _live(position: Position, state: PartitionState, bound: TimedOffset | None, taken_at: datetime) -> WantedRange:
    # A last stable offset below the position is an empty range, not a fault: an open transaction began before it.
    start, end = position.committed_offset, state.end_offset or 0
    if bound is None or bound.record_time_ms is None or bound.offset >= end:
        return WantedRange(start, end)
    if bound.record_time_ms > taken_at.timestamp() * 1_000 + CLOCK_TOLERANCE_MS:
        # Else one record from the future would end every run before it, for ever, and all of them green.
        return WantedRange(start, end, ignored_bound=bound)
    return WantedRange(start, bound.offset)


def _reload_of_times(
    position: Position, state: PartitionState, options: RunOptions, times: LogTimes
) -> WantedRange | PartitionFault:
    place, end_offset = position.topic_partition, state.end_offset or 0
    first = times.span_start[place].offset
    beyond = times.span_end[place].offset if place in times.span_end else end_offset
    log_start = state.log_start_offset or 0
    loaded_from = times.loaded_from.get(place)
    if loaded_from is not None and loaded_from < log_start == first and not options.reload_what_is_left:
        return _expired(place, f"records of the span, which were loaded from offset {loaded_from} on", log_start)
    return WantedRange(min(first, position.committed_offset), min(beyond, end_offset))


def _reload_of_offsets(position: Position, state: PartitionState, options: RunOptions) -> WantedRange | PartitionFault:
    span = next((s for s in options.offsets if s.topic_partition == position.topic_partition), None)
    if span is None:
        return WantedRange(position.committed_offset, position.committed_offset)
    log_start, end_offset = state.log_start_offset or 0, state.end_offset or 0
    end = end_offset if span.end is None else span.end
    if end > end_offset:
        return _beyond_the_end(span, end_offset)
    if span.start < log_start and not options.reload_what_is_left:
        return _expired(span.topic_partition, f"offset {span.start}", log_start)
    return WantedRange(min(max(span.start, log_start), position.committed_offset), end)


def _expired(place: TopicPartition, expected: str, log_start: int) -> PartitionFault:
    return PartitionFault(
        OffsetsExpired,
        f"the span to reload of {place}",
        expected=f"a log that still holds {expected}",
        found=f"log start offset {log_start}",
        next_command='start the run again with "reload what is left" (--reload-what-is-left): what the log lost stays',
    )


def _beyond_the_end(span: OffsetSpan, end_offset: int) -> PartitionFault:
    return PartitionFault(
        ConfigError,
        f"the span to reload of {span.topic_partition}",
        expected=f"an end at or below the end offset {end_offset}",
        found=str(span.end),
        next_command="start the run again with an end that the log has reached, or without one",
    )

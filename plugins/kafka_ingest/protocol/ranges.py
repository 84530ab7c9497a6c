"""What a run reads: one half-open range a partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from kafka_ingest.errors import (
    ClusterChanged,
    ConfigError,
    LagTooLarge,
    LogTruncated,
    OffsetsExpired,
    PartitionFault,
    change_command,
    rebuild_command,
)
from kafka_ingest.protocol import log_faults
from kafka_ingest.protocol.batch import BatchKind, OffsetSpan, RunMode, RunOptions
from kafka_ingest.protocol.decisions import Lagging, PlanChoice
from kafka_ingest.protocol.ledger_view import PlanView, PositionMove, moved, unread_topics, without_retired
from kafka_ingest.protocol.log import LogSnapshot, PartitionState, TimedOffset, stalled_partition
from kafka_ingest.protocol.position import OffsetRange, Position, TopicPartition
from kafka_ingest.settings import (
    FirstRunKind,
    LagAction,
    LagPolicy,
    OffsetLimit,
    PartitionFaultPolicy,
    PipelineSettings,
    TopicIdentity,
)

# The one rule of ranges: what a run reads of a partition, from its position, its log and the run's options.
# | run | start | end |
# |---|---|---|
# | live | committed offset | the bound: end offset, or first record at or after the interval's end, whichever is less |
# | reload | first offset of the span, or the committed offset if that is less | end of the span |
# | rebuild | log start offset | end offset |
# There is never a gap: a span that begins above the committed offset begins at it. Publishing replaces what lies below
# ``loaded_to``; what lies at or above the committed offset moves the position.

#: Clocks differ: a record is from the future only if it is further ahead of the planner's clock than this. Five minutes
#: is what Kerberos allows between the machines of one realm (``clockskew`` in MIT's krb5.conf). A record less far ahead
#: ends runs until its time has come, so for five minutes at most.
CLOCK_TOLERANCE_MS = 300_000


@dataclass(frozen=True, slots=True)
class LogTimes:
    """What log and ledger said about the times that a plan needs.

    Attributes:
        first_run: First offset at or after ``first_run: timestamp``.
        until: The same for ``RunOptions.until_ms``.
        span_start: The same for the start of ``RunOptions.times``.
        span_end: The same for its end.
        loaded_from: Of the ranges in the ledger that have records at or after the start of ``RunOptions.times``, in
            the partition's generation: the lowest offset.
    """

    first_run: Mapping[TopicPartition, TimedOffset] = field(default_factory=dict)
    until: Mapping[TopicPartition, TimedOffset] = field(default_factory=dict)
    span_start: Mapping[TopicPartition, TimedOffset] = field(default_factory=dict)
    span_end: Mapping[TopicPartition, TimedOffset] = field(default_factory=dict)
    loaded_from: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WantedRange:
    """Offsets ``[start, end)`` that a run wants of a partition, before the limit; empty when ``end <= start``.

    ``ignored_bound`` is a record from the future that would otherwise have ended a live run.
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
    """Apply the rule to a partition whose offsets are known.

    Args:
        position: Where the pipeline stands.
        state: Its log.
        options: The run's options.
        times: Offsets for the times in them.
        taken_at: When the log was asked.

    Returns:
        What the run wants to read, or the fault that prevents it.
    """
    if options.mode is RunMode.REBUILD:
        return WantedRange(min(state.log_start_offset or 0, position.committed_offset), state.end_offset or 0)
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
        # A record from the future would end every run before it, for ever, and all of them would be green.
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


# Where a partition without a position begins.


def first_offset(
    tp: TopicPartition,
    state: PartitionState,
    settings: PipelineSettings,
    *,
    is_first: bool,
    offsets_at: Mapping[TopicPartition, TimedOffset],
) -> int | PartitionFault:
    """Return the first position of a partition, or the fault that prevents one.

    ``first_run`` holds for the partitions of the first plan. A partition that joins later starts at its log start, so
    that nothing written between its creation and the plan is lost.
    """
    log_start, end = state.log_start_offset or 0, state.end_offset or 0
    kind = settings.plan.first_run.kind
    if not is_first or kind is FirstRunKind.EARLIEST:
        return log_start
    if kind is FirstRunKind.LATEST:
        return end
    if kind is FirstRunKind.TIMESTAMP:
        return max(log_start, offsets_at[tp].offset if tp in offsets_at else end)
    return _listed_offset(tp, state, settings)


def _listed_offset(tp: TopicPartition, state: PartitionState, settings: PipelineSettings) -> int | PartitionFault:
    listed = settings.plan.first_run.offsets
    low, high = state.log_start_offset or 0, state.high_watermark or 0
    offset = next((o.offset for o in reversed(listed) if o.partition == tp.partition and o.topic == tp.topic), None)
    if offset is not None and low <= offset <= high:
        return offset
    return PartitionFault(
        ConfigError,
        f"first_run.offsets for {tp}",
        expected=f"an offset from {low} (log start) to {high} (high watermark)",
        found="none listed" if offset is None else str(offset),
        next_command="list an offset for every partition in first_run.offsets of the pipeline file",
    )


# The lag policy: a live plan fails, warns, or gives up all but the newest offsets of a partition that fell far behind.
# Off by default. Only for partitions that have a position: the backlog of a first run is what ``first_run`` asked for.


def lagging(position: Position, state: PartitionState, policy: LagPolicy, *, taken_at: datetime) -> Lagging | None:
    """Return the partition if its lag passes a limit.

    Args:
        position: Where the pipeline stands.
        state: Its log.
        policy: The pipeline's policy.
        taken_at: When the log was asked.
    """
    lag_offsets = (state.end_offset or 0) - position.committed_offset
    if lag_offsets <= 0:
        return None
    complete = position.valid_through
    lag_seconds = (taken_at - complete).total_seconds() if complete else None
    limits = [
        f"{name} {limit}"
        for name, limit, lag in (
            ("max_lag_offsets", policy.max_lag_offsets, lag_offsets),
            ("max_lag_seconds", policy.max_lag_seconds, lag_seconds),
        )
        if limit is not None and lag is not None and lag > limit
    ]
    if not limits:
        return None
    return Lagging(
        position.topic_partition, lag_offsets, lag_seconds, " and ".join(limits), _skip(position, state, policy)
    )


def lag_fault(found: Lagging, pipeline: str) -> PartitionFault:
    """Return the fault of a lagging partition under the action ``fail``."""
    seconds = "" if found.lag_seconds is None else f", about {found.lag_seconds:.0f} seconds"
    return PartitionFault(
        LagTooLarge,
        str(found.where),
        expected=f"a lag within {found.limits} (lag_policy)",
        found=f"{found.lag_offsets} offsets{seconds}",
        next_command="raise the limit for a while to load the backlog, or give up all but the newest offsets: "
        + change_command(pipeline, "skip-lag --keep 1000"),
    )


def _skip(position: Position, state: PartitionState, policy: LagPolicy) -> PositionMove | None:
    to = (state.end_offset or 0) - (policy.keep_offsets or 0)
    if policy.action is not LagAction.SKIP_TO or to <= position.committed_offset:
        return None
    return moved(position, to)


# The limit of offsets of one run, shared between the partitions that have a backlog.

_NEVER = datetime.min.replace(tzinfo=UTC)


def share_limit(
    backlog_offsets: Mapping[TopicPartition, int],
    limit: OffsetLimit,
    last_read: Mapping[TopicPartition, datetime | None],
) -> dict[TopicPartition, int]:
    """Give each partition its allowance: at most its backlog, at most the limits, with a turn for everybody.

    Every partition may take the same number of offsets; what partitions with a smaller backlog leave over goes to the
    others (max-min fairness). So small partitions are complete after every run, however large another backlog is.
    With more partitions than offsets to give, those that have waited longest since their last read go first: each then
    has its turn, whatever is written to the others. Record times would not do for that order: producers choose them.

    Args:
        backlog_offsets: Offsets waiting in each partition; all positive.
        limit: Total and optional limit per partition.
        last_read: When each partition was last read, by one clock; missing or ``None``: never.
    """
    cap = limit.per_partition_offsets
    wanted = {tp: min(backlog, cap) if cap else backlog for tp, backlog in backlog_offsets.items()}
    waiting = sorted(wanted, key=lambda tp: (last_read.get(tp) or _NEVER, tp))
    shares = dict.fromkeys(wanted, 0)
    left = limit.total_offsets
    by_size = sorted((wanted[tp], tp) for tp in waiting[: limit.total_offsets])
    for place, (backlog, tp) in enumerate(by_size):
        shares[tp] = min(backlog, left // (len(by_size) - place))
        left -= shares[tp]
    return shares


# A position continues exactly where it stood. A partition or topic that joins after the first plan starts at its log
# start. Whatever would lose or double a record is a fault, never a correction.


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A partition that can be read, and what the run wants of it."""

    position: Position
    state: PartitionState
    wanted: WantedRange
    is_new: bool
    lagging: Lagging | None = None

    @property
    def is_at_high_watermark(self) -> bool:
        return self.position.committed_offset == self.state.high_watermark


def choose_ranges(
    settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot, *, options: RunOptions, times: LogTimes
) -> PlanChoice:
    """Choose what a run reads, by the rule of ranges; a limit cuts live runs.

    Args:
        settings: The pipeline.
        view: The ledger.
        snapshot: The log, asked after the ledger.
        options: The run's options.
        times: Offsets for the times in settings and options.
    """
    unread = tuple(unread_topics(view, snapshot))
    snapshot = without_retired(view, snapshot)
    faults = [*log_faults.snapshot_faults(settings, view, snapshot), *_unknown_spans(snapshot, options)]
    is_rebuild = options.mode is RunMode.REBUILD
    if is_rebuild and settings.batch.upsert is None:
        faults.append(_nothing_to_rebuild(settings.pipeline))
    candidates: list[_Candidate] = []
    sound = _sound_topics(snapshot, faults)
    adopted = log_faults.adopted_ids(settings.batch.topic_identity, view, sound)
    view = _with_moved(view, adopted)
    for found in _partitions(settings, view, sound, options=options, times=times):
        if isinstance(found, PartitionFault):
            faults.append(found)
        else:
            candidates.append(found)
    leaves_out = settings.plan.on_partition_fault is PartitionFaultPolicy.LEAVE_OUT and not is_rebuild
    known_topics = {p.topic for p in view.positions} | {
        s.topic for s in view.served if s.pipeline == settings.pipeline and s.cluster_id == snapshot.cluster_id
    }
    is_live = options.kind is BatchKind.LIVE
    complete = (c.position.topic_partition for c in candidates if is_live and c.is_at_high_watermark)
    return PlanChoice(
        ranges=_ranges(candidates, _limit(settings, options)),
        new_topics=tuple(sorted(set(snapshot.topics) - known_topics)),
        new_positions=tuple(c.position for c in candidates if c.is_new),
        valid_through=dict.fromkeys(complete, snapshot.taken_at),
        faults=tuple(f for f in faults if not (leaves_out and f.can_be_left_out)),
        left_out=tuple(f for f in faults if leaves_out and f.can_be_left_out),
        backlog_offsets=sum(c.wanted.span_offsets for c in candidates),
        stalled=tuple(s for c in candidates if (s := stalled_partition(c.position, c.state))),
        ignored_bounds={c.position.topic_partition: b for c in candidates if (b := c.wanted.ignored_bound)},
        lagging=tuple(c.lagging for c in candidates if c.lagging),
        adopted=adopted,
        unread_topics=unread,
    )


def _nothing_to_rebuild(pipeline: str) -> PartitionFault:
    return PartitionFault(
        ConfigError,
        f"pipeline {pipeline}",
        expected="a pipeline whose table holds the current state (target.mode: upsert)",
        found="one that appends",
        next_command="reload the spans that are wanted again (--mode reload)",
    )


def _with_moved(view: PlanView, moves: tuple[PositionMove, ...]) -> PlanView:
    after = {move.place: move.after for move in moves}
    return replace(view, positions=tuple(after.get(p.topic_partition) or p for p in view.positions))


def _unknown_spans(snapshot: LogSnapshot, options: RunOptions) -> Iterator[PartitionFault]:
    for span in options.offsets:
        topic = snapshot.topics.get(span.topic)
        if topic is None or span.partition not in topic.partitions:
            yield PartitionFault(
                ConfigError,
                f"the span to reload of {span.topic_partition}",
                expected="a partition of a topic of the pipeline",
                found="none of that name and number",
                next_command="start the run again with partitions of the topics in the pipeline file",
            )


def _limit(settings: PipelineSettings, options: RunOptions) -> OffsetLimit | None:
    """Return the limit of a run; ``None`` for a reload, which is as large as its span."""
    if options.kind is not BatchKind.LIVE:
        return None
    limit = settings.plan.limit
    return limit if options.limit_offsets is None else replace(limit, total_offsets=options.limit_offsets)


def _sound_topics(snapshot: LogSnapshot, faults: list[PartitionFault]) -> LogSnapshot:
    """Leave out topics whose identity is in doubt: their offsets belong to another log than the positions."""
    if any(fault.error is ClusterChanged for fault in faults):
        return replace(snapshot, topics={})
    doubtful = {fault.topic for fault in faults}
    return replace(snapshot, topics={t: state for t, state in snapshot.topics.items() if t not in doubtful})


def _partitions(
    settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot, *, options: RunOptions, times: LogTimes
) -> Iterator[_Candidate | PartitionFault]:
    positions = {(p.topic, p.partition): p for p in view.positions}
    generations = {p.topic: p.generation for p in reversed(view.positions)}
    is_first = view.pipeline is None
    listed = {span.topic_partition for span in options.offsets}
    for tp, state in _states(snapshot):
        if listed and tp not in listed and not is_first:
            continue  # neither read, nor a hindrance to the partitions that are
        known = positions.get((tp.topic, tp.partition))
        if found := log_faults.missing_leader(tp, state):
            # To join later means to start at the log start: on the first plan only ``earliest`` has asked for that.
            can_be_left_out = not is_first or settings.plan.first_run.kind is FirstRunKind.EARLIEST
            yield found.fault(log_faults.Purpose.PLAN, settings.pipeline, can_be_left_out=can_be_left_out)
            continue
        position = known or _new_position(
            tp, settings, snapshot, times, is_first=is_first, generation=generations.get(tp.topic, 0)
        )
        if isinstance(position, PartitionFault):
            yield position
        # A position that begins now is not compared: the offset for a time is asked for after the snapshot, so on a
        # topic that grows it may lie above the snapshot's high watermark.
        elif known and (found := log_faults.lost_offsets(tp, state, known.committed_offset, known.committed_offset)):
            is_expired = found.kind is log_faults.LogFault.OFFSETS_EXPIRED  # a truncated log is never left out
            yield found.fault(log_faults.Purpose.PLAN, settings.pipeline, can_be_left_out=is_expired)
        elif known and settings.batch.upsert and options.mode is not RunMode.REBUILD and _has_lost_rows(known, state):
            yield _lost_rows(known, state, settings.pipeline)
        else:
            is_new = known is None
            yield _candidate(position, state, settings, snapshot, options=options, times=times, is_new=is_new)


def _has_lost_rows(position: Position, state: PartitionState) -> bool:
    """Tell whether rows may hold records that an unclean election took out of the log behind a position that was reset.

    Other records get their offsets, so that versions no longer tell which of two is newer.
    """
    return position.loaded_to > (state.high_watermark or 0)


def _lost_rows(position: Position, state: PartitionState, pipeline: str) -> PartitionFault:
    return PartitionFault(
        LogTruncated,
        str(position.topic_partition),
        expected=f"a high watermark at or above {position.loaded_to}, up to which the table was loaded",
        found=f"high watermark {state.high_watermark}: rows may hold records that the log lost",
        next_command=f"{rebuild_command(pipeline)} --reload-what-is-left",
    )


def _candidate(
    position: Position,
    state: PartitionState,
    settings: PipelineSettings,
    snapshot: LogSnapshot,
    *,
    options: RunOptions,
    times: LogTimes,
    is_new: bool,
) -> _Candidate | PartitionFault:
    policy, taken_at = settings.plan.lag_policy, snapshot.taken_at
    found = None
    if policy and options.kind is BatchKind.LIVE and not is_new:
        found = lagging(position, state, policy, taken_at=taken_at)
        if found and policy.action is LagAction.FAIL:
            return lag_fault(found, settings.pipeline)
        if found and found.skip and found.skip.after:
            position = found.skip.after
    wanted = wanted_range(position, state, options, times, taken_at=taken_at)
    return wanted if isinstance(wanted, PartitionFault) else _Candidate(position, state, wanted, is_new, found)


def _states(snapshot: LogSnapshot) -> Iterator[tuple[TopicPartition, PartitionState]]:
    for topic, state in sorted(snapshot.topics.items()):
        for number, partition in sorted(state.partitions.items()):
            yield TopicPartition(topic, number), partition


def _new_position(
    tp: TopicPartition,
    settings: PipelineSettings,
    snapshot: LogSnapshot,
    times: LogTimes,
    *,
    is_first: bool,
    generation: int,
) -> Position | PartitionFault:
    topic = snapshot.topics[tp.topic]
    start = first_offset(tp, topic.partitions[tp.partition], settings, is_first=is_first, offsets_at=times.first_run)
    if isinstance(start, PartitionFault):
        return start
    knows_topic_id = settings.batch.topic_identity is TopicIdentity.TOPIC_ID
    return Position(
        topic=tp.topic,
        partition=tp.partition,
        generation=generation,
        topic_id=topic.topic_id if knows_topic_id else None,
        cluster_id=snapshot.cluster_id,
        committed_offset=start,
        loaded_to=start,
    )


def _ranges(candidates: list[_Candidate], limit: OffsetLimit | None) -> tuple[OffsetRange, ...]:
    wanted = {c.position.topic_partition: c.wanted.span_offsets for c in candidates if c.wanted.span_offsets}
    last_read = {c.position.topic_partition: c.position.updated_at for c in candidates}
    shares = share_limit(wanted, limit, last_read) if limit else wanted
    return tuple(
        OffsetRange(
            topic=c.position.topic,
            partition=c.position.partition,
            generation=c.position.generation,
            topic_id=c.position.topic_id,
            timeline=c.position.timeline,
            start=c.wanted.start,
            end=c.wanted.start + share,
            committed_before=c.position.committed_offset,
            loaded_to=c.position.loaded_to,
            leader_epoch=c.position.leader_epoch,
            reaches_high_watermark=c.wanted.start + share == c.state.high_watermark,
        )
        for c in candidates
        if (share := shares.get(c.position.topic_partition, 0))
    )

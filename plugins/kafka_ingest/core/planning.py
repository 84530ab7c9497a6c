"""Choosing the ranges of a batch: a pure function of ledger, log and settings.

Design rules: a position continues exactly where it stood; a partition or topic that joins after the first plan starts
at its log start; whatever would lose or double a record is a fault, never a correction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from kafka_ingest.core.batch import BatchKind
from kafka_ingest.core.errors import ClusterChanged, ConfigError
from kafka_ingest.core.first_run import first_offset
from kafka_ingest.core.headroom import Headroom
from kafka_ingest.core.lag_policy import Lagging, lag_fault, lagging
from kafka_ingest.core.lag_settings import LagAction
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.log_checks import partition_fault, position_fault, snapshot_faults
from kafka_ingest.core.log_identity_check import adopted_ids
from kafka_ingest.core.log_observations import LogObservation
from kafka_ingest.core.log_state import LogSnapshot, PartitionState, TimedOffset
from kafka_ingest.core.offset_limit import share_limit
from kafka_ingest.core.offsets import OffsetRange, Position, TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.position_changes import PositionMove
from kafka_ingest.core.range_rule import LogTimes, WantedRange, wanted_range
from kafka_ingest.core.retired_topics import unread_topics, without_retired
from kafka_ingest.core.run_options import RunOptions
from kafka_ingest.core.settings import OffsetLimit, PartitionFaultPolicy, PipelineSettings, TopicIdentity
from kafka_ingest.core.stalled_partitions import StalledPartition, stalled_partition

#: They are stored with the batch and go into the asset event: twenty say enough, thousands would drown them.
_MOST_WARNINGS = 20


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """What a plan would record.

    Attributes:
        ranges: Ranges to read, ordered by (topic, partition); partitions with nothing to read are left out.
        new_topics: Topics that join.
        new_positions: Positions of partitions that join.
        valid_through: Partitions that are complete up to the high watermark without reading anything.
        faults: What stops the plan.
        left_out: Faults of partitions that are left out by the pipeline's policy.
        backlog_offsets: Offsets that the run would read without a limit, in all readable partitions.
        stalled: Partitions in which an open producer transaction lets nothing be read. No fault: to be told.
        ignored_bounds: Records from the future that do not end a live run, by partition. No fault: to be told.
        short_headroom: Partitions that retention may soon take records from (``core/plan_watch.py``). To be told, too.
        observations: What the plan saw of the log, for later plans to compare with.
        lagging: Partitions whose lag passes a limit of the pipeline's policy; what it skips is in them. To be told.
        adopted: Positions that had no topic id and take over the broker's, ordered by (topic, partition). To be told.
        unread_topics: Retired topics that exist, one text each. No fault: to be told.
    """

    ranges: tuple[OffsetRange, ...]
    new_topics: tuple[str, ...]
    new_positions: tuple[Position, ...]
    valid_through: Mapping[TopicPartition, datetime]
    faults: tuple[PartitionFault, ...]
    left_out: tuple[PartitionFault, ...]
    backlog_offsets: int
    stalled: tuple[StalledPartition, ...] = ()
    ignored_bounds: Mapping[TopicPartition, TimedOffset] = field(default_factory=dict)
    short_headroom: tuple[Headroom, ...] = ()
    observations: tuple[LogObservation, ...] = ()
    lagging: tuple[Lagging, ...] = ()
    adopted: tuple[PositionMove, ...] = ()
    unread_topics: tuple[str, ...] = ()

    @property
    def skips(self) -> tuple[PositionMove, ...]:
        """Positions that go forwards by the pipeline's lag policy, ordered by (topic, partition)."""
        return tuple(found.skip for found in self.lagging if found.skip)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is to be told and is no fault: one text a topic or partition, so many at most."""
        texts = [*_adoptions(self.adopted), *self.unread_topics]
        texts += [str(found) for found in (*self.lagging, *self.short_headroom, *self.stalled)]
        more = len(texts) - _MOST_WARNINGS
        return (*texts[:_MOST_WARNINGS], *([f"and {more} more partitions"] if more > 0 else []))


def _adoptions(adopted: tuple[PositionMove, ...]) -> Iterator[str]:
    ids = {move.after.topic: move.after.topic_id for move in adopted if move.after}
    for topic, topic_id in ids.items():
        yield (
            f"topic {topic}: its positions had no topic id (topic_identity: none) and take over {topic_id}; "
            "from now on a re-created topic is noticed"
        )


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
    """Chooses what a run reads, by the rule of ``core/range_rule.py``; live runs are cut by the limit.

    Args:
        settings: The pipeline.
        view: The ledger.
        snapshot: The log, asked after the ledger.
        options: The run's options.
        times: Offsets for the times in settings and options.
    """
    unread = tuple(unread_topics(view, snapshot))
    snapshot = without_retired(view, snapshot)
    faults = [*snapshot_faults(settings, view, snapshot), *_unknown_spans(snapshot, options)]
    candidates: list[_Candidate] = []
    sound = _sound_topics(snapshot, faults)
    adopted = adopted_ids(settings.batch.topic_identity, view, sound)
    view = _with_moved(view, adopted)
    for found in _partitions(settings, view, sound, options=options, times=times):
        if isinstance(found, PartitionFault):
            faults.append(found)
        else:
            candidates.append(found)
    leaves_out = settings.plan.on_partition_fault is PartitionFaultPolicy.LEAVE_OUT
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
    """Gives the limit of a run; ``None`` for a reload, which is as large as its span."""
    if options.kind is not BatchKind.LIVE:
        return None
    limit = settings.plan.limit
    return limit if options.limit_offsets is None else replace(limit, total_offsets=options.limit_offsets)


def _sound_topics(snapshot: LogSnapshot, faults: list[PartitionFault]) -> LogSnapshot:
    """Leaves out topics whose identity is in doubt: their offsets belong to another log than the positions."""
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
            continue  # neither read nor in the way of those that are
        known = positions.get((tp.topic, tp.partition))
        if fault := partition_fault(tp, state, settings, is_first=is_first):
            yield fault
            continue
        position = known or _new_position(
            tp, settings, snapshot, times, is_first=is_first, generation=generations.get(tp.topic, 0)
        )
        if isinstance(position, PartitionFault):
            yield position
        elif fault := position_fault(position, state, settings.pipeline):
            yield fault
        else:
            is_new = known is None
            yield _candidate(position, state, settings, snapshot, options=options, times=times, is_new=is_new)


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
            line=c.position.line,
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

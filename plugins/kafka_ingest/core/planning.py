"""Choosing the ranges of a batch: a pure function of ledger, log and settings.

Design rules: a position continues exactly where it stood; a partition or topic that joins after the first plan starts
at its log start; whatever would lose or double a record is a fault, never a correction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from kafka_ingest.core.errors import ClusterChanged
from kafka_ingest.core.first_run import first_offset
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.log_checks import partition_fault, position_fault, snapshot_faults
from kafka_ingest.core.log_state import LogSnapshot, PartitionState, TopicState
from kafka_ingest.core.offset_limit import share_limit
from kafka_ingest.core.offsets import OffsetRange, Position, TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.settings import PartitionFaultPolicy, PipelineSettings, TopicIdentity
from kafka_ingest.core.stalled_partitions import StalledPartition, stalled_partition


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
        backlog_offsets: Offsets waiting in all readable partitions, limit or not.
        stalled: Partitions in which an open producer transaction lets nothing be read. No fault: to be told.
    """

    ranges: tuple[OffsetRange, ...]
    new_topics: tuple[str, ...]
    new_positions: tuple[Position, ...]
    valid_through: Mapping[TopicPartition, datetime]
    faults: tuple[PartitionFault, ...]
    left_out: tuple[PartitionFault, ...]
    backlog_offsets: int
    stalled: tuple[StalledPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A partition that can be read from its position on."""

    position: Position
    state: PartitionState
    is_new: bool

    @property
    def backlog_offsets(self) -> int:
        # A last stable offset below the position is an empty range, not a fault: an open transaction began before it.
        return max(0, (self.state.end_offset or 0) - self.position.committed_offset)

    @property
    def is_at_high_watermark(self) -> bool:
        return self.position.committed_offset == self.state.high_watermark


def choose_ranges(
    settings: PipelineSettings,
    view: PlanView,
    snapshot: LogSnapshot,
    *,
    offsets_at_first_run: Mapping[TopicPartition, int],
) -> PlanChoice:
    """Chooses what a live run reads: from each committed offset to the end offset, cut by the limit.

    Args:
        settings: The pipeline.
        view: The ledger.
        snapshot: The log, asked after the ledger.
        offsets_at_first_run: For ``first_run: timestamp``: the first offset at or after that time, by partition.
    """
    faults = list(snapshot_faults(settings, view, snapshot))
    candidates: list[_Candidate] = []
    sound = _sound_topics(snapshot, faults)
    for found in _partitions(settings, view, sound, offsets_at_first_run=offsets_at_first_run):
        if isinstance(found, PartitionFault):
            faults.append(found)
        else:
            candidates.append(found)
    leaves_out = settings.plan.on_partition_fault is PartitionFaultPolicy.LEAVE_OUT
    known_topics = {p.topic for p in view.positions} | {
        s.topic for s in view.served if s.pipeline == settings.pipeline and s.cluster_id == snapshot.cluster_id
    }
    return PlanChoice(
        ranges=_ranges(candidates, settings),
        new_topics=tuple(sorted(set(snapshot.topics) - known_topics)),
        new_positions=tuple(c.position for c in candidates if c.is_new),
        valid_through={c.position.topic_partition: snapshot.taken_at for c in candidates if c.is_at_high_watermark},
        faults=tuple(f for f in faults if not (leaves_out and f.can_be_left_out)),
        left_out=tuple(f for f in faults if leaves_out and f.can_be_left_out),
        backlog_offsets=sum(c.backlog_offsets for c in candidates),
        stalled=tuple(s for c in candidates if (s := stalled_partition(c.position, c.state))),
    )


def _sound_topics(snapshot: LogSnapshot, faults: list[PartitionFault]) -> LogSnapshot:
    """Leaves out topics whose identity is in doubt: their offsets belong to another log than the positions."""
    if any(fault.error is ClusterChanged for fault in faults):
        return replace(snapshot, topics={})
    doubtful = {fault.topic for fault in faults}
    return replace(snapshot, topics={t: state for t, state in snapshot.topics.items() if t not in doubtful})


def _partitions(
    settings: PipelineSettings,
    view: PlanView,
    snapshot: LogSnapshot,
    *,
    offsets_at_first_run: Mapping[TopicPartition, int],
) -> Iterator[_Candidate | PartitionFault]:
    positions = {p.topic_partition: p for p in view.positions}
    generations = {p.topic: p.generation for p in view.positions}
    for topic in sorted(snapshot.topics):
        state = snapshot.topics[topic]
        for number in sorted(state.partitions):
            tp = TopicPartition(topic, number)
            partition = state.partitions[number]
            position = positions.get(tp)
            if fault := partition_fault(tp, partition, settings, is_first=view.pipeline is None):
                yield fault
            elif position is not None:
                yield position_fault(position, partition) or _Candidate(position, partition, is_new=False)
            else:
                start = first_offset(
                    tp, partition, settings, is_first=view.pipeline is None, offsets_at=offsets_at_first_run
                )
                yield (
                    start
                    if isinstance(start, PartitionFault)
                    else _Candidate(
                        _new_position(tp, start, state, snapshot, settings, generations.get(topic, 0)),
                        partition,
                        is_new=True,
                    )
                )


def _new_position(
    tp: TopicPartition,
    start: int,
    state: TopicState,
    snapshot: LogSnapshot,
    settings: PipelineSettings,
    generation: int,
) -> Position:
    knows_topic_id = settings.batch.topic_identity is TopicIdentity.TOPIC_ID
    return Position(
        topic=tp.topic,
        partition=tp.partition,
        generation=generation,
        topic_id=state.topic_id if knows_topic_id else None,
        cluster_id=snapshot.cluster_id,
        committed_offset=start,
        loaded_to=start,
    )


def _ranges(candidates: list[_Candidate], settings: PipelineSettings) -> tuple[OffsetRange, ...]:
    waiting = {c.position.topic_partition: c.backlog_offsets for c in candidates if c.backlog_offsets}
    shares = share_limit(waiting, settings.plan.limit)
    return tuple(
        OffsetRange(
            topic=c.position.topic,
            partition=c.position.partition,
            generation=c.position.generation,
            topic_id=c.position.topic_id,
            line=c.position.line,
            start=c.position.committed_offset,
            end=c.position.committed_offset + share,
            committed_before=c.position.committed_offset,
            loaded_to=c.position.loaded_to,
            leader_epoch=c.position.leader_epoch,
            reaches_high_watermark=c.position.committed_offset + share == c.state.high_watermark,
        )
        for c in candidates
        if (share := shares.get(c.position.topic_partition, 0))
    )

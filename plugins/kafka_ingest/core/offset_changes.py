"""Changes that move positions within their log: resets, lag skipped, loss accepted.

A position that goes forwards stays in its line, and what it passes over is given up. One that goes backwards begins
the next line: ``loaded_to`` stays, so the next run replaces what lies below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_ingest.core.change_requests import (
    AcceptLoss,
    LogPlace,
    OffsetChange,
    ResetBy,
    ResetToOffsets,
    ResetToPlace,
    ResetToTime,
    Selection,
    SkipLag,
)
from kafka_ingest.core.change_scope import change_scope
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.log_state import LogSnapshot, PartitionState, TimedOffset
from kafka_ingest.core.offsets import Position, TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.position_changes import ChangePlan, PositionMove
from kafka_ingest.core.settings import TopicIdentity


def selection_of(change: OffsetChange) -> Selection:
    """Gives the partitions that a change of offsets is about."""
    if isinstance(change, ResetToOffsets):
        return Selection(partitions=tuple(TopicPartition(o.topic, o.partition) for o in change.offsets))
    return change.only


def choose_offsets(
    change: OffsetChange,
    view: PlanView,
    snapshot: LogSnapshot,
    offsets_at: Mapping[TopicPartition, TimedOffset],
    *,
    identity: TopicIdentity,
) -> ChangePlan:
    """Chooses where the selected positions go; those that stand there already are left out.

    A listed offset is taken at its word: where the position is there already it only forgets the leader epoch, so that
    an operator who knows that the position is right after a truncation can go on from it.

    Args:
        change: What is asked for.
        view: The ledger.
        snapshot: The log, asked after the ledger.
        offsets_at: Of a reset to a time: the first offset at or after it, by partition.
        identity: Whether topic ids must be those of the positions.
    """
    scope = change_scope(view, snapshot, selection_of(change), identity=identity)
    faults = list(scope.faults)
    moves: list[PositionMove] = []
    for position, state in scope.known:
        to = _new_offset(change, position, state, offsets_at)
        if isinstance(to, PartitionFault):
            faults.append(to)
        elif to != position.committed_offset or _forgets_epoch(change, position):
            moves.append(moved(position, to))
    return ChangePlan(moves=tuple(moves), faults=tuple(faults))


def _forgets_epoch(change: OffsetChange, position: Position) -> bool:
    return isinstance(change, ResetToOffsets) and position.leader_epoch is not None


def moved(position: Position, to: int) -> PositionMove:
    """Moves a position to another offset of the same log.

    The leader epoch belongs to the offset that was read last, so a new offset has none: with an old one Kafka would
    take the log for truncated (KIP-320).
    """
    before = position.committed_offset
    if to == before:
        return PositionMove(position, replace(position, leader_epoch=None))
    if to > before:
        forwards = replace(position, committed_offset=to, loaded_to=max(position.loaded_to, to), leader_epoch=None)
        return PositionMove(position, forwards, given_up=(before, to))
    return PositionMove(position, replace(position, committed_offset=to, line=position.line + 1, leader_epoch=None))


def _new_offset(
    change: OffsetChange, position: Position, state: PartitionState, offsets_at: Mapping[TopicPartition, TimedOffset]
) -> int | PartitionFault:
    committed, log_start, latest = position.committed_offset, state.log_start_offset or 0, _latest(position, state)
    match change:
        case ResetToPlace():
            return log_start if change.to is LogPlace.EARLIEST else latest
        case ResetToTime():
            return _within(log_start, offsets_at[position.topic_partition].offset, latest)
        case ResetToOffsets():
            return _listed(change, position, state)
        case ResetBy():
            return _within(log_start, committed + change.offsets, latest)
        case SkipLag():
            return max(committed, _within(log_start, latest - change.keep_offsets, latest))
        case AcceptLoss():
            is_lost = committed < log_start
            return _within(log_start, log_start + change.margin_offsets, latest) if is_lost else committed


def _latest(position: Position, state: PartitionState) -> int:
    """Gives the end offset, or the position, where an open transaction that began before it holds the end back."""
    log_start, end, high_watermark = state.log_start_offset or 0, state.end_offset or 0, state.high_watermark or 0
    is_in_log = log_start <= position.committed_offset <= high_watermark
    return max(log_start, end, position.committed_offset if is_in_log else 0)


def _within(low: int, offset: int, high: int) -> int:
    return min(max(low, offset), high)


def _listed(change: ResetToOffsets, position: Position, state: PartitionState) -> int | PartitionFault:
    place, low, high = position.topic_partition, state.log_start_offset or 0, state.high_watermark or 0
    listed = sorted({o.offset for o in change.offsets if (o.topic, o.partition) == (place.topic, place.partition)})
    if len(listed) == 1 and low <= listed[0] <= high:
        return listed[0]
    return PartitionFault(
        ConfigError,
        str(place),
        expected=f"one offset from {low} (log start) to {high} (high watermark)",
        found=", ".join(map(str, listed)),
        next_command="ask for an offset that the log holds",
    )

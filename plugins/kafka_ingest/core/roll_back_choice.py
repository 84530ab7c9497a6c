"""Choosing what a roll-back undoes: a pure function of request, ledger and log; every fault is listed at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kafka_ingest.core.batch import BatchState
from kafka_ingest.core.errors import RollBackRefused
from kafka_ingest.core.log_state import LogSnapshot
from kafka_ingest.core.offsets import OffsetRange, Position, TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.roll_back import (
    LoweredPosition,
    RollBackPlan,
    RollBackRequest,
    RollBackView,
    Writer,
    WrittenRange,
)
from kafka_ingest.core.roll_back_checks import log_faults, request_faults, undone_faults
from kafka_ingest.core.settings import TopicIdentity


def undone_writers(request: RollBackRequest, view: RollBackView) -> tuple[Writer, ...]:
    """Gives the newest batches that moved the position, the newest first: as many as the request names, or fewer.

    Batches that only reloaded are passed over: they moved nothing that could be moved back.
    """
    return tuple(writer for writer in view.writers if writer.can_be_undone)[: request.batches]


def undone_topics(request: RollBackRequest, view: RollBackView) -> tuple[str, ...]:
    """Gives the topics that a roll-back would lower positions of: those that Kafka must be asked about."""
    return tuple(sorted({r.topic for writer in undone_writers(request, view) for r in writer.moved}))


def choose_roll_back(
    request: RollBackRequest, view: RollBackView, snapshot: LogSnapshot, policies: Mapping[str, str]
) -> RollBackPlan:
    """Chooses batches, positions and what must be counted first.

    Args:
        request: Who asks for what.
        view: The ledger.
        snapshot: The log, asked after the ledger, for :func:`undone_topics`.
        policies: ``cleanup.policy`` of these topics; missing where it cannot be read.
    """
    writers = undone_writers(request, view)
    positions, passed = _lowered(view, writers)
    faults = [
        *request_faults(request, view, found=len(writers)),
        *undone_faults(view, writers),
        *passed,
        *log_faults(request, positions, snapshot, policies, identity=_identity(writers)),
    ]
    return RollBackPlan(
        request=request,
        batches=tuple(writer.batch for writer in writers),
        positions=positions,
        counted=tuple(_counted(view, positions)),
        supersedes=view.ledger.outstanding.batch_id if view.ledger.outstanding else None,
        faults=tuple(faults),
    )


def _identity(writers: tuple[Writer, ...]) -> TopicIdentity:
    """Gives what the newest batch was loaded under: with ``none`` its topic may have no id that could be compared."""
    return writers[0].batch.settings.topic_identity if writers else TopicIdentity.TOPIC_ID


def _lowered(
    view: RollBackView, writers: tuple[Writer, ...]
) -> tuple[tuple[LoweredPosition, ...], list[PartitionFault]]:
    """Walks back along the chain of each partition: a range must end where the one after it began."""
    stored = {position.topic_partition: position for position in view.ledger.positions}
    lowest: dict[TopicPartition, OffsetRange] = {}
    faults: dict[TopicPartition, PartitionFault] = {}
    for writer in writers:
        for r in writer.moved:
            place = r.topic_partition
            position = stored.get(place)
            if position is not None and place in lowest:
                position = replace(position, committed_offset=lowest[place].committed_before)
            if position is None or not _continues(r, writer, position, view.bound_lines.get(place, 0)):
                faults.setdefault(place, _passed(r, writer, position))
            else:
                lowest[place] = r
    lowered = [LoweredPosition(stored[place], _after(stored[place], r)) for place, r in sorted(lowest.items())]
    return tuple(lowered), list(faults.values())


def _continues(r: OffsetRange, writer: Writer, position: Position, bound_line: int) -> bool:
    """Whether nothing but batches and roll-backs lies between the range and the position, as far as it is undone.

    A change forwards moves the position away from where the range ended; one backwards, and every new log, begins a
    line or a generation. Lines that a roll-back began are no obstacle: it led back along the same batches.
    """
    is_same_log = (r.generation, r.topic_id, writer.batch.cluster_id) == (
        position.generation,
        position.topic_id,
        position.cluster_id,
    )
    return is_same_log and r.committed_after == position.committed_offset and r.line >= bound_line


def _after(position: Position, oldest: OffsetRange) -> Position:
    """Gives the position at the begin of the oldest range that is undone.

    Nothing above it is left, except what an older reset had left above the position: then ``loaded_to`` stays. Up to
    what time the partition is complete now is not known before it is read again.
    """
    begin = oldest.committed_before
    is_top = position.loaded_to == position.committed_offset
    return replace(
        position,
        committed_offset=begin,
        loaded_to=begin if is_top else position.loaded_to,
        line=position.line + 1,
        leader_epoch=oldest.leader_epoch,
        valid_through=None,
    )


def _passed(r: OffsetRange, writer: Writer, position: Position | None) -> PartitionFault:
    stands = f"offset {position.committed_offset}, line {position.line}" if position else "no position"
    return PartitionFault(
        RollBackRefused,
        str(r.topic_partition),
        expected=f"nothing but batches since batch {writer.batch.batch_id}, which ended at offset {r.committed_after}",
        found=f"{stands}: the position was changed since; a roll-back never passes a position change",
        next_command="roll back fewer batches, or reset the position and let a run replace what lies above it",
    )


def _counted(view: RollBackView, positions: tuple[LoweredPosition, ...]) -> Iterator[WrittenRange]:
    """Yields the ranges that reach into what is deleted and were written last by their batch, as a whole.

    A range into which a later batch wrote, or whose end an earlier roll-back took, no longer has its counts.
    """
    undone = {lowered.before.topic_partition: lowered for lowered in positions}
    later: list[OffsetRange] = []
    for writer in view.writers:
        for written in writer.ranges:
            lowered = undone.get(written.range.topic_partition)
            if (
                lowered is not None
                and writer.batch.state is BatchState.COMMITTED
                and written.range.generation == lowered.before.generation
                and lowered.after.committed_offset < written.range.end <= lowered.before.committed_offset
                and not any(_overlap(written.range, other) for other in later)
            ):
                yield written
        later += [written.range for written in writer.ranges]


def _overlap(one: OffsetRange, other: OffsetRange) -> bool:
    is_same = (one.topic, one.generation, one.partition) == (other.topic, other.generation, other.partition)
    return is_same and one.start < other.end and other.start < one.end

"""What a live plan does about a partition that fell far behind: fail, warn, or give up all but the newest offsets.

Off by default. Only for partitions that have a position: the backlog of a first run is what ``first_run`` asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kafka_ingest.core.change_commands import change_command
from kafka_ingest.core.errors import LagTooLarge
from kafka_ingest.core.lag_settings import LagAction, LagPolicy
from kafka_ingest.core.log_state import PartitionState
from kafka_ingest.core.offset_changes import moved
from kafka_ingest.core.offsets import Position, TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.position_changes import PositionMove


@dataclass(frozen=True, slots=True)
class Lagging:
    """One partition whose lag passes a limit of the policy.

    Attributes:
        where: The partition.
        lag_offsets: End offset - committed offset.
        lag_seconds: Time since the partition was complete; ``None`` when unknown. An estimate.
        limits: The limits that it passes, for people.
        skip: What the policy does to its position; ``None`` when it only says so.
    """

    where: TopicPartition
    lag_offsets: int
    lag_seconds: float | None
    limits: str
    skip: PositionMove | None = None

    def __str__(self) -> str:
        seconds = "" if self.lag_seconds is None else f", about {self.lag_seconds:.0f} seconds"
        given_up = ""
        if self.skip and self.skip.given_up:
            start, end = self.skip.given_up
            given_up = f"; lag_policy skip_to gives up the offsets [{start}, {end})"
        return f"{self.where}: lag of {self.lag_offsets} offsets{seconds} passes {self.limits}{given_up}"


def lagging(position: Position, state: PartitionState, policy: LagPolicy, *, taken_at: datetime) -> Lagging | None:
    """Gives the partition if its lag passes a limit.

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
    """Gives the fault of a lagging partition under the action ``fail``."""
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

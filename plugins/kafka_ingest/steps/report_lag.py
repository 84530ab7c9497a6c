"""Step *report lag*: how far each partition's committed offset is behind its log. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from kafka_ingest.core.batch import Request
from kafka_ingest.core.log_state import LogSnapshot, PartitionState
from kafka_ingest.core.offsets import Position, TopicPartition
from kafka_ingest.core.ports import Clock, Ledger, Log
from kafka_ingest.core.retired_topics import retired_topics, without_retired
from kafka_ingest.core.settings import PipelineSettings

_NOT_DESCRIBED = PartitionState(-1, has_leader=False, fault="Kafka does not list this partition")


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a pipeline.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        committed_offset: Next offset to read; ``None`` before the partition's first plan.
        end_offset: What may be read now; ``None`` when Kafka does not tell.
        lag_offsets: Offsets waiting, ``end_offset - committed_offset``, never below 0; ``None`` when one is unknown.
        lag_seconds: 0 when nothing waits, else the time since ``valid_through``; an estimate, as that is. ``None``
            when unknown.
        headroom_offsets: ``committed_offset`` - log start offset: how much the log still holds before the position.
            Below 0, offsets that were not read are gone.
        headroom_seconds: Estimated time until retention reaches the position, at the rate that plans observed; ``None``
            while the log start does not move, or too little was seen of it.
        open_transaction_offsets: High watermark - end offset: what an open producer transaction holds back.
        fault: Why numbers are missing; empty otherwise.
    """

    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag_offsets: int | None
    lag_seconds: float | None
    headroom_offsets: int | None
    headroom_seconds: float | None
    open_transaction_offsets: int | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class LagPorts:
    """What the report needs from the world."""

    ledger: Ledger
    log: Log
    clock: Clock


def report_lag(settings: PipelineSettings, ports: LagPorts) -> tuple[PartitionLag, ...]:
    """Compares the pipeline's positions with its topics, ordered by (topic, partition).

    Partitions that only one side knows are there too; those of retired topics are not.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        DatabaseUnavailable: PostgreSQL does not answer.
    """
    # A report asks in nobody's name: no batch belongs to this request.
    view = ports.ledger.plan_view(settings.pipeline, Request("cli", "lag report"), settings.batch.target)
    snapshot = without_retired(view, ports.log.snapshot(settings.plan.topics, settings.batch.isolation_level))
    retired = retired_topics(view)
    positions = {position.topic_partition: position for position in view.positions if position.topic not in retired}
    states = dict(_states(snapshot))
    rates = {seen.topic_partition: seen.retention_offsets_per_second for seen in view.observations}
    now = ports.clock.now()
    return tuple(
        _partition_lag(where, positions.get(where), states.get(where, _NOT_DESCRIBED), now=now, rate=rates.get(where))
        for where in sorted(positions.keys() | states.keys())
    )


def _states(snapshot: LogSnapshot) -> Iterator[tuple[TopicPartition, PartitionState]]:
    for topic, state in snapshot.topics.items():
        for number, partition in state.partitions.items():
            yield TopicPartition(topic, number), partition


def _partition_lag(
    where: TopicPartition, position: Position | None, state: PartitionState, *, now: datetime, rate: float | None
) -> PartitionLag:
    committed = position.committed_offset if position else None
    # The end may lie below the position: an open transaction began before it. Nothing waits then.
    waiting = _difference(state.end_offset, committed)
    lag = None if waiting is None else max(0, waiting)
    headroom = _difference(committed, state.log_start_offset)
    return PartitionLag(
        topic=where.topic,
        partition=where.partition,
        committed_offset=committed,
        end_offset=state.end_offset,
        lag_offsets=lag,
        lag_seconds=_lag_seconds(lag, position.valid_through if position else None, now),
        headroom_offsets=headroom,
        headroom_seconds=headroom / rate if headroom is not None and rate else None,
        open_transaction_offsets=_difference(state.high_watermark, state.end_offset),
        fault=state.fault or ("" if state.has_leader else "no leader"),
    )


def _lag_seconds(lag_offsets: int | None, valid_through: datetime | None, now: datetime) -> float | None:
    if lag_offsets == 0:
        return 0.0
    if lag_offsets is None or valid_through is None:
        return None
    return max(0.0, (now - valid_through).total_seconds())


def _difference(high: int | None, low: int | None) -> int | None:
    return None if high is None or low is None else high - low

"""What a plan asks the ledger to record, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kafka_ingest.core.batch import BatchKind, Request
from kafka_ingest.core.log_observations import LogObservation
from kafka_ingest.core.offsets import OffsetRange, Position, TopicPartition
from kafka_ingest.core.position_changes import PositionMove
from kafka_ingest.core.settings import BatchSettings, FirstRun, HoldSettings


@dataclass(frozen=True, slots=True)
class NewPlan:
    """What one transaction records for a request.

    Attributes:
        pipeline: Pipeline name.
        request: Who asks.
        kind: Kind of run.
        settings: Settings to freeze.
        settings_hash: Hash of ``settings``.
        first_run: The pipeline's choice, stored with the first plan.
        hold: Time-outs of the hold.
        cluster_id: Kafka's cluster id at the plan.
        ranges: The frozen ranges; none makes a batch that is committed at once.
        new_topics: Topics that this plan begins to serve.
        new_positions: Positions of partitions that had none, recorded with the plan.
        valid_through: New ``valid_through`` of partitions with nothing to read: complete up to the high watermark.
        planned_at: When Kafka was asked (UTC); the batch's ``planned_at``.
        supersedes: The outstanding batch that this plan replaces.
        left_out: Partitions left out because of a fault, one text each.
        warnings: What the plan warns of, one text a partition.
        adopted: Positions that take over the broker's topic id, recorded as position changes before ``skips``.
        skips: Positions that go forwards by the pipeline's lag policy, recorded as position changes.
        observations: What the plan saw of the log, for later plans to compare with.
    """

    pipeline: str
    request: Request
    kind: BatchKind
    settings: BatchSettings
    settings_hash: str
    first_run: FirstRun
    hold: HoldSettings
    cluster_id: str
    ranges: tuple[OffsetRange, ...]
    new_topics: tuple[str, ...]
    new_positions: tuple[Position, ...]
    valid_through: Mapping[TopicPartition, datetime]
    planned_at: datetime
    supersedes: str | None = None
    left_out: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    adopted: tuple[PositionMove, ...] = ()
    skips: tuple[PositionMove, ...] = ()
    observations: tuple[LogObservation, ...] = ()

"""What a plan reads from the ledger, and what it asks the ledger to record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kafka_ingest.core.batch import Batch, BatchKind, Hold, Request
from kafka_ingest.core.log_observations import LogObservation
from kafka_ingest.core.offsets import OffsetRange, Position, TopicPartition
from kafka_ingest.core.settings import BatchSettings, FirstRun, HoldSettings, IsolationLevel

_ANY_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """What binds a pipeline since its first plan; only a position change alters it."""

    pipeline: str
    target_schema: str
    target_table: str
    cluster_id: str
    isolation_level: IsolationLevel
    first_run: FirstRun


@dataclass(frozen=True, slots=True)
class ServedTopic:
    """A topic that some pipeline loads into the target table. One pipeline per (target, cluster, topic)."""

    pipeline: str
    cluster_id: str
    topic: str
    is_retired: bool = False


@dataclass(frozen=True, slots=True)
class PlanView:
    """The ledger as one short transaction saw it.

    Attributes:
        now: The database's clock, UTC.
        pipeline: ``None`` before the first plan.
        positions: Positions of the pipeline, ordered by (topic, partition).
        served: Topics served into the pipeline's target table, by this pipeline or by others.
        outstanding: The pipeline's planned batch, if there is one.
        hold: The hold of ``outstanding``.
        own: The newest batch of the asking run, whatever its number and state.
        observations: What earlier plans saw of the log, ordered by (topic, partition).
    """

    now: datetime
    pipeline: PipelineRecord | None
    positions: tuple[Position, ...]
    served: tuple[ServedTopic, ...]
    outstanding: Batch | None
    hold: Hold | None
    own: Batch | None
    observations: tuple[LogObservation, ...] = ()

    def still_stands(self, later: PlanView) -> bool:
        """Whether a plan made from this view may be recorded when the ledger looks like ``later``.

        Clock, hold, observations and the claim of an outstanding batch move without changing what a plan may do:
        superseding is safe at any moment because publishing is fenced.
        """
        return self._decisive() == later._decisive()

    def _decisive(self) -> PlanView:
        outstanding = replace(self.outstanding, claim=0) if self.outstanding else None
        own = replace(self.own, claim=0) if self.own else None
        return replace(self, now=_ANY_TIME, hold=None, outstanding=outstanding, own=own, observations=())


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
    observations: tuple[LogObservation, ...] = ()

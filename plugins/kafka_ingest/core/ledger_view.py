"""What a plan reads from the ledger."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kafka_ingest.core.batch import Batch, Hold
from kafka_ingest.core.log_observations import LogObservation
from kafka_ingest.core.offsets import Position
from kafka_ingest.core.settings import FirstRun, IdentityColumns, IsolationLevel

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
    identity: IdentityColumns


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

"""Changes of positions: what a person asks for, and what the ledger reads and records for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import ClassVar, TypeAlias

from kafka_ingest.errors import RequestChanged
from kafka_ingest.protocol.ledger_view import ChangePlan, PlanView, RecordedChange
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import PartitionOffset, TargetSettings

# ----------
# What an operator asks for. A request is idempotent by its id: the same id with other arguments stops.


class ChangeKind(StrEnum):
    """Kinds of ``position_change`` that operators and plans make; ``initialised`` and ``rolled_back`` are elsewhere."""

    RESET = "reset"
    LAG_SKIPPED = "lag_skipped"
    LOSS_ACCEPTED = "loss_accepted"
    TOPIC_RECREATION_ACCEPTED = "topic_recreation_accepted"
    CLUSTER_CHANGE_ACCEPTED = "cluster_change_accepted"
    SAME_LOG_ACCEPTED = "same_log_under_another_cluster_accepted"
    TOPIC_RETIRED = "topic_retired"
    TOPIC_READ_AGAIN = "topic_read_again"
    TARGET_CHANGED = "target_changed"
    ISOLATION_LEVEL_CHANGED = "isolation_level_changed"
    IDENTITY_COLUMNS_CHANGED = "identity_columns_changed"
    PIPELINE_RENAMED = "pipeline_renamed"
    TOPIC_ID_ADOPTED = "topic_id_adopted"


class LogPlace(StrEnum):
    """A place in a log that needs no number."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Selection:
    """Partitions that a change is about: whole topics and single partitions; none of either means all."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()

    def includes(self, place: TopicPartition) -> bool:
        """Tell whether a partition belongs to it."""
        is_all = not self.topics and not self.partitions
        return is_all or place.topic in self.topics or place in self.partitions


@dataclass(frozen=True, slots=True)
class ResetToPlace:
    """Positions go to the log start, or to the end offset."""

    kind: ClassVar[ChangeKind] = ChangeKind.RESET
    to: LogPlace
    only: Selection = Selection()


@dataclass(frozen=True, slots=True)
class ResetToTime:
    """Positions go to the first offset whose record time is at or after a time, never past the end offset."""

    kind: ClassVar[ChangeKind] = ChangeKind.RESET
    time_ms: int
    only: Selection = Selection()


@dataclass(frozen=True, slots=True)
class ResetToOffsets:
    """Positions go to the listed offsets; partitions that are not listed stay."""

    kind: ClassVar[ChangeKind] = ChangeKind.RESET
    offsets: tuple[PartitionOffset, ...]


@dataclass(frozen=True, slots=True)
class ResetBy:
    """Positions go forwards or, below 0, backwards by N offsets, never out of the log."""

    kind: ClassVar[ChangeKind] = ChangeKind.RESET
    offsets: int
    only: Selection = Selection()


@dataclass(frozen=True, slots=True)
class SkipLag:
    """Positions go forwards so that the last offsets of each partition are left to read; never backwards."""

    kind: ClassVar[ChangeKind] = ChangeKind.LAG_SKIPPED
    keep_offsets: int
    only: Selection = Selection()


@dataclass(frozen=True, slots=True)
class AcceptLoss:
    """Positions below the log start go to it, plus a margin that retention may take before it is read."""

    kind: ClassVar[ChangeKind] = ChangeKind.LOSS_ACCEPTED
    margin_offsets: int = 0
    only: Selection = Selection()


@dataclass(frozen=True, slots=True)
class AcceptRecreation:
    """Topics that were deleted and created again begin a new generation; no topics means all of them."""

    kind: ClassVar[ChangeKind] = ChangeKind.TOPIC_RECREATION_ACCEPTED
    topics: tuple[str, ...] = ()
    begin: LogPlace = LogPlace.EARLIEST


@dataclass(frozen=True, slots=True)
class AcceptCluster:
    """Every topic begins a new generation on the cluster that the connection leads to."""

    kind: ClassVar[ChangeKind] = ChangeKind.CLUSTER_CHANGE_ACCEPTED
    begin: LogPlace = LogPlace.EARLIEST


@dataclass(frozen=True, slots=True)
class AcceptSameLog:
    """The cluster has another id but the same topics, by their ids: offsets and generations stay."""

    kind: ClassVar[ChangeKind] = ChangeKind.SAME_LOG_ACCEPTED


@dataclass(frozen=True, slots=True)
class RetireTopic:
    """A topic is read no more; its rows and positions stay."""

    kind: ClassVar[ChangeKind] = ChangeKind.TOPIC_RETIRED
    topic: str


@dataclass(frozen=True, slots=True)
class ReadTopicAgain:
    """A retired topic is read again: from its positions, or as a new generation where it was created again since."""

    kind: ClassVar[ChangeKind] = ChangeKind.TOPIC_READ_AGAIN
    topic: str


@dataclass(frozen=True, slots=True)
class ChangeTarget:
    """The pipeline loads into the table that its file names now."""

    kind: ClassVar[ChangeKind] = ChangeKind.TARGET_CHANGED


@dataclass(frozen=True, slots=True)
class ChangeIsolationLevel:
    """The pipeline reads under the isolation level that its file names now."""

    kind: ClassVar[ChangeKind] = ChangeKind.ISOLATION_LEVEL_CHANGED


@dataclass(frozen=True, slots=True)
class ChangeIdentityColumns:
    """Rows are found by the columns that the pipeline file names now; in the table they are renamed already."""

    kind: ClassVar[ChangeKind] = ChangeKind.IDENTITY_COLUMNS_CHANGED


@dataclass(frozen=True, slots=True)
class RenamePipeline:
    """The ledger follows the pipeline file, which has another name than before."""

    kind: ClassVar[ChangeKind] = ChangeKind.PIPELINE_RENAMED
    former_name: str


OffsetChange: TypeAlias = ResetToPlace | ResetToTime | ResetToOffsets | ResetBy | SkipLag | AcceptLoss
LogChange: TypeAlias = AcceptRecreation | AcceptCluster | AcceptSameLog | ReadTopicAgain
PipelineChange: TypeAlias = RetireTopic | ChangeTarget | ChangeIsolationLevel | ChangeIdentityColumns | RenamePipeline
Change: TypeAlias = OffsetChange | LogChange | PipelineChange


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Who asks for which change, and why.

    Attributes:
        pipeline: Name of the pipeline in its file.
        request_id: The same id always means the same change.
        change: What is asked for.
        who: The person: Airflow user, or user of the operating system.
        why: The reason, for people who look at the ledger later.
        supersede: Supersede the open batch, if there is one.
    """

    pipeline: str
    request_id: str
    change: Change
    who: str
    why: str
    supersede: bool = False

    @property
    def known_name(self) -> str:
        """The name under which the ledger knows the pipeline before the change."""
        return self.change.former_name if isinstance(self.change, RenamePipeline) else self.pipeline

    @property
    def arguments(self) -> str:
        """Kind and arguments as canonical JSON."""
        given = {"change": type(self.change).__name__, **asdict(self.change)}
        return json.dumps(given, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# ----------
# What a change reads from the ledger, and what it asks the ledger to record.


@dataclass(frozen=True, slots=True)
class ChangeView:
    """The ledger as one short transaction saw it.

    Attributes:
        ledger: The pipeline under the name that the ledger knows.
        target: The table in the pipeline file: ``ledger.served`` is about it.
        recorded: What this request has recorded before.
        name_is_taken: For a renaming: the ledger already holds a pipeline of the new name.
        target_columns: For a change of table or columns: the columns of ``target``, name to type as PostgreSQL spells
            it; ``None`` when there is no such table.
    """

    ledger: PlanView
    target: TargetSettings
    recorded: RecordedChange | None = None
    name_is_taken: bool = False
    target_columns: Mapping[str, str] | None = None

    def still_stands(self, later: ChangeView) -> bool:
        """Whether a change made from this view may be recorded when the ledger looks like ``later``."""
        return self.ledger.still_stands(later.ledger) and replace(self, ledger=later.ledger) == later


@dataclass(frozen=True, slots=True)
class NewChange:
    """What one transaction records: a change without faults, and the open batch that it supersedes."""

    request: ChangeRequest
    plan: ChangePlan
    supersedes: str | None = None


def recorded_before(view: ChangeView, request: ChangeRequest) -> RecordedChange | None:
    """Return what an earlier call of the same request recorded, or ``None``.

    Raises:
        RequestChanged: It came with other arguments.
    """
    recorded = view.recorded
    if recorded is not None and recorded.arguments != request.arguments:
        raise RequestChanged(
            f"position change {request.request_id} was recorded with other arguments",
            expected=recorded.arguments,
            found=request.arguments,
            next_command="ask under a new request id; the recorded change stays",
            pipeline=request.pipeline,
        )
    return recorded

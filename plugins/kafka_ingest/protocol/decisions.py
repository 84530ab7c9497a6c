"""What is decided and then recorded in one transaction: changes of positions, for people who ask, and plans."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, TypeAlias

from kafka_ingest.errors import BatchOutstanding, PartitionFault, RequestChanged
from kafka_ingest.protocol.batch import BatchKind, Request
from kafka_ingest.protocol.ledger_view import ChangePlan, LedgerWrite, PlanView, PositionMove, RecordedChange
from kafka_ingest.protocol.log import Headroom, LogObservation, StalledPartition, TimedOffset
from kafka_ingest.protocol.position import OffsetRange, Position, TopicPartition
from kafka_ingest.settings import BatchSettings, FirstRun, HoldSettings, PartitionOffset, TargetSettings

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


def selected_by(change: OffsetChange) -> Selection:
    """Return the partitions that a change of offsets is about."""
    if isinstance(change, ResetToOffsets):
        return Selection(partitions=tuple(TopicPartition(o.topic, o.partition) for o in change.offsets))
    return change.only


def needs_log(change: Change) -> bool:
    """Whether Kafka must be asked; the others can be made while it is away."""
    return not isinstance(change, PipelineChange)


def needs_table(change: Change) -> bool:
    """Whether the target table must be looked at."""
    return isinstance(change, ChangeTarget | ChangeIdentityColumns)


# ----------
# What a change reads from the ledger, and what it asks the ledger to record.


@dataclass(frozen=True, slots=True)
class ChangeView:
    """What a position change sees.

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

    def decisive(self) -> ChangeView:
        """Return the view without what moves and decides nothing."""
        return replace(self, ledger=self.ledger.decisive())


@dataclass(frozen=True, slots=True)
class NewChange:
    """What one transaction records: a change without faults, and the open batch that it supersedes."""

    request: ChangeRequest
    plan: ChangePlan
    supersedes: str | None = None

    def write_from(self, seen: ChangeView) -> LedgerWrite:
        """Return what must still be true when it is recorded."""
        return LedgerWrite(self.request.known_name, seen, self.supersedes)


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


def batch_to_supersede(view: PlanView, *, supersede: bool) -> str | None:
    """Return the outstanding batch that a change takes out of the way, or ``None`` when there is none.

    Superseding is safe at any moment, because publishing is fenced; it wastes what the batch's attempt has staged.

    Args:
        view: The ledger.
        supersede: Whether the operator said so.

    Raises:
        BatchOutstanding: There is one, and nobody said that it may go.
    """
    batch, hold = view.outstanding, view.hold
    if batch is None:
        return None
    if supersede:
        return batch.batch_id
    held = f", step {hold.step}, hold until {hold.hold_until.isoformat(timespec='seconds')}" if hold else ""
    raise BatchOutstanding(
        "a batch of the pipeline is outstanding; nothing was changed",
        expected="a pipeline without a planned batch",
        found=f"{batch.request}{held}",
        next_command="wait until that run has ended and ask again, or take its batch out of the way with --supersede",
        batch_id=batch.batch_id,
    )


# ----------
# What a plan decides, and what one transaction records of it.


@dataclass(frozen=True, slots=True)
class Lagging:
    """One partition whose lag passes a limit of the policy.

    Attributes:
        where: The partition.
        lag_offsets: End offset - committed offset.
        lag_seconds: Time since the partition was complete; ``None`` when unknown. An estimate.
        limits: The limits that it passes, as texts for people.
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


#: Warnings are stored with the batch and go into the asset event: twenty say enough, thousands would drown them.
_MOST_WARNINGS = 20


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """What a plan would record.

    Attributes:
        ranges: Ranges to read, ordered by (topic, partition); partitions with nothing to read are left out.
        new_topics: Topics that join.
        new_positions: Positions of partitions that join.
        valid_through: Partitions that are complete up to the high watermark although nothing is read.
        faults: What stops the plan.
        left_out: Faults of partitions that are left out by the pipeline's policy.
        backlog_offsets: Offsets that the run would read without a limit, in all readable partitions.
        stalled: Partitions in which an open producer transaction lets nothing be read. A warning, no fault.
        ignored_bounds: Records from the future that do not end a live run, by partition. A warning, no fault.
        short_headroom: Partitions whose records retention may soon take (``protocol/log.py``). A warning.
        observations: What the plan saw of the log, for later plans to compare with.
        lagging: Partitions whose lag passes a limit of the pipeline's policy, with what it skips. A warning.
        adopted: Positions that had no topic id and take the broker's, ordered by (topic, partition). A warning.
        unread_topics: Retired topics that exist, one text each. A warning, no fault.
        state_warnings: What endangers the current state that the table holds, one text each.
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
    state_warnings: tuple[str, ...] = ()

    @property
    def skips(self) -> tuple[PositionMove, ...]:
        """Positions that the pipeline's lag policy moves forwards, ordered by (topic, partition)."""
        return tuple(found.skip for found in self.lagging if found.skip)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One text for each topic or partition with a warning; at most :data:`_MOST_WARNINGS` of them."""
        texts = [*self.state_warnings, *_adoptions(self.adopted), *self.unread_topics]
        texts += [str(found) for found in (*self.lagging, *self.short_headroom, *self.stalled)]
        more = len(texts) - _MOST_WARNINGS
        return (*texts[:_MOST_WARNINGS], *([f"and {more} more partitions"] if more > 0 else []))


@dataclass(frozen=True, slots=True)
class NewPlan:
    """What one transaction records for a request; a plan without ranges is a batch that is committed at once.

    Attributes:
        settings: Settings to freeze, with their ``settings_hash``.
        first_run: The pipeline's choice, stored with the first plan.
        hold: Time-outs of the hold.
        cluster_id: Kafka's cluster id when it was asked, which is at ``planned_at`` (UTC).
        choice: What the plan chose; without faults.
        supersedes: The outstanding batch that this plan replaces.
    """

    pipeline: str
    request: Request
    kind: BatchKind
    settings: BatchSettings
    settings_hash: str
    first_run: FirstRun
    hold: HoldSettings
    cluster_id: str
    planned_at: datetime
    choice: PlanChoice
    supersedes: str | None = None


def _adoptions(adopted: tuple[PositionMove, ...]) -> Iterator[str]:
    ids = {move.after.topic: move.after.topic_id for move in adopted if move.after}
    for topic, topic_id in ids.items():
        yield (
            f"topic {topic}: its positions had no topic id (topic_identity: none) and take over {topic_id}; "
            "from now on a re-created topic is noticed"
        )

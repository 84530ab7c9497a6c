"""A batch and what a run asks for: requests, options, states, counts, outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.settings import BatchSettings

# ----------
# Where the time of a load goes.


@dataclass(frozen=True, slots=True)
class TaskSeconds:
    """Seconds that staging tasks spent. Tasks run side by side: the sum is more than the phase took.

    Attributes:
        read: Waiting for Kafka's records and putting them together.
        decode: Turning records into columns.
        copy: Sending rows and dead letters to staging, and waiting for PostgreSQL.
    """

    read: float = 0.0
    decode: float = 0.0
    copy: float = 0.0

    def __add__(self, other: TaskSeconds) -> TaskSeconds:
        return TaskSeconds(self.read + other.read, self.decode + other.decode, self.copy + other.copy)


@dataclass(frozen=True, slots=True)
class LoadPhases:
    """How long the phases of one attempt took, in seconds, one after another; sums where it staged several times.

    Attributes:
        session: Until Spark could take tasks.
        stage: All tasks, from the first one's start to the last one's end.
        publish: Accounting, the look at Kafka's ids and the one transaction.
        tasks: What the winning tasks did while they staged.
    """

    session: float
    stage: float
    publish: float
    tasks: TaskSeconds

    def __add__(self, other: LoadPhases) -> LoadPhases:
        parts = (getattr(self, part.name) + getattr(other, part.name) for part in fields(self))
        return LoadPhases(*parts)

    def __str__(self) -> str:
        tasks = ", ".join(f"{part.name} {getattr(self.tasks, part.name):.1f}" for part in fields(self.tasks))
        return (
            f"session {self.session:.1f} s, staging {self.stage:.1f} s ({tasks} task-seconds), "
            f"publish {self.publish:.1f} s"
        )


# ----------
# The batch and the request that it answers.


#: Stands for the DAG in requests of the command line.
COMMAND_LINE = "cli"


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks for a batch. The same request always means the same batch, however often it comes.

    Attributes:
        dag_id: DAG, or ``cli`` for a run without Airflow.
        run_id: DAG run.
        task_group: Prefix of the task ids; empty outside a task group.
        map_index: Index of a mapped task; -1 when it is not mapped.
        number: 0; grows where Airflow runs a backfill run again.
        parameters: What the caller asked for, as canonical JSON (:meth:`RunOptions.to_parameters`); the same request
            with other parameters stops.
        clear_number: How often Airflow had cleared the run, where it is of type backfill; 0 for all other runs. Not
            part of the identity.
    """

    dag_id: str
    run_id: str
    task_group: str = ""
    map_index: int = -1
    number: int = 0
    parameters: str = "{}"
    clear_number: int = 0

    def __str__(self) -> str:
        group = f", group {self.task_group}" if self.task_group else ""
        return f"DAG {self.dag_id}, run {self.run_id}{group}"

    @property
    def identity(self) -> tuple[str, str, str, int, int]:
        """The part that identifies the request."""
        return (self.dag_id, self.run_id, self.task_group, self.map_index, self.number)


class BatchState(StrEnum):
    """States of a batch. Only ``planned`` ever changes, except that a committed batch can be rolled back."""

    PLANNED = "planned"
    COMMITTED = "committed"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back"


class BatchKind(StrEnum):
    """What kind of run planned the batch."""

    LIVE = "live"
    RELOAD = "reload"


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """What became of the offsets of a range; the counts add up to its span.

    Attributes:
        rows: Rows written.
        deletes: Deletes of keys that were applied, also those that hit no row. 0 for a pipeline that appends.
        superseded: Records that a newer version of their key outdid, in the batch or in the table. 0 for a pipeline
            that appends.
        dead_letters: Records that did not fit.
        tombstones: Records without a value that were only counted.
        filtered: Records that the pipeline's own filter left out.
        invisible: Offsets without a readable record: transaction markers, aborted and compacted records.
    """

    rows: int = 0
    deletes: int = 0
    superseded: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    filtered: int = 0
    invisible: int = 0

    def __add__(self, other: RecordCounts) -> RecordCounts:
        return RecordCounts(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    @property
    def readable(self) -> int:
        """Records that the reader saw."""
        return self.rows + self.deletes + self.superseded + self.dead_letters + self.tombstones + self.filtered

    @property
    def offsets(self) -> int:
        """All offsets accounted for."""
        return self.readable + self.invisible


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as the ledger holds it.

    ``left_out`` names partitions that had a fault and were left out (``on_partition_fault: leave_out``), one text each.
    ``warnings`` are those of its plan (``PlanChoice.warnings``), then those of its load. ``counts`` is ``None`` until
    the batch is committed.
    """

    batch_id: str
    pipeline: str
    request: Request
    kind: BatchKind
    state: BatchState
    claim: int
    settings: BatchSettings
    settings_hash: str
    protocol_version: int
    cluster_id: str
    ranges: tuple[OffsetRange, ...]
    planned_at: datetime
    committed_at: datetime | None = None
    counts: RecordCounts | None = None
    record_time_min: datetime | None = None
    record_time_max: datetime | None = None
    valid_through: datetime | None = None
    announced_at: datetime | None = None
    left_out: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())

    @property
    def span_offsets(self) -> int:
        """Number of offsets in all ranges."""
        return sum(r.span_offsets for r in self.ranges)

    @property
    def replaced_offsets(self) -> int:
        """Number of the offsets that were loaded before and are replaced; the others move the position."""
        return sum(r.replaced_to - r.start for r in self.ranges)


@dataclass(frozen=True, slots=True)
class BatchStanding:
    """State and claim of a batch row."""

    state: BatchState
    claim: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Who holds the pipeline and until when, by the database's clock."""

    batch_id: str
    request: Request
    hold_until: datetime
    step: str
    staged_records: int = 0
    staged_offsets: int = 0
    total_offsets: int = 0


# ----------
# Options of a run: from the form of a manual run, the interval of a backfill, or the command line.
#
# The batch stores them as canonical JSON, and the same request with other options stops. Times are milliseconds since
# 1970 UTC, spans half-open ``[start, end)``.


class RunMode(StrEnum):
    """What a run does with the log."""

    LIVE = "live"
    RELOAD = "reload"
    REBUILD = "rebuild"
    PLAN_ONLY = "plan_only"


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Records from the first one at or after ``start_ms`` up to the first one at or after ``end_ms``.

    By offsets: late records in between belong to it, whatever their time. ``end_ms`` of ``None`` is the end of the log.
    """

    start_ms: int
    end_ms: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class OffsetSpan:
    """Offsets ``[start, end)`` of one partition; ``end`` of ``None`` is the end of the log."""

    topic: str
    partition: int
    start: int
    end: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run.

    Attributes:
        mode: ``live`` goes on from the position, ``reload`` reads a span again, ``rebuild`` reads the whole log of an
            upsert pipeline again and takes away what it does not hold, ``plan_only`` shows what ``live`` would read (or
            ``reload``, where a span is given) and writes nothing.
        until_ms: A live run stops before the first record at or after this time; ``None`` reads to the end of the log.
        times: Span of a reload by times.
        offsets: Span of a reload by offsets, ordered; partitions that are not listed are left alone.
        limit_offsets: Limit of a live run instead of that of the pipeline file.
        reload_what_is_left: Goes on where the log no longer holds all records of the span, instead of stopping: rows
            whose records retention took stay, rows whose records compaction took are deleted. In a rebuild: rows of
            keys that the log does not hold are deleted, instead of stopping.
        replace_resolved: A reload replaces dead letters that are marked as resolved, and their rows, too.
        into_new_table: A rebuild fills a new table, which takes the name of the old one.
        reason: Why, for people.
    """

    mode: RunMode = RunMode.LIVE
    until_ms: int | None = None
    times: TimeSpan | None = None
    offsets: tuple[OffsetSpan, ...] = ()
    limit_offsets: int | None = None
    reload_what_is_left: bool = False
    replace_resolved: bool = False
    into_new_table: bool = False
    reason: str = ""

    @property
    def kind(self) -> BatchKind:
        """Kind of the batch that a run with these options plans."""
        reads_again = self.times is not None or self.offsets or self.mode is RunMode.REBUILD
        return BatchKind.RELOAD if reads_again else BatchKind.LIVE

    def to_parameters(self) -> str:
        """Return canonical JSON of what differs from the defaults; ``{}`` for a plain run."""
        plain, given = asdict(RunOptions()), asdict(self)
        changed = {key: value for key, value in given.items() if value != plain[key]}
        return json.dumps(changed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def run_options_of(request: Request) -> RunOptions:
    """Read the options that :meth:`RunOptions.to_parameters` wrote into a request."""
    stored: Mapping[str, Any] = json.loads(request.parameters)
    values = dict(stored)
    if "mode" in values:
        values["mode"] = RunMode(values["mode"])
    if "times" in values:
        values["times"] = TimeSpan(**values["times"])
    if "offsets" in values:
        values["offsets"] = tuple(OffsetSpan(**span) for span in values["offsets"])
    return RunOptions(**values)


# ----------
# What publishing a batch means for each partition: computed before the transaction begins.


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """One range, staged whole.

    Attributes:
        range: The frozen range.
        counts: What became of its offsets; adds up to its span.
        record_time_min: Smallest record time; ``None`` without a record that has a time.
        record_time_max: Greatest record time.
        end_leader_epoch: Leader epoch at the end of the range: the stored epoch of the new position.
        valid_through: New ``valid_through`` of the partition; ``None`` leaves the stored one.
    """

    range: OffsetRange
    counts: RecordCounts
    record_time_min: datetime | None
    record_time_max: datetime | None
    end_leader_epoch: int | None
    valid_through: datetime | None


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """All ranges of a batch, and whose rows to publish: Spark task index to winning attempt id.

    ``warnings`` are what the load warns of.
    """

    partitions: tuple[PartitionOutcome, ...]
    winners: Mapping[int, int]
    warnings: tuple[str, ...] = ()

    @property
    def counts(self) -> RecordCounts:
        """Counts over all ranges."""
        return sum((p.counts for p in self.partitions), RecordCounts())

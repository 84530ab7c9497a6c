"""The batch: the frozen ranges of one request, its states, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from kafka_ingest.core.offsets import OffsetRange
from kafka_ingest.core.settings import BatchSettings


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks for a batch. The same request always means the same batch, however often it comes.

    Attributes:
        dag_id: DAG, or ``cli`` for a run without Airflow.
        run_id: DAG run.
        task_group: Prefix of the task ids; empty outside a task group.
        map_index: Index of a mapped task; -1 when it is not mapped.
        number: 0; grows where Airflow runs a backfill run again (``core.requests.numbered_request``).
        parameters: What the caller asked for, as canonical JSON (``core.run_options``); the same request with other
            parameters stops.
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
    """What became of the offsets of a range; adds up to its span (``core/accounting.py``).

    ``invisible`` counts offsets without a readable record: transaction markers, aborted and compacted records.
    """

    rows: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    filtered: int = 0
    invisible: int = 0

    def __add__(self, other: RecordCounts) -> RecordCounts:
        return RecordCounts(
            self.rows + other.rows,
            self.dead_letters + other.dead_letters,
            self.tombstones + other.tombstones,
            self.filtered + other.filtered,
            self.invisible + other.invisible,
        )

    @property
    def readable(self) -> int:
        """Records that the reader saw."""
        return self.rows + self.dead_letters + self.tombstones + self.filtered

    @property
    def offsets(self) -> int:
        """All offsets accounted for."""
        return self.readable + self.invisible


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as the ledger holds it.

    ``left_out`` names partitions that had a fault and were left out (``on_partition_fault: leave_out``), one text each.
    ``warnings`` are those of its plan (``PlanChoice.warnings``). ``counts`` is ``None`` until the batch is committed.
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
        """Number of them that had been loaded before and are replaced; the others move the position."""
        return sum(r.replaced_to - r.start for r in self.ranges)


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

"""Ports: what the protocol needs from the world. Fakes in ``tests/fakes`` pass the same tests as the real ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from kafka_ingest.protocol.accounting import AppliedChanges, Fold, Replacement
from kafka_ingest.protocol.batch import Batch, BatchOutcome, BatchStanding, Hold, Request, RunOptions
from kafka_ingest.protocol.decisions import ChangeRequest, ChangeView, NewChange, NewPlan
from kafka_ingest.protocol.ledger_view import PlanView, RecordedChange, Violation
from kafka_ingest.protocol.log import LogIdentity, LogSnapshot, TimedOffset
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.staging import DeadLetterGroup, NewField, StageProgress, StageResult, StageTask
from kafka_ingest.protocol.target import AddedColumn
from kafka_ingest.settings import BatchSettings, IsolationLevel, TargetSettings, TopicSelection


class Clock(Protocol):
    """Time of the asking process. Holds use the database's clock instead."""

    def now(self) -> datetime:
        """Return the time, UTC, with a time zone."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class Log(Protocol):
    """Kafka as planning, cutting and publishing see it. Reads metadata, and a few records for their size."""

    def snapshot(self, topics: TopicSelection, isolation_level: IsolationLevel) -> LogSnapshot:
        """Describe the selected topics and the offsets of all their partitions.

        A named topic that does not exist is missing from the snapshot; it is never created. Partition faults are
        values (``PartitionState.has_leader``, ``fault``), not errors.

        Raises:
            BrokerUnavailable: No answer within the time-out.
            ConfigError: The broker refused the settings (authentication, authorization).
        """

    def offsets_at(self, time_ms: int, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, TimedOffset]:
        """Return, for each partition, the first offset whose record time is at or after ``time_ms``, and that time.

        The first by offset, not by time: records are rarely in the order of their times. Records without a time do not
        count. Where no record is that late, the offset is the high watermark and the time ``None``.

        Raises:
            BrokerUnavailable: No answer within the time-out.
        """

    def identity(self, topics: Iterable[str]) -> LogIdentity:
        """Ask again for cluster id and topic ids.

        Raises:
            BrokerUnavailable: No answer within the time-out.
        """

    def delete_retentions(self, topics: Iterable[str]) -> Mapping[str, int | None]:
        """Return how long a tombstone stays in each topic that is compacted, in ms; ``None`` for other topics.

        A topic whose settings nobody may read is missing.

        Raises:
            BrokerUnavailable: No answer within the time-out.
        """

    def mean_offset_bytes(self, ranges: Sequence[OffsetRange]) -> int | None:
        """Return how many bytes of keys and values an offset of the ranges holds on average, from a short sample.

        Without compression. Offsets without a readable record count, with no bytes. The sample takes a second and some
        MB of memory at most. ``None`` where it found nothing, for whatever reason: whoever reads the ranges meets that.
        It raises no error of the log.
        """


class GroupMirror(Protocol):
    """Kafka consumer groups that get a copy of the positions, for lag tools. Written only, never read."""

    def store(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets of these partitions; others of the group stay. Doing it twice is harmless.

        Raises:
            BrokerUnavailable: No answer within the time-out.
            ConfigError: Kafka refuses: no right to the group, a consumer is a member of it, a partition is gone.
        """


class RunStates(Protocol):
    """What the scheduler knows about other runs."""

    def is_finished(self, request: Request) -> bool:
        """Tell whether the run of ``request`` has ended; ``False`` where that cannot be known."""


class Ledger(Protocol):
    """The ledger, one transaction a method. All times are the database's.

    Every method raises ``DatabaseUnavailable`` when the server cannot be reached, ``LockTimeout`` when a lock is not
    granted in time, and ``LedgerOutdated`` when the schema is not the one of this package.
    """

    def plan_view(self, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
        """Read what a plan needs, in one read-only transaction."""

    def loaded_from(self, pipeline: str, since_ms: int) -> Mapping[TopicPartition, int]:
        """Return, by partition, the lowest offset of any committed range with records at or after a time.

        Only the partition's own generation counts; a partition without such a range is missing.
        """

    def record_plan(self, plan: NewPlan, seen: PlanView) -> Batch:
        """Record a plan, if the ledger is still as it was ``seen``.

        Locks pipeline, then batch, then positions. The batch is ``planned``, or ``committed`` when it has no ranges.

        Raises:
            LedgerMoved: Something decisive has changed since ``seen``; nothing was written.
        """

    def batch(self, batch_id: str) -> Batch | None:
        """Read one batch."""

    def batch_of(self, pipeline: str, request: Request) -> Batch | None:
        """Read the newest batch of a run, whatever its number and state: the ``own`` of :meth:`plan_view` alone."""

    def claim(self, batch_id: str, heartbeat_timeout_seconds: int) -> Batch:
        """Take the next claim of a planned batch and hold the pipeline for the time-out.

        Its settings have the columns that were added to the target for the pipeline, as they stand under the lock.
        A committed batch is returned as it is, without a new claim.

        Raises:
            Fenced: The batch is superseded or rolled back.
            Busy: Another session has the batch locked, as an attempt that publishes it.
        """

    def heartbeat(
        self, batch_id: str, claim: int, *, step: str, progress: StageProgress, hold_seconds: int
    ) -> BatchStanding:
        """Extend the hold and store progress while ``claim`` is the newest; return state and claim of the batch."""

    def release_hold(self, batch_id: str, claim: int) -> None:
        """End the hold of a batch now, while ``claim`` is the newest; else nothing happens."""

    def caught_up(self, pipeline: str) -> Mapping[TopicPartition, datetime | None]:
        """Return when a published plan of the pipeline last reached the end of each partition; ``None``: never."""

    def settle(self, batch_id: str) -> BatchStanding:
        """Read state and claim of a batch ``FOR UPDATE``, on a new connection to a read-write server.

        This decides a COMMIT whose answer was lost: a plain read could still see ``planned`` while it is under way.

        Raises:
            CommitStateUnknown: The row could not be locked in time.
        """

    def hold(self, batch_id: str) -> Hold | None:
        """Read the hold of a batch."""

    def unannounced(self, pipeline: str, request: Request) -> Sequence[Batch]:
        """Return committed batches that nobody has announced, and those that ``request`` announced before."""

    def mark_announced(self, batch_ids: Sequence[str], request: Request) -> None:
        """Store that ``request`` announces these batches."""

    def dead_letter_groups(self, batch_id: str) -> Sequence[DeadLetterGroup]:
        """Count the dead letters of a batch by reason, the most frequent first."""

    def violations(self, pipeline: str) -> Sequence[Violation]:
        """Run every invariant (``sql/invariants``) for a pipeline; empty when all hold."""


class PositionLedger(Protocol):
    """The ledger as position changes need it, one transaction a method; it raises what :class:`Ledger` raises."""

    def change_view(self, request: ChangeRequest, target: TargetSettings) -> ChangeView:
        """Read what a change needs, in one read-only transaction.

        Args:
            request: Who asks; the pipeline is looked up by :attr:`ChangeRequest.known_name`.
            target: The table in the pipeline file: topics that are served into it are read.
        """

    def record_change(self, change: NewChange, seen: ChangeView) -> RecordedChange:
        """Make a change in one transaction, if the ledger is still as it was ``seen``.

        Locks pipeline, then batch, then positions by (topic, partition).

        Raises:
            LedgerMoved: Something decisive has changed since ``seen``; nothing was written.
        """


class Target(Protocol):
    """The target table."""

    def prepare(self, settings: BatchSettings) -> None:
        """Create the table where the settings say so, and check it against the settings.

        Raises:
            TargetMismatch: Lists every mismatch at once.
        """

    def require_versions(self, settings: BatchSettings) -> None:
        """Refuse a table with rows that no record has written; for the first plan of an upsert pipeline.

        Raises:
            TargetMismatch: The message has their number.
        """

    def require_replaceable(self, settings: BatchSettings) -> None:
        """Refuse a table whose place a new one cannot take; for a rebuild into a new table.

        Raises:
            TargetMismatch: Lists what a new table would not have, or what holds the old one.
        """


class Staging(Protocol):
    """Staging tables of one attempt."""

    def create(self, batch: Batch) -> None:
        """Create the tables of ``batch`` and its claim; running it twice is harmless."""

    def progress(self, batch: Batch) -> StageProgress:
        """Sum what running and finished tasks have staged so far."""

    def drop(self, batch: Batch) -> None:
        """Drop the tables with a short lock time-out; what stays is left to housekeeping."""


class TaskRunner(Protocol):
    """What runs staging tasks: Spark, or the driver's own process."""

    def parallelism(self) -> int:
        """Return how many tasks can run at once."""

    def run(self, batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        """Stage all tasks and return exactly one result, of the winning attempt, for each.

        Raises:
            IngestError: The fault of the first task that failed for good.
        """

    def cancel(self) -> None:
        """Stop running tasks as soon as possible; called from another thread when the attempt is fenced."""

    def release(self) -> None:
        """Give back what the runner holds of a cluster; nothing runs with it afterwards. Safe to call again."""


class SchemaEvolution(Protocol):
    """What gives the target columns for fields that no column reads (``new_fields: add_column``)."""

    def add_columns(self, batch: Batch, fields: Sequence[NewField]) -> Sequence[AddedColumn]:
        """Make and record a column for each field, in one transaction; all or none. Durable on return.

        A column of that name which the table has already is taken as it is, where it can hold the values.

        Raises:
            Fenced: The batch is not planned, or its claim is not ours: nothing was altered.
            Busy: Another session has the batch row locked.
            SchemaChangeRefused: A name is not free, or a limit would be passed.
            TargetMismatch: The table does not let columns be added, or has one that cannot hold the values.
            LockTimeout: Others use the table for too long.
        """


class Publication(Protocol):
    """The one transaction that makes a batch visible. Statements in the order of the methods."""

    def lock_batch(self) -> BatchStanding:
        """Lock the batch row without waiting.

        Raises:
            Busy: Another session has it locked.
        """

    def advance_positions(self, outcome: BatchOutcome) -> int:
        """Compare and set all positions; return the number of rows that still stood as planned."""

    def replace(self, outcome: BatchOutcome, *, with_resolved: bool) -> Replacement:
        """Delete rows and dead letters in ``[start, replaced_to)`` of every range, by identity.

        Resolved dead letters and their rows stay unless ``with_resolved``; the records staged in their place are then
        not published.

        Raises:
            TargetMismatch: The target refused it.
        """

    def insert_rows(self, outcome: BatchOutcome) -> int:
        """Move the winners' staged rows into the target; return the number of rows that are there.

        Raises:
            RecordsRefused: The target refused single records; all of them are named.
            TargetMismatch: A constraint, trigger or rule of the target refused, dropped or altered them.
        """

    def fold(self, outcome: BatchOutcome, options: RunOptions, compacted: frozenset[str] = frozenset()) -> Fold:
        """Fold the winners' staged changes to the newest of each key, for an upsert pipeline; once a transaction.

        A value that did not travel is the one that its key had, unless its topic is compacted; where nobody knows it,
        its record is a dead letter.

        Rows, removed keys and dead letters whose record is read again, and is no such thing any more, go. Resolved dead
        letters stay unless ``replace_resolved``; what is staged in their place is left out. In a rebuild every row and
        every removed key that was not read goes, too, and dead letters that were not read are closed. Or a new table is
        filled (``into_new_table``), with the same answers, and :meth:`write_newest` gives it the name of the old one.

        Raises:
            TargetMismatch: The target refused it, or has rows without a version.
        """

    def write_newest(self) -> Mapping[TopicPartition, AppliedChanges]:
        """Write the newest change of each key, unless what stands is newer; return what applied, by partition.

        Raises:
            RecordsRefused: The target refused single records; all of them are named.
            TargetMismatch: A constraint, trigger or rule of the target refused, dropped or altered them.
            RetryLater: Somebody else inserted rows of the same keys meanwhile.
        """

    def insert_dead_letters(self, outcome: BatchOutcome) -> int:
        """Move the winners' dead letters into the ledger; return their number."""

    def record_outcome(self, outcome: BatchOutcome) -> None:
        """Store count per partition, and make the batch ``committed`` with its counts and ``valid_through``."""

    def commit(self) -> None:
        """Commit.

        Raises:
            CommitStateUnknown: The connection broke before the answer; ``Ledger.settle`` decides.
        """


class Publisher(Protocol):
    """What opens publications."""

    def begin(self, batch: Batch) -> AbstractContextManager[Publication]:
        """Open a new transaction for the batch and its claim; leaving the context without commit rolls it back."""


# ----------
# What an audit of the whole table asks of ledger and target.


class Place(NamedTuple):
    """A partition in one generation of its topic."""

    topic: str
    generation: int
    partition: int


@dataclass(frozen=True, slots=True)
class Written:
    """What one batch, or one roll-back, left in ``[start, end)`` when it was done.

    Attributes:
        place: The partition.
        start: First offset.
        end: First offset beyond it.
        rows: Rows that it left there: 0 of a roll-back.
        by: Who, for a message.
        is_given_up: Whether all its rows may be gone: it is older than a reset to the log start or a change of table.
    """

    place: Place
    start: int
    end: int
    rows: int
    by: str
    is_given_up: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets ``[start, end)`` that are counted together."""

    place: Place
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Counted:
    """Rows of the table in a piece, and the number of offsets that have one; equal where no offset has two."""

    rows: int
    identities: int


@dataclass(frozen=True, slots=True)
class Count:
    """What one statement found, and what was written since the audit began, both at one moment."""

    counted: Sequence[Counted]
    written_since: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class AuditScope:
    """What an audit of the whole table begins with.

    Attributes:
        newest: Ordinal of the newest batch that has published; 0 when there is none.
        newest_change: Number of the newest position change.
        ranges: How many ranges were published into it.
        offsets: How many offsets they have.
        elsewhere: How many ranges were published into tables that the pipeline was bound to at other times.
        roll_backs: Spans that roll-backs have emptied, the newest first, each with the ordinal of the newest batch
            that was recorded before it.
    """

    newest: int
    newest_change: int
    ranges: int
    offsets: int
    elsewhere: int
    roll_backs: Sequence[tuple[int, Written]] = ()


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A batch that has published, with what it left in each of its ranges."""

    ordinal: int
    ranges: Sequence[Written]


class WrittenTable(Protocol):
    """Ledger and target of an audit of the whole table; each method is one short read-only transaction."""

    def scope(self) -> AuditScope:
        """Read what the audit begins with."""

    def writers(self, before: int) -> Sequence[WrittenBatch]:
        """Return batches below an ordinal that have published into the table, newest first; none at the end."""

    def count(self, pieces: Sequence[Piece], scope: AuditScope) -> Count:
        """Count rows in pieces, which are in the order of the table and do not overlap.

        Raises:
            TargetMismatch: The table, or a column that identifies rows, is not there.
        """

    def name(self, piece: Piece) -> tuple[Sequence[int], Sequence[int]]:
        """Return the first offsets that have two rows, and the first that have neither row nor dead letter."""

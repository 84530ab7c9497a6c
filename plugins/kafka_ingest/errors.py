"""Errors by what to do about them, each with four parts: what, expected, found, next command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from textwrap import indent
from typing import ClassVar

# ----------
# The commands that resolve faults by changing positions, or by reading everything again, as messages name them.


def change_command(pipeline: str, kind: str) -> str:
    """Return a command that shows what a change would do; with ``--apply`` it makes the change.

    Args:
        pipeline: Name of the pipeline in its file.
        kind: Kind of change, with its arguments.
    """
    return f'python -m kafka_ingest change {pipeline} {kind} --reason "..."'


def rebuild_command(pipeline: str) -> str:
    """Return the command that reads the whole log of an upsert pipeline again; it stops where that would lose rows."""
    return f'python -m kafka_ingest run {pipeline} --mode rebuild --reason "..."'


# ----------
# Errors: the family says what to do, the class says what happened, the message says how to go on.
#
# Airflow's outcomes are chosen by family in one place (``operators/context.py``), exit codes below.


def _after_label(text: str) -> str:
    return f"\n{indent(text, '    ')}" if "\n" in text else f" {text}"


class IngestError(Exception):
    """A fault that this package recognises.

    Args:
        what: One sentence without a full stop: what went wrong.
        expected: What should have been there; empty when ``what`` says it all.
        found: What was there instead.
        next_command: The command or action that resolves it; empty for the class's usual one.
        pipeline: Name of the pipeline, where known.
        batch_id: Batch, where known.
    """

    family: ClassVar[str] = "IngestError"
    #: The next command of faults of the class that give none of their own.
    usual_next_command: ClassVar[str] = ""

    def __init__(
        self,
        what: str,
        *,
        expected: str = "",
        found: str = "",
        next_command: str = "",
        pipeline: str | None = None,
        batch_id: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.found = found
        self.next_command = next_command or self.usual_next_command
        self.pipeline = pipeline
        self.batch_id = batch_id

    def __str__(self) -> str:
        place = ", ".join(
            part
            for part in (
                f"pipeline {self.pipeline}" if self.pipeline else "",
                f"batch {self.batch_id}" if self.batch_id else "",
            )
            if part
        )
        lines = [f"{type(self).__name__}: {self.what}" + (f" ({place})" if place else "")]
        lines += [
            f"  {label}:{_after_label(text)}"
            for label, text in (("expected", self.expected), ("found", self.found), ("next", self.next_command))
            if text
        ]
        return "\n".join(lines)

    def to_record(self) -> dict[str, str | None]:
        """Return the error as plain values, so that the Spark job can hand it to the process that submitted it."""
        return {
            "class": type(self).__name__,
            "what": self.what,
            "expected": self.expected,
            "found": self.found,
            "next_command": self.next_command,
            "pipeline": self.pipeline,
            "batch_id": self.batch_id,
        }


@contextmanager
def naming(pipeline: str, batch_id: str | None = None) -> Iterator[None]:
    """Give every fault of a step the names of its pipeline and its batch, where it has none of its own."""
    try:
        yield
    except IngestError as error:
        error.pipeline = error.pipeline or pipeline
        error.batch_id = error.batch_id or batch_id
        raise


class RetryLater(IngestError):
    """The same attempt may succeed later: Airflow retries."""

    family = "RetryLater"


class BrokerUnavailable(RetryLater):
    """Kafka does not answer, or makes no progress within the time-out."""


class RegistryUnavailable(RetryLater):
    """The schema registry does not answer, or has too much to do."""


class DatabaseUnavailable(RetryLater):
    """PostgreSQL cannot be reached, is going down, or ended the connection."""


class LockTimeout(RetryLater):
    """A lock was not granted within ``lock_timeout``."""


class CommitStateUnknown(RetryLater):
    """The answer to COMMIT was lost: the server may have committed or not; running the same again finds out."""


class CommitDidNotHappen(RetryLater):
    """COMMIT did not take place: the ledger says so, or the server gave another answer than COMMIT."""


class StagingLost(RetryLater):
    """Staged rows are gone, for example after a crash of PostgreSQL: the batch is staged again."""


class LedgerMoved(RetryLater):
    """Another process changed the pipeline's ledger between reading it and recording the plan."""


class TooBusy(RetryLater):
    """Too many readers of the page wait for a source, or it takes too long to answer."""

    usual_next_command = "load the page again in a few seconds"


class Busy(IngestError):
    """Another request holds the pipeline: come back later without using up a retry."""

    family = "Busy"


class StopAndCall(IngestError):
    """Going on could lose or double records, or cannot succeed: stop at once, no retry, call a person."""

    family = "StopAndCall"


class BusyTooLong(StopAndCall):
    """Another request held the pipeline for longer than the task may wait."""


class ConfigError(StopAndCall):
    """Configuration that cannot work. Lists every fault that was found, one a line, in ``found``."""


class DatabaseRefused(StopAndCall):
    """PostgreSQL refused a statement and would refuse it again, for example by an event trigger that forbids DDL."""


class LedgerOutdated(StopAndCall):
    """The ledger schema is missing, older or newer than this package."""


class RequestChanged(StopAndCall):
    """The same request came again with other parameters."""


class BatchOutstanding(StopAndCall):
    """A change of positions meets an open batch and was not told to supersede it."""


class RollBackRefused(StopAndCall):
    """The ledger or the topic's settings do not allow a roll-back."""


class SchemaMissing(StopAndCall):
    """The schema registry does not know the schema that a record names: mostly it is the registry of other topics."""


class TopicMissing(StopAndCall):
    """A topic of the pipeline does not exist; topics are never created by reading."""


class PartitionMissing(StopAndCall):
    """Metadata lists fewer partitions than the ledger knows."""


class LeaderMissing(StopAndCall):
    """A partition has no leader."""


class OffsetsExpired(StopAndCall):
    """The log no longer holds an offset that is to be read."""


class PartitionStalled(StopAndCall):
    """An open producer transaction has let nothing be read for longer than the pipeline allows."""


class LogTruncated(StopAndCall):
    """The log ends before the committed offset, or its history differs from what was read."""


class TopicRecreated(StopAndCall):
    """The topic's id is not the one that the position belongs to."""


class ClusterChanged(StopAndCall):
    """The cluster's id is not the one that the position belongs to."""


class LagTooLarge(StopAndCall):
    """A partition lags by more than ``lag_policy`` allows, and its action is ``fail``."""


class PartitionsFaulty(StopAndCall):
    """Several partitions have faults of different kinds; ``found`` lists each."""


class TooManyDeadLetters(StopAndCall):
    """More records would become dead letters than the pipeline's limits allow."""


class ReloadWouldLose(StopAndCall):
    """A reload would delete rows whose records the log no longer holds."""


class KeyInTwoPartitions(StopAndCall):
    """A key of an upsert pipeline comes from two partitions, between which offsets tell no order."""


class DeletesMayBeLost(StopAndCall):
    """Compaction may have dropped tombstones that nobody read: rows of deleted keys would stay for ever."""


class RebuildWouldRemove(StopAndCall):
    """A rebuild would take away rows whose records the log no longer holds."""


class TruncateFound(StopAndCall):
    """The source table of change events was emptied: rows of its table here would stay for ever."""


class AccountingMismatch(StopAndCall):
    """Counts that must be equal are not: nothing is published."""

    usual_next_command = "see docs/runbook.md, section AccountingMismatch"


class TargetMismatch(StopAndCall):
    """The target table does not fit the pipeline, or one of its constraints refused the batch."""


class SchemaChangeRefused(StopAndCall):
    """Fields of records ask for columns that are not added by themselves."""


class RecordsRefused(TargetMismatch):
    """INSERT into the target refused single records that staging had accepted: they can be dead letters instead.

    Attributes:
        records: All of them; empty where the error came from another process.
    """

    records: Sequence[RefusedRecord] = ()

    @classmethod
    def naming(
        cls, records: Sequence[RefusedRecord], *, target: str, pipeline: str | None, batch_id: str | None
    ) -> RecordsRefused:
        """Build the error for these records; the message names the first five."""
        first = "".join(f"\n    {record}" for record in records[:5])
        error = cls(
            f"the target {target} refused records that staging had taken; nothing was published",
            expected="a table that takes every staged row",
            found=f"{len(records)} refused; the first are{first}",
            next_command="clear load_batch; when it comes again, see docs/runbook.md, section RecordsRefused",
            pipeline=pipeline,
            batch_id=batch_id,
        )
        error.records = tuple(records)
        return error


class BatchNotCommitted(StopAndCall):
    """The batch to audit is not committed, for example because its load was marked successful by hand."""


class VersionSkew(StopAndCall):
    """Planner and job follow different protocol versions."""


class Fenced(IngestError):
    """A newer claim owns the batch, or the batch was superseded: this attempt changes nothing."""

    family = "Fenced"


def _classes(root: type[IngestError]) -> dict[str, type[IngestError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _classes(child)
    return found


def error_from_record(record: Mapping[str, str | None]) -> IngestError:
    """Build the error again from :meth:`IngestError.to_record`; an unknown class becomes ``IngestError``."""
    cls = _classes(IngestError).get(record.get("class") or "", IngestError)
    return cls(
        record.get("what") or "unknown fault",
        expected=record.get("expected") or "",
        found=record.get("found") or "",
        next_command=record.get("next_command") or "",
        pipeline=record.get("pipeline"),
        batch_id=record.get("batch_id"),
    )


# ----------
# Exit codes of the job and of the command line: scripts can tell "again later" from "somebody must act". The numbers
# are those of sysexits.h, where they fit.

OK = 0
UNEXPECTED = 1
USAGE = 2
#: An audit found that an invariant does not hold (EX_DATAERR).
AUDIT_FOUND = 65
#: The same command may succeed later (EX_TEMPFAIL).
RETRY_LATER = 75
#: The same command cannot succeed until somebody acts (EX_CONFIG).
STOP_AND_CALL = 78


def exit_code(error: IngestError) -> int:
    """Return the exit code of an error's family."""
    if isinstance(error, RetryLater | Busy | Fenced):
        return RETRY_LATER
    return STOP_AND_CALL if isinstance(error, StopAndCall) else UNEXPECTED


# ----------
# Faults of topics and partitions: collected as values, so that a plan reports all of them at once.


@dataclass(frozen=True, slots=True)
class PartitionFault:
    """One fault.

    Attributes:
        error: Class of the error that it is.
        where: Topic, partition or cluster.
        expected: What should have been there.
        found: What was there, with numbers.
        next_command: What resolves it.
        topic: Set when the whole topic is in doubt, so that its partitions need no faults of their own.
        can_be_left_out: Whether ``on_partition_fault: leave_out`` may go on without this partition.
    """

    error: type[StopAndCall]
    where: str
    expected: str
    found: str
    next_command: str
    topic: str = ""
    can_be_left_out: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.error.__name__}: expected {self.expected}; found {self.found}"


def fault_error(faults: Sequence[PartitionFault], pipeline: str) -> StopAndCall:
    """Make one error of all faults: of their class when they share one, else ``PartitionsFaulty``."""
    classes = {fault.error for fault in faults}
    error = classes.pop() if len(classes) == 1 else PartitionsFaulty
    if len(faults) == 1:
        [fault] = faults
        return error(
            fault.where,
            expected=fault.expected,
            found=fault.found,
            next_command=fault.next_command,
            pipeline=pipeline,
        )
    steps = dict.fromkeys(fault.next_command for fault in faults)
    return error(
        f"{len(faults)} faults in the topics of the pipeline",
        expected="topics and partitions that continue where the ledger stands",
        found="".join(f"\n    {fault}" for fault in faults),
        next_command="; ".join(steps),
        pipeline=pipeline,
    )


# ----------
# Faults of records: dead letters. The list of reasons is closed, so that monitoring can rely on it.


class DeadLetterReason(StrEnum):
    """Reasons, stored in ``dead_letter.reason``. ``detail`` says where and what, for a person."""

    NOT_UTF8 = "not_utf8"
    """Bytes that are not UTF-8 where text or JSON is expected."""
    MALFORMED = "malformed"
    """The value or key is not JSON, or no record of the schema that it names."""
    WRONG_TYPE = "wrong_type"
    """A JSON value of another type than the column's, or text that does not name a value of the type."""
    MISSING_REQUIRED = "missing_required"
    """A required value is missing or null."""
    OUT_OF_RANGE = "out_of_range"
    """A number or time that the column's type cannot hold exactly."""
    TOO_LONG = "too_long"
    """Text longer than the column's limit."""
    UNSUPPORTED_TEXT = "unsupported_text"
    """Text that PostgreSQL cannot hold: U+0000, or a lone surrogate."""
    TOMBSTONE = "tombstone"
    """A null value, where the pipeline says that it is a dead letter."""
    RECORD_TIME_OUT_OF_RANGE = "record_time_out_of_range"
    """A record time outside the years 1 to 9999."""
    VALUE_DID_NOT_TRAVEL = "value_did_not_travel"
    """A change event has a placeholder in the place of a value that was not changed."""
    UNREADABLE_HEADERS = "unreadable_headers"
    """Header names that are not UTF-8; the client library cannot return the headers."""
    NOT_NULL_VIOLATION = "not_null_violation"
    """NULL for a NOT NULL column of the target."""
    CHECK_VIOLATION = "check_violation"
    """A CHECK constraint of the target is false for the row."""
    REFUSED_BY_DATABASE = "refused_by_database"
    """PostgreSQL refused the row on its own with SQLSTATE class 22, 23 or 54."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that only the INSERT into the target refuses: where it is, and why it becomes a dead letter."""

    topic: str
    partition: int
    offset: int
    reason: DeadLetterReason
    detail: str

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] offset {self.offset}: {self.reason}: {self.detail}"

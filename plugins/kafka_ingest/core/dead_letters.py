"""Why a record becomes a dead letter. The list is closed: monitoring can rely on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kafka_ingest.core.offsets import TopicPartition


class DeadLetterReason(StrEnum):
    """Reasons, stored in ``dead_letter.reason``. ``detail`` says where and what, for a person."""

    NOT_UTF8 = "not_utf8"
    """Bytes that are not UTF-8 where text or JSON is expected."""
    MALFORMED = "malformed"
    """The value or key is not JSON."""
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
    UNREADABLE_HEADERS = "unreadable_headers"
    """Header names that are not UTF-8; the client library cannot give the headers."""
    NOT_NULL_VIOLATION = "not_null_violation"
    """NULL for a NOT NULL column of the target."""
    CHECK_VIOLATION = "check_violation"
    """A CHECK constraint of the target is false for the row."""
    REFUSED_BY_DATABASE = "refused_by_database"
    """PostgreSQL refused the row on its own with SQLSTATE class 22, 23 or 54."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that only INSERT into the target refuses: where it is, and why it becomes a dead letter."""

    topic: str
    partition: int
    offset: int
    reason: DeadLetterReason
    detail: str

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] offset {self.offset}: {self.reason}: {self.detail}"


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The dead letters of a batch that have one reason: how many, and the first of them by partition and offset."""

    reason: str
    records: int
    first_in: TopicPartition
    first_offset: int

"""What publishing a batch means for each partition and for the batch: computed before the transaction begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kafka_ingest.core.batch import RecordCounts
from kafka_ingest.core.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """One range, staged whole.

    Attributes:
        range: The frozen range.
        counts: What became of its offsets; adds up to its span.
        record_time_min: Smallest record time; ``None`` without a record that has a time.
        record_time_max: Greatest record time.
        end_leader_epoch: Leader epoch of what ended the range: the stored epoch of the new position.
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
    """All ranges of a batch, and whose rows to publish: Spark task index to winning attempt id."""

    partitions: tuple[PartitionOutcome, ...]
    winners: Mapping[int, int]

    @property
    def counts(self) -> RecordCounts:
        """Counts over all ranges."""
        return sum((p.counts for p in self.partitions), RecordCounts())

"""Replacing what was loaded before: what publishing deletes must be staged again, or be known to be gone.

A range that begins below ``loaded_to`` reads offsets again whose rows are in the target. Publishing deletes them by
identity and puts the staged ones in their place, in the one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_ingest.core.batch import Batch, RecordCounts
from kafka_ingest.core.errors import ReloadWouldLose
from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.outcome import BatchOutcome, PartitionOutcome

#: That many of the lost offsets stand in a message, for each partition.
FIRST_OFFSETS = 5


@dataclass(frozen=True, slots=True)
class ReplacedPartition:
    """What the transaction deleted in one partition.

    Attributes:
        where: The partition.
        rows: Rows that were deleted from the target.
        dead_letters: Dead letters that were deleted.
        missing: Deleted identities that are neither staged again nor counted: the log no longer holds them.
        first_missing: The lowest of their offsets.
    """

    where: TopicPartition
    rows: int
    dead_letters: int
    missing: int = 0
    first_missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptDeadLetters:
    """Resolved dead letters of one partition that stay, with the rows that they were turned into.

    Attributes:
        where: The partition.
        rows: Those whose record is staged as a row now: the staged row is not published.
        dead_letters: Those whose record is staged as a dead letter again: it is not published.
        tombstones: Those whose record is counted as a tombstone now.
        invisible: Those whose record the log no longer holds.
    """

    where: TopicPartition
    rows: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    invisible: int = 0

    def applied_to(self, counts: RecordCounts) -> RecordCounts:
        """Gives the counts of the partition with every kept record counted as the dead letter that it stays."""
        return replace(
            counts,
            rows=counts.rows - self.rows,
            tombstones=counts.tombstones - self.tombstones,
            invisible=counts.invisible - self.invisible,
            dead_letters=counts.dead_letters + self.rows + self.tombstones + self.invisible,
        )


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a publish transaction has deleted so far, and what it lets stand."""

    replaced: tuple[ReplacedPartition, ...] = ()
    kept: tuple[KeptDeadLetters, ...] = ()

    def outcome_of(self, outcome: BatchOutcome) -> BatchOutcome:
        """Gives the outcome with resolved dead letters counted as what they are."""
        kept = {k.where: k for k in self.kept}

        def counted(part: PartitionOutcome) -> PartitionOutcome:
            found = kept.get(part.range.topic_partition)
            return replace(part, counts=found.applied_to(part.counts)) if found else part

        return replace(outcome, partitions=tuple(counted(part) for part in outcome.partitions))

    @property
    def staged_but_kept(self) -> tuple[int, int]:
        """Staged rows and staged dead letters that must not be published, because a resolved dead letter stays."""
        return sum(k.rows for k in self.kept), sum(k.dead_letters for k in self.kept)


def require_nothing_lost(batch: Batch, replaced: Sequence[ReplacedPartition]) -> None:
    """Stops a publish that would delete records which the log no longer holds.

    Raises:
        ReloadWouldLose: Names their number and the first offsets, by partition.
    """
    losing = [part for part in replaced if part.missing]
    if not losing:
        return
    raise ReloadWouldLose(
        "records that were loaded before are no longer in the log; nothing was published",
        expected="every row and dead letter that is replaced to be read again",
        found="; ".join(
            f"{part.where}: {part.missing} gone, the first at {', '.join(map(str, part.first_missing))}"
            for part in losing
        ),
        next_command=(
            'start a new run with "reload what is left" (--reload-what-is-left), which gives these rows up, '
            "or leave the table as it is"
        ),
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )

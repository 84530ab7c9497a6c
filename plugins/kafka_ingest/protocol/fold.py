"""The fold of an upsert pipeline: of each key the newest change, over what stands; and what stops it.

Tasks count what they staged. The fold divides it into rows, deletes, and what a newer change of the same key has
outdone, in the batch or in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kafka_ingest.errors import ConfigError, DeletesMayBeLost, KeyInTwoPartitions, RebuildWouldRemove, ReloadWouldLose
from kafka_ingest.protocol.accounting import KeptDeadLetters, Replacement
from kafka_ingest.protocol.batch import Batch, BatchOutcome, PartitionOutcome, RunMode, run_options_of
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import BatchSettings, Deletes

#: A message names this many keys.
FIRST_KEYS = 5


@dataclass(frozen=True, slots=True)
class Keys:
    """How many keys something is true of, and the texts of the first of them."""

    count: int = 0
    first: tuple[str, ...] = ()

    def __add__(self, other: Keys) -> Keys:
        return Keys(self.count + other.count, (*self.first, *other.first)[:FIRST_KEYS])

    def __str__(self) -> str:
        return f"{self.count:,} {'key' if self.count == 1 else 'keys'}, the first {', '.join(self.first)}"


@dataclass(frozen=True, slots=True)
class Fold:
    """What a fold has found, before anything of it is written.

    Attributes:
        staged_rows: Staged rows that went into it.
        staged_deletes: Staged deletes that went into it.
        kept: Resolved dead letters that stay.
        in_two_partitions: Keys that offsets cannot order.
        lost: Keys whose row, or removed key, was read again and is no such row or delete any more, while nothing in the
            batch takes its place: the older version that should come back is not known.
        unread: Of a rebuild: keys of rows, or removed keys, whose record it did not read. They are taken away.
    """

    staged_rows: int = 0
    staged_deletes: int = 0
    kept: tuple[KeptDeadLetters, ...] = ()
    in_two_partitions: Keys = Keys()
    lost: Keys = Keys()
    unread: Keys = Keys()


@dataclass(frozen=True, slots=True)
class AppliedChanges:
    """Rows that were written, and deletes that applied, also those of keys without a row."""

    rows: int = 0
    deletes: int = 0


def require_one_partition(keys: Keys) -> None:
    """Stop a fold by offsets where a key comes from two partitions.

    Raises:
        KeyInTwoPartitions: Names the first keys.
    """
    if keys.count:
        raise KeyInTwoPartitions(
            "keys come from two partitions, between which offsets tell no order; nothing was published",
            expected="each key in one partition of the topic (target.order: offset)",
            found=str(keys),
            next_command="load into an emptied table under order: record_time or {column: ...}; "
            "docs/runbook.md, section KeyInTwoPartitions",
        )


def require_no_key_lost(keys: Keys) -> None:
    """Stop a fold that would lose the state of keys.

    Raises:
        ReloadWouldLose: Names the first keys.
    """
    if keys.count:
        raise ReloadWouldLose(
            "the newest record of keys was read again and is none of them any more, and what they were before is not "
            "in this run; nothing was published",
            expected="the record before it in the same run, or one after it",
            found=str(keys),
            next_command="reload from further back, so that the run holds the record before; or start a new run with "
            '"reload what is left" (--reload-what-is-left), which takes these rows away',
        )


def divided(outcome: BatchOutcome, fold: Fold, applied: Mapping[TopicPartition, AppliedChanges]) -> BatchOutcome:
    """Return the outcome where staged changes count as what became of them."""
    outcome = Replacement(kept=fold.kept).outcome_of(outcome)

    def counted(part: PartitionOutcome) -> PartitionOutcome:
        counts, found = part.counts, applied.get(part.range.topic_partition, AppliedChanges())
        superseded = counts.rows + counts.deletes - found.rows - found.deletes
        counts = replace(counts, rows=found.rows, deletes=found.deletes, superseded=superseded)
        return replace(part, counts=counts)

    return replace(outcome, partitions=tuple(counted(part) for part in outcome.partitions))


# ----------
# Deletes that expire unread: compaction drops a tombstone ``delete.retention.ms`` after its first cleaning (KIP-534).
#
# Who was at the end of a log at some moment has read, or will still find, every tombstone that was written before that
# moment plus the retention. A batch that reads later may miss one, and its row would stay for ever.


def rebuild_command(pipeline: str) -> str:
    """Return the command that reads the whole log again, and takes away what it does not hold."""
    return f'python -m kafka_ingest run {pipeline} --mode rebuild --reason "..."'


def reads_deletes(settings: BatchSettings) -> bool:
    """Tell whether deletes take rows away, or mark them, so that a missed one leaves a wrong row."""
    return settings.upsert is not None and settings.upsert.deletes in (Deletes.REMOVE, Deletes.MARK)


def require_deletes_unexpired(
    batch: Batch,
    retentions_ms: Mapping[str, int | None],
    caught_up_at: Mapping[TopicPartition, datetime | None],
    now: datetime,
) -> None:
    """Stop a batch that may have missed deletes, after it has read and before it is published.

    Args:
        batch: The claimed batch.
        retentions_ms: ``delete.retention.ms`` of each topic that is compacted, ``None`` of others; a topic whose
            settings nobody may read is missing.
        caught_up_at: When a published plan last reached the end of each partition; ``None``: never. A rebuild, which
            depends on nothing that was read before, counts from its own plan, and so does a first load.
        now: The time.

    Raises:
        ConfigError: The settings of a topic cannot be read.
        DeletesMayBeLost: Lists the partitions.
    """
    unknown = sorted({r.topic for r in batch.ranges} - retentions_ms.keys())
    if unknown:
        raise ConfigError(
            "it is not known whether the topics are compacted, and how long their tombstones stay",
            expected="the right DescribeConfigs on the topics of a pipeline with deletes",
            found=f"none on {', '.join(unknown)}",
            next_command="let the Kafka user of the connection describe the topics' settings, then clear load_batch",
        )
    is_rebuild = run_options_of(batch.request).mode is RunMode.REBUILD
    late = []
    for r in batch.ranges:
        retention_ms, since = retentions_ms[r.topic], caught_up_at.get(r.topic_partition)
        since = batch.planned_at if since is None or is_rebuild else since
        if retention_ms is not None and now > since + timedelta(milliseconds=retention_ms):
            late.append(f"{r.topic_partition}: delete.retention.ms is {retention_ms:,}, caught up at {since:%F %T} UTC")
    if late:
        raise DeletesMayBeLost(
            "compaction may have dropped deletes that were not read yet; nothing was published",
            expected="every run less than delete.retention.ms after the plan that last reached the end of the log",
            found="; ".join(late[:10]) + (f"; and {len(late) - 10} more" if len(late) > 10 else ""),
            next_command="raise delete.retention.ms of the topic above the time that a rebuild takes, and rebuild again"
            if is_rebuild
            else rebuild_command(batch.pipeline),
        )


def require_nothing_unread(keys: Keys, *, is_shown: bool) -> None:
    """Stop a rebuild that would take rows away, unless the request says that somebody has seen how many.

    Raises:
        RebuildWouldRemove: Names the first keys.
    """
    if keys.count and not is_shown:
        raise RebuildWouldRemove(
            "the log no longer holds the records of keys that the table has; nothing was published",
            expected="a record in the log for every row and every removed key",
            found=str(keys),
            next_command="if these keys were deleted, or retention took them and they may go: the same command with "
            "--reload-what-is-left; docs/operating.md, Rebuild",
        )

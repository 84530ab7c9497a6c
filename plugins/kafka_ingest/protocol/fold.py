"""The fold of an upsert pipeline: of each key the newest change, over what stands; and what stops it.

Tasks count what they staged. The fold divides it into rows, deletes, and what a newer change of the same key has
outdone, in the batch or in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from kafka_ingest.errors import (
    ConfigError,
    DeadLetterReason,
    DeletesMayBeLost,
    KeyInTwoPartitions,
    PartitionFault,
    RebuildWouldRemove,
    ReloadWouldLose,
    rebuild_command,
)
from kafka_ingest.protocol.accounting import AppliedChanges, Fold, Keys, Replacement, require_few_dead_letters
from kafka_ingest.protocol.batch import Batch, BatchOutcome, PartitionOutcome, RunMode, run_options_of
from kafka_ingest.protocol.decisions import PlanChoice
from kafka_ingest.protocol.ledger_view import PlanView
from kafka_ingest.protocol.log_faults import grant
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.staging import DeadLetterSample
from kafka_ingest.settings import BatchSettings, ColumnSource, Deletes, OrderBy, PipelineSettings


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
            next_command="load everything into a new table under order: record_time or {column: ...}; "
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
            next_command="reload from further back, so that the run holds the record before, where the log has it; or "
            'start a new run with "reload what is left" (--reload-what-is-left), which takes these rows away; '
            "docs/runbook.md, section ReloadWouldLose",
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


def without_unknown(batch: Batch, outcome: BatchOutcome, fold: Fold) -> BatchOutcome:
    """Return the outcome where rows with values that nobody knows count as the dead letters that they became.

    Raises:
        TooManyDeadLetters: With them the batch passes one of its limits.
    """
    if not fold.unknown:
        return outcome
    found = {unknown.where: unknown for unknown in fold.unknown}

    def counted(part: PartitionOutcome) -> PartitionOutcome:
        unknown = found.get(part.range.topic_partition)
        return replace(part, counts=unknown.applied_to(part.counts)) if unknown else part

    outcome = replace(outcome, partitions=tuple(counted(part) for part in outcome.partitions))
    reason = DeadLetterReason.VALUE_DID_NOT_TRAVEL.value
    samples = [
        DeadLetterSample(u.where.topic, u.where.partition, u.first_offsets[0], reason, u.first_detail)
        for u in found.values()
    ]
    require_few_dead_letters(batch.settings.dead_letters, outcome.counts, (), samples=samples[:5])
    return outcome


# ----------
# What endangers a fold, seen when it is planned.


def with_dangers(
    choice: PlanChoice, settings: PipelineSettings, view: PlanView, retentions_ms: Mapping[str, int | None]
) -> PlanChoice:
    """Return the choice of an upsert pipeline with warnings of what endangers its fold, and with the faults.

    Args:
        choice: What the plan chose.
        settings: The pipeline.
        view: The ledger.
        retentions_ms: As for :func:`require_deletes_unexpired`; topics that nobody may ask about are missing.
    """
    compacted = sorted(topic for topic, retention_ms in retentions_ms.items() if retention_ms is not None)
    faults = [*_faults_of_compaction(settings.batch, compacted), *_reads_that_end_too_soon(choice, settings.batch)]
    warnings = [*_partitions_that_joined(choice, settings.batch, view), *_not_filled(settings.batch, compacted)]
    if view.needs_rebuild:
        warnings.append(
            f"the table may miss deletes or rows since a {view.needs_rebuild}: {rebuild_command(settings.pipeline)}"
        )
    return replace(choice, faults=(*choice.faults, *faults), state_warnings=tuple(warnings))


def fills_values(settings: BatchSettings) -> bool:
    """Tell whether rows may have values that did not travel with the record that wrote them."""
    return settings.upsert is not None and settings.upsert.envelope is not None


def _reads_that_end_too_soon(choice: PlanChoice, batch: BatchSettings) -> Iterator[PartitionFault]:
    """Yield ranges that read again what was loaded, and not all that was loaded after it."""
    for r in choice.ranges if fills_values(batch) else ():
        if r.start < r.loaded_to and r.end < r.loaded_to:
            yield PartitionFault(
                ConfigError,
                str(r.topic_partition),
                expected=f"a run that reads up to offset {r.loaded_to}, to which was loaded: rows may have values from "
                "what is read again, which did not travel with their own records",
                found=f"a run that ends at offset {r.end}",
                next_command="leave the end out (--offsets with a START alone, --from-time without --to-time), or let "
                "the run read more (--limit)",
            )


def _not_filled(batch: BatchSettings, compacted: Sequence[str]) -> Iterator[str]:
    if fills_values(batch) and compacted:
        yield (
            f"{', '.join(compacted)}: compaction may take the record that has a value before it is read, so values "
            "that did not travel are not filled (value.unavailable says what becomes of them); REPLICA IDENTITY FULL "
            "lets all travel"
        )


def _faults_of_compaction(batch: BatchSettings, compacted: Sequence[str]) -> Iterator[PartitionFault]:
    """Yield topics whose compaction keeps the newest record of another key than the table's."""
    others = [name for name in batch.upsert.key if not _is_of_record_key(name, batch)] if batch.upsert else []
    for topic in compacted if others else ():
        yield PartitionFault(
            ConfigError,
            f"topic {topic}",
            expected="a key of the table that comes from the record's key: compaction keeps the newest record of that",
            found=f"{', '.join(others)} from the value or a header, and cleanup.policy with compact",
            next_command="read the key's columns with from: key, or load a topic that is not compacted",
        )


def _is_of_record_key(name: str, batch: BatchSettings) -> bool:
    if batch.key and batch.key.column == name:
        return True
    return any(c.name == name and c.source is ColumnSource.KEY for c in batch.value.columns)


def _partitions_that_joined(choice: PlanChoice, batch: BatchSettings, view: PlanView) -> Iterator[str]:
    if batch.upsert is None or batch.upsert.order is not OrderBy.OFFSET:
        return
    known = {position.topic for position in view.positions}
    for position in choice.new_positions:
        if position.topic in known:
            yield (
                f"{position.topic_partition} joined: keys may have moved to it, and between partitions offsets tell no "
                "order; a key that two of them hold stops the batch (KeyInTwoPartitions)"
            )


# ----------
# Deletes that expire unread: compaction drops a tombstone ``delete.retention.ms`` after its first cleaning (KIP-534).
#
# Who was at the end of a log at some moment has read, or will still find, every tombstone that was written before that
# moment plus the retention. A batch that reads later may miss one, and its row would stay for ever.


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
    _require_known(batch, retentions_ms)
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


def compacted_topics(batch: Batch, retentions_ms: Mapping[str, int | None]) -> frozenset[str]:
    """Return the topics of which a record may be gone that had a value which later ones leave out.

    Args:
        batch: The claimed batch of a pipeline that fills such values.
        retentions_ms: As for :func:`require_deletes_unexpired`.

    Raises:
        ConfigError: The settings of a topic cannot be read.
    """
    _require_known(batch, retentions_ms)
    return frozenset(topic for topic, retention_ms in retentions_ms.items() if retention_ms is not None)


def _require_known(batch: Batch, retentions_ms: Mapping[str, int | None]) -> None:
    unknown = sorted({r.topic for r in batch.ranges} - retentions_ms.keys())
    if unknown:
        raise ConfigError(
            "it is not known whether the topics are compacted, and how long their tombstones stay",
            expected="the right DescribeConfigs on the topics of a pipeline with deletes, or of change events",
            found=f"none on {', '.join(unknown)}",
            next_command="clear load_batch after: "
            + "; ".join(
                grant("DescribeConfigs", f"--topic {topic}", batch.settings.kafka_connection) for topic in unknown
            ),
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

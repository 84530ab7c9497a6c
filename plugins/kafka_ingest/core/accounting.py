"""Every offset of a batch is accounted for, once, before anything is published.

For each range: ``end - start = rows + dead_letters + tombstones + filtered + invisible``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeAlias

from kafka_ingest.core.batch import Batch, RecordCounts
from kafka_ingest.core.dead_letter_limits import require_few_dead_letters
from kafka_ingest.core.errors import AccountingMismatch, RetryLater
from kafka_ingest.core.offsets import OffsetRange, TopicPartition
from kafka_ingest.core.outcome import BatchOutcome, PartitionOutcome
from kafka_ingest.core.staging import DeadLetterRun, StageResult, StageTask, Subrange, SubrangeResult

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Staged: TypeAlias = tuple[Subrange, SubrangeResult]


def account_for(batch: Batch, tasks: Sequence[StageTask], results: Sequence[StageResult]) -> BatchOutcome:
    """Adds the tasks' results up to the batch's outcome, and checks that nothing is missing or double.

    Args:
        batch: The claimed batch.
        tasks: What was to be staged.
        results: What the winning attempts staged.

    Raises:
        AccountingMismatch: A task or subrange is missing, double or does not add up to its span.
        RetryLater: The log of a partition changed between the reads of two of its subranges.
        TooManyDeadLetters: The batch passes one of its limits.
    """
    staged = _staged_by_partition(batch, tasks, results)
    outcome = BatchOutcome(
        partitions=tuple(_partition_outcome(batch, r, staged[r.topic_partition]) for r in batch.ranges),
        winners={result.task_index: result.attempt_id for result in results},
    )
    require_few_dead_letters(
        batch.settings.dead_letters,
        outcome.counts,
        [_run(parts) for parts in staged.values()],
        samples=[s for parts in staged.values() for _, result in parts for s in result.samples][:5],
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )
    return outcome


def _staged_by_partition(
    batch: Batch, tasks: Sequence[StageTask], results: Sequence[StageResult]
) -> dict[TopicPartition, list[_Staged]]:
    _require_equal(batch, "one result for each task", (t.task_index for t in tasks), (r.task_index for r in results))
    subranges = {s.index: s for task in tasks for s in task.subranges}
    found = [result for stage in results for result in stage.subranges]
    _require_equal(batch, "one result for each subrange", subranges, (result.index for result in found))
    staged: dict[TopicPartition, list[_Staged]] = {}
    for result in sorted(found, key=lambda r: r.index):
        subrange = subranges[result.index]
        if result.counts.offsets != subrange.span_offsets:
            raise _mismatch(
                batch,
                f"the counts of {subrange.topic_partition} [{subrange.start}, {subrange.end}) do not add up",
                expected=f"{subrange.span_offsets} offsets",
                found=f"{result.counts.offsets} ({result.counts})",
            )
        staged.setdefault(subrange.topic_partition, []).append((subrange, result))
    return staged


def _partition_outcome(batch: Batch, r: OffsetRange, parts: list[_Staged]) -> PartitionOutcome:
    edges = [r.start, *(subrange.end for subrange, _ in parts)]
    starts = [*(subrange.start for subrange, _ in parts), r.end]
    if edges != starts:
        raise _mismatch(batch, f"the subranges of {r} do not cover it", expected=str(starts), found=str(edges))
    _require_one_history(batch, parts)
    results = [result for _, result in parts]
    return PartitionOutcome(
        range=r,
        counts=sum((result.counts for result in results), RecordCounts()),
        record_time_min=_time(min(_known(result.record_time_min_ms for result in results), default=None)),
        record_time_max=_time(max(_known(result.record_time_max_ms for result in results), default=None)),
        end_leader_epoch=results[-1].end_leader_epoch,
        valid_through=_valid_through(batch, r, results),
    )


def _require_one_history(batch: Batch, parts: list[_Staged]) -> None:
    """Each subrange must begin with what ended the one before.

    The first record at a seam is read from both sides. After an unclean election between the two reads it has a later
    leader epoch on one side: one subrange holds records that the log lost, and what the log has in their place would
    never be read. Only the first subrange is checked by the broker, against the epoch of the position.
    """
    for (left, before), (_, after) in pairwise(parts):
        if before.end_leader_epoch is None or after.start_leader_epoch is None:
            continue
        if before.end_leader_epoch != after.start_leader_epoch:
            raise RetryLater(
                f"the log of {left.topic_partition} changed while it was read; nothing was published",
                expected=f"leader epoch {before.end_leader_epoch} at offset {left.end}, as the task before it saw",
                found=f"leader epoch {after.start_leader_epoch}",
                next_command="none: a retry reads the batch again",
                pipeline=batch.pipeline,
                batch_id=batch.batch_id,
            )


def _valid_through(batch: Batch, r: OffsetRange, results: list[SubrangeResult]) -> datetime | None:
    """The plan's time if the range reaches the high watermark, else the time of the last record read.

    A range that moves no position changes nothing of it.
    """
    if r.committed_after == r.committed_before:
        return None
    if r.reaches_high_watermark:
        return batch.planned_at
    last = _known(result.last_record_time_ms for result in results)
    return _time(last[-1]) if last else None


def _run(parts: list[_Staged]) -> DeadLetterRun:
    return sum((result.dead_letter_run for _, result in parts), DeadLetterRun())


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _time(milliseconds: int | None) -> datetime | None:
    """Kafka's time in ms; ``None`` outside the years 1 to 9999, which only a dead letter can carry."""
    if milliseconds is None:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def _require_equal(batch: Batch, rule: str, expected: Iterable[int], found: Iterable[int]) -> None:
    wanted, given = Counter(iter(expected)), Counter(iter(found))
    if wanted != given:
        raise _mismatch(
            batch,
            f"staging did not give {rule}",
            expected=_listed(wanted - given) + " to be there" if wanted - given else "no more than planned",
            found=_listed(given - wanted) + " too many" if given - wanted else "nothing for these",
        )


def _listed(numbers: Mapping[int, int]) -> str:
    return ", ".join(str(n) for n in sorted(numbers)[:10])


def _mismatch(batch: Batch, what: str, *, expected: str, found: str) -> AccountingMismatch:
    return AccountingMismatch(
        what + "; nothing was published",
        expected=expected,
        found=found,
        next_command="see docs/runbook.md, section AccountingMismatch",
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )

"""When dead letters stop a batch: a few bad records never block a topic, a broken producer never drains away."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_ingest.core.batch import RecordCounts
from kafka_ingest.core.errors import TooManyDeadLetters
from kafka_ingest.core.settings import DeadLetterLimits
from kafka_ingest.core.staging import DeadLetterRun, DeadLetterSample


def limit_texts(limits: DeadLetterLimits) -> tuple[str, ...]:
    """Give what no batch may pass, for people, with the number up to which the share is not looked at."""
    return (
        f"{limits.max_count:,} dead letters",
        f"{limits.max_ratio:.1%} of its records (not looked at up to {limits.ratio_from_count:,} dead letters)",
        f"{limits.max_consecutive:,} dead letters in a row in one partition",
    )


def require_few_dead_letters(
    limits: DeadLetterLimits,
    counts: RecordCounts,
    runs: Sequence[DeadLetterRun],
    *,
    samples: Sequence[DeadLetterSample],
    pipeline: str | None = None,
    batch_id: str | None = None,
) -> None:
    """Stops when a batch passes one of its limits.

    Args:
        limits: The pipeline's limits.
        counts: Counts of the batch, or of what one task has read so far.
        runs: Runs of consecutive dead letters, one a partition.
        samples: The first dead letters, for the message.
        pipeline: For the message.
        batch_id: For the message.

    Raises:
        TooManyDeadLetters: Names each limit that was passed and the first offsets.
    """
    passed = _passed(limits, counts, max((run.longest for run in runs), default=0))
    if not passed:
        return
    first = "".join(f"\n    {s.topic}[{s.partition}] offset {s.offset}: {s.reason}: {s.detail}" for s in samples)
    raise TooManyDeadLetters(
        "more records would become dead letters than the pipeline allows; nothing was written",
        expected="; ".join(limit for limit, _ in passed),
        found="; ".join(found for _, found in passed) + (f"; the first are{first}" if first else ""),
        next_command="correct the producer or the pipeline file (value, dead_letters), then clear load_batch",
        pipeline=pipeline,
        batch_id=batch_id,
    )


def _passed(limits: DeadLetterLimits, counts: RecordCounts, longest_run: int) -> list[tuple[str, str]]:
    dead, readable = counts.dead_letters, counts.readable
    passed = []
    if dead > limits.max_count:
        passed.append((f"at most {limits.max_count} dead letters (max_count)", f"{dead} dead letters"))
    if dead > limits.ratio_from_count and dead > limits.max_ratio * readable:
        passed.append((f"a share of at most {limits.max_ratio:.2%} (max_ratio)", f"{dead} of {readable} records"))
    if longest_run > limits.max_consecutive:
        passed.append(
            (f"at most {limits.max_consecutive} in a row (max_consecutive)", f"{longest_run} in a row in one partition")
        )
    return passed

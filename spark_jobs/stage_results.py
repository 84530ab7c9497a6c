"""What tasks hand back to the driver, and the check that every task did so once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_ingest.core.batch import Batch
from kafka_ingest.core.errors import AccountingMismatch, error_from_record
from kafka_ingest.core.staging import StageResult, StageTask


@dataclass(frozen=True, slots=True)
class StageFault:
    """A task's fault as ``IngestError.to_record`` gives it; as a value, so that Spark does not retry it."""

    task_index: int
    record: Mapping[str, str | None]


def one_result_per_task(
    batch: Batch, tasks: Sequence[StageTask], found: Iterable[StageResult | StageFault]
) -> Sequence[StageResult]:
    """Gives the results in the order of the tasks.

    Raises:
        IngestError: The fault of the first task that has one, in its class.
        AccountingMismatch: A task gave no result, or several.
    """
    answers = list(found)
    faults = sorted((a for a in answers if isinstance(a, StageFault)), key=lambda fault: fault.task_index)
    if faults:
        raise error_from_record(faults[0].record)
    results = {answer.task_index: answer for answer in answers if isinstance(answer, StageResult)}
    if Counter(answer.task_index for answer in answers) != Counter(task.task_index for task in tasks):
        raise AccountingMismatch(
            "tasks did not give one result each; nothing was published",
            expected=f"one result of each of {len(tasks)} tasks",
            found=f"results of tasks {sorted(answer.task_index for answer in answers)}",
            next_command="see docs/runbook.md, section AccountingMismatch",
            pipeline=batch.pipeline,
            batch_id=batch.batch_id,
        )
    return [results[task.task_index] for task in tasks]

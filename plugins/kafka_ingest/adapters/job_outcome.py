"""The file through which the Spark job tells its submitter what came of the batch.

spark-submit hands back an exit code and a log; neither can carry a typed error. The file holds ``{"batch": summary}``,
with ``"phases"`` where the job itself has published, or ``{"error": record}``. It appears whole or not at all, and is a
message, not the truth: the ledger is.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kafka_ingest.core.batch import Batch, BatchState
from kafka_ingest.core.errors import Busy, CommitStateUnknown, IngestError, RetryLater, error_from_record
from kafka_ingest.core.load_phases import LoadPhases, TaskSeconds
from kafka_ingest.core.ports import Ledger


def write_batch(path: Path, summary: Mapping[str, Any], phases: LoadPhases | None = None) -> None:
    """Writes what ``core.summary.batch_summary`` gives for a committed batch, and where the time went."""
    _write_whole(path, {"batch": summary, **({"phases": asdict(phases)} if phases else {})})


def write_error(path: Path, error: IngestError) -> None:
    """Writes an error that this package recognises."""
    _write_whole(path, {"error": error.to_record()})


def read_phases(path: Path) -> LoadPhases | None:
    """Gives where the job's time went; ``None`` when it did not publish, or ended before it could say so."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    phases = document.get("phases")
    return LoadPhases(**{**phases, "tasks": TaskSeconds(**phases["tasks"])}) if phases else None


def read_outcome(path: Path) -> dict[str, Any] | None:
    """Gives the batch's summary; ``None`` when the job ended without a word (killed, or an unexpected error).

    Raises:
        IngestError: The job's own error, in its class.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if not document:
        return None
    if "error" in document:
        raise error_from_record(document["error"])
    summary: dict[str, Any] = document["batch"]
    return summary


def require_unlocked(batch: Batch, ledger: Ledger) -> None:
    """Looks before a job is started, which would only wait for its claim, whether an attempt publishes the batch now.

    Raises:
        Busy: The batch is locked: it is asked for again without using up a retry.
    """
    try:
        ledger.settle(batch.batch_id)
    except CommitStateUnknown as locked:
        raise Busy(
            "another attempt is publishing this batch",
            expected=locked.expected,
            found=locked.found,
            next_command="none: it is asked for again, and finds the batch committed or loads it",
            pipeline=batch.pipeline,
            batch_id=batch.batch_id,
        ) from locked


def loaded_batch(batch: Batch, ledger: Ledger, outcome_file: Path, last_words: str) -> Batch:
    """Gives the batch committed, once its job has ended; the ledger decides, not the job's exit code.

    Args:
        batch: The batch that the job was submitted for.
        ledger: The ledger. It is asked with a lock: a COMMIT of a job that was killed may still be under way.
        outcome_file: What the job was told to write.
        last_words: How the job ended, for a job that left no outcome.

    Raises:
        IngestError: The job's own error.
        Busy: Another session has the batch locked: an attempt, or this job's COMMIT, that has not ended yet.
        RetryLater: The batch is not committed, and the job left no error.
    """
    require_unlocked(batch, ledger)
    if ledger.settle(batch.batch_id).state is BatchState.COMMITTED and (committed := ledger.batch(batch.batch_id)):
        return committed
    read_outcome(outcome_file)
    raise RetryLater(
        "the job ended without having committed the batch, and left no error",
        expected="the batch committed, or an error written by the job",
        found=last_words,
        next_command="the same run again: it loads the same batch; the lines above this message are the job's log",
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )


def _write_whole(path: Path, document: Mapping[str, Any]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(document, file)
    Path(name).replace(path)

"""The file through which the Spark job tells its submitter what came of the batch.

spark-submit hands back an exit code and a log; neither can carry a typed error. The file holds ``{"batch": summary}``
or ``{"error": record}`` and appears whole or not at all. It is a message, not the truth: the ledger is.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_ingest.core.errors import IngestError, error_from_record


def write_batch(path: Path, summary: Mapping[str, Any]) -> None:
    """Writes what ``core.summary.batch_summary`` gives for a committed batch."""
    _write_whole(path, {"batch": summary})


def write_error(path: Path, error: IngestError) -> None:
    """Writes an error that this package recognises."""
    _write_whole(path, {"error": error.to_record()})


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


def _write_whole(path: Path, document: Mapping[str, Any]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(document, file)
    Path(name).replace(path)

"""A batch as a small JSON-safe value, for XCom, asset events and ``--json``, and as text for people.

In JSON, keys are strings and times ISO 8601. A text is short lines: a task log is read in a narrow column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from textwrap import indent
from typing import Any

from kafka_ingest.core.batch import Batch, RecordCounts
from kafka_ingest.core.dead_letter_limits import limit_texts
from kafka_ingest.core.dead_letters import DeadLetterGroup
from kafka_ingest.core.load_phases import LoadPhases
from kafka_ingest.core.offsets import OffsetRange
from kafka_ingest.core.text_table import Row, table, vertical

_INDENT = "  "
_REASON_COLUMNS = ("reason", "records", "first_at")
_ANNOUNCED_COLUMNS = ("batch_id", "kind", "rows", "dead_letters", "valid_through")


def batch_summary(batch: Batch) -> dict[str, Any]:
    """Gives the batch's identity, ranges ``[start, end)``, counts, record times and ``valid_through``.

    ``counts`` is ``None`` until the batch is committed.
    """
    return {
        "batch_id": batch.batch_id,
        "pipeline": batch.pipeline,
        "target": str(batch.settings.target),
        "kind": batch.kind.value,
        "state": batch.state.value,
        "ranges": _by_topic(batch, lambda r: [r.start, r.end]),
        "committed_offsets": _by_topic(batch, lambda r: r.committed_after),
        "span_offsets": batch.span_offsets,
        "replaced_offsets": batch.replaced_offsets,
        "counts": asdict(batch.counts) if batch.counts else None,
        "record_time_min": _iso(batch.record_time_min),
        "record_time_max": _iso(batch.record_time_max),
        "valid_through": _iso(batch.valid_through),
        "left_out": list(batch.left_out),
        "warnings": list(batch.warnings),
    }


def load_summary(batch: Batch, phases: LoadPhases | None) -> dict[str, Any]:
    """Gives :func:`batch_summary` and ``phases``, in seconds: what ``core.load_phases`` says.

    ``phases`` is ``None`` when the batch was not loaded by the attempt that tells, or when that was killed at its end.
    """
    return {**batch_summary(batch), "phases": asdict(phases) if phases else None}


def batch_result(batch: Batch) -> dict[str, Any]:
    """Give what a person wants to know of a committed batch, by heading."""
    counts = batch.counts or RecordCounts()
    return {
        "batch": batch.batch_id,
        "target": str(batch.settings.target),
        "rows": counts.rows,
        "dead letters": counts.dead_letters,
        "tombstones counted": counts.tombstones,
        "offsets without a record": counts.invisible,
        "record times": [time for time in (batch.record_time_min, batch.record_time_max) if time],
        "valid through": batch.valid_through,
    }


def committed_text(batch: Batch) -> str:
    """Say in a few lines what a committed batch has written."""
    return f"The batch is committed:\n{indent(vertical(batch_result(batch)), _INDENT)}"


def dead_letters_text(batch: Batch, groups: Sequence[DeadLetterGroup]) -> str:
    """Say how many records of a committed batch became dead letters, why, where, and how to see them.

    Nothing of their payload is shown: it may be personal data.

    Args:
        batch: The batch.
        groups: What the ledger counts by reason; empty where it could not be asked.
    """
    counts = batch.counts or RecordCounts()
    rows = [
        {"reason": group.reason, "records": group.records, "first_at": f"{group.first_in} offset {group.first_offset}"}
        for group in groups
    ]
    became = f"{counts.dead_letters:,} of {counts.readable:,} records became dead letters"
    lines = [
        f"{became}: {batch.settings.target} does not have them",
        *([indent(table(rows, _REASON_COLUMNS), _INDENT)] if rows else []),
        f"  look: python -m kafka_ingest dead-letters {batch.pipeline} --batch {batch.batch_id}",
        "  the batch went through because it did not pass",
        *(f"    {limit}" for limit in limit_texts(batch.settings.dead_letters)),
    ]
    return "\n".join(lines)


def announced_text(asset: str, batches: Sequence[Batch]) -> str:
    """Say which batches an audit announces under the name of an asset."""
    rows = [_announced_row(batch) for batch in batches]
    return f"Every invariant holds. Announced as {asset}:\n{indent(table(rows, _ANNOUNCED_COLUMNS), _INDENT)}"


def _announced_row(batch: Batch) -> Row:
    counts = batch.counts or RecordCounts()
    return {
        "batch_id": batch.batch_id,
        "kind": batch.kind.value,
        "rows": counts.rows,
        "dead_letters": counts.dead_letters,
        "valid_through": batch.valid_through,
    }


def _by_topic(batch: Batch, value: Callable[[OffsetRange], Any]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for r in batch.ranges:
        topics.setdefault(r.topic, {})[str(r.partition)] = value(r)
    return topics


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None

"""A batch as a small JSON-safe value, for XCom, asset events and ``--json``: keys are strings, times ISO 8601."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from kafka_ingest.core.batch import Batch
from kafka_ingest.core.load_phases import LoadPhases
from kafka_ingest.core.offsets import OffsetRange


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


def _by_topic(batch: Batch, value: Callable[[OffsetRange], Any]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for r in batch.ranges:
        topics.setdefault(r.topic, {})[str(r.partition)] = value(r)
    return topics


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None

"""Reads what a roll-back needs from the ledger, and turns a roll-back into columns of ``position_change`` and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kafka_ingest.adapters.postgres_change_rows import before_arrays, place_arrays
from kafka_ingest.adapters.postgres_connection import Cursor
from kafka_ingest.adapters.postgres_plan import read_plan_view
from kafka_ingest.adapters.postgres_rows import Row, fetch_row, fetch_rows, load_batches, range_of
from kafka_ingest.core.batch import Request
from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.roll_back import (
    RollBackPlan,
    RollBackRecord,
    RollBackRequest,
    RollBackView,
    UndoneSpan,
    Writer,
    WrittenCounts,
    WrittenRange,
)
from kafka_ingest.core.settings import TargetSettings

_KIND = "rolled_back"
#: A roll-back plans nothing: no batch belongs to this request.
_NOBODY = Request("roll-back", "")


def read_roll_back_view(cursor: Cursor, request: RollBackRequest) -> RollBackView:
    """Reads what a roll-back needs. In a snapshot all parts are of one moment."""
    bound = fetch_row(cursor, "select_pipeline", pipeline=request.pipeline)
    target = TargetSettings(bound["target_schema"], bound["target_table"]) if bound else TargetSettings("", "")
    lines = fetch_rows(cursor, "bound_lines", pipeline=request.pipeline)
    changes = fetch_rows(cursor, "select_position_changes", request_id=request.request_id, pipeline=request.pipeline)
    used_for = changes[0]["kind"] if changes else None
    return RollBackView(
        ledger=read_plan_view(cursor, request.pipeline, _NOBODY, target),
        bound_lines={TopicPartition(row["topic"], row["partition"]): row["line"] for row in lines},
        writers=_writers(cursor, request),
        used_for=used_for,
        recorded=_record_of(request.request_id, changes) if used_for == _KIND else None,
    )


def change_arrays(plan: RollBackPlan, record: RollBackRecord) -> dict[str, list[Any]]:
    """Gives the columns of the roll-back's position changes as arrays, one element a partition."""
    before = [lowered.before for lowered in plan.positions]
    after = [lowered.after for lowered in plan.positions]
    return {
        **place_arrays(before),
        **before_arrays(before),
        "from_cluster_id": [position.cluster_id for position in before],
        "to_offset": [position.committed_offset for position in after],
        "to_generation": [position.generation for position in after],
        "to_line": [position.line for position in after],
        "to_topic_id": [position.topic_id for position in after],
        "to_cluster_id": [position.cluster_id for position in after],
        "details": [json.dumps(_details(record, span)) for span in record.spans],
    }


def _writers(cursor: Cursor, request: RollBackRequest) -> tuple[Writer, ...]:
    found = fetch_rows(cursor, "find_writers", pipeline=request.pipeline, batches=request.batches)
    batches = load_batches(cursor, [row["batch_id"] for row in found])
    ranges: dict[str, list[WrittenRange]] = {batch.batch_id: [] for batch in batches}
    for row in fetch_rows(cursor, "select_written_ranges", batch_ids=list(ranges)):
        counts = WrittenCounts(row["rows"], row["dead_letters"])
        ranges[row["batch_id"]].append(WrittenRange(range_of(row), counts))
    return tuple(Writer(batch, tuple(ranges[batch.batch_id])) for batch in reversed(batches))


def _details(record: RollBackRecord, span: UndoneSpan) -> dict[str, Any]:
    return {
        "batches": record.batches,
        "batch_ids": list(record.batch_ids),
        "superseded": record.superseded,
        "rows": span.counts.rows,
        "dead_letters": span.counts.dead_letters,
    }


def _record_of(request_id: str, changes: Sequence[Row]) -> RollBackRecord:
    details = changes[0]["details"]
    return RollBackRecord(
        request_id=request_id,
        batches=details["batches"],
        batch_ids=tuple(details["batch_ids"]),
        superseded=details["superseded"],
        spans=tuple(_span_of(change) for change in changes),
    )


def _span_of(change: Row) -> UndoneSpan:
    details = change["details"]
    return UndoneSpan(
        topic=change["topic"],
        partition=change["partition"],
        generation=change["from_generation"],
        from_offset=change["from_offset"],
        to_offset=change["to_offset"],
        from_line=change["from_line"],
        to_line=change["to_line"],
        counts=WrittenCounts(details["rows"], details["dead_letters"]),
    )

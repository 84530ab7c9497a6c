"""Whether a run is followed by another one at once, so that a backlog does not wait for the schedule."""

from __future__ import annotations

from typing import Any

from kafka_ingest.core.batch import Batch, BatchKind, BatchState
from kafka_ingest.core.record_time import to_iso_text
from kafka_ingest.core.run_options import run_options_of
from kafka_ingest.core.settings import OffsetLimit


def follow_up_run_id(batch: Batch) -> str:
    """Gives the id of the run that follows a batch: the same however often it is asked for."""
    return f"follow_up__{batch.batch_id}"


def follow_up_form(batch: Batch, limit: OffsetLimit) -> dict[str, Any] | None:
    """Gives the form of the run that goes on after a batch, or ``None`` where nothing follows.

    Only what is stored with the batch decides, so a retry decides the same: a live batch that used up the pipeline's
    limit may have left something over. That the limit was just enough costs one run that finds little or nothing.
    Who limits a run by hand wants so much and no more: nothing follows it.

    Args:
        batch: The batch of the run that ends.
        limit: The pipeline's.
    """
    options = run_options_of(batch.request)
    is_live = batch.kind is BatchKind.LIVE and batch.state is BatchState.COMMITTED
    if not is_live or options.limit_offsets is not None or not _used_up(batch, limit):
        return None
    return {} if options.until_ms is None else {"to": to_iso_text(options.until_ms)}


def _used_up(batch: Batch, limit: OffsetLimit) -> bool:
    cap = limit.per_partition_offsets
    return batch.span_offsets >= limit.total_offsets or any(cap and r.span_offsets >= cap for r in batch.ranges)

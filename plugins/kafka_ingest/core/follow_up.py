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
    """Give the form of the run that goes on after a batch, or ``None`` where nothing follows.

    The next run does what this one would have done without the limit: up to the same bound, with the same decisions
    about what is read again, for the same reason. The limit is that of the pipeline file.

    Args:
        batch: The batch of the run that ends.
        limit: The pipeline's.
    """
    if why_nothing_follows(batch, limit):
        return None
    options = run_options_of(batch.request)
    form = {
        "to": None if options.until_ms is None else to_iso_text(options.until_ms),
        "reload_what_is_left": options.reload_what_is_left,
        "replace_resolved": options.replace_resolved,
        "reason": options.reason,
    }
    return {key: value for key, value in form.items() if value}


def why_nothing_follows(batch: Batch | None, limit: OffsetLimit) -> str:
    """Say why no run follows a batch; empty where one does.

    Only what is stored with the batch decides, so a retry decides the same: a live batch that used up the pipeline's
    limit may have left something over. That the limit was just enough costs one run that finds little or nothing.
    Who limits a run by hand wants so much and no more: nothing follows it.

    Args:
        batch: The batch of the run that ends; ``None`` where it planned none.
        limit: The pipeline's.
    """
    if batch is None:
        return "this run planned no batch"
    by_hand = run_options_of(batch.request).limit_offsets
    if batch.state is not BatchState.COMMITTED:
        return f"batch {batch.batch_id} is {batch.state.value}, not committed"
    if batch.kind is not BatchKind.LIVE:
        return "a reload reads its whole span"
    if by_hand is not None:
        return f"the run itself was limited to {by_hand:,} offsets"
    if not _used_up(batch, limit):
        return f"its {batch.span_offsets:,} offsets are below the limit of {limit.total_offsets:,}: all was read"
    return ""


def _used_up(batch: Batch, limit: OffsetLimit) -> bool:
    cap = limit.per_partition_offsets
    return batch.span_offsets >= limit.total_offsets or any(cap and r.span_offsets >= cap for r in batch.ranges)

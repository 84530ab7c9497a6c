"""What a preview of a plan has to say beside its ranges, for people."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_ingest.steps.plan_batch import PlanPreview


def plan_remarks(preview: PlanPreview) -> Iterator[str]:
    """Yields a line for what a limit leaves over, what is replaced, who is in the way, and each warning and fault."""
    choice, outstanding = preview.choice, preview.outstanding
    planned = sum(r.span_offsets for r in choice.ranges)
    left = choice.backlog_offsets - planned
    if left > 0:
        yield f"the limit leaves {left:,} of {choice.backlog_offsets:,} offsets for later runs"
    if replaced := sum(r.replaced_to - r.start for r in choice.ranges):
        yield f"{replaced:,} of the offsets were loaded before: their rows are replaced"
    if outstanding:
        who = f"batch {outstanding.batch_id} of {outstanding.request}"
        yield f"{who} is outstanding: a run waits for it or replaces it"
    yield from (f"warning: {warning}" for warning in choice.warnings)
    yield from (f"left out: {fault}" for fault in choice.left_out)
    yield from (f"fault: {fault}\n  next: {fault.next_command}" for fault in choice.faults)

"""A change of positions and an outstanding batch: refused, unless the change is told to supersede it."""

from __future__ import annotations

from kafka_ingest.core.errors import BatchOutstanding
from kafka_ingest.core.ledger_view import PlanView


def batch_to_supersede(view: PlanView, *, supersede: bool) -> str | None:
    """Gives the outstanding batch that a change takes out of the way, or ``None`` when there is none.

    Superseding is safe at any moment, because publishing is fenced; it wastes what the batch's attempt has staged.

    Args:
        view: The ledger.
        supersede: Whether the operator said so.

    Raises:
        BatchOutstanding: There is one, and nobody said that it may go.
    """
    batch, hold = view.outstanding, view.hold
    if batch is None:
        return None
    if supersede:
        return batch.batch_id
    held = f", step {hold.step}, hold until {hold.hold_until.isoformat(timespec='seconds')}" if hold else ""
    raise BatchOutstanding(
        "a batch of the pipeline is outstanding; nothing was changed",
        expected="a pipeline without a planned batch",
        found=f"{batch.request}{held}",
        next_command="wait until that run has ended and ask again, or take its batch out of the way with --supersede",
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )

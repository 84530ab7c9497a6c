"""What a position change reads from the ledger, and what it asks the ledger to record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafka_ingest.core.change_requests import ChangeRequest
from kafka_ingest.core.errors import RequestChanged
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.position_changes import ChangePlan, RecordedChange
from kafka_ingest.core.settings import TargetSettings


@dataclass(frozen=True, slots=True)
class ChangeView:
    """The ledger as one short transaction saw it.

    Attributes:
        ledger: The pipeline under the name that the ledger knows.
        target: The table in the pipeline file: ``ledger.served`` is about it.
        recorded: What this request has recorded before.
        name_is_taken: Of a renaming: the ledger holds a pipeline of the new name.
        target_columns: Of a change of table or columns: the columns of ``target``, name to type as PostgreSQL spells
            it; ``None`` when there is no such table.
    """

    ledger: PlanView
    target: TargetSettings
    recorded: RecordedChange | None = None
    name_is_taken: bool = False
    target_columns: Mapping[str, str] | None = None

    def still_stands(self, later: ChangeView) -> bool:
        """Whether a change made from this view may be recorded when the ledger looks like ``later``."""
        return self.ledger.still_stands(later.ledger) and replace(self, ledger=later.ledger) == later


@dataclass(frozen=True, slots=True)
class NewChange:
    """What one transaction records: a plan without faults, and the outstanding batch that it supersedes."""

    request: ChangeRequest
    plan: ChangePlan
    supersedes: str | None = None


def recorded_before(view: ChangeView, request: ChangeRequest) -> RecordedChange | None:
    """Gives what the request recorded when it came before, or ``None``.

    Raises:
        RequestChanged: It came with other arguments.
    """
    recorded = view.recorded
    if recorded is not None and recorded.arguments != request.arguments:
        raise RequestChanged(
            f"position change {request.request_id} was recorded with other arguments",
            expected=recorded.arguments,
            found=request.arguments,
            next_command="ask under a new request id; the recorded change stays",
            pipeline=request.pipeline,
        )
    return recorded

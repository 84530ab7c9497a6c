"""Task *keep_house*: tidies one target database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from kafka_ingest.core.housekeeping import ChoreReport, Outcome
from kafka_ingest.operators import wiring
from kafka_ingest.operators.failure_policy import airflow_outcome
from kafka_ingest.steps.housekeeping import keep_house

if TYPE_CHECKING:
    from airflow.sdk import Context


class HousekeepingOperator(BaseOperator):
    """Tidies the database of one connection. What is in use is left, named in the log, and done by a later run.

    The run's parameters ``older_than_days`` and ``dry_run`` say what to do.

    Returns:
        How many chores were done, would be done, and were left.

    Args:
        connection: Airflow connection of a target database.
    """

    ui_color = "#ece5d8"

    def __init__(self, *, connection: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.connection = connection

    def execute(self, context: Context) -> dict[str, int]:
        """Tidies.

        Raises:
            AirflowException: As ``operators/failure_policy.py`` says.
        """
        params = context["params"]
        with airflow_outcome(self.log):
            reports = keep_house(
                wiring.housekeeper(self.connection),
                older_than_days=params["older_than_days"],
                is_dry_run=params["dry_run"],
            )
        for report in reports:
            log = self.log.warning if report.outcome is Outcome.LEFT else self.log.info
            log("%s", _line(report))
        return {outcome.value: sum(r.outcome is outcome for r in reports) for outcome in Outcome}


def _line(report: ChoreReport) -> str:
    count = "" if report.count is None else f" ({report.count:,})"
    reason = f": {report.reason}" if report.reason else ""
    return f"{report.chore}, {report.thing}: {report.outcome}{count}{reason}"

"""What task *keep_house* does when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_ingest.full_world import housekeeper
from kafka_ingest.operators.context import TaskLog, airflow_outcome
from kafka_ingest.operators.lookup import airflow_connection
from kafka_ingest.protocol import housekeeping
from kafka_ingest.protocol.housekeeping import ChoreReport, Outcome


def keep_house(connection: str, params: Mapping[str, Any], log: TaskLog) -> dict[str, int]:
    """Tidy the database of a connection; return how many chores were done, would be done, and were left."""
    with airflow_outcome(log):
        reports = housekeeping.keep_house(
            housekeeper(connection, airflow_connection),
            older_than_days=params["older_than_days"],
            is_dry_run=params["dry_run"],
        )
    for report in reports:
        tell = log.warning if report.outcome is Outcome.LEFT else log.info
        tell("%s", _line(report))
    return {outcome.value: sum(r.outcome is outcome for r in reports) for outcome in Outcome}


def _line(report: ChoreReport) -> str:
    count = "" if report.count is None else f" ({report.count:,})"
    reason = f": {report.reason}" if report.reason else ""
    return f"{report.chore}, {report.thing}: {report.outcome}{count}{reason}"

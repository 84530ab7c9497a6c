"""Runs that stop themselves in the middle, and what they hold on to while they sleep."""

from __future__ import annotations

import signal
from typing import Any

from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import DriverProcess, PipelineAtRisk


def stopped(pipeline: PipelineAtRisk, event: str, run_id: str = "zombie", **more: Any) -> DriverProcess:
    """Starts a run, and gives it when it has stopped itself at the event."""
    zombie = pipeline.start(Instructions(pipeline.name, run_id, stop_at=event, stop_with=signal.SIGSTOP, **more))
    zombie.until_stopped()
    return zombie


def has_open_transactions(pipeline: PipelineAtRisk) -> bool:
    """Whether a transaction of the ledger or of a publish is open and does nothing."""
    sessions = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
    )
    ours = "application_name IN ('kafka_ingest publish', 'kafka_ingest ledger')"
    return pipeline.files.query(f"{sessions} AND {ours}") != [(0,)]

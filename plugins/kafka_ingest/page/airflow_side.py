"""What the page reads from Airflow's own database and configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run of a DAG.

    Attributes:
        run_id: Its id.
        run_type: How it came about, such as ``scheduled``, ``manual``, ``backfill``.
        state: ``queued``, ``running``, ``success`` or ``failed``.
        run_after: When it was due.
        started_at: When it began; ``None`` before.
        ended_at: When it ended; ``None`` before.
        failed_tasks: Ids of its tasks that failed.
    """

    run_id: str
    run_type: str
    state: str
    run_after: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failed_tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DagFacts:
    """One DAG that loads a pipeline.

    Attributes:
        dag_id: Its id.
        pipeline: The pipeline whose own DAG it is; empty for DAGs of somebody else that hold its tasks.
        connections: Ids of the connections that lead to the ledgers of its pipelines.
        is_paused: Whether the schedule is off.
        schedule: The schedule for people; empty without one.
        due_at: The newest moment at which a scheduled run was due.
        next_run_at: When the next scheduled run is due.
        runs: Its newest ten runs, the newest first.
    """

    dag_id: str
    pipeline: str = ""
    connections: tuple[str, ...] = ()
    is_paused: bool = False
    schedule: str = ""
    due_at: datetime | None = None
    next_run_at: datetime | None = None
    runs: tuple[RunFacts, ...] = ()


class AirflowSide(Protocol):
    """Airflow's database. Every method may block: the page calls it in a thread."""

    def dags(self) -> Sequence[DagFacts]:
        """Return all DAGs that load a pipeline."""

    def postgres_params(self, conn_id: str) -> Mapping[str, str]:
        """Return libpq's parameters of a connection.

        Raises:
            ConfigError: There is no such connection, or it cannot be used.
        """

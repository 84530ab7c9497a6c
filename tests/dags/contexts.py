"""Contexts as Airflow 3 gives them to a task, reduced to what the operators read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk.api.datamodels._generated import DagRunType

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context


@dataclass
class OutletEvents:
    """As Airflow gives them to a task: by asset, each with an extra to fill."""

    extras: defaultdict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))

    def __getitem__(self, asset: Asset) -> SimpleNamespace:
        return SimpleNamespace(extra=self.extras[asset.name])


@dataclass
class TaskInstance:
    """The task instance; ``waiting_since`` is when this try was first postponed, ``server_state`` Airflow's answer.

    ``xcoms`` is what the task has stored.
    Without retries: ``max_tries`` is their number, as Airflow calls it.
    """

    task_id: str = "plan_batch"
    dag_id: str = "orders"
    run_id: str = "manual__1"
    map_index: int | None = -1
    try_number: int = 1
    max_tries: int = 0
    waiting_since: datetime | None = None
    server_state: str = "success"
    xcoms: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value

    def get_first_reschedule_date(self, _: object) -> datetime | None:
        return self.waiting_since

    def get_task_states(
        self, dag_id: str, map_index: int | None, task_ids: list[str], run_ids: list[str]
    ) -> dict[str, dict[str, str]]:
        """As Airflow's, which names a mapped task with its index."""
        key = self.task_id if map_index is None else f"{self.task_id}_{map_index}"
        asked = (dag_id, task_ids, run_ids) == (self.dag_id, [self.task_id], [self.run_id])
        return {self.run_id: {key: self.server_state}} if asked else {}


def task_context(ti: TaskInstance) -> Context:
    """As a manual run: neither ``logical_date`` nor a data interval is there (C31)."""
    return cast("Context", {"ti": ti, "run_id": ti.run_id})


def run_context(run_type: DagRunType = DagRunType.MANUAL, ti: TaskInstance | None = None, **run: Any) -> Context:
    """A manual run of 2026-01-01T12:20Z without a data interval, changed where a test is about something."""
    moment = datetime(2026, 1, 1, 12, 20, tzinfo=UTC)
    given = {"conf": None, "clear_number": 0, "run_after": moment, "data_interval_start": None}
    dag_run = SimpleNamespace(**{**given, "data_interval_end": None, "run_type": run_type, **run})
    return cast("Context", {**task_context(ti or TaskInstance()), "dag_run": dag_run})

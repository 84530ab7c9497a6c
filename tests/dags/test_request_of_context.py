"""Which request a task instance stands for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kafka_ingest.core.batch import Request
from kafka_ingest.operators.request import request_of

if TYPE_CHECKING:
    from airflow.sdk import Context


def context(task_id: str, **changed: Any) -> Context:
    """As Airflow 3 gives it to a manual run: neither ``logical_date`` nor a data interval is there (C31)."""
    ti = {"dag_id": "orders", "run_id": "manual__1", "task_id": task_id, "map_index": -1, "try_number": 1} | changed
    return cast("Context", {"ti": SimpleNamespace(**ti), "run_id": "manual__1"})


def test_a_manual_run_without_any_date_is_a_request() -> None:
    assert request_of(context("plan_batch")) == Request("orders", "manual__1")


def test_plan_load_and_audit_of_a_run_are_one_request() -> None:
    requests = {request_of(context(task)) for task in ("plan_batch", "load_batch", "audit_batch")}
    assert len(requests) == 1


def test_a_retry_is_the_same_request() -> None:
    assert request_of(context("load_batch", try_number=4)) == request_of(context("load_batch"))


def test_tasks_of_a_group_are_a_request_of_their_own() -> None:
    assert request_of(context("eu.shop.load_batch")).task_group == "eu.shop"
    assert request_of(context("eu.shop.load_batch")) != request_of(context("us.shop.load_batch"))


def test_each_mapped_task_is_a_request_of_its_own() -> None:
    assert request_of(context("load_batch", map_index=2)).map_index == 2
    assert request_of(context("load_batch", map_index=None)).map_index == -1


def test_another_run_is_another_request() -> None:
    assert request_of(context("load_batch", run_id="manual__2")) != request_of(context("load_batch"))

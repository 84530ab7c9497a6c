"""Airflow's context becomes a request. Only what stays the same however often a task is tried counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_ingest.core.batch import Request

if TYPE_CHECKING:
    from airflow.sdk import Context


def request_of(context: Context) -> Request:
    """Gives the request that a task instance stands for: DAG, run, task group and map index.

    Dates are not part of it: a manual run of Airflow 3 has neither a logical date nor a data interval. Nor is the try
    number: a retry or a cleared task asks for the batch that the run already has.
    """
    ti = context["ti"]
    return Request(
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_group=ti.task_id.rpartition(".")[0],
        map_index=-1 if ti.map_index is None else ti.map_index,
    )

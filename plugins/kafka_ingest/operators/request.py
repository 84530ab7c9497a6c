"""Airflow's context becomes a request. Only what stays the same however often a task is tried counts.

| run | asks for |
|---|---|
| scheduled, manual, asset-triggered, ... | a live batch; under ``end: interval`` up to the end of its data interval |
| with a form (manual) | what the form says |
| backfill | a reload of its data interval |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafka_ingest.core.batch import Request
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.record_time import to_record_time_ms
from kafka_ingest.core.run_form import backfill_options, run_options
from kafka_ingest.core.run_options import RunMode, RunOptions, TimeSpan
from kafka_ingest.core.schedule_settings import RunEnd
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.operators.intervals import last_ended_interval_end

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import DagRunProtocol

#: Airflow's ``DagRunType``, whose value equals this text.
_BACKFILL = "backfill"


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


def planning_request_of(context: Context, pipeline: PipelineSettings, *, has_form: bool) -> Request:
    """Gives the same request with what the run asks for, as planning needs it.

    Nothing here looks at the clock: all comes from what Airflow stored when it made the run.

    Args:
        context: Airflow's.
        pipeline: The pipeline.
        has_form: Whether the run's conf is the form of ``core.run_form``; else it belongs to somebody else's DAG.

    Raises:
        ConfigError: Lists every fault of the form.
    """
    dag_run = context["dag_run"]
    assert dag_run is not None  # noqa: S101 - a running task has a run
    form = (dag_run.conf or {}) if has_form else {}
    if dag_run.run_type == _BACKFILL:
        options = backfill_options(form, _interval_of(dag_run, pipeline), pipeline=pipeline.pipeline)
        return _asking(context, options, clear_number=dag_run.clear_number or 0)
    return _asking(context, _form_options(form, dag_run, pipeline))


def _asking(context: Context, options: RunOptions, *, clear_number: int = 0) -> Request:
    return replace(request_of(context), parameters=options.to_parameters(), clear_number=clear_number)


def _form_options(form: Mapping[str, Any], dag_run: DagRunProtocol, pipeline: PipelineSettings) -> RunOptions:
    schedule = pipeline.schedule
    options = run_options(form, zone=schedule.timezone, pipeline=pipeline.pipeline)
    is_bounded = options.until_ms is not None or options.times is not None or options.offsets
    if schedule.end is RunEnd.HEAD or options.mode is RunMode.RELOAD or is_bounded:
        return options
    end = dag_run.data_interval_end or last_ended_interval_end(schedule, dag_run.run_after)
    return replace(options, until_ms=to_record_time_ms(end))


def _interval_of(dag_run: DagRunProtocol, pipeline: PipelineSettings) -> TimeSpan:
    start, end = dag_run.data_interval_start, dag_run.data_interval_end
    if start is None or end is None or end <= start:
        raise ConfigError(
            "the backfill run has no data interval to reload",
            expected="a DAG with a schedule that has intervals, such as a cron expression in the pipeline file",
            found=f"data interval {start} to {end}",
            next_command="trigger a run with mode: reload and a span instead",
            pipeline=pipeline.pipeline,
        )
    return TimeSpan(to_record_time_ms(start), to_record_time_ms(end))

"""What DAGs and tasks get from Airflow: form, request, interval, and what failures become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import pendulum
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import Param
from airflow.timetables.base import TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable

from kafka_ingest.errors import Busy, BusyTooLong, ConfigError, IngestError, StopAndCall
from kafka_ingest.forms.run import backfill_options, run_options
from kafka_ingest.forms.values import GREATEST_NUMBER, Choice, Field, Flag, Number, Text, Value
from kafka_ingest.protocol.batch import Request, RunMode, RunOptions, TimeSpan
from kafka_ingest.settings import PipelineSettings, RunEnd, ScheduleSettings
from kafka_ingest.times import to_record_time_ms

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import DagRunProtocol


# ----------
# Data intervals of a pipeline's schedule. DAG files are parsed with them: this module must stay light.


def timetable_of(schedule: ScheduleSettings) -> CronDataIntervalTimetable | None:
    """Return the timetable of a schedule; ``None`` for a pipeline that runs only when triggered.

    With intervals, because a run for an hour should say which hour, also where what it reads is decided by offsets.
    """
    return CronDataIntervalTimetable(schedule.schedule, timezone=schedule.timezone) if schedule.schedule else None


def last_ended_interval_end(schedule: ScheduleSettings, moment: datetime) -> datetime:
    """Return the end of the last interval that had ended at a moment; one that ends just then has.

    Args:
        schedule: With a cron expression or preset.
        moment: With a time zone.
    """
    timetable = timetable_of(schedule)
    if timetable is None:
        raise ValueError("a pipeline without a schedule has no intervals")
    return timetable.infer_manual_data_interval(run_after=pendulum.instance(moment)).end


def next_run_due(schedule: ScheduleSettings, moment: datetime) -> datetime | None:
    """Return when the schedule wants the first run after a moment with a time zone; ``None`` without a schedule."""
    timetable = timetable_of(schedule)
    if timetable is None:
        return None
    ended = timetable.infer_manual_data_interval(run_after=pendulum.instance(moment))
    every_one = TimeRestriction(earliest=None, latest=None, catchup=True)
    following = timetable.next_dagrun_info(last_automated_data_interval=ended, restriction=every_one)
    return following.run_after if following else None


# ----------
# Airflow's context becomes a request. Only what stays the same however often a task is tried counts.
#
# | run | asks for |
# |---|---|
# | scheduled, manual, asset-triggered, ... | a live batch; under ``end: interval`` up to the end of its data interval |
# | with a form (manual) | what the form says |
# | backfill | a reload of its data interval |

#: Airflow's ``DagRunType``, whose value equals this text.
_BACKFILL = "backfill"


def request_of(context: Context) -> Request:
    """Return the request that a task instance stands for: DAG, run, task group and map index.

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
    """Return the same request with what the run asks for, as planning needs it.

    Nothing here looks at the clock: all comes from what Airflow stored when it made the run.

    Args:
        context: Airflow's.
        pipeline: The pipeline.
        has_form: Whether the run's conf is the form of ``forms.run``; else it belongs to somebody else's DAG.

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


# ----------
# How long a task waits for a pipeline that another run holds.


@contextmanager
def busy_timeout(context: Context, timeout_seconds: int) -> Iterator[None]:
    """Let ``Busy`` pass for that long, counted from the first time that this try was postponed.

    Airflow keeps that time: it does not change while a task is rescheduled again and again, and begins anew with a
    retry or a clear (as for sensors in mode ``reschedule``, ``airflow/sdk/bases/sensor.py``, Airflow 3.3.2).

    Raises:
        Busy: There is time left.
        BusyTooLong: There is none; names the holder.
    """
    try:
        yield
    except Busy as busy:
        waiting_since = context["ti"].get_first_reschedule_date(context)
        if waiting_since is None or datetime.now(UTC) - waiting_since < timedelta(seconds=timeout_seconds):
            raise
        raise BusyTooLong(
            f"another request has held the pipeline for {timeout_seconds} seconds of waiting",
            expected="a free pipeline within airflow.busy_timeout_seconds of the pipeline file",
            found=busy.found,
            next_command="wait for the holder or stop its run, then clear this task; nothing was planned or lost",
            pipeline=busy.pipeline,
            batch_id=busy.batch_id,
        ) from None


# ----------
# The one place that says what an error means to Airflow.
#
# | family        | Airflow                                                        |
# |---------------|----------------------------------------------------------------|
# | `RetryLater`  | the task fails and is retried                                  |
# | `Fenced`      | the same: the retry finds the batch as the newer claim left it |
# | `Busy`        | the task is asked again later and uses up no retry             |
# | `StopAndCall` | the task fails at once, without retries                        |
#
# Anything else is a fault of this package or of its environment: it keeps its stack trace, and Airflow retries.

#: A held pipeline is asked again after this long: half of the time after which a silent holder loses its hold.
BUSY_DELAY = timedelta(seconds=30)
_ASKED_AGAIN = f"\n  This task asks again by itself, every {BUSY_DELAY.seconds} seconds, without using up a retry."


class TaskLog(Protocol):
    """What the operators need of a task's logger."""

    def info(self, event: Any, /, *args: Any) -> Any:
        """Log for information."""

    def warning(self, event: Any, /, *args: Any) -> Any:
        """Log what somebody should look at."""


def airflow_exception(error: IngestError, now: datetime) -> Exception:
    """Return the exception that makes Airflow do what the error's family says; its text is the error's message."""
    if isinstance(error, Busy):
        return AirflowRescheduleException(now + BUSY_DELAY)  # type: ignore[no-untyped-call]
    if isinstance(error, StopAndCall):
        return AirflowFailException(str(error))
    return AirflowException(str(error))


@contextmanager
def airflow_outcome(log: TaskLog) -> Iterator[None]:
    """Turn the package's errors into Airflow's outcomes.

    The cause is left out of what is raised: an expected fault tells what to do, not where in the code it was noticed.
    Airflow logs the message of what is raised (``_run_task_and_map_outcome`` in
    ``airflow/sdk/execution_time/task_runner.py``, 3.3.2), so it is logged here only where Airflow does not: ``Busy``.
    """
    try:
        yield
    except IngestError as error:
        if isinstance(error, Busy):
            log.info("%s%s", error, _ASKED_AGAIN)
        raise airflow_exception(error, datetime.now(UTC)) from None


# ----------
# The forms that Airflow shows when somebody triggers a DAG, made from the tables in ``forms``.
#
# The schema keeps the kinds of values apart, so that Airflow shows the right field for each. Times, and what the keys
# say about each other, are checked by the task, with every fault in one message.
#
# Airflow's form (3.3.2, ``ui/src/components/FlexibleForm``) marks a field as required, and shows it in red while it is
# empty, when its type does not allow null: so types do that have no value from the start. A choice of nothing reads
# ``null`` unless ``values_display`` has a text for ``None``.


def form_params(fields: Mapping[str, Field], *, zone: str = "") -> dict[str, Param]:
    """Return a form as Airflow shows and checks it.

    Args:
        fields: The form.
        zone: IANA time zone of times without an offset, for the descriptions.
    """
    return {key: _param(field, zone) for key, field in fields.items()}


def _param(field: Field, zone: str) -> Param:
    schema = {**_schema(field.value), **({"section": field.section} if field.section else {})}
    description = field.help.replace("{zone}", zone)
    return Param(field.filled_in, title=field.label, description_md=description, **schema)


def _schema(value: Value) -> dict[str, Any]:
    match value:
        case Text():
            return {"type": ["null", "string"], **({"format": "multiline"} if value.is_multiline else {})}
        case Number():
            least = {} if value.at_least is None else {"minimum": value.at_least}
            return {"type": ["null", "integer"], "maximum": GREATEST_NUMBER, **least}
        case Flag():
            return {"type": ["null", "boolean"]}
        case Choice(texts, _, ""):
            return {"type": "string", "enum": list(texts), "values_display": dict(texts)}
        case Choice(texts, _, nothing):
            shown = {"None": nothing, **texts}
            return {"type": ["null", "string"], "enum": [None, *texts], "values_display": shown}

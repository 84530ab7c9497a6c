"""The DAGs of pipelines and of housekeeping."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, Param, TaskGroup

from kafka_ingest.errors import ConfigError
from kafka_ingest.forms.run import FIELDS
from kafka_ingest.operators.context import form_params, timetable_of
from kafka_ingest.operators.task_links import page_path
from kafka_ingest.operators.tasks import (
    AuditBatchOperator,
    FollowUpOperator,
    HousekeepingOperator,
    LoadBatchOperator,
    PlanBatchOperator,
    ReportLeftOutOperator,
)
from kafka_ingest.pipeline_files.files import PipelineCatalog, dag_id_of
from kafka_ingest.protocol.target import written_columns
from kafka_ingest.settings import (
    FirstRun,
    FirstRunKind,
    PartitionFaultPolicy,
    PipelineSettings,
    RunEnd,
    ScheduleSettings,
)

# ----------
# The page that Airflow shows for a pipeline's DAG: what it loads, and what the buttons do.

_BUTTONS = """\
### What the buttons do
| you do | what happens |
|---|---|
| **Trigger** | a run reads on from the committed offsets; the form can limit it, reload a span, or only show the plan |
| **Clear** a task or a run | the run's batch is loaded if it was not; a committed batch stays as it is |
| **Backfill** | each run reloads its interval: what was loaded is replaced, what was not is loaded, never a gap |
| **Clear** a backfill run | its interval is reloaded once more |
| **Mark success** of `load_batch` | loads nothing; `audit_batch` fails, and the next run reads the same offsets |
| **Mark failed**, or kill | the Spark job is stopped; a batch that it commits first counts |
| two runs at once | the second waits, without using up retries, until the first has ended or given no sign of life; \
after {busy_timeout_seconds} seconds it fails and names the first |
| delete a run | the ledger keeps its batch; the next run goes on at the committed offsets |

Where it stands: [the pipeline's page]({page}), or `python -m kafka_ingest status {pipeline}`. More about the buttons:
`docs/operating.md`. Faults and what to do: `docs/runbook.md`.
"""


def pipeline_doc(pipeline: PipelineSettings) -> str:
    """Return the DAG's documentation as Markdown, made from the settings alone."""
    batch = pipeline.batch
    columns = "\n".join(
        f"| `{c.name}` | {c.type} | {'required' if c.is_not_null else ''} |" for c in written_columns(batch)
    )
    parts = [
        pipeline.schedule.description,
        f"Kafka into PostgreSQL, exactly once, in batches of at most {pipeline.plan.limit.total_offsets:,} offsets.",
        _facts(pipeline),
        f"### Columns of `{batch.target}`\n| column | type | |\n|---|---|---|\n{columns}",
        _BUTTONS.format(
            pipeline=pipeline.pipeline,
            page=page_path("pipelines", pipeline.pipeline),
            busy_timeout_seconds=pipeline.schedule.busy_timeout_seconds,
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def _facts(pipeline: PipelineSettings) -> str:
    batch, plan = pipeline.batch, pipeline.plan
    topics = f"all that match `{plan.topics.pattern}`" if plan.topics.pattern else ", ".join(plan.topics.names)
    facts = {
        "topics": topics,
        "from": f"connection `{batch.kafka_connection}`, {batch.isolation_level.value}",
        "into": f"`{batch.target}`, connection `{batch.target_connection}`",
        "value": batch.value.format.value,
        "null values (tombstones)": batch.tombstones.value,
        "first run": _first_run(plan.first_run),
        "a run ends at": _ENDS[pipeline.schedule.end],
        "a partition with a fault": _FAULTS[plan.on_partition_fault],
        "a record that does not fit": (
            "becomes a dead letter, in the table `kafka_ingest.dead_letter`; the run stays green, and the log of "
            "`load_batch` warns with counts, reasons and first offsets"
        ),
        "a batch stops at more than": ", or ".join(batch.dead_letters.texts()),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in facts.items())])


_ENDS = {
    RunEnd.HEAD: "the end of the log",
    RunEnd.INTERVAL: "the first record at or after the end of its data interval",
}

_FAULTS = {
    PartitionFaultPolicy.STOP: "stops the whole run before anything is read",
    PartitionFaultPolicy.LEAVE_OUT: "is left out: the others are loaded, and the run ends red",
}


def _first_run(first_run: FirstRun) -> str:
    if first_run.kind is FirstRunKind.TIMESTAMP and first_run.timestamp_ms is not None:
        return f"from {datetime.fromtimestamp(first_run.timestamp_ms / 1000, UTC).isoformat()} on"
    return {
        FirstRunKind.EARLIEST: "from the log start",
        FirstRunKind.LATEST: "from the end of the log on",
    }.get(first_run.kind, "from the offsets in the file")


# ----------
# The page that Airflow shows for a task: what it does, what red means, and what to press.

_TASK_DOCS = {
    "plan_batch": """\
Freezes what this run reads: the offset ranges of its batch, in the ledger. It loads nothing, and run again it gives the
same batch.

- **Red**: a run would lose or double records, or Kafka or the database did not answer. The log says what was expected,
  what was found, and the next command.
- **Up for reschedule**: another run holds the pipeline. It asks again by itself and uses up no retry.
- **Press**: *Clear*, once the cause is gone. *Mark success* does no harm: `load_batch` plans for itself.
""",
    "load_batch": """\
Loads the batch with Spark, or a small one in its own process where the pipeline file says so
(`spark.in_process_below_offsets`). Rows, dead letters and the new offsets are committed together, or not at all. With
nothing to read, or when the batch is committed already, it starts nothing and is green.

- **Red**: nothing was written, unless the log says that the batch is committed. The log has the fault and the next
  command; Airflow has retried what can pass.
- **Green with a warning**: records became dead letters, or had fields that no column reads.
- **Press**: *Clear*, with *downstream* ticked: the same batch goes on. *Mark success* loads nothing, and the next run
  reads these offsets. *Mark failed* stops the load.
""",
    "audit_batch": """\
Counts the rows of the batch against the ledger, checks every invariant, and announces the batch as an event of the
table's asset, for the DAGs that wait for it.

- **Red**: an invariant does not hold, which the log names with partitions and offsets; or this run has no batch.
- **Press**: *Clear*, as often as you like: it is announced again under the same batch id. Never *Mark success* for an
  invariant that does not hold: run `python -m kafka_ingest audit {pipeline} --all` first.
""",
    "report_left_out": """\
Fails when the batch left partitions out (`on_partition_fault: leave_out`). The others are loaded and announced.

- **Red**: the log names each partition with its fault.
- **Press**: resolve the fault as the log says; the next run reads these partitions again. *Clear* changes nothing.
""",
    "follow_up": """\
Starts the next run at once when this one used up its limit, so that a backlog does not wait for the schedule.

- **Skipped**: nothing follows; the log of `audit_batch` says why.
- **Red**: the ledger did not answer. Nothing is lost: the next run of the schedule goes on.
- **Press**: *Clear*, as often as you like: a batch has one follow-up run.
""",
}


def task_doc(task_id: str, pipeline: PipelineSettings) -> str:
    """Return a task's documentation as Markdown.

    Args:
        task_id: Without the prefix of a group.
        pipeline: Its pipeline.
    """
    name = pipeline.pipeline
    told, page = _TASK_DOCS[task_id].format(pipeline=name), page_path("pipelines", name)
    return f"{told}\nThe pipeline: [{name}]({page}). Faults and what to do: `docs/runbook.md`.\n"


# ----------
# Plan, load and audit as tasks: for the DAG of a pipeline file, and as a group inside anybody's DAG.


def kafka_to_postgres(pipeline: PipelineSettings, *, group_id: str = "kafka_to_postgres") -> TaskGroup:
    """Put plan_batch, load_batch and audit_batch into the DAG that is being built, as a task group.

    The guarantees are those of a pipeline's own DAG: a run of the DAG has one batch for each group (and map index), and
    retries and clears ask for the same one. The group's tasks are owned, retried and stopped as the pipeline file says.
    The run's conf belongs to the DAG and is not looked at, and no follow-up run is started.

    Args:
        pipeline: The pipeline, as ``load_pipeline`` returns it.
        group_id: Prefix of the task ids; part of the request. A renamed group asks for batches of its own.
    """
    # Its converter hides the type of default_args from mypy (attrs.field in airflow/sdk/definitions/taskgroup.py).
    with TaskGroup(group_id, default_args=task_defaults(pipeline.schedule)) as group:  # type: ignore[arg-type]
        add_batch_tasks(pipeline, has_form=False)
    return group


def task_defaults(schedule: ScheduleSettings) -> dict[str, Any]:
    """Return what the pipeline file says about each task, as Airflow's ``default_args``."""
    return {
        "owner": schedule.owner,
        "retries": schedule.retries,
        "retry_delay": timedelta(seconds=schedule.retry_delay_seconds),
        "execution_timeout": timedelta(seconds=schedule.execution_timeout_seconds),
    }


def add_batch_tasks(pipeline: PipelineSettings, *, has_form: bool) -> AuditBatchOperator:
    """Add the tasks of one batch to the DAG or group that is being built; return the one that announces the batch.

    Args:
        pipeline: The pipeline.
        has_form: Whether the run's conf is the form of ``forms.run``.
    """
    plan = PlanBatchOperator(**_named("plan_batch", pipeline), has_form=has_form)
    load = LoadBatchOperator(**_named("load_batch", pipeline), has_form=has_form)
    audit = AuditBatchOperator(**_named("audit_batch", pipeline))
    plan >> load >> audit
    if pipeline.plan.on_partition_fault is PartitionFaultPolicy.LEAVE_OUT:
        audit >> ReportLeftOutOperator(**_named("report_left_out", pipeline))
    return audit


def _named(task_id: str, pipeline: PipelineSettings) -> dict[str, Any]:
    return {"task_id": task_id, "doc_md": task_doc(task_id, pipeline), "pipeline": pipeline}


# ----------
# One pipeline becomes one DAG: plan_batch, load_batch, audit_batch, and what follows.


def pipeline_dag(pipeline: PipelineSettings) -> DAG:
    """Build the DAG of a pipeline. No connection is looked up and nothing is asked over the network.

    One run is active at a time, because a queue is easier to look at; nothing depends on it.
    """
    schedule = pipeline.schedule
    with DAG(
        dag_id=dag_id_of(pipeline.pipeline),
        description=schedule.description or f"Load Kafka into {pipeline.batch.target}, exactly once",
        doc_md=pipeline_doc(pipeline),
        schedule=timetable_of(schedule),
        start_date=pendulum.parse(schedule.start_date, tz=schedule.timezone),  # type: ignore[arg-type]
        catchup=schedule.catchup,
        max_active_runs=1,
        tags=["kafka-ingest", *schedule.tags],
        params=form_params(FIELDS, zone=schedule.timezone),
        default_args=task_defaults(schedule),
    ) as dag:
        audit = add_batch_tasks(pipeline, has_form=True)
        if schedule.follow_up:
            audit >> FollowUpOperator(**_named("follow_up", pipeline))
    return dag


# ----------
# The DAG ``kafka_ingest_housekeeping``: once a day, one task for each target database.

#: ``off`` takes the DAG away, for deployments that run the command instead.
SWITCH = "KAFKA_INGEST_HOUSEKEEPING"

_HOUSEKEEPING_DOC = """\
Tidies the target database of every pipeline, once a day. What is in use is left, named in the task's log, and
done by a later run. Running it again, at any moment, is harmless.

- **Staging tables** are dropped whose batch is no longer planned, or whose claim was fenced by a newer one. Those of a
  live claim stay.
- **Details of the ledger** are deleted: the ranges of superseded batches, and what became of tries of tasks
  (`kafka_ingest.attempt`), older than `older_than_days`. Batches, published ranges, positions, position changes and
  dead letters stay for good.
- **BRIN indexes** of the target tables are summarised.

It runs from the day of its installation on: it is not paused when Airflow first sees it. Deployments that run the
command instead set the environment variable `KAFKA_INGEST_HOUSEKEEPING=off`, and the DAG is gone.

Trigger it with `dry_run` to see what it would do. The same without Airflow: `python -m kafka_ingest housekeeping`.
"""


_KEEP_HOUSE_DOC = """\
Tidies the database of one connection.

- **Red**: the database did not answer, or the role may not do it. No load depends on it; what was tidied stays so.
- **Press**: *Clear*, at any moment and as often as you like.
"""


def is_switched_on(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether there is to be a DAG: unless :data:`SWITCH` says ``off``.

    Raises:
        ConfigError: It says something else than ``on`` or ``off``.
    """
    value = environment.get(SWITCH, "on").strip().lower() or "on"
    if value not in ("on", "off"):
        raise ConfigError(
            f"the environment variable {SWITCH} has a value that says nothing",
            expected="on or off",
            found=value,
            next_command=f"set {SWITCH} to on or off where Airflow parses DAGs",
        )
    return value == "on"


def housekeeping_dag(catalog: PipelineCatalog) -> DAG:
    """Build the DAG. No connection is looked up and nothing is asked over the network.

    Args:
        catalog: All pipelines; without any, a run of the DAG has nothing to do.
    """
    from kafka_ingest.protocol.housekeeping import MOST_DAYS, OLDER_THAN_DAYS

    connections = sorted({pipeline.batch.target_connection for pipeline in catalog.pipelines})
    with DAG(
        dag_id="kafka_ingest_housekeeping",
        description="Drop leftover staging tables, delete old details of the ledger, summarise BRIN indexes",
        doc_md=_HOUSEKEEPING_DOC,
        schedule="@daily",
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        catchup=False,
        max_active_runs=1,
        # Airflow's default (``core.dags_are_paused_at_creation``) is paused, and nobody misses what was never there.
        is_paused_upon_creation=False,
        tags=["kafka-ingest"],
        params={
            "older_than_days": Param(
                OLDER_THAN_DAYS,
                type="integer",
                minimum=0,
                maximum=MOST_DAYS,
                description="Age from which ranges of superseded batches, and what became of tries, are deleted.",
            ),
            "dry_run": Param(False, type="boolean", description="Say what would be done; change nothing."),
        },
        default_args={
            "owner": "data-platform",
            "retries": 2,
            "retry_delay": timedelta(minutes=5),
            # A table that was never summarised is read whole, once: hours, where it has billions of rows.
            "execution_timeout": timedelta(hours=6),
        },
    ) as dag:
        # One broken database must not keep the others from being tidied.
        HousekeepingOperator.partial(
            task_id="keep_house", doc_md=_KEEP_HOUSE_DOC, map_index_template="{{ task.connection }}"
        ).expand(connection=connections)
    return dag

"""An example: a DAG that tells, once, when a pipeline is late, behind, or close to losing records.

Copy it beside ``kafka_to_postgres.py`` into the DAG folder, and ``notify.py`` to where that says. It asks the ledger
alone; what it knows of the log is what the newest plan saw. With Prometheus, use monitoring/alerts.yml instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.sdk import DAG, Variable, task
from notify import CHANNELS, Notice, page_of

if TYPE_CHECKING:
    from kafka_ingest.protocol.ledger_view import PlanView
    from kafka_ingest.settings import PipelineSettings

#: A run that the schedule wanted so long ago, and a table that is complete only up to so long ago.
LATE_AFTER, BEHIND_AFTER = timedelta(minutes=15), timedelta(hours=26)

_NEXT = "\n  next: python -m kafka_ingest {command} {pipeline}"


def problems_of(
    pipeline: PipelineSettings, status: Mapping[str, Any], view: PlanView, now: datetime
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a pipeline: a word for it, and what to tell.

    Args:
        pipeline: The pipeline.
        status: Its row of ``PostgresReports.status``.
        view: What its newest plan saw.
        now: With a time zone.
    """
    from kafka_ingest.metrics import HEADROOM_OFFSETS, SHORT_HEADROOM, headroom_measurements
    from kafka_ingest.operators.context import next_run_due

    ended, complete = status["last_committed_at"], status["valid_through"]
    due = next_run_due(pipeline.schedule, ended) if ended else None
    if due and now - due > LATE_AFTER:
        yield (
            "late",
            f"No run has loaded anything since the one of {due:%Y-%m-%d %H:%MZ} was due."
            + _NEXT.format(command="status", pipeline=pipeline.pipeline),
        )
    look = _NEXT.format(command="lag", pipeline=pipeline.pipeline)
    if complete and now - complete > BEHIND_AFTER:
        yield "behind", f"The table is complete only up to {complete:%Y-%m-%d %H:%MZ}." + look
    measured = [(found.metric, found.value) for found in headroom_measurements(pipeline, view)]
    if any(metric is HEADROOM_OFFSETS and value < 0 for metric, value in measured):
        yield "losing records", "Kafka deleted records before they were read. Raise retention.ms first." + look
    elif any(metric is SHORT_HEADROOM and value > 0 for metric, value in measured):
        yield "close to losing records", "Retention will soon delete unread records. Raise retention.ms first." + look


def look_at(pipeline: PipelineSettings, run_id: str, now: datetime) -> list[dict[str, str]]:
    """Return what is wrong with a pipeline; that its database does not answer is one thing that can be wrong."""
    from kafka_ingest.errors import IngestError
    from kafka_ingest.operators.lookup import airflow_connection
    from kafka_ingest.protocol.batch import Request
    from kafka_ingest.world import World

    name, world = pipeline.pipeline, World(pipeline, airflow_connection)
    try:
        [status] = world.reports().status([name])
        view = world.ledger().plan_view(name, Request("kafka_ingest_watch", run_id), pipeline.batch.target)
        found = list(problems_of(pipeline, status, view, now))
    except IngestError as error:
        found = [("unknown", str(error))]
    return [{"pipeline": name, "problem": problem, "text": text} for problem, text in found]


def news(found: Sequence[Mapping[str, str]], told: Sequence[Sequence[str]]) -> list[Mapping[str, str]]:
    """Return what was not told before: a problem that goes and comes again is told again."""
    known = {tuple(pair) for pair in told}
    return [one for one in found if (one["pipeline"], one["problem"]) not in known]


with DAG(
    dag_id="kafka_ingest_watch",
    description="Tell when a pipeline is late, behind, or close to losing records",
    doc_md="Looks into the ledger of every pipeline every ten minutes; tells Slack and a mailbox what is wrong, once, "
    "and again when it has been right in between. The Airflow variables `kafka_ingest_told_…` hold what each was told.",
    schedule="*/10 * * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    tags=["kafka-ingest"],
    default_args={"owner": "data-platform", "retries": 2, "retry_delay": timedelta(seconds=30)},
):

    @task(execution_timeout=timedelta(minutes=8))
    def look(**context: Any) -> list[dict[str, str]]:
        """Look at every pipeline."""
        from kafka_ingest.pipeline_files.files import read_catalog

        pipelines, now = read_catalog(Path(__file__).with_name("pipelines")).pipelines, datetime.now(UTC)
        return [problem for pipeline in pipelines for problem in look_at(pipeline, context["run_id"], now)]

    @task(execution_timeout=timedelta(minutes=5))
    def tell(channel: str, found: Sequence[Mapping[str, str]], **context: Any) -> None:
        """Tell one channel what it has not been told; a channel that does not answer keeps the other from nothing."""
        remembered = f"kafka_ingest_told_{channel}"
        for one in news(found, Variable.get(remembered, default=[], deserialize_json=True)):
            title = f"{one['pipeline']} is {one['problem']}"
            CHANNELS[channel](Notice(title, one["text"], page_of(one["pipeline"])), context)
        Variable.set(remembered, [(one["pipeline"], one["problem"]) for one in found], serialize_json=True)

    tell.partial(found=look()).expand(channel=sorted(CHANNELS))

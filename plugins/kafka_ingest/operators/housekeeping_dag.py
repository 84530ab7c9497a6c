"""The DAG ``kafka_ingest_housekeeping``: once a day, one task for each target database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta

import pendulum
from airflow.sdk import DAG, Param

from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.housekeeping import MOST_DAYS, OLDER_THAN_DAYS
from kafka_ingest.operators.housekeeping import HousekeepingOperator
from kafka_ingest.operators.pipeline_catalog import PipelineCatalog

#: ``off`` takes the DAG away, for deployments that run the command instead.
SWITCH = "KAFKA_INGEST_HOUSEKEEPING"

_DOC = """\
Tidies the target database of every pipeline, once a day. It stands in nobody's way: what is in use is left, named in
the task's log, and done by a later run. Running it again, at any moment, is harmless.

- **Staging tables** are dropped whose batch is no longer planned, or whose claim was fenced by a newer one. Those of a
  live claim stay.
- **Details of the ledger** are deleted: the ranges of superseded batches older than `older_than_days`. Batches,
  published ranges, positions, position changes and dead letters stay for good.
- **BRIN indexes** of the target tables are summarised.

It runs from the day of its installation on: it is not paused when Airflow first sees it. Who runs the command instead
sets the environment variable `KAFKA_INGEST_HOUSEKEEPING=off`, and the DAG is gone.

Trigger it with `dry_run` to see what it would do. The same without Airflow: `python -m kafka_ingest housekeeping`.
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
    """Builds the DAG. No connection is looked up and nothing is asked over the network.

    Args:
        catalog: All pipelines; without any, a run of the DAG has nothing to do.
    """
    connections = sorted({pipeline.batch.target_connection for pipeline in catalog.pipelines})
    with DAG(
        dag_id="kafka_ingest_housekeeping",
        description="Drop leftover staging tables, delete old details of the ledger, summarise BRIN indexes",
        doc_md=_DOC,
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
                description="Age from which the ranges of superseded batches are deleted.",
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
        HousekeepingOperator.partial(task_id="keep_house", map_index_template="{{ task.connection }}").expand(
            connection=connections
        )
    return dag

"""The DAG ``kafka_ingest_administration``: one task with a form, triggered by hand."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pendulum
from airflow.sdk import DAG

from kafka_ingest.operators.administration import AdministrationOperator
from kafka_ingest.operators.administration_params import administration_params
from kafka_ingest.operators.pipeline_catalog import PipelineCatalog

_DOC = """\
Everything that moves a pipeline's positions without a batch, and a look at what a pipeline rests on. **Trigger** it and
fill in the form; nothing is changed until **Apply** is ticked.

1. Trigger it without **Apply**: the log of `administer` shows what would happen, and every reason why it would be
   refused.
2. Trigger it again with the same values and **Apply**. It is done in one transaction and recorded in
   `kafka_ingest.position_change` with your name, the reason, from and to. The run's id is the request's id: a retry or
   a cleared task does it once.

Any number of runs may go on at once; the ledger takes one change after the other. The same without Airflow:
`python -m kafka_ingest change`, `roll-back` and `preflight`. Which one, when, and what it does to table and position:
`docs/operating.md`.
"""


def administration_dag(catalog: PipelineCatalog, folder: Path) -> DAG:
    """Builds the DAG. No connection is looked up and nothing is asked over the network.

    Args:
        catalog: All pipelines, for the form.
        folder: ``pipelines`` beside the DAG file, where the task reads the chosen one.
    """
    with DAG(
        dag_id="kafka_ingest_administration",
        description="Preflight, reset, accept loss or new logs, rename, retire, roll back: shown first, then applied",
        doc_md=_DOC,
        schedule=None,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        catchup=False,
        tags=["kafka-ingest"],
        params=administration_params([pipeline.pipeline for pipeline in catalog.pipelines]),
        default_args={
            "owner": "data-platform",
            "retries": 2,
            "retry_delay": timedelta(minutes=1),
            # A roll-back deletes rows one identity after the other: minutes for millions.
            "execution_timeout": timedelta(hours=2),
        },
    ) as dag:
        AdministrationOperator(task_id="administer", folder=folder)
    return dag

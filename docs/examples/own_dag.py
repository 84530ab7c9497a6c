"""An example: a DAG of your own that loads a topic and goes on with its rows.

Copy it into your DAG folder, and its pipeline file beside it. The pipeline file can also stay in ``dags/pipelines``,
with ``schedule: null``: then the pipeline keeps a DAG of its own besides, with the form for reloads.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, task
from airflow.timetables.interval import CronDataIntervalTimetable

from kafka_ingest import kafka_to_postgres, load_pipeline

log = logging.getLogger(__name__)

clicks = load_pipeline(Path(__file__).with_name("clicks.yaml"))

with DAG(
    dag_id="shop_report",
    description="Load the clicks of the shop, then make the report of the hour",
    doc_md="Loads clicks from Kafka into `shop.clicks`, exactly once, and then sums them up. An example of a DAG that "
    "uses the task group `kafka_to_postgres`.",
    schedule=CronDataIntervalTimetable("@hourly", timezone="Europe/Berlin"),
    start_date=pendulum.datetime(2026, 1, 1, tz="Europe/Berlin"),
    catchup=False,
    tags=["shop"],
    default_args={"owner": "shop", "retries": 2},
):
    load = kafka_to_postgres(clicks, group_id="load_clicks")

    @task(execution_timeout=pendulum.duration(minutes=10))
    def report(**context: Any) -> None:
        """Stands for what you do with the rows. The batch tells what was loaded: offsets, counts, times."""
        batch = context["ti"].xcom_pull(task_ids="load_clicks.audit_batch")
        log.info("%s is complete up to %s", batch["target"], batch["valid_through"])

    load >> report()

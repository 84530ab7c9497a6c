"""The Airflow DAG ``kafka_ingest_administration``: position changes, roll-backs and preflight, with a form."""

from __future__ import annotations

from pathlib import Path

from kafka_ingest.operators.administration import administration_dag
from kafka_ingest.pipeline_files.files import read_catalog

folder = Path(__file__).with_name("pipelines")
dag = administration_dag(read_catalog(folder), folder)

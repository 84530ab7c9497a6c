"""The Airflow DAG ``kafka_ingest_housekeeping``: tidies the target databases of all pipelines once a day."""

from __future__ import annotations

from pathlib import Path

from kafka_ingest.operators.dags import housekeeping_dag, is_switched_on
from kafka_ingest.pipeline_files.files import read_catalog

if is_switched_on():
    dag = housekeeping_dag(read_catalog(Path(__file__).with_name("pipelines")))

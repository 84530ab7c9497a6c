"""Shows broken pipeline files as an Airflow import error, with every fault in its text; makes no DAG itself.

A file of its own, so that the error takes no DAG with it (see ``kafka_to_postgres.py``). Airflow's dag processor parses
it again and again like every DAG file, so the error goes away by itself once the files are right.
"""

from __future__ import annotations

from pathlib import Path

from kafka_ingest.pipeline_files.files import read_catalog, require_no_errors

require_no_errors(read_catalog(Path(__file__).with_name("pipelines")))

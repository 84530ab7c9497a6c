"""One Airflow DAG for every pipeline file: ``kafka_to_postgres__<pipeline>``.

Broken files make no DAG here and hide no other: ``pipeline_file_faults.py`` beside this file reports them. It cannot be
done in this file, because an import error of a DAG file marks every DAG of that file as stale
(``_update_import_errors`` in ``airflow/dag_processing/collection.py``, Airflow 3.3.2).
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import get_parsing_context

from kafka_ingest.operators.dags import pipeline_dag
from kafka_ingest.pipeline_files.files import DAG_ID_PREFIX, dag_id_of, one_pipeline, pipeline_of, read_catalog

folder = Path(__file__).with_name("pipelines")
# A worker about to run a task says which DAG it needs. If its file has broken since, the task's log shows the error.
# `airflow dags test` names a DAG, too, and then reads every file, also for a DAG that is made elsewhere.
needed = get_parsing_context().dag_id or ""
needs_one = needed.startswith(DAG_ID_PREFIX)

for settings in (one_pipeline(pipeline_of(needed), folder),) if needs_one else read_catalog(folder).pipelines:
    globals()[dag_id_of(settings.pipeline)] = pipeline_dag(settings)

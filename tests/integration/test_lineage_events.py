"""OpenLineage events and links of whole runs: Airflow's own task runner and provider, real Kafka, PostgreSQL, Spark."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.connections import connection_from_environment
from sandbox.paths import CHECKOUT
from tests.integration.pipeline_under_test import FedPipeline, password_of_the_database

pytest.importorskip("airflow.providers.openlineage", reason="the provider is optional")

DAG_ID = "kafka_to_postgres__events"
VALUE = {
    "format": "json",
    "columns": [{"name": "n", "type": "bigint", "path": "$.order.number"}, {"name": "text", "type": "text"}],
}


@dataclass(frozen=True)
class OwnAirflow:
    """An Airflow in a folder, with a SQLite database, whose task runner runs a DAG in the process of the command."""

    folder: Path

    @property
    def events_folder(self) -> Path:
        return self.folder / "events"

    def command(self, *arguments: str) -> int:
        transport = {"type": "file", "log_file_path": str(self.events_folder / "event"), "append": False}
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(CHECKOUT / "dags"),
            "KAFKA_INGEST_SPARK_HISTORY": "https://spark.example/{application_id}/",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
            "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "plugins"), str(CHECKOUT)]),
        }
        environment.pop("AIRFLOW__CORE__UNIT_TEST_MODE", None)
        command = [sys.executable, "-m", "airflow", *arguments]
        return subprocess.run(command, env=environment, cwd=self.folder, check=False, timeout=300).returncode

    def events_of_a_run(self) -> dict[str, dict[str, Any]]:
        """Run the DAG; return the events of load_batch that it has sent, by type."""
        before = set(self.events_folder.iterdir())
        self.command("dags", "test", DAG_ID)
        events = [json.loads(path.read_text()) for path in set(self.events_folder.iterdir()) - before]
        return {event["eventType"]: event for event in events if event["job"]["name"] == f"{DAG_ID}.load_batch"}

    def links(self) -> list[tuple[str, str, Any]]:
        with closing(sqlite3.connect(self.folder / "airflow.db")) as connection:
            query = "SELECT task_id, key, value FROM xcom WHERE key LIKE '\\_link\\_%' ESCAPE '\\' ORDER BY 1, 2"
            return [(task, key, json.loads(value)) for task, key, value in connection.execute(query)]


def leads(event: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(d["namespace"], d["name"]) for d in (*event["inputs"], *event["outputs"])]


@pytest.mark.slow
def test_events_and_links_of_a_run_that_loads_and_of_one_that_fails(pipeline: FedPipeline, tmp_path: Path) -> None:
    airflow = OwnAirflow(tmp_path / "airflow")
    airflow.events_folder.mkdir(parents=True)
    assert airflow.command("db", "migrate") == 0
    with_ui = {"conf": {"spark.ui.enabled": "true"}}
    rules = {"tombstones": "dead_letter", "dead_letters": {"max_count": 1}}
    pipeline.open(2, value=VALUE, airflow={"retries": 0}, spark=with_ui, **rules)
    pipeline.send('{"order": {"number": 1}, "text": "a"}', '{"order": {"number": 2}}', "{broken")
    kafka, database = connection_from_environment("kafka_default"), pipeline.database
    assert kafka is not None
    topic = (f"kafka://{kafka.extra['bootstrap.servers']}", pipeline.topic)
    server = f"postgres://{database['host']}:{database['port']}"
    table = (server, f"{database['dbname']}.shop.events")
    dead_letters = (server, f"{database['dbname']}.kafka_ingest.dead_letter")

    loaded = airflow.events_of_a_run()
    assert set(loaded) == {"START", "COMPLETE"}
    complete = loaded["COMPLETE"]
    assert leads(complete) == [topic, table, dead_letters]
    rows, bad = (d["outputFacets"]["outputStatistics"]["rowCount"] for d in complete["outputs"])
    assert (rows, bad) == (2, 1)
    columns = complete["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert [field["field"] for field in columns["n"]["inputFields"]] == ["order.number"]
    facet = complete["run"]["facets"]["kafkaIngest_batch"]
    [(batch_id,)] = pipeline.query("SELECT batch_id::text FROM kafka_ingest.batch")
    assert (facet["batchId"], facet["ranges"]) == (batch_id, {pipeline.topic: {"0": [0, 3]}})
    tries = "SELECT spark_application_id, spark_ui_url FROM kafka_ingest.attempt WHERE task_id = 'load_batch'"
    [(application_id, ui_url)] = pipeline.query(tries)
    assert ui_url.startswith("http://")
    link = f"/kafka-ingest/batches/{batch_id}"
    assert airflow.links() == [
        ("audit_batch", "_link_BatchLink", link),
        ("load_batch", "_link_BatchLink", link),
        ("load_batch", "_link_SparkLink", f"https://spark.example/{application_id}/"),
        ("plan_batch", "_link_BatchLink", link),
    ]

    pipeline.send("{broken", "{broken")
    failed = airflow.events_of_a_run()
    assert set(failed) == {"START", "FAIL"}
    assert leads(failed["FAIL"]) == [topic, table]
    assert failed["FAIL"]["outputs"][0]["outputFacets"] == {}
    assert "TooManyDeadLetters" in failed["FAIL"]["run"]["facets"]["errorMessage"]["message"]

    sent = "".join(path.read_text() for path in airflow.events_folder.iterdir())
    assert password_of_the_database() not in sent

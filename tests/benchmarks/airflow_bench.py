"""An Airflow for the benchmarks, as the sandbox starts it, and the seconds of its runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from psycopg2 import sql

from sandbox.airflow import AirflowServer, AirflowSetup
from sandbox.airflow_client import AirflowClient
from sandbox.paths import CHECKOUT
from tests.benchmarks.ours import connections
from tests.benchmarks.world import BenchWorld, execute

_DATABASE = "airflow"
_VARIABLES = {
    # As where people run it: Python keeps what it has compiled.
    "PYTHONDONTWRITEBYTECODE": "",
    # Airflow's own default; the sandbox looks at DAG files more often.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
}


@contextmanager
def running_airflow(
    world: BenchWorld, params: Mapping[str, Any], pipelines: Path, *, dags: Path = CHECKOUT / "dags"
) -> Iterator[AirflowClient]:
    """Start an Airflow without any history; stop it at the end.

    Args:
        world: Its servers; Airflow's own tables are in the same PostgreSQL.
        params: Parameters of the database that pipelines load into.
        pipelines: Folder of pipeline files.
        dags: Folder of DAG files.
    """
    folder = world.folder / "airflow"
    shutil.rmtree(folder, ignore_errors=True)
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(_DATABASE))
    execute(world.postgres.params(), drop)
    world.postgres.create_database(_DATABASE)
    setup = AirflowSetup(
        database_url=world.postgres.dsn(_DATABASE, scheme="postgresql+psycopg2"),
        connections=connections(world.kafka.bootstrap, params),
        dags=dags,
        extra_env={**_VARIABLES, "KAFKA_INGEST_PIPELINES": str(pipelines)},
    )
    server = AirflowServer(folder, setup)
    server.start(report=lambda _: None)
    try:
        yield server.client()
    finally:
        server.stop()


def ask_airflow(world: BenchWorld, question: str) -> list[tuple[Any, ...]]:
    """Ask Airflow's own tables: its interface would work for each of hundreds of runs."""
    return execute(world.postgres.params(_DATABASE), sql.SQL(question))


def timed_run(airflow: AirflowClient, dag_id: str) -> dict[str, Any]:
    """Trigger a run and wait for its green end.

    Returns:
        ``run_id``; ``seconds`` from the moment the run is queued to its end; ``parts_seconds``: of each task that had a
        process, under its id, and of Airflow before it, under ``before <id>``.
    """
    airflow.wait_for_dag(dag_id)
    airflow.unpause(dag_id)
    run_id = airflow.trigger(dag_id)
    state = airflow.wait_for_run(dag_id, run_id)
    if state != "success":
        raise RuntimeError(f"the run ended as {state}")
    run = airflow.run(dag_id, run_id)
    tasks = [task for task in airflow.tasks(dag_id, run_id) if task["start_date"] and task["pid"]]
    shares: dict[str, float] = {}
    last = time_of(run["queued_at"])
    for task in sorted(tasks, key=lambda task: str(task["start_date"])):
        begun, ended = time_of(task["start_date"]), time_of(task["end_date"])
        shares[f"before {task['task_id']}"] = (begun - last).total_seconds()
        shares[task["task_id"]] = (ended - begun).total_seconds()
        last = ended
    end = time_of(run["end_date"])
    shares["to the run's end"] = (end - last).total_seconds()
    seconds = (end - time_of(run["queued_at"])).total_seconds()
    return {"run_id": run_id, "seconds": seconds, "parts_seconds": shares}


def time_of(text: str) -> datetime:
    """Return a time of Airflow's answers."""
    return datetime.fromisoformat(text).astimezone(UTC)

"""A whole DAG run beside the load alone: what Airflow adds, and where it goes.

A run and a load of the same topic take turns. Airflow runs as in the sandbox, with LocalExecutor.
"""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from psycopg2 import sql

from sandbox.airflow import AirflowServer, AirflowSetup
from sandbox.airflow_client import AirflowClient
from tests.benchmarks.contenders import OURS
from tests.benchmarks.load import Load
from tests.benchmarks.machine import machine
from tests.benchmarks.ours import connections, written_pipeline
from tests.benchmarks.rounds import TABLE, Comparison, compare
from tests.benchmarks.topics import filled_topic
from tests.benchmarks.workloads import ORDERS
from tests.benchmarks.world import BenchWorld, execute, fresh_database

RECORDS, ROUNDS = 1_000_000, 3
_DAG_ID = "kafka_to_postgres__bench"
_AIRFLOW_DATABASE = "airflow"


def main() -> None:
    """Prints one JSON object: seconds of each round, and of the parts of the DAG run."""
    world = BenchWorld()
    world.start()
    # Runs that an earlier measurement left would come first.
    shutil.rmtree(_airflow_folder(world), ignore_errors=True)
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(_AIRFLOW_DATABASE))
    execute(world.postgres.params(), drop)
    world.postgres.create_database(_AIRFLOW_DATABASE)
    try:
        runs = [_one_round(world, number) for number in range(ROUNDS)]
        print(json.dumps({"machine": machine(world), "records": RECORDS, "runs": runs}))
    finally:
        world.stop()


def _one_round(world: BenchWorld, number: int) -> dict[str, Any]:
    [alone] = compare(world, Comparison("airflow-run", ORDERS, RECORDS, (OURS,), 1))
    run = _dag_run(world)
    print(f"round {number + 1}: load {alone['seconds']:.1f} s, DAG run {run['seconds']:.1f} s: {run}", file=sys.stderr)
    return {"round": number, "load_seconds": alone["seconds"], "dag_run": run}


def _dag_run(world: BenchWorld) -> dict[str, Any]:
    topic = filled_topic(world.kafka.bootstrap, ORDERS, RECORDS)
    pipelines = world.folder / "pipelines"
    shutil.rmtree(pipelines, ignore_errors=True)
    pipelines.mkdir()
    with fresh_database(world) as params:
        load = Load(ORDERS.name, RECORDS, ORDERS.partitions, world.kafka.bootstrap, topic, TABLE, str(pipelines))
        written_pipeline(load, pipelines, follow_up=False)
        setup = AirflowSetup(
            database_url=world.postgres.dsn(_AIRFLOW_DATABASE, scheme="postgresql+psycopg2"),
            connections=connections(world.kafka.bootstrap, params),
            extra_env={"KAFKA_INGEST_PIPELINES": str(pipelines)},
        )
        server = AirflowServer(_airflow_folder(world), setup)
        server.start(report=lambda _: None)
        try:
            return _timed(server.client())
        finally:
            server.stop()


def _airflow_folder(world: BenchWorld) -> Path:
    return world.folder / "airflow"


def _timed(airflow: AirflowClient) -> dict[str, Any]:
    airflow.wait_for_dag(_DAG_ID)
    airflow.unpause(_DAG_ID)
    run_id = airflow.trigger(_DAG_ID)
    state = airflow.wait_for_run(_DAG_ID, run_id)
    if state != "success":
        raise RuntimeError(f"the run ended as {state}")
    run = airflow.run(_DAG_ID, run_id)
    tasks = sorted(airflow.tasks(_DAG_ID, run_id), key=lambda task: str(task["start_date"]))
    shares: dict[str, float] = {}
    last = _time(run["queued_at"])
    for task in tasks:
        if task["start_date"] is None:
            continue
        shares[f"before {task['task_id']}"] = (_time(task["start_date"]) - last).total_seconds()
        shares[task["task_id"]] = (_time(task["end_date"]) - _time(task["start_date"])).total_seconds()
        last = _time(task["end_date"])
    shares["to the run's end"] = (_time(run["end_date"]) - last).total_seconds()
    return {"seconds": (_time(run["end_date"]) - _time(run["queued_at"])).total_seconds(), "parts_seconds": shares}


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


if __name__ == "__main__":
    main()

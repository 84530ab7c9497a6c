"""A whole DAG run beside the load alone: what Airflow adds, and where it goes.

A run and a load of the same topic take turns. Airflow runs as in the sandbox, with LocalExecutor.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

from tests.benchmarks.airflow_bench import running_airflow, timed_run
from tests.benchmarks.contenders import OURS
from tests.benchmarks.load import Load
from tests.benchmarks.machine import machine
from tests.benchmarks.ours import written_pipeline
from tests.benchmarks.rounds import TABLE, Comparison, compare
from tests.benchmarks.topics import filled_topic
from tests.benchmarks.workloads import ORDERS
from tests.benchmarks.world import BenchWorld, fresh_database

RECORDS, ROUNDS = 1_000_000, 3


def main() -> None:
    """Prints one JSON object: seconds of each round, and of the parts of the DAG run."""
    world = BenchWorld()
    world.start()
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
        with running_airflow(world, params, pipelines) as airflow:
            return timed_run(airflow, "kafka_to_postgres__bench")


if __name__ == "__main__":
    main()

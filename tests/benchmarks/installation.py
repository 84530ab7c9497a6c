"""An hour of an installation: 300 pipelines with 500 new records each, due at the same moment.

Once with Spark, by some of the pipelines (they take long, one like the other), then all in process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

import psutil
from psycopg2 import sql

from sandbox.airflow_client import AirflowClient
from tests.benchmarks.airflow_bench import ask_airflow, running_airflow
from tests.benchmarks.machine import machine
from tests.benchmarks.small_batches import write_pipeline
from tests.benchmarks.topics import new_topics, send_more
from tests.benchmarks.workloads import ORDERS
from tests.benchmarks.world import BenchWorld, execute, fresh_database

RECORDS = 500
SPARK, IN_PROCESS = "with Spark", "in process"
_IDLE_SECONDS = 30.0
_LOOK_SECONDS = 2.0
_RUNS = """
    SELECT count(*), count(*) FILTER (WHERE state = 'success'),
           extract(epoch FROM min(queued_at))::float8, extract(epoch FROM max(end_date))::float8,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM end_date - start_date))
    FROM dag_run
    WHERE run_type = 'manual' AND dag_id LIKE 'kafka_to_postgres__%' AND run_id LIKE '{prefix}%'
"""
_PLANS = """
    SELECT percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY extract(epoch FROM ended_at - started_at))
    FROM kafka_ingest.attempt
    WHERE step = 'plan' AND run_id LIKE {}
"""
_SESSIONS = "SELECT count(*), count(*) FILTER (WHERE application_name LIKE 'kafka_ingest%') FROM pg_stat_activity"


def main() -> None:
    """Prints one JSON object: what each way took."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--pipelines", type=int, default=300)
    parser.add_argument("--with-spark", type=int, default=40, help="how many of them load with Spark first")
    options = parser.parse_args()
    world = BenchWorld()
    world.start()
    try:
        found = _measured(world, options.pipelines, options.with_spark)
        print(json.dumps({"machine": machine(world), "records": RECORDS, **found}))
    finally:
        world.stop()


def _measured(world: BenchWorld, pipelines: int, with_spark: int) -> dict[str, Any]:
    names = [f"p{number:03}" for number in range(pipelines)]
    mark = uuid.uuid4().hex[:6]
    topics = {name: f"hour-{mark}-{name}" for name in names}
    new_topics(world.kafka.bootstrap, list(topics.values()), ORDERS.partitions)
    folder = world.folder / "hour"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, (name, topic) in enumerate(topics.items()):
        if number < with_spark:
            write_pipeline(folder, f"{name}_spark", topic)
        write_pipeline(folder, f"{name}_in_process", topic, spark={"in_process_below_offsets": 10 * RECORDS})
        send_more(world.kafka.bootstrap, topic, ORDERS, RECORDS)
    with fresh_database(world) as params, running_airflow(world, params, folder) as airflow:
        dags = {
            SPARK: [f"kafka_to_postgres__{name}_spark" for name in names[:with_spark]],
            IN_PROCESS: [f"kafka_to_postgres__{name}_in_process" for name in names],
        }
        for dag_id in (dag_id for group in dags.values() for dag_id in group):
            airflow.wait_for_dag(dag_id)
            airflow.unpause(dag_id)
        idle = _idle_cores()
        ways = {way: _one_hour(world, params, airflow, way, group) for way, group in dags.items()}
    return {"idle_cores": idle, "ways": ways}


def _idle_cores() -> float:
    before, begun = _busy_seconds(), time.monotonic()
    time.sleep(_IDLE_SECONDS)
    return (_busy_seconds() - before) / (time.monotonic() - begun)


def _busy_seconds() -> float:
    """Return the CPU seconds of the whole machine, on which nothing else runs."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def _one_hour(
    world: BenchWorld, params: Mapping[str, Any], airflow: AirflowClient, way: str, dag_ids: list[str]
) -> dict[str, Any]:
    prefix = f"{way.rsplit(maxsplit=1)[-1].lower()}_{uuid.uuid4().hex[:6]}_"
    before = _busy_seconds()
    with _Watch(world, airflow) as watch:
        for dag_id in dag_ids:
            airflow.call("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None, "dag_run_id": f"{prefix}{dag_id}"})
        while True:
            [(runs, green, first, last, median)] = ask_airflow(world, _RUNS.format(prefix=prefix))
            if runs == green == len(dag_ids):
                break
            print(f"{way}: {green} of {len(dag_ids)} green", file=sys.stderr, flush=True)
            time.sleep(_LOOK_SECONDS * 5)
    busy = _busy_seconds() - before
    [(plans,)] = execute(params, sql.SQL(_PLANS).format(sql.Literal(f"{prefix}%")))
    [(rows,)] = execute(
        params,
        sql.SQL("SELECT sum(rows)::bigint FROM kafka_ingest.batch WHERE run_id LIKE {}").format(
            sql.Literal(f"{prefix}%")
        ),
    )
    if rows != RECORDS * len(dag_ids):
        raise RuntimeError(f"{rows} rows were loaded")
    return {
        "pipelines": len(dag_ids),
        "seconds_until_all_are_green": last - first,
        "median_run_seconds": float(median),
        "busy_cpu_seconds": busy,
        "plan_seconds": {"median": float(plans[0]), "p95": float(plans[1])},
        **watch.found(),
    }


class _Watch:
    """Looks whether scheduler and database keep up, until it is left."""

    def __init__(self, world: BenchWorld, airflow: AirflowClient) -> None:
        self._world = world
        self._airflow = airflow
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._sessions: list[tuple[int, int]] = []
        self._unhealthy = 0

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def found(self) -> dict[str, Any]:
        """Return the most sessions of the server, of them the product's, and how often the scheduler was unhealthy."""
        return {
            "most_sessions": max(every for every, _ in self._sessions),
            "most_own_sessions": max(own for _, own in self._sessions),
            "looks": len(self._sessions),
            "looks_with_unhealthy_scheduler": self._unhealthy,
        }

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            [(every, own)] = execute(self._world.postgres.params(), sql.SQL(_SESSIONS))
            self._sessions.append((every, own))
            self._unhealthy += self._airflow.health().get("scheduler", {}).get("status") != "healthy"


if __name__ == "__main__":
    main()

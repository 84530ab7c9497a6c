"""Small batches in a running Airflow: from trigger to green, in parts, beside a DAG of four empty tasks.

Every round sends 1,000 records to one topic and runs each DAG once, one after another. ``--before`` names a checkout of
an older version: its DAG runs in the same Airflow and the same rounds.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from psycopg2 import sql

from sandbox.airflow_client import AirflowClient
from sandbox.paths import CHECKOUT
from tests.benchmarks.airflow_bench import running_airflow, time_of, timed_run
from tests.benchmarks.machine import machine
from tests.benchmarks.topics import new_topics, send_more
from tests.benchmarks.workloads import ORDERS
from tests.benchmarks.world import BenchWorld, execute, fresh_database

RECORDS = 1_000
EMPTY, BEFORE, SPARK, IN_PROCESS = "four empty tasks", "before, Spark", "with Spark", "in process"

_EMPTY_DAG = """\
from airflow.sdk import dag, task


@dag(dag_id="empty", schedule=None)
def empty():
    tasks = [task(task_id=f"task_{number}")(lambda: None)() for number in range(4)]
    for before, after in zip(tasks, tasks[1:]):
        before >> after


empty()
"""
_DAG_OF_BEFORE = """\
# An Airflow DAG: without these words the file would not be read (core.dag_discovery_safe_mode).
import sys
from pathlib import Path

sys.path.insert(0, {plugins!r})

from kafka_ingest.operators.dags import pipeline_dag
from kafka_ingest.pipeline_files.files import one_pipeline

dag = pipeline_dag(one_pipeline("before", Path({folder!r})))
"""
_ATTEMPTS = """
    SELECT step, extract(epoch FROM ended_at - started_at)::float8, session_seconds, stage_seconds, publish_seconds
    FROM kafka_ingest.attempt
    WHERE run_id = {}
"""


@dataclass(frozen=True)
class Folders:
    """Where Airflow finds what it runs."""

    dags: Path
    pipelines: Path
    old_pipelines: Path


def main() -> None:
    """Prints one JSON object: the runs of all rounds, in seconds."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--before", type=Path, help="checkout of an older version")
    options = parser.parse_args()
    world = BenchWorld()
    world.start()
    try:
        runs = _runs(world, options.rounds, options.before)
        print(json.dumps({"machine": machine(world), "records": RECORDS, "runs": runs}))
    finally:
        world.stop()


def _runs(world: BenchWorld, rounds: int, before: Path | None) -> list[dict[str, Any]]:
    topic = f"small-{uuid.uuid4().hex[:8]}"
    new_topics(world.kafka.bootstrap, [topic], ORDERS.partitions)
    dags = {EMPTY: "empty", SPARK: "kafka_to_postgres__spark", IN_PROCESS: "kafka_to_postgres__in_process"}
    if before:
        dags[BEFORE] = "kafka_to_postgres__before"
    folders = _written(world.folder / "small", topic, before)
    runs = []
    with (
        fresh_database(world) as params,
        running_airflow(world, params, folders.pipelines, dags=folders.dags) as airflow,
    ):
        for number in range(-1, rounds):  # the first makes tables, and compiles what was never compiled
            send_more(world.kafka.bootstrap, topic, ORDERS, RECORDS)
            for name, dag_id in dags.items():
                run = {"round": number, "contender": name, **_one_run(airflow, params, dag_id)}
                print(f"round {number + 1}, {name}: {run['seconds']:.2f} s", file=sys.stderr, flush=True)
                runs += [run] if number >= 0 else []
    return runs


def _written(folder: Path, topic: str, before: Path | None) -> Folders:
    shutil.rmtree(folder, ignore_errors=True)
    folders = Folders(folder / "dags", folder / "pipelines", folder / "before")
    for path in (folders.dags, folders.pipelines, folders.old_pipelines):
        path.mkdir(parents=True)
    shutil.copy(CHECKOUT / "dags" / "kafka_to_postgres.py", folders.dags)
    (folders.dags / "empty.py").write_text(_EMPTY_DAG)
    write_pipeline(folders.pipelines, "spark", topic)
    write_pipeline(folders.pipelines, "in_process", topic, spark={"in_process_below_offsets": 10 * RECORDS})
    if before:
        write_pipeline(folders.old_pipelines, "before", topic)
        text = _DAG_OF_BEFORE.format(plugins=str(before / "plugins"), folder=str(folders.old_pipelines))
        (folders.dags / "before.py").write_text(text)
    return folders


def write_pipeline(folder: Path, name: str, topic: str, **sections: Any) -> None:
    """Write the file of a pipeline that runs when it is triggered; its table has its name."""
    document = {
        "pipeline": name,
        "schedule": None,
        "kafka": {"topics": [topic]},
        "first_run": "earliest",
        "value": {
            "format": ORDERS.format,
            "columns": [{"name": column, "type": kind} for column, kind in ORDERS.columns.items()],
        },
        "target": {"table": f"public.{name}", "create_table": True},
        **sections,
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def _one_run(airflow: AirflowClient, params: Mapping[str, Any], dag_id: str) -> dict[str, Any]:
    found = timed_run(airflow, dag_id)
    shares: dict[str, float] = found.pop("parts_seconds")
    waits = sum(seconds for name, seconds in shares.items() if name.startswith(("before", "to the")))
    run = {"seconds": found["seconds"], "parts": {"scheduling": waits}}
    if dag_id == "empty":
        return {**run, "parts": {**run["parts"], "task processes": found["seconds"] - waits}}
    return {**run, "parts": {**run["parts"], **_parts(airflow, params, dag_id, found["run_id"], shares)}}


def _parts(
    airflow: AirflowClient, params: Mapping[str, Any], dag_id: str, run_id: str, shares: Mapping[str, float]
) -> dict[str, float]:
    """Split the tasks of a run by what the ledger holds of each try, and by what the log of the load says, and when."""
    attempts = {row[0]: row[1:] for row in execute(params, sql.SQL(_ATTEMPTS).format(sql.Literal(run_id)))}
    tries = {step: attempts[step][0] for step in ("plan", "load", "audit")}
    session, stage, publish = attempts["load"][1:]
    start, tasks = _job_start(airflow, dag_id, run_id)
    return {
        "start and end of task processes": sum(shares[f"{step}_batch"] - tries[step] for step in tries),
        "plan": tries["plan"],
        "load: spark-submit, JVM, driver": start,
        "load: session": session,
        "load: start of Python workers": stage - tasks,
        "load: staging": tasks,
        "load: publish": publish,
        "load: rest": tries["load"] - start - session - stage - publish,
        "audit": tries["audit"],
        "follow_up": shares.get("follow_up", 0.0),
    }


_TASK_SECONDS = re.compile(r"\(read ([\d.]+), decode ([\d.]+), copy ([\d.]+) task-seconds\)")


def _job_start(airflow: AirflowClient, dag_id: str, run_id: str) -> tuple[float, float]:
    """Return the seconds from spark-submit to the job's first line (0 in process), and those of its one task."""
    path = f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/load_batch/logs/1?full_content=true"
    lines = [entry for entry in airflow.call("GET", path)["content"] if isinstance(entry, dict)]

    def said(what: str) -> datetime | None:
        found = (time_of(line["timestamp"]) for line in lines if what in line["event"] and line.get("timestamp"))
        return next(found, None)

    submitted, begun = said("::group::Spark-Submit cmd"), said("loading batch ")
    tasks = next(filter(None, (_TASK_SECONDS.search(line["event"]) for line in lines)))
    start = (begun - submitted).total_seconds() if begun and submitted else 0.0
    return start, sum(map(float, tasks.groups()))


if __name__ == "__main__":
    main()

"""Policies that every DAG of a folder must keep; each is a function that yields what breaks it.

They can be used on any DAG folder and any folders of pipeline files, ``KAFKA_INGEST_DAGS=/opt/airflow/dags
KAFKA_INGEST_PIPELINES=/opt/airflow/pipelines make test-dags``, or from a test of one's own through :func:`load` and
:data:`POLICIES`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kafka_ingest.operators.dags import DAG_ID_PREFIX

CHECKOUT = Path(__file__).parents[2]
_LOADER = Path(__file__).with_name("load_dag_folder.py")
#: Generous: the process imports Airflow and parses a folder. It ends a test that hangs and asserts no speed.
_DEADLINE_SECONDS = 300

Report = dict[str, Any]
Dag = Mapping[str, Any]
Policy = Callable[[Dag], Iterator[str]]


def load(dags: Path, airflow_home: Path, plugins: Path = CHECKOUT / "plugins", **variables: str) -> Report:
    """Loads a DAG folder in a process of its own.

    Args:
        dags: The folder.
        airflow_home: An empty folder for Airflow's own files; no database is made in it.
        plugins: The plugins folder that goes with it.
        variables: Further environment variables.

    Returns:
        ``files`` (seconds, heavy imports, network calls and opened YAML files of each), ``dags`` and ``import_errors``.
    """
    # The caller's own settings stay outside: a policy must give the same answer everywhere.
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "KAFKA_INGEST_"))}
    environment = kept | {
        "AIRFLOW_HOME": str(airflow_home),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "PYTHONPATH": str(plugins),
    }
    done = subprocess.run(
        [sys.executable, str(_LOADER), str(dags)],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"the folder {dags} could not be loaded:\n{done.stderr}")
    report: Report = json.loads(done.stdout)
    return report


def parse_times(report: Report) -> str:
    """Return the parse time of each file for people; times are shown, never judged."""
    return "\n".join(f"{file['seconds']:7.3f} s  {file['file']}" for file in report["files"])


def has_plain_id(dag: Dag) -> Iterator[str]:
    """Ids are lower case words, so that they can stand in URLs, file names and alerts."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", dag["dag_id"]):
        yield f"id {dag['dag_id']!r} is not made of lower case letters, digits and _"


def has_description_and_docs(dag: Dag) -> Iterator[str]:
    """Who is called at night finds on the DAG's page what it does."""
    if not dag["description"]:
        yield "no description"
    if len(dag["doc_md"] or "") < 100:
        yield "no doc_md of at least 100 characters"


def has_tags(dag: Dag) -> Iterator[str]:
    """At least one tag, to find it by."""
    if not dag["tags"]:
        yield "no tags"


def does_not_catch_up(dag: Dag) -> Iterator[str]:
    """Unpausing a DAG must not start hundreds of runs, unless its pipeline file says so."""
    if dag["catchup"] and not dag["dag_id"].startswith(DAG_ID_PREFIX):
        yield "catchup is on"


def has_start_date(dag: Dag) -> Iterator[str]:
    """Without one the scheduler never runs it."""
    if not dag["start_date"]:
        yield "no start_date"


def has_owned_tasks(dag: Dag) -> Iterator[str]:
    """Every task has an owner that somebody chose."""
    yield from (
        f"task {task['task_id']} has no owner of its own" for task in dag["tasks"] if task["owner"] in ("", "airflow")
    )


def retries_with_a_delay(dag: Dag) -> Iterator[str]:
    """A broker that restarts must not need a person."""
    for task in dag["tasks"]:
        if task["retries"] < 1:
            yield f"task {task['task_id']} has no retries"
        if task["retry_delay_seconds"] < 1:
            yield f"task {task['task_id']} retries without delay"


def has_time_limits(dag: Dag) -> Iterator[str]:
    """A hanging task must end some day."""
    yield from (
        f"task {t['task_id']} has no execution_timeout" for t in dag["tasks"] if not t["execution_timeout_seconds"]
    )


POLICIES: tuple[Policy, ...] = (
    has_plain_id,
    has_description_and_docs,
    has_tags,
    does_not_catch_up,
    has_start_date,
    has_owned_tasks,
    retries_with_a_delay,
    has_time_limits,
)


def violations(report: Report, policy: Policy) -> list[str]:
    """Lists what breaks a policy, with the DAG's id."""
    return [f"{dag['dag_id']}: {fault}" for dag in report["dags"] for fault in policy(dag)]

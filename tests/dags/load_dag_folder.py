"""Loads every DAG of a folder as Airflow's dag processor does and prints what it found as JSON.

    python tests/dags/load_dag_folder.py FOLDER

It is run in a process of its own, so that modules loaded by others do not count, with every way to the network closed
and without a metadata database. Only Airflow is imported here, so this file can be copied beside anybody's DAGs.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

#: Libraries that take long to load, or that only a running task needs. Airflow itself loads none of them.
HEAVY = ("confluent_kafka", "msgspec", "numpy", "pandas", "psycopg2", "pyarrow", "pyspark")


@contextlib.contextmanager
def closed_network(attempts: list[str]) -> Iterator[None]:
    """Refuses every connection and every look-up of a name, and notes what was tried."""

    def refuse(*args: Any, **_: Any) -> NoReturn:
        target = args[1] if args and isinstance(args[0], socket.socket) else args
        attempts.append(repr(target))
        raise OSError("no network while DAGs are parsed")

    replaced = {(socket.socket, "connect"), (socket.socket, "connect_ex"), (socket, "getaddrinfo")}
    kept = {(owner, name): getattr(owner, name) for owner, name in replaced}
    for owner, name in replaced:
        setattr(owner, name, refuse)
    try:
        yield
    finally:
        for (owner, name), original in kept.items():
            setattr(owner, name, original)


def note_opened_yaml(opened: list[str]) -> None:
    """Notes every opening of a YAML file from now on; an audit hook stays for the life of the process."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith((".yaml", ".yml")):
            opened.append(str(arguments[0]))

    sys.addaudithook(note)


def describe_task(task: Any) -> dict[str, Any]:
    """Return what policies look at in a task."""
    timeout = task.execution_timeout
    return {
        "task_id": task.task_id,
        "owner": task.owner,
        "retries": task.retries,
        "retry_delay_seconds": task.retry_delay.total_seconds(),
        "execution_timeout_seconds": timeout.total_seconds() if timeout else None,
        "upstream": sorted(task.upstream_task_ids),
        "trigger_rule": str(task.trigger_rule),
        "template_fields": {name: repr(getattr(task, name, None)) for name in task.template_fields},
        "outlets": [str(getattr(outlet, "uri", outlet)) for outlet in task.outlets],
    }


def describe_dag(dag: Any) -> dict[str, Any]:
    """Return what policies look at in a DAG; serialise it too, as the dag processor does."""
    return {
        "dag_id": dag.dag_id,
        "file": dag.relative_fileloc,
        "tags": sorted(dag.tags),
        "description": dag.description,
        "doc_md": dag.doc_md,
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "start_date": dag.start_date.isoformat() if dag.start_date else None,
        "timetable": type(dag.timetable).__name__,
        "tasks": [describe_task(task) for task in dag.tasks],
        "serialized": json.dumps(serialized(dag), default=str),
    }


def serialized(dag: Any) -> Any:
    """Return what Airflow keeps of a DAG in its database."""
    module: Any = importlib.import_module("airflow.serialization.serialized_objects")
    # Its name in Airflow 3.1 is the second one.
    serialization = getattr(module, "DagSerialization", None) or module.SerializedDAG
    return serialization.to_dict(dag)


def empty_bag(folder: Path) -> Any:
    """Return Airflow's collection of the DAGs of a bundle, with the folder on the path as in the dag processor."""
    try:
        from airflow.dag_processing.dagbag import BundleDagBag
    except ModuleNotFoundError:  # Airflow 3.1
        sys.path.append(str(folder))
        dag_bag = importlib.import_module("airflow.models.dagbag").DagBag
        return dag_bag(dag_folder=folder, bundle_path=folder, collect_dags=False)
    return BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder", collect_dags=False)


def load_folder(folder: Path) -> dict[str, Any]:
    """Loads file by file: DAGs, import errors, seconds; heavy modules, network calls and opened YAML files of each."""
    attempts: list[str] = []
    opened: list[str] = []
    note_opened_yaml(opened)
    with closed_network(attempts):
        bag = empty_bag(folder)
        files = []
        for path in sorted(folder.rglob("*.py")):
            opened.clear()
            loaded, calls, begin = set(sys.modules), len(attempts), time.perf_counter()
            bag.collect_dags(dag_folder=path)
            heavy = sorted(name for name in HEAVY if name in set(sys.modules) - loaded)
            seconds = time.perf_counter() - begin
            files.append(
                {
                    "file": str(path.relative_to(folder)),
                    "seconds": seconds,
                    "heavy": heavy,
                    "network": attempts[calls:],
                    "opened_yaml": sorted(opened),
                }
            )
        dags = [describe_dag(dag) for dag in bag.dags.values()]
    return {"files": files, "dags": dags, "import_errors": bag.import_errors}


if __name__ == "__main__":
    # Airflow logs to standard output; the report must stand there alone.
    report_to, sys.stdout = sys.stdout, sys.stderr
    # The dag processor imports this once for all files (`_pre_import_airflow_modules`): it is no DAG file's cost.
    os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    import airflow.sdk  # noqa: F401

    json.dump(load_folder(Path(sys.argv[1]).resolve()), report_to)

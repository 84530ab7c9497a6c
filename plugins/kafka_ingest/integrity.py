"""Tests for the DAG folder of your own, in your own repository: ``pytest --pyargs kafka_ingest.integrity``.

They parse the folder as Airflow's dag processor does, without services and without a metadata database, and judge what
came out: files that do not load, DAG ids that are taken twice, slow imports, and policies that keep a DAG out of
trouble at night. ``docs/deploying.md`` shows the command. No extra brings pytest: nothing else needs it.

    KAFKA_INGEST_DAGS       the DAG folder; ``dags`` below the current folder without it
    KAFKA_INGEST_PIPELINES  folders of pipeline files, as for Airflow
    AIRFLOW__CORE__PLUGINS_FOLDER, AIRFLOW_VAR_…, AIRFLOW_CONN_…  what the DAG files themselves ask for

:func:`load` and :data:`POLICIES` serve tests of one's own.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

FOLDER_VARIABLE = "KAFKA_INGEST_DAGS"
#: Libraries that take long to load, or that only a running task needs. Airflow itself loads none of them.
HEAVY = ("confluent_kafka", "msgspec", "numpy", "pandas", "psycopg2", "pyarrow", "pyspark")
#: Settings of the caller that belong to the DAG files. All others stay outside: the answer must be the same everywhere.
_OF_THE_DAGS = ("AIRFLOW__CORE__PLUGINS_FOLDER", "AIRFLOW_VAR_", "AIRFLOW_CONN_", "KAFKA_INGEST_")
#: Generous: the process imports Airflow and parses a folder. It ends a test that hangs and asserts no speed.
_DEADLINE_SECONDS = 300
#: Its first argument is where this package is found; behind all other folders, as Airflow has its plugins folder.
_LOADER = "import sys; sys.path.append(sys.argv[1]); from kafka_ingest.integrity import print_report; print_report()"

Report = dict[str, Any]
Dag = Mapping[str, Any]
Policy = Callable[[Dag], Iterator[str]]


def load(dags: Path, airflow_home: Path, plugins: Path | None = None, **variables: str) -> Report:
    """Load a DAG folder in a process of its own.

    Args:
        dags: The folder.
        airflow_home: An empty folder for Airflow's own files; no database is made in it.
        plugins: A plugins folder that holds another copy of this package.
        variables: Further environment variables.

    Returns:
        ``files`` (seconds, heavy imports, network calls and opened YAML files of each), ``dags`` and ``import_errors``.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "KAFKA_INGEST_"))}
    own = {"AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins), "PYTHONPATH": str(plugins)} if plugins else {}
    settings = {"AIRFLOW_HOME": str(airflow_home), "AIRFLOW__CORE__DAGS_FOLDER": str(dags), **own}
    done = subprocess.run(  # noqa: S603 - this interpreter, and a program that is written here
        [sys.executable, "-c", _LOADER, str(Path(__file__).parents[1]), str(dags)],
        env=kept | settings | variables,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"the folder {dags} could not be loaded:\n{done.stderr}")
    report: Report = json.loads(done.stdout)
    return report


def print_report() -> None:
    """Load the folder that the last argument names and print what was found as JSON."""
    # Airflow logs to standard output; the report must be there alone.
    report_to, sys.stdout = sys.stdout, sys.stderr
    os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    # The dag processor imports this once for all files (`_pre_import_airflow_modules`): it is no DAG file's cost.
    import airflow.sdk  # noqa: F401

    json.dump(_load_folder(Path(sys.argv[-1]).resolve()), report_to)


def _empty_bag(folder: Path) -> Any:
    """Return Airflow's collection of the DAGs of a bundle, with the folder on the path as in the dag processor."""
    try:
        from airflow.dag_processing.dagbag import BundleDagBag
    except ModuleNotFoundError:  # Airflow 3.1
        sys.path.append(str(folder))
        dag_bag = importlib.import_module("airflow.models.dagbag").DagBag
        return dag_bag(dag_folder=folder, bundle_path=folder, collect_dags=False)
    return BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder", collect_dags=False)


def _load_folder(folder: Path) -> Report:
    """Load file by file: DAGs, import errors, seconds; heavy modules, network calls and opened YAML files of each."""
    attempts: list[str] = []
    opened: list[str] = []
    _note_opened_yaml(opened)
    with _closed_network(attempts):
        bag = _empty_bag(folder)
        files = []
        for path in sorted(folder.rglob("*.py")):
            opened.clear()
            loaded, calls, begin = set(sys.modules), len(attempts), time.perf_counter()
            bag.collect_dags(dag_folder=path)
            seconds = time.perf_counter() - begin
            files.append(
                {
                    "file": str(path.relative_to(folder)),
                    "seconds": seconds,
                    "heavy": sorted(name for name in HEAVY if name in set(sys.modules) - loaded),
                    "network": attempts[calls:],
                    "opened_yaml": sorted(opened),
                }
            )
        dags = [_describe_dag(dag) for dag in bag.dags.values()]
    return {"files": files, "dags": dags, "import_errors": bag.import_errors}


@contextlib.contextmanager
def _closed_network(attempts: list[str]) -> Iterator[None]:
    """Refuse every connection and every look-up of a name, and note what was tried."""

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


def _note_opened_yaml(opened: list[str]) -> None:
    """Note every opening of a YAML file from now on; an audit hook stays for the life of the process."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith((".yaml", ".yml")):
            opened.append(str(arguments[0]))

    sys.addaudithook(note)


def _describe_dag(dag: Any) -> dict[str, Any]:
    """Return what policies look at in a DAG; serialise it too, as the dag processor does."""
    from kafka_ingest.pipeline_files.files import DAG_ID_PREFIX

    return {
        "dag_id": dag.dag_id,
        "is_of_a_pipeline_file": dag.dag_id.startswith(DAG_ID_PREFIX),
        "file": dag.relative_fileloc,
        "tags": sorted(dag.tags),
        "description": dag.description,
        "doc_md": dag.doc_md,
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "start_date": dag.start_date.isoformat() if dag.start_date else None,
        "timetable": type(dag.timetable).__name__,
        "tasks": [_describe_task(task) for task in dag.tasks],
        "serialized": json.dumps(_serialized(dag), default=str),
    }


def _serialized(dag: Any) -> Any:
    """Return what Airflow keeps of a DAG in its database."""
    module: Any = importlib.import_module("airflow.serialization.serialized_objects")
    # Its name in Airflow 3.1 is the second one.
    serialization = getattr(module, "DagSerialization", None) or module.SerializedDAG
    return serialization.to_dict(dag)


def _describe_task(task: Any) -> dict[str, Any]:
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
    if dag["catchup"] and not dag["is_of_a_pipeline_file"]:
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
    """Retries with a delay: a broker that restarts must not need a person."""
    for task in dag["tasks"]:
        if task["retries"] < 1:
            yield f"task {task['task_id']} has no retries"
        if task["retry_delay_seconds"] < 1:
            yield f"task {task['task_id']} retries without delay"


def has_time_limits(dag: Dag) -> Iterator[str]:
    """Tasks end some day, also those that hang."""
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
    """List what breaks a policy, with the DAG's id."""
    return [f"{dag['dag_id']}: {fault}" for dag in report["dags"] for fault in policy(dag)]


@pytest.fixture(scope="module")
def dag_folder() -> Report:
    """Load the folder once. With ``-s`` the parse time of each file is shown; times are never judged."""
    folder = Path(os.environ.get(FOLDER_VARIABLE, "dags")).resolve()
    if not folder.is_dir():
        pytest.exit(f"no DAG folder: expected {folder}\n  next: {FOLDER_VARIABLE}=/path/to/dags pytest …", returncode=2)
    variables = {name: value for name, value in os.environ.items() if name.startswith(_OF_THE_DAGS)}
    with tempfile.TemporaryDirectory() as home:
        report = load(folder, Path(home), None, **variables)
    times = "".join(f"\n{file['seconds']:7.3f} s  {file['file']}" for file in report["files"])
    sys.stdout.write(f"\nparse times in {folder}:{times}\n")
    return report


def test_every_file_loads(dag_folder: Report) -> None:
    """A file that does not load is an import error in Airflow; so is a broken pipeline file, with all its faults."""
    # As texts of their own, here and below, which pytest shows whole: a user reads there what is wrong.
    errors = "\n".join(f"{file}\n{error}" for file, error in dag_folder["import_errors"].items())
    assert not errors, errors


def test_there_are_dags(dag_folder: Report) -> None:
    """A folder without one is a wrong path, or files that Airflow passes over."""
    assert dag_folder["dags"], "no DAG in the folder"


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_every_dag_keeps_the_policy(dag_folder: Report, policy: Policy) -> None:
    """Leave one out that your house does not want: ``--deselect``, or ``-k "not has_tags"``."""
    faults = "\n".join(violations(dag_folder, policy))
    assert not faults, f"{policy.__doc__}\n{faults}"


def test_no_heavy_library_is_loaded_while_parsing(dag_folder: Report) -> None:
    """The dag processor parses each file again and again, in a process of its own each time."""
    loaded = (file for file in dag_folder["files"] if file["heavy"])
    heavy = "\n".join(f"{file['file']}: {', '.join(file['heavy'])}" for file in loaded)
    assert not heavy, heavy


def test_no_network_is_used_while_parsing(dag_folder: Report) -> None:
    """A server that is away would take every DAG out of service."""
    called = (file for file in dag_folder["files"] if file["network"])
    calls = "\n".join(f"{file['file']}: {', '.join(file['network'])}" for file in called)
    assert not calls, calls

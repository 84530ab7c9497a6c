"""Finding the processes of a run: below a process that we started, or in a session that we started.

Nothing else is ever touched: other sandboxes and tests may run on the same machine.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ENTRY = "load_batch.py"
_AIRFLOW_TASK = re.compile(r"^airflow worker -- [0-9a-f-]{36}")
_AIRFLOW_SUPERVISOR = re.compile(r"^airflow worker -- LocalExecutor: (?!<idle>)")


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """A living process: ids, and its command line as one text."""

    pid: int
    parent: int
    session: int
    command: str


Test = Callable[[SeenProcess], bool]


def all_processes() -> list[SeenProcess]:
    """List the living processes of this machine."""
    found = (_seen(path) for path in Path("/proc").glob("[0-9]*"))
    return [process for process in found if process is not None]


def descendants(root: int, processes: Iterable[SeenProcess]) -> list[SeenProcess]:
    """Return the processes that a process started, and those that they started, without itself."""
    children: dict[int, list[SeenProcess]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found: list[SeenProcess] = []
    waiting = [root]
    while waiting:
        born = children.get(waiting.pop(), [])
        found += born
        waiting += [process.pid for process in born]
    return found


def in_sessions(sessions: Iterable[int], processes: Iterable[SeenProcess]) -> list[SeenProcess]:
    """Return the processes of sessions: all that a leader started, orphans included."""
    wanted = set(sessions)
    return [process for process in processes if process.session in wanted]


def is_jvm(process: SeenProcess) -> bool:
    """Tell whether it is spark-submit's JVM."""
    return "org.apache.spark.deploy.SparkSubmit" in process.command


def is_driver(process: SeenProcess) -> bool:
    """Tell whether it is the Python process that runs the job, with Spark or without."""
    return _ENTRY in process.command and not is_jvm(process) and "python" in process.command.split(" ", 1)[0]


def is_executor(process: SeenProcess) -> bool:
    """Tell whether it is the JVM of a cluster's executor."""
    return "CoarseGrainedExecutorBackend" in process.command and "java" in process.command.split(" ", 1)[0]


def is_airflow_task(process: SeenProcess) -> bool:
    """Tell whether it is the process of an Airflow task."""
    return _AIRFLOW_TASK.match(process.command) is not None


def is_airflow_supervisor(process: SeenProcess) -> bool:
    """Tell whether it is the LocalExecutor's process that watches over a task."""
    return _AIRFLOW_SUPERVISOR.match(process.command) is not None


def python_workers(processes: Iterable[SeenProcess]) -> list[SeenProcess]:
    """Return the Python processes that stage: children of PySpark's daemon."""
    daemons = {process.pid: process for process in processes if "pyspark.daemon" in process.command}
    return [process for process in daemons.values() if process.parent in daemons]


def send(process: SeenProcess, number: signal.Signals) -> bool:
    """Send a signal; return whether the process was still there."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)
        return True
    return False


def _seen(folder: Path) -> SeenProcess | None:
    # proc(5): pid (comm) state ppid pgrp session ...; the name in parentheses may hold anything.
    try:
        fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (OSError, IndexError):
        return None
    if fields[0] in "ZX":
        return None
    return SeenProcess(int(folder.name), int(fields[1]), int(fields[3]), command)

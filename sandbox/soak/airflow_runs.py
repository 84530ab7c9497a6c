"""Cycles through Airflow: one DAG run, retried by Airflow itself, and cleared when its retries are used up."""

from __future__ import annotations

import http.client
import time
import urllib.error
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sandbox.airflow import AirflowServer
from sandbox.airflow_client import AirflowClient
from sandbox.errors import SandboxError
from sandbox.soak.attempts import SoakFailure
from sandbox.soak.choices import Cycle
from sandbox.soak.command_runs import CommandRuns, Waiting
from sandbox.soak.faults import Scene
from sandbox.soak.pipeline import DAG_ID
from sandbox.soak.processes import SeenProcess, all_processes, in_sessions
from sandbox.soak.progress import Progress, Usual

_POLL_SECONDS = 0.05
_ASK_SECONDS = 1.0
#: A dead task is noticed after half a minute, and every task may die more than once.
_RUN_SECONDS = 600.0
_MOST_CLEARS = 3
_ANSWER_SECONDS = 120.0
_ROLLED_BACK = "state rolled_back"

T = TypeVar("T")


@dataclass(slots=True)
class AirflowRuns:
    """Cycles through a running Airflow.

    Attributes:
        commands: Runs attempts beside the DAG run; has world, faults, journal and watcher.
    """

    commands: CommandRuns
    _usual: Usual = field(default_factory=Usual)
    _is_ready: bool = False

    def run(self, cycle: Cycle) -> int:
        """Run a cycle until its DAG run is green; return the number of tries of all tasks together.

        Raises:
            SoakFailure: A task stopped without using its retries, or the run is not green within the bounds.
        """
        server = self.commands.world.airflow()
        server.start(lambda _: None)
        client = self._ready_client(server)
        form = self.commands.operator.form(cycle.reload) if cycle.reload else None
        run_id = patiently(lambda: client.trigger(DAG_ID, conf=form))
        waiting = Waiting.of(cycle)
        try:
            self._watch(server, client, run_id, waiting)
            self.commands.finish_interventions(waiting, run_id)
            self.commands.await_attempts()
            return sum(task["try_number"] for task in patiently(lambda: client.tasks(DAG_ID, run_id)))
        finally:
            self.commands.end_attempts()
            self.commands.faults.end_orphans()
            for fault in waiting.faults:
                self.commands.journal.late(str(fault))

    def _ready_client(self, server: AirflowServer) -> AirflowClient:
        client = server.client()
        if not self._is_ready:
            client.wait_for_dag(DAG_ID)
            client.unpause(DAG_ID)
            self._is_ready = True
        return client

    def _watch(self, server: AirflowServer, client: AirflowClient, run_id: str, waiting: Waiting) -> None:
        progress = Progress(self._usual)
        scene = Scene(run_id, lambda: self._processes(server), None, self.commands.start_beside)
        deadline, ask_at, clears = time.monotonic() + _RUN_SECONDS, 0.0, 0
        while time.monotonic() < deadline:
            value = progress.take_in(self.commands.watcher.look(DAG_ID, run_id))
            self.commands.operator.keep_up(waiting.interventions, run_id, progress=value)
            if waiting.faults and value >= waiting.faults[0].moment:
                self.commands.faults.inject(waiting.faults.pop(0), scene, progress=value)
            if time.monotonic() > ask_at:
                state = patiently(lambda: client.run(DAG_ID, run_id)["state"])
                if state == "success":
                    return
                if state == "failed":
                    self._clear(client, run_id)
                    clears += 1
                self._mend(server)
                ask_at = time.monotonic() + _ASK_SECONDS
            if clears > _MOST_CLEARS:
                break
            time.sleep(_POLL_SECONDS)
        raise SoakFailure(
            f"DAG run {run_id} is not green after {_RUN_SECONDS:.0f} s or {clears} clears",
            found=_states(client, run_id),
        )

    def _clear(self, client: AirflowClient, run_id: str) -> None:
        """Clear a failed run, as a person would, unless a task said that a person must act first.

        An audit whose batch was rolled back says so, too: there the clear is the required action.
        """
        tasks = patiently(lambda: client.tasks(DAG_ID, run_id))
        stopped = [task for task in tasks if task["state"] == "failed" and task["try_number"] <= task["max_tries"]]
        for task in stopped:
            log = patiently(lambda: client.task_log(DAG_ID, run_id, task["task_id"], task["try_number"]))  # noqa: B023
            if _ROLLED_BACK in log:
                continue
            raise SoakFailure(f"{task['task_id']} of {run_id} failed without using its retries", found=log[-4000:])
        self.commands.journal.event("clear", run=run_id)
        patiently(lambda: client.clear(DAG_ID, run_id))

    def _mend(self, server: AirflowServer) -> None:
        """Start dead parts again that nobody killed, as a service manager would."""
        if dead := server.dead_parts():
            self.commands.journal.event("Airflow parts died", parts=dead)
            server.start(lambda _: None)

    def _processes(self, server: AirflowServer) -> Sequence[SeenProcess]:
        pid = server.process("scheduler").pid()
        return in_sessions([pid], all_processes()) if pid is not None else []


def patiently(ask: Callable[[], T]) -> T:
    """Ask Airflow again while its API server is away or not yet ready.

    Raises:
        SandboxError: It was for too long.
    """
    deadline = time.monotonic() + _ANSWER_SECONDS
    while True:
        try:
            return ask()
        except (SandboxError, urllib.error.URLError, http.client.HTTPException, OSError) as fault:
            if time.monotonic() > deadline:
                raise SandboxError("Airflow's API server does not answer", found=str(fault)) from fault
        time.sleep(1.0)


def _states(client: AirflowClient, run_id: str) -> str:
    tasks = patiently(lambda: client.tasks(DAG_ID, run_id))
    return ", ".join(f"{task['task_id']}: {task['state']} (try {task['try_number']})" for task in tasks)

"""The part of Airflow's REST interface that the demo and the end-to-end tests use."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from sandbox.errors import SandboxError

FINISHED_RUN = ("success", "failed")
FINISHED_TASK = ("success", "failed", "skipped", "upstream_failed", "removed")
_POLL_SECONDS = 1.0
_REQUEST_SECONDS = 120.0  # a server whose cores are taken by Spark jobs answers late


class AirflowClient:
    """A person who is logged in. The token is asked for when needed, and again when it has expired.

    Task ids are full ids, with their task group: ``orders.load_batch``.

    Args:
        url: Base address without a slash at the end.
        user: Login name.
        password: Password of the user.
    """

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url
        self._login = {"username": user, "password": password}
        self._token: str | None = None

    def health(self) -> dict[str, dict[str, Any]]:
        """Return the parts' state; empty while nobody answers. Needs no login."""
        try:
            return self._send("GET", "/api/v2/monitor/health", None, {}) or {}
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return {}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request below ``/api/v2`` and return the JSON answer.

        Raises:
            SandboxError: Airflow refused it; the message has its reason.
        """
        try:
            return self._authorized(method, path, body)
        except urllib.error.HTTPError as error:
            if error.code == 401:
                self._token = None
                return self._authorized(method, path, body)
            reason = error.read().decode("utf-8", errors="replace")
            raise SandboxError(f"Airflow refused {method} {path} ({error.code})", found=reason[:2000]) from error

    def wait_for_dag(self, dag_id: str, *, timeout_seconds: float = 120.0) -> None:
        """Wait until the DAG processor has read the DAG."""
        _wait(lambda: self._has_dag(dag_id), f"DAG {dag_id} was not read", timeout_seconds, self.import_errors)

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler run the DAG."""
        self.call("PATCH", f"/dags/{_part(dag_id)}", {"is_paused": False})

    def pause(self, dag_id: str) -> None:
        """Keep the scheduler from starting runs of the DAG."""
        self.call("PATCH", f"/dags/{_part(dag_id)}", {"is_paused": True})

    def trigger(self, dag_id: str, *, conf: dict[str, Any] | None = None, logical_date: str | None = None) -> str:
        """Start a manual run and return its run id. Without a logical date the run has no data interval."""
        body = {"logical_date": logical_date, "conf": conf or {}}
        run: dict[str, Any] = self.call("POST", f"/dags/{_part(dag_id)}/dagRuns", body)
        return str(run["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Return a run from Airflow's answer; ``state`` is its state."""
        run: dict[str, Any] = self.call("GET", _run_path(dag_id, run_id))
        return run

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the newest 100 runs of a DAG, newest first."""
        runs: list[dict[str, Any]] = self.call("GET", f"/dags/{_part(dag_id)}/dagRuns?order_by=-run_after")["dag_runs"]
        return runs

    def wait_for_run(
        self, dag_id: str, run_id: str, *, states: Collection[str] = FINISHED_RUN, timeout_seconds: float = 600.0
    ) -> str:
        """Wait until the run has one of the states and return it."""
        what = f"run {run_id} of {dag_id} did not become {' or '.join(states)}"
        _wait(
            lambda: self.run(dag_id, run_id)["state"] in states,
            what,
            timeout_seconds,
            lambda: self.task_states(dag_id, run_id),
        )
        return str(self.run(dag_id, run_id)["state"])

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run."""
        found = self.call("GET", f"{_run_path(dag_id, run_id)}/taskInstances")["task_instances"]
        instances: list[dict[str, Any]] = found
        return instances

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """Return a task instance: ``state``, ``try_number``, ``rendered_fields`` and more."""
        task: dict[str, Any] = self.call("GET", _task_path(dag_id, run_id, task_id))
        return task

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Return the state of every task of a run, by task id."""
        return {task["task_id"]: task["state"] for task in self.tasks(dag_id, run_id)}

    def wait_for_task(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        *,
        states: Collection[str] = FINISHED_TASK,
        timeout_seconds: float = 600.0,
    ) -> dict[str, Any]:
        """Wait until the task has one of the states and return the task instance."""
        what = f"task {task_id} of run {run_id} did not become {' or '.join(states)}"
        _wait(
            lambda: self.task(dag_id, run_id, task_id)["state"] in states,
            what,
            timeout_seconds,
            lambda: self.task_states(dag_id, run_id),
        )
        return self.task(dag_id, run_id, task_id)

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int) -> str:
        """Return the log of one try: a line for each event, and the texts of exceptions without their stacks."""
        path = f"{_task_path(dag_id, run_id, task_id)}/logs/{try_number}?full_content=true"
        events = self.call("GET", path)["content"]
        return "\n".join(line for event in events for line in _log_lines(event))

    def rendered_fields(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """Return the task's templates as Airflow shows them."""
        fields: dict[str, Any] = self.task(dag_id, run_id, task_id)["rendered_fields"]
        return fields

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """Return a value that the task left for others."""
        return self.call("GET", f"{_task_path(dag_id, run_id, task_id)}/xcomEntries/{_part(key)}")["value"]

    def clear(self, dag_id: str, run_id: str, task_ids: Sequence[str] | None = None) -> None:
        """Clear tasks of a run (all by default), whatever their state, so that they run again."""
        body: dict[str, Any] = {"dry_run": False, "dag_run_id": run_id, "only_failed": False}
        if task_ids is not None:
            body["task_ids"] = list(task_ids)
        self.call("POST", f"/dags/{_part(dag_id)}/clearTaskInstances", body)

    def mark_task(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Set a task's state by hand, as a person does in the browser; a running task is stopped."""
        self.call("PATCH", _task_path(dag_id, run_id, task_id), {"new_state": state})

    def asset_events(self, **filters: str) -> list[dict[str, Any]]:
        """Return asset events, newest first; filters as Airflow names them, for example ``source_dag_id``."""
        query = urlencode({"order_by": "-timestamp", "limit": 100, **filters})
        events: list[dict[str, Any]] = self.call("GET", f"/assets/events?{query}")["asset_events"]
        return events

    def import_errors(self) -> list[dict[str, Any]]:
        """Return the DAG files that could not be read, with ``filename`` and ``stack_trace``."""
        errors: list[dict[str, Any]] = self.call("GET", "/importErrors")["import_errors"]
        return errors

    def _has_dag(self, dag_id: str) -> bool:
        dags = self.call("GET", f"/dags?{urlencode({'dag_id_pattern': dag_id, 'limit': 100})}")["dags"]
        return any(dag["dag_id"] == dag_id for dag in dags)

    def _authorized(self, method: str, path: str, body: Any) -> Any:
        if self._token is None:
            self._token = self._send("POST", "/auth/token", self._login, {})["access_token"]
        return self._send(method, f"/api/v2{path}", body, {"Authorization": f"Bearer {self._token}"})

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        with _opener.open(request, timeout=_REQUEST_SECONDS) as answer:
            text = answer.read()
        return json.loads(text) if text else None


# The server is on this machine: no proxy of the environment is used.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _log_lines(event: dict[str, Any] | str) -> Iterator[str]:
    if isinstance(event, str):
        yield event
        return
    yield str(event["event"])
    for error in event.get("error_detail") or ():
        yield f"{error['exc_type']}: {error['exc_value']}"


def _part(text: str) -> str:
    return quote(text, safe="")


def _run_path(dag_id: str, run_id: str) -> str:
    return f"/dags/{_part(dag_id)}/dagRuns/{_part(run_id)}"


def _task_path(dag_id: str, run_id: str, task_id: str) -> str:
    return f"{_run_path(dag_id, run_id)}/taskInstances/{_part(task_id)}"


def _wait(condition: Callable[[], bool], what: str, timeout_seconds: float, found: Callable[[], object]) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SandboxError(f"{what} within {timeout_seconds:.0f} s", found=str(found()))
        time.sleep(_POLL_SECONDS)

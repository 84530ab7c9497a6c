"""Processes of the sandbox: each in a session of its own, found again by a pid file, stopped with its children.

A pid file holds the process's start time and the machine's boot beside the pid, so a number that the system gave to
another program in the meantime is never taken for ours.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.paths import log_tail, private_folder
from sandbox.process_table import ProcessMark, boot_id, mark_of, process_table

_ATTEMPTS = 3
# Children of this process are kept until they are reaped: a dead child that nobody waits for stays in its group.
_children: dict[int, subprocess.Popen[bytes]] = {}


class ManagedProcess:
    """A background process with a pid file and a log in one folder.

    Args:
        name: Name of the part, used for its files and in messages.
        folder: Folder of pid file and log; made if needed.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.pid_file = folder / f"{name}.pid"
        self.log = folder / f"{name}.log"

    def start(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        """Start the command in a new session; output is appended to the log. Does nothing when it runs already."""
        if self.is_running():
            return
        self.stop()
        private_folder(self.log.parent)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        _children[process.pid] = process
        mark = mark_of(process.pid)
        if mark is not None:
            self.pid_file.write_text(json.dumps(asdict(mark)), encoding="utf-8")

    def start_on_free_ports(self, start_once: Callable[[], None], *, taken: str) -> None:
        """Start it with ``start_once``, which chooses its ports and waits until it is ready.

        A port that was free a moment ago may be taken by now (seen after a kill): then it is tried again, on others.

        Args:
            start_once: Ends with a SandboxError when the process did not become ready.
            taken: What the end of the log says when a port is taken.

        Raises:
            SandboxError: That of ``start_once``, for another reason or for the third time.
        """
        attempts_left = _ATTEMPTS
        while not self.is_running():
            attempts_left -= 1
            try:
                start_once()
            except SandboxError as error:
                self.stop()
                if attempts_left == 0 or taken not in error.found:
                    raise

    def pid(self) -> int | None:
        """Return the pid of the running process, or None."""
        mark = self._mark()
        return mark.pid if mark is not None and self.is_running() else None

    def is_running(self) -> bool:
        """Tell whether the process itself lives (not merely children that it left behind)."""
        mark = self._mark()
        if mark is None:
            return False
        _reap(mark.pid)
        return mark_of(mark.pid) == mark

    def stop(self, *, grace_seconds: float = 30.0) -> None:
        """Stop it and its children: TERM to its group, and KILL for those that are left after the grace. Idempotent.

        Airflow's tasks and Spark's Python workers make groups of their own, and stay in the session.
        """
        if self._members():
            self._terminate()
            if not self._wait_until_gone(grace_seconds):
                self.kill()
        self.pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill it and its children at once, as a crash would, and wait until they are gone. Idempotent."""
        for pid in self._members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not self._wait_until_gone(20.0):
            raise SandboxError(f"{self.name} does not die", found=f"processes {self._members()}")

    def wait_until(self, ready: Callable[[], bool], *, timeout_seconds: float) -> None:
        """Wait until ``ready()`` is true.

        Raises:
            SandboxError: The process died, or the time-out passed; the end of the log is in the message.
        """
        deadline = time.monotonic() + timeout_seconds
        while not ready():
            if not self.is_running():
                raise SandboxError(f"{self.name} ended while it was starting", found=log_tail(self.log))
            if time.monotonic() > deadline:
                raise SandboxError(f"{self.name} was not ready after {timeout_seconds:.0f} s", found=log_tail(self.log))
            time.sleep(0.2)

    def _mark(self) -> ProcessMark | None:
        try:
            return ProcessMark(**json.loads(self.pid_file.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def _members(self) -> list[int]:
        mark = self._mark()
        if mark is None or mark.boot != boot_id():
            return []
        _reap(mark.pid)
        entries = [entry for entry in process_table() if entry.session == mark.pid]
        leader_changed = any(entry.pid == mark.pid and entry.started != mark.started for entry in entries)
        return [] if leader_changed else [entry.pid for entry in entries if not entry.is_dead]

    def _terminate(self) -> None:
        mark = self._mark()
        with suppress(ProcessLookupError):
            if mark is not None:
                os.killpg(mark.pid, signal.SIGTERM)

    def _wait_until_gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._members():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        self._reap_leader()
        return True

    def _reap_leader(self) -> None:
        mark = self._mark()
        child = _children.pop(mark.pid, None) if mark is not None else None
        if child is not None:
            child.wait()  # a leader with threads looks dead a moment before its files and ports are released


def stop_all_below(folder: Path) -> None:
    """Stop every process that has its pid file somewhere below the folder, by whomever it was started. Idempotent."""
    for pid_file in folder.rglob("*.pid"):
        if pid_file.name != "postmaster.pid":  # this one is PostgreSQL's own
            ManagedProcess(pid_file.stem, pid_file.parent).stop(grace_seconds=10)


def _reap(pid: int) -> None:
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]

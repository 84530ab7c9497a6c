"""One command ``python -m kafka_ingest`` under way, in a session of its own, with its output in files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandbox.errors import SandboxError
from sandbox.paths import CHECKOUT, log_tail, private_folder
from sandbox.soak.pipeline import PIPELINE
from sandbox.soak.processes import SeenProcess, all_processes, descendants, in_sessions

#: Exit codes that a run may have whatever is killed: done, and "the same command may succeed later".
DONE, RETRY_LATER = 0, 75
#: Exit codes of an audit that found something, and of a command that cannot succeed until somebody acts.
AUDIT_FOUND, STOP_AND_CALL = 65, 78
#: Text of an audit whose batch was rolled back after the load: the same run again loads what is missing.
_ROLLED_BACK = b"state rolled_back"
_TRACE = b"Traceback (most recent call last)"


class SoakFailure(SandboxError):
    """The system did what it must not do."""


class Attempt:
    """One started command.

    Args:
        arguments: Arguments of ``python -m kafka_ingest``.
        env: Its variables.
        log: File for its standard error; standard output goes beside it.
    """

    def __init__(self, arguments: Sequence[str], *, env: Mapping[str, str], log: Path) -> None:
        self.log = log
        self._output = log.with_suffix(".json")
        private_folder(log.parent)
        with log.open("wb") as errors, self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kafka_ingest", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=dict(env),
                cwd=CHECKOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.is_killed = False

    def is_running(self) -> bool:
        """Tell whether the command lives."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it came in time."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return not self.is_running()

    def code(self, *, also: Sequence[int] = ()) -> int:
        """Return the exit code of a command that has ended.

        Args:
            also: Codes that are no failure here, besides those of every run.

        Raises:
            SoakFailure: A code that no fault of a server or process excuses.
        """
        code = self._process.wait()
        if code in (DONE, RETRY_LATER, *also) or self.was_rolled_back() or (self.is_killed and code == -signal.SIGKILL):
            return code
        raise SoakFailure(f"a run ended with exit code {code}", found=log_tail(self.log, 40))

    def was_rolled_back(self) -> bool:
        """Tell whether the run ended because its batch was rolled back between load and audit."""
        return self._process.poll() == STOP_AND_CALL and _ROLLED_BACK in self.log.read_bytes()

    def document(self) -> Any:
        """Return the JSON document that the command printed."""
        return json.loads(self._output.read_text(encoding="utf-8"))

    def require_expected_faults(self) -> None:
        """Check that every fault was reported as one that the package knows.

        Raises:
            SoakFailure: There is a stack trace in the log.
        """
        if _TRACE in self.log.read_bytes():
            raise SoakFailure("a run told an unexpected error", found=log_tail(self.log, 60))

    def processes(self) -> list[SeenProcess]:
        """Return the command and the living processes that it started."""
        everything = all_processes()
        own = [process for process in everything if process.pid == self.pid]
        return own + descendants(self.pid, everything)

    def end(self) -> None:
        """Kill what is left of it, also stopped processes. Idempotent."""
        for process in in_sessions([self.pid], all_processes()):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self._process.wait()


def run_arguments(run_id: str, *, runner: str) -> list[str]:
    """Return the arguments of a live run with a name of its own."""
    return ["run", PIPELINE, "--json", "--run-id", run_id, "--runner", runner]

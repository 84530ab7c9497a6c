"""Runs one command and says what it took: seconds, CPU seconds by kind of process, peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

#: CPU time that a process spends after its last sample is missing from its kind, and is in the total.
_SAMPLE_SECONDS = 0.2
_LONGEST_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class Command:
    """What is measured. ``variables`` come on top of this process's environment and may hold secrets."""

    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Measured:
    """What one command took.

    Attributes:
        seconds: From start to exit.
        cpu_seconds: CPU time by kind of process: of the command's tree, and of the servers meanwhile.
        peak_rss_mb: Greatest resident memory seen of any one process of a kind, in MB (10^6 bytes).
        told: The JSON object on the last line of its standard output; empty without one.
    """

    seconds: float
    cpu_seconds: Mapping[str, float]
    peak_rss_mb: Mapping[str, float]
    told: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class CommandFailed(Exception):
    """The command ended with another code than 0; the text is the end of its output."""


def measure(command: Command, servers: Mapping[str, int], log: Path) -> Measured:
    """Runs the command to its end.

    Args:
        command: What to run.
        servers: Pid of the main process of each server by name; the CPU time of its tree is counted, too.
        log: Where the command's standard error goes.

    Raises:
        CommandFailed: It failed.
    """
    before = {name: cpu_of_tree(pid) for name, pid in servers.items()}
    with log.open("wb") as errors, tempfile.TemporaryFile() as output:
        begin = time.perf_counter()
        process = subprocess.Popen(
            list(command.arguments),
            env={**os.environ, **command.variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        )
        with _Sampler(process.pid) as sampler:
            code = process.wait(_LONGEST_SECONDS)
        seconds = time.perf_counter() - begin
        output.seek(0)
        said = output.read().decode(errors="replace")
    if code != 0:
        raise CommandFailed(f"{command.arguments} ended with {code}:\n{said[-2000:]}\n{log.read_text()[-3000:]}")
    cpu = {**sampler.cpu_seconds(), **{name: cpu_of_tree(pid) - before[name] for name, pid in servers.items()}}
    return Measured(seconds, cpu, sampler.peak_rss_mb(), _last_object(said))


def _last_object(output: str) -> Mapping[str, Any]:
    lines = output.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        return {}
    told: Mapping[str, Any] = json.loads(lines[-1])
    return told


class _Sampler:
    """Looks at a process and all its descendants until it ends."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[tuple[int, float], tuple[str, float]] = {}
        self._peak: dict[str, int] = defaultdict(int)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def cpu_seconds(self) -> dict[str, float]:
        total: dict[str, float] = defaultdict(float)
        for kind, seconds in self._cpu.values():
            total[kind] += seconds
        return dict(total)

    def peak_rss_mb(self) -> dict[str, float]:
        return {kind: peak / 1e6 for kind, peak in self._peak.items()}

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            for process in _tree(self._root):
                with suppress(psutil.Error):
                    self._look_at(process)

    def _look_at(self, process: psutil.Process) -> None:
        with process.oneshot():
            kind = _kind(process.name())
            times = process.cpu_times()
            self._cpu[process.pid, process.create_time()] = (kind, times.user + times.system)
            self._peak[kind] = max(self._peak[kind], process.memory_info().rss)


def _kind(program: str) -> str:
    return "java" if program == "java" else "python" if program.startswith("python") else "other"


def _tree(root: psutil.Process) -> Iterator[psutil.Process]:
    with suppress(psutil.Error):
        yield root
        yield from root.children(recursive=True)


def cpu_of_tree(pid: int) -> float:
    """Return the CPU seconds of a server and its children, those included that have ended."""
    total = 0.0
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        own = root.cpu_times()
        total += own.children_user + own.children_system
        for process in _tree(root):
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
    return total

"""The processes of this machine: who lives, in which group, since when."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessMark:
    """The identity of a process, for ever: its number, its start time (the system's own text), and the boot."""

    pid: int
    started: str
    boot: str


@dataclass(frozen=True)
class ProcessEntry:
    """A line of the process table. A session holds the groups of all processes that a started program started."""

    pid: int
    session: int
    state: str
    started: str

    @property
    def is_dead(self) -> bool:
        """Dead processes stay in the table until their parent asks for the exit status."""
        return self.state.startswith(("Z", "X"))


def mark_of(pid: int) -> ProcessMark | None:
    """Return the mark of a living process, None when there is none with that number."""
    entry = _entry(pid)
    if entry is None or entry.is_dead:
        return None
    return ProcessMark(pid, entry.started, boot_id())


def boot_id() -> str:
    """Identify the boot, because start times are counted from it; empty where the system has no such number."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip() if path.exists() else ""


def _entry(pid: int) -> ProcessEntry | None:
    if Path("/proc/self/stat").exists():
        return _entry_of_proc(Path(f"/proc/{pid}/stat"))
    return next((entry for entry in process_table() if entry.pid == pid), None)


def process_table() -> Iterable[ProcessEntry]:
    """List all processes of the machine."""
    if not Path("/proc/self/stat").exists():
        return _table_of_ps()
    entries = (_entry_of_proc(path) for path in Path("/proc").glob("[0-9]*/stat"))
    return [entry for entry in entries if entry is not None]


def _entry_of_proc(path: Path) -> ProcessEntry | None:
    # proc(5): pid (comm) state ppid pgrp session ...; field 22 is the start time in clock ticks since boot. The name in
    # parentheses may hold spaces and parentheses, so the fields are counted from the last one.
    try:
        pid, _, rest = path.read_text(encoding="utf-8", errors="replace").partition(" ")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = rest.rpartition(")")[2].split()
    return ProcessEntry(int(pid), int(fields[3]), fields[0], fields[19])


def _table_of_ps() -> Iterable[ProcessEntry]:
    # Systems without /proc (macOS): lstart is the start time in full; ps shows no session there, the group comes near.
    command = ["ps", "-A", "-o", "pid=,pgid=,stat=,lstart="]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    fields = (line.split(maxsplit=3) for line in lines)
    return [ProcessEntry(int(pid), int(group), state, started) for pid, group, state, started in fields]

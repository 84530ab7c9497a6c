"""Who is who among the processes of this machine: read from /proc (proc(5)), so Linux only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")


def state_of(pid: int) -> str:
    """Return the state letter, ``T`` for stopped; empty when there is no such process."""
    return _stat(pid)[0]


def is_running(pid: int) -> bool:
    """Whether the process is there and not dead."""
    return state_of(pid) not in ("", "Z", "X")


def parent_of(pid: int) -> int:
    """Return the parent's pid; 0 when there is no such process."""
    return int(_stat(pid)[1])


def command_of(pid: int) -> str:
    """Return the command line, words separated by spaces; empty when there is no such process."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def ancestor(pid: int, word: str) -> int:
    """Return the nearest ancestor whose command line holds the word."""
    above = parent_of(pid)
    while above > 1:
        if word in command_of(above):
            return above
        above = parent_of(above)
    raise LookupError(f"process {pid} has no ancestor with {word}")


def child(pid: int, word: str) -> int | None:
    """Return a child whose command line holds the word, or None."""
    found = (other for other in _pids() if parent_of(other) == pid and word in command_of(other))
    return next(found, None)


def processes_with(*words: str) -> list[int]:
    """Return the living processes whose command line holds all the words."""
    return [pid for pid in _pids() if all(word in command_of(pid) for word in words) and is_running(pid)]


def client_of(port: int) -> int:
    """Return the process whose end of a TCP connection on loopback has this port."""
    inode = _inode_of(port)
    for pid in _pids():
        try:
            links = [file.readlink().name for file in (_PROC / str(pid) / "fd").iterdir()]
        except OSError:  # it has ended, or belongs to somebody else
            continue
        if f"socket:[{inode}]" in links:
            return pid
    raise LookupError(f"no process has port {port}")


def listening_ports(pid: int) -> list[int]:
    """Give the TCP ports on which a process waits for connections."""
    sockets = {file.readlink().name for file in (_PROC / str(pid) / "fd").iterdir() if file.is_symlink()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in (_PROC / "net" / name).read_text().splitlines()[1:]]
    # 0A: TCP_LISTEN (proc(5), include/net/tcp_states.h).
    found = {fields[1] for fields in lines if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets}
    return sorted(int(address.rpartition(":")[2], 16) for address in found)


def tree_below(pid: int) -> list[int]:
    """Give a process and all that it started, directly or not."""
    children = [other for other in _pids() if parent_of(other) == pid]
    return [pid, *(below for other in children for below in tree_below(other))]


def _inode_of(port: int) -> str:
    for line in (_PROC / "net" / "tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if int(fields[1].partition(":")[2], 16) == port and fields[9] != "0":
            return fields[9]
    raise LookupError(f"no connection has port {port}")


def _pids() -> Iterator[int]:
    return (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())


def _stat(pid: int) -> tuple[str, str]:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", "0"
    # The name in parentheses may hold anything, so fields are counted from the last one.
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, parent

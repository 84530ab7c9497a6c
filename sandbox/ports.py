"""Loopback ports: chosen once, checked, remembered, so that a restarted part keeps its address.

Ports are below 32768, where Linux's range for outgoing connections begins: a client that keeps trying a port of that
range can connect to itself and so occupy it before the service comes back.
"""

from __future__ import annotations

import fcntl
import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.paths import private_folder

LOWEST, HIGHEST = 15000, 32000
RELEASE_SECONDS = 5.0  # a service that was just killed may keep its port for a moment


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether a server could listen on the port now (sockets that are merely closing do not count)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def is_listening(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether something accepts connections on the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


class PortBook:
    """The ports of one sandbox, remembered in ``ports.json`` of its folder.

    Safe for several processes at once. A port is chosen at random, so two sandboxes that start at the same moment
    rarely meet, and a part that lost that race is simply started again with another port.

    Args:
        folder: State folder of the sandbox.
        release_seconds: How long to wait for a remembered port that something still holds.
    """

    def __init__(self, folder: Path, *, release_seconds: float = RELEASE_SECONDS) -> None:
        self._folder = folder
        self._release_seconds = release_seconds

    def known(self, name: str) -> int | None:
        """Return the remembered port of a part, or None."""
        with self._book() as book:
            return book.get(name)

    def port_for_start(self, name: str) -> int:
        """Return the port for a part that is about to start.

        It is the remembered one if that is free (it waits a few seconds for it), else a new one, which is remembered.
        """
        remembered = self.known(name)
        if remembered is not None and _wait_until_free(remembered, self._release_seconds):
            return remembered
        with self._book() as book:
            book[name] = _choose(set(book.values()))
            return book[name]

    def forget(self, name: str) -> None:
        """Forget a part's port, so that the next start takes another one."""
        with self._book() as book:
            book.pop(name, None)

    @contextmanager
    def _book(self) -> Iterator[dict[str, int]]:
        path = private_folder(self._folder) / "ports.json"
        with path.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            before = file.read()
            book: dict[str, int] = json.loads(before or "{}")
            yield book
            after = json.dumps(book, indent=1, sort_keys=True)
            if after != before:
                file.truncate(0)
                file.write(after)


def _choose(taken: set[int]) -> int:
    candidates = random.SystemRandom().sample(range(LOWEST, HIGHEST), 200)
    for port in candidates:
        if port not in taken and is_free(port):
            return port
    raise SandboxError(
        f"no free port on 127.0.0.1 among 200 tried between {LOWEST} and {HIGHEST}",
        next_step="stop some of the programs that listen on this machine, then try again",
    )


def _wait_until_free(port: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True

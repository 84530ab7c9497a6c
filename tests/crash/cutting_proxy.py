"""A TCP proxy before PostgreSQL that does something to one COMMIT: lose it, lose its answer, or hold it back.

It reads along in the frontend protocol (https://www.postgresql.org/docs/18/protocol-message-formats.html), as far as it
must: the start-up packet names the application, and psycopg2 sends COMMIT as a simple query. Clients must connect
without encryption (``sslmode=disable gssencmode=disable``).
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

_VERSION_3 = 3
_COMMIT = b"COMMIT\0"
_ROLLBACK = b"ROLLBACK\0"
#: ReadyForQuery, idle: the end of the answer to a COMMIT, whatever came of it.
_READY = b"Z\0\0\0\x05I"
DEADLINE_SECONDS = 60.0


class Session:
    """One client's connection, with its own connection to the server."""

    def __init__(self, client: socket.socket, upstream: tuple[str, int]) -> None:
        self._client = client
        self._server = socket.create_connection(upstream)
        self._withholds = False
        self._answer = b""
        self._answered = threading.Event()
        self.application = ""

    def serve(self, on_commit: Callable[[Session, bytes], None]) -> None:
        """Passes messages on until one side ends; a COMMIT goes to ``on_commit``."""
        back = threading.Thread(target=self._pass_answers, daemon=True)
        back.start()
        try:
            self._pass_start_up()
            while message := self._message():
                if message[:1] == b"Q" and message[5:].upper() == _COMMIT:
                    on_commit(self, message)
                else:
                    self.send(message)
        except OSError:
            pass
        finally:
            self.cut_server()
            back.join()
            self.cut_client()

    def send(self, message: bytes) -> None:
        """Sends a message to the server."""
        self._server.sendall(message)

    def withhold_answers(self) -> None:
        """From now on nothing that the server says reaches the client."""
        self._withholds = True

    def await_answer(self) -> None:
        """Waits until the server has answered what was sent since its answers are withheld."""
        assert self._answered.wait(DEADLINE_SECONDS), "the server does not answer"

    def cut_client(self) -> None:
        """Ends the client's connection."""
        _cut(self._client)

    def cut_server(self) -> None:
        """Ends the connection to the server."""
        _cut(self._server)

    def _pass_start_up(self) -> None:
        size = self._exactly(4)
        rest = self._exactly(struct.unpack("!i", size)[0] - 4)
        assert struct.unpack("!hh", rest[:4])[0] == _VERSION_3, "connect with sslmode=disable gssencmode=disable"
        names = rest[4:].split(b"\0")
        self.application = dict(zip(names[::2], names[1::2], strict=False)).get(b"application_name", b"").decode()
        self.send(size + rest)

    def _message(self) -> bytes:
        """Reads a message with its type and length; empty when the client is gone."""
        try:
            head = self._exactly(5)
            return head + self._exactly(struct.unpack("!i", head[1:])[0] - 4)
        except (ConnectionError, EOFError):
            return b""

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._client.recv(size - len(found))
            if not part:
                raise EOFError
            found += part
        return found

    def _pass_answers(self) -> None:
        with suppress(OSError):
            while part := self._server.recv(65_536):
                if self._withholds:
                    self._answer += part
                    if self._answer.endswith(_READY):
                        self._answered.set()
                else:
                    self._client.sendall(part)
        if not self._withholds:
            self.cut_client()


class CuttingProxy:
    """Listens on a port of its own, from ``with`` on.

    Args:
        upstream: Host and port of PostgreSQL.
        application: Prefix of the application name whose COMMIT is meant; all others are passed on.
        on_commit: Gets the session and the COMMIT message. Only the first one; later ones are passed on.
    """

    def __init__(
        self, upstream: tuple[str, int], application: str, on_commit: Callable[[Session, bytes], None]
    ) -> None:
        self._upstream = upstream
        self._application = application
        self._on_commit = on_commit
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.saw_commit = threading.Event()

    @property
    def port(self) -> int:
        """Where clients connect to."""
        port: int = self._listener.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _cut(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            session = Session(client, self._upstream)
            threading.Thread(target=session.serve, args=(self._commit,), daemon=True).start()

    def _commit(self, session: Session, message: bytes) -> None:
        if self.saw_commit.is_set() or not session.application.startswith(self._application):
            session.send(message)
            return
        self.saw_commit.set()
        self._on_commit(session, message)


def lose_request(session: Session, commit: bytes) -> None:
    """The connection breaks before COMMIT reaches the server."""
    session.cut_server()
    session.cut_client()


def answer_with_rollback(session: Session, commit: bytes) -> None:
    """The server rolls back instead, and says so, as it answers the COMMIT of a transaction that has failed."""
    session.send(b"Q" + struct.pack("!i", 4 + len(_ROLLBACK)) + _ROLLBACK)


def lose_answer(session: Session, commit: bytes) -> None:
    """The server commits, and the connection breaks before it can say so."""
    session.withhold_answers()
    session.send(commit)
    session.await_answer()
    session.cut_client()


class HeldCommit:
    """COMMIT reaches the server only when ``release`` is set; the answer is lost.

    Args:
        cut: Whether the client notices at once that its connection is broken.
    """

    def __init__(self, *, cut: bool) -> None:
        self._cut = cut
        self.release = threading.Event()

    def __call__(self, session: Session, commit: bytes) -> None:
        session.withhold_answers()
        if self._cut:
            session.cut_client()
        assert self.release.wait(DEADLINE_SECONDS), "the held COMMIT was never released"
        session.send(commit)
        session.await_answer()


def _cut(end: socket.socket) -> None:
    # Closing alone would not wake a thread that waits in recv() or accept().
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()

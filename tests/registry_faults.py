"""A proxy before the schema registry that forwards, or answers as a test tells it, over HTTP or TLS.

With an answer for every request it needs no registry behind it.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.certificates import Authority

FORWARD_SECONDS = 30.0
_JSON = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True)
class Answer:
    """What the proxy answers instead of the registry.

    Attributes:
        status: The HTTP status; 0 closes the connection without a word, -1 says nothing until the proxy stops.
        body: Sent as it is.
        content_type: Its type.
    """

    status: int
    body: bytes = b""
    content_type: str = _JSON


def told(document: object, status: int = 200) -> Answer:
    """Return a document as JSON."""
    return Answer(status, json.dumps(document).encode())


def refusal(status: int) -> Answer:
    """Return the answer of a registry that refuses, as Confluent's words it."""
    return Answer(status, b'{"error_code": %d, "message": "refused"}' % status)


UNKNOWN_SCHEMA = told({"error_code": 40403, "message": "Schema not found"}, 404)
CLOSED = Answer(0)
SILENT = Answer(-1)
CUT_JSON = Answer(200, b'{"schema": "\\"str')
OTHER_JSON = Answer(200, b'["neither a schema", "nor an error"]')
LOGIN_PAGE = Answer(200, b"<!DOCTYPE html><html><body>Please log in</body></html>", "text/html")


@dataclass(frozen=True)
class Request:
    """A request that came, whatever was answered."""

    method: str
    path: str
    authorization: str | None


class RegistryFaults:
    """The proxy: it forwards until ``answer`` is set, and again when it is set to None.

    Attributes:
        answers: What requests of a path get, without its query.
        answer: What every other request from now on gets; None forwards it.
        requests: All requests so far, in their order.
        url: The address for clients, with the registry's own path.
    """

    def __init__(self, server: _Server, url: str) -> None:
        self._server = server
        self.answers = server.answers
        self.url = url

    @property
    def answer(self) -> Answer | None:
        return self._server.answer

    @answer.setter
    def answer(self, answer: Answer | None) -> None:
        self._server.answer = answer

    @property
    def requests(self) -> list[Request]:
        return self._server.requests


@contextmanager
def registry_faults(
    registry_url: str, *, certificates: Path | None = None, asks_for_certificate: bool = False
) -> Iterator[RegistryFaults]:
    """Run a proxy before the registry; with a folder it speaks TLS.

    The folder gets ``ca.crt``, the authority of the proxy's own certificate, and ``client.crt`` with ``client.key``,
    which a proxy that asks for a certificate accepts.
    """
    server = _Server(registry_url)
    if certificates is not None:
        server.socket = _tls(certificates, asks_for_certificate).wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    scheme = "http" if certificates is None else "https"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield RegistryFaults(server, f"{scheme}://127.0.0.1:{server.server_port}{urlsplit(registry_url).path}")
    finally:
        server.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _tls(folder: Path, asks_for_certificate: bool) -> ssl.SSLContext:
    authority = Authority(folder, "ca")
    for name in ("server", "client"):
        authority.issue(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    if asks_for_certificate:
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # a refused certificate ends the handshake
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(folder / "ca.crt")
    return context


class _Server(ThreadingHTTPServer):
    def __init__(self, registry_url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.registry = urlsplit(registry_url)
        self.answer: Answer | None = None
        self.answers: dict[str, Answer] = {}
        self.requests: list[Request] = []
        self.stopped = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that gives up, or does not like the certificate, is what tests are about.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def answer(self) -> None:
        self.server.requests.append(Request(self.command, self.path, self.headers["Authorization"]))
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        answer = self.server.answers.get(self.path.partition("?")[0], self.server.answer) or self._forwarded(body)
        self.close_connection = True
        if answer == SILENT:
            self.server.stopped.wait()
        elif answer != CLOSED:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - names that http.server looks for

    def _forwarded(self, body: bytes) -> Answer:
        registry = HTTPConnection(str(self.server.registry.hostname), self.server.registry.port, FORWARD_SECONDS)
        try:
            headers = {name: self.headers[name] for name in ("Accept", "Content-Type") if name in self.headers}
            registry.request(self.command, self.path, body or None, headers)
            found = registry.getresponse()
            return Answer(found.status, found.read(), found.headers.get("Content-Type", _JSON))
        finally:
            registry.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing: tests look at ``requests``."""

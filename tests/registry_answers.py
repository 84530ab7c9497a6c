"""A schema registry of this process that answers as a test tells it, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """A status and a body: JSON, or bytes as they are. A ``pause`` keeps it back until the test is over."""

    body: object = None
    status: int = 200
    pause: bool = False


@dataclass
class Registry:
    """Answers by path, without its query; another path gets the API's own answer for what is not there."""

    url: str
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def tell(self, path: str, body: object = None, *, status: int = 200, pause: bool = False) -> None:
        self.answers[path] = Answer(body, status, pause)


NOT_FOUND = Answer({"error_code": 40403, "message": "Schema not found"}, 404)


@contextmanager
def registry_answers() -> Iterator[Registry]:
    """Run a registry on loopback until the block ends."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            answer = registry.answers.get(self.path.partition("?")[0], registry.answers.get("*", NOT_FOUND))
            if answer.pause:
                over.wait(60)
            body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry = Registry(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield registry
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()

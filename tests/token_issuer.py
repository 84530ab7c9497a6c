"""An OAuth 2 issuer over HTTPS: OIDC discovery, JWKS, and tokens for clients with a secret, signed with a real key."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

AUDIENCE = "kafka"
SCOPE = "kafka.read"
DISCOVERY, KEYS, TOKEN = "/.well-known/openid-configuration", "/keys", "/token"
_KEY_ID = "first"


@dataclass(frozen=True)
class TokenClient:
    """A client that the issuer knows, and what its tokens are like.

    Attributes:
        secret: Its secret.
        lives_seconds: From the time of issue to ``exp``.
        issued_seconds_ago: How old a token is when it is issued; less than 0 for one of the future.
        audience: For whom its tokens are.
    """

    secret: str
    lives_seconds: int = 300
    issued_seconds_ago: int = 0
    audience: str = AUDIENCE


@dataclass
class TokenIssuer:
    """A running issuer.

    Attributes:
        url: Its address, which is the ``iss`` of its tokens.
        clients: By client id, which is the ``sub`` of its tokens.
        issued: Number of tokens by client id.
        answer: A status and a body for every wish, instead of what it should get; None after that.
        is_silent: No wish is answered.
        requests: Number of requests by path and status.
    """

    url: str
    clients: Mapping[str, TokenClient]
    issued: Counter[str] = field(default_factory=Counter)
    answer: tuple[int, bytes] | None = None
    is_silent: bool = False
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    _key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2_048), repr=False)

    @property
    def token_url(self) -> str:
        return f"{self.url}{TOKEN}"

    @property
    def keys_url(self) -> str:
        return f"{self.url}{KEYS}"

    def page(self, path: str) -> tuple[int, bytes]:
        """Return what a GET of a path gives."""
        if path == DISCOVERY:
            found = {"issuer": self.url, "jwks_uri": self.keys_url, "token_endpoint": self.token_url}
            return 200, json.dumps({**found, "grant_types_supported": ["client_credentials"]}).encode()
        if path == KEYS:
            key = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
            return 200, json.dumps({"keys": [{**key, "kid": _KEY_ID, "use": "sig", "alg": "RS256"}]}).encode()
        return 404, b"no such page"

    def answer_to(self, authorization: str, form: Mapping[str, list[str]]) -> tuple[int, bytes]:
        """Return the answer to a wish for a token (RFC 6749, 4.4 and 5.2)."""
        client_id, _, secret = _basic(authorization)
        if form.get("grant_type") != ["client_credentials"]:
            return 400, b'{"error": "unsupported_grant_type"}'
        client = self.clients.get(client_id)
        if client is None or client.secret != secret:
            return 401, b'{"error": "invalid_client", "error_description": "unknown client, or another secret"}'
        if form.get("scope", [SCOPE]) != [SCOPE]:
            return 400, b'{"error": "invalid_scope"}'
        self.issued[client_id] += 1
        return 200, json.dumps(self._token(client_id, client)).encode()

    def _token(self, client_id: str, client: TokenClient) -> dict[str, object]:
        issued = int(time.time()) - client.issued_seconds_ago
        claims = {"iss": self.url, "aud": client.audience, "sub": client_id, "scope": SCOPE}
        times = {"iat": issued, "nbf": issued, "exp": issued + client.lives_seconds}
        token = jwt.encode({**claims, **times}, self._key, algorithm="RS256", headers={"kid": _KEY_ID})
        return {"access_token": token, "token_type": "Bearer", "expires_in": client.lives_seconds}


def _basic(authorization: str) -> tuple[str, str, str]:
    # As librdkafka sends them: not form-encoded inside, which RFC 6749 (2.3.1) asks for and few issuers insist on.
    return base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")


@contextmanager
def token_issuer(clients: Mapping[str, TokenClient], *, certificate: Path) -> Iterator[TokenIssuer]:
    """Run an issuer for these clients.

    Args:
        clients: By client id.
        certificate: A PEM file with key and certificate for 127.0.0.1.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.issuer = TokenIssuer(f"https://127.0.0.1:{server.server_port}", clients)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.issuer
    finally:
        server.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    issuer: TokenIssuer

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.stopped = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that end the handshake: they do not trust the certificate, as a test wants it."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._send(*self.server.issuer.page(self.path))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        issuer = self.server.issuer
        if issuer.is_silent:
            self.server.stopped.wait()
        elif issuer.answer is not None:
            self._send(*issuer.answer)
        elif self.path == TOKEN:
            self._send(*issuer.answer_to(self.headers["Authorization"] or "", parse_qs(body)))
        else:
            self._send(404, b"no such page")

    def _send(self, status: int, body: bytes) -> None:
        self.server.issuer.requests[self.path, status] += 1
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class calls it so)
        """Say nothing: tests look at ``requests``."""

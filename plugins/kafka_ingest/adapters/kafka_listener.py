"""What a listener speaks, and why its certificate is refused: asked of it directly, after librdkafka has failed.

librdkafka (2.16) says "certificate verify failed" for a foreign authority, an expired certificate and another host
name alike, and nothing at all where a client without TLS or login meets a listener that wants them.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping

_SECONDS = 3.0
# SaslHandshake, version 1, of a client without a name, for a mechanism that nobody has: no login is tried. A listener
# with logins answers UNSUPPORTED_SASL_MECHANISM, one without ILLEGAL_SASL_STATE (Kafka 4.2, protocol guide).
_MECHANISM = b"NONE"
_REQUEST = struct.pack(">hhihh", 17, 1, 1, -1, len(_MECHANISM)) + _MECHANISM
_WITH_LOGIN, _WITHOUT_LOGIN = 33, 34


def listener_protocols(address: str) -> frozenset[str]:
    """Return the values of ``security.protocol`` that fit a listener (``host:port``); none where it does not tell."""
    for tls in (True, False):
        try:
            with _connect(address) as plain, _wrapped(plain, address, tls=tls) as connection:
                return _protocols(_login_answer(connection), tls=tls)
        except (OSError, ValueError):
            continue
    return frozenset()


def certificate_fault(address: str, config: Mapping[str, str]) -> ssl.SSLCertVerificationError | None:
    """Return why Python's TLS refuses the broker's certificate under the same settings; ``None`` where it does not."""
    try:
        context = ssl.create_default_context(
            cafile=config.get("ssl.ca.location") or None, cadata=config.get("ssl.ca.pem") or None
        )
        context.check_hostname = config.get("ssl.endpoint.identification.algorithm", "https") != "none"
        with _connect(address) as plain, context.wrap_socket(plain, server_hostname=_host(address)):
            return None
    except ssl.SSLCertVerificationError as error:
        return error
    except (OSError, ValueError):
        return None


def _connect(address: str) -> socket.socket:
    return socket.create_connection((_host(address), int(address.rpartition(":")[2])), timeout=_SECONDS)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _wrapped(plain: socket.socket, address: str, *, tls: bool) -> socket.socket:
    if not tls:
        return plain
    context = ssl.create_default_context()
    context.check_hostname = False  # nothing is trusted or told: the question is only whether it speaks TLS
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=_host(address))


def _login_answer(connection: socket.socket) -> int | None:
    """Return the error code of a SaslHandshake; ``None`` where the peer speaks otherwise or not at all."""
    try:
        connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
        answer = b""
        while len(answer) < 10 and (received := connection.recv(1_024)):
            answer += received
    except OSError:
        return None
    return int(struct.unpack(">h", answer[8:10])[0]) if len(answer) >= 10 else None


def _protocols(answer: int | None, *, tls: bool) -> frozenset[str]:
    with_login, without = ("SASL_SSL", "SSL") if tls else ("SASL_PLAINTEXT", "PLAINTEXT")
    if answer == _WITH_LOGIN:
        return frozenset({with_login})
    if answer == _WITHOUT_LOGIN:
        return frozenset({without})
    # A listener that wants a client certificate ends the connection here; one that only accepts it may be anything.
    return frozenset({with_login, without}) if tls else frozenset()

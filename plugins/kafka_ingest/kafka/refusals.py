"""Why Kafka refuses a client: listener, certificate and issuer of tokens are asked, after librdkafka has failed.

librdkafka (2.16) says "certificate verify failed" for a foreign authority, an expired certificate and another host name
alike. It says nothing at all where a client without TLS or login meets a listener that wants them, and of an issuer of
tokens only the text of its answer, without its status.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from kafka_ingest.secrets import scrubbed, secret_values

_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a client is refused.

    Attributes:
        found: What was answered; without secrets.
        remedy: The settings that mend it, or who else has to act.
        is_outage: Nobody refuses: somebody is not there, and may be later.
    """

    found: str
    remedy: str
    is_outage: bool = False


# ----------
# What a listener speaks.

# A SaslHandshake, version 1, for a mechanism that nobody has: no login is tried. A listener with logins answers
# UNSUPPORTED_SASL_MECHANISM, one without ILLEGAL_SASL_STATE (Kafka 4.2, protocol guide).
_MECHANISM = b"NONE"
_REQUEST = struct.pack(">hhihh", 17, 1, 1, -1, len(_MECHANISM)) + _MECHANISM
_WITH_LOGIN, _WITHOUT_LOGIN = 33, 34


def listener_protocols(address: str) -> frozenset[str]:
    """Return the values of ``security.protocol`` that fit a listener (``host:port``); none where that stays unknown."""
    for tls in (True, False):
        try:
            with _connect(address) as plain, _wrapped(plain, address, tls=tls) as connection:
                return _protocols(_login_answer(connection), tls=tls)
        except (OSError, ValueError):
            continue
    return frozenset()


def _connect(address: str) -> socket.socket:
    return socket.create_connection((_host(address), int(address.rpartition(":")[2])), timeout=_SECONDS)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _wrapped(plain: socket.socket, address: str, *, tls: bool) -> socket.socket:
    if not tls:
        return plain
    context = ssl.create_default_context()
    context.check_hostname = False  # nothing is trusted or sent: the question is only whether it speaks TLS
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=_host(address))


def _login_answer(connection: socket.socket) -> int | None:
    """Return the error code of a SaslHandshake; ``None`` where the peer does not speak Kafka."""
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
    # A listener that requires a client certificate ends the connection here; one that only accepts it may be anything.
    return frozenset({with_login, without}) if tls else frozenset()


# ----------
# Certificates: the broker's, which the client refuses, and the client's, which the broker refuses.

_BROKER_CERTIFICATE = re.compile(r"certificate verify failed")
#: TLS alerts about the client's certificate (RFC 8446, 6.2), which librdkafka reports as a lost connection.
_CLIENT_CERTIFICATE = re.compile(r"SSL alert number (?:4[2-6]|48|116)\b")
_ADDRESS = re.compile(r"(?:^|//)((?:\[[^]]+\]|[^/:\s]+):\d+)/")


def is_about_certificates(words: str) -> bool:
    """Tell whether librdkafka's words are about a certificate: it may report them as a lost connection."""
    return bool(_BROKER_CERTIFICATE.search(words) or _CLIENT_CERTIFICATE.search(words))


def certificate_fault(address: str, config: Mapping[str, str]) -> ssl.SSLCertVerificationError | None:
    """Return why Python's TLS refuses the broker's certificate under the same settings; ``None`` where it does not."""
    try:
        context = _context(config, "ssl.ca.location", "ssl.ca.pem")
        context.check_hostname = config.get("ssl.endpoint.identification.algorithm", "https") != "none"
        with _connect(address) as plain, context.wrap_socket(plain, server_hostname=_host(address)):
            return None
    except ssl.SSLCertVerificationError as error:
        return error
    except (OSError, ValueError):
        return None


def _context(config: Mapping[str, str], location: str, pem: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=config.get(location) or None, cadata=config.get(pem) or None)


def _broker_certificate(words: str, config: Mapping[str, str]) -> Reason:
    address = _ADDRESS.search(words)
    fault = certificate_fault(address[1], config) if address else None
    if fault is None:
        return Reason(
            words,
            "set ssl.ca.location (or ssl.ca.pem) to the authority of the broker's certificate, unless it has expired "
            "or is for another host name",
        )
    found = f"{words}; the certificate: {fault.verify_message}"
    if "expired" in fault.verify_message:
        return Reason(found, "renew the broker's certificate; no setting mends it")
    if "mismatch" in fault.verify_message:
        return Reason(
            found,
            "name the broker in bootstrap.servers as its certificate does (advertised.listeners, too), or set "
            "ssl.endpoint.identification.algorithm to none",
        )
    return Reason(found, "set ssl.ca.location (or ssl.ca.pem) to the authority that signed the broker's certificate")


# ----------
# Tokens (OAUTHBEARER with ``sasl.oauthbearer.method`` ``oidc``): why there is none, or none that a broker takes.

CLIENT_ID, CLIENT_SECRET = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"
TOKEN_URL, SCOPE = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope"

#: An event of librdkafka, without a token or before it was sent to a broker.
_NO_TOKEN = re.compile(r"SASL OAUTHBEARER token|no token available")
#: More than clocks of one network differ, less than the 30 s that brokers allow (their
#: ``sasl.oauthbearer.clock.skew.seconds``).
_CLOCK_SECONDS = 5
_BUSY = frozenset({408, 425, 429})


def lacks_token(words: str) -> bool:
    """Tell whether librdkafka's words say that it has no token."""
    return _NO_TOKEN.search(words) is not None


def has_client_secret(config: Mapping[str, str]) -> bool:
    """Tell whether a client's id and secret ask for tokens, and not an assertion or a way of a cloud."""
    is_other = "sasl.oauthbearer.metadata.authentication.type" in config
    grant = config.get("sasl.oauthbearer.grant.type", "client_credentials")
    return config.get("sasl.oauthbearer.method") == "oidc" and grant == "client_credentials" and not is_other


def token_fault(config: Mapping[str, str]) -> Reason | None:
    """Ask the issuer for a token as librdkafka does; return why there is none of use, ``None`` where there is one.

    ``None``, too, for other ways to get a token than a client's id and secret.
    """
    if not has_client_secret(config):
        return None
    try:
        trusted = _context(config, "https.ca.location", "https.ca.pem")
    except (OSError, ValueError) as error:
        return Reason(f"https.ca.location or https.ca.pem: {error}", _TRUST_ISSUER)
    try:
        answer = _ask_issuer(config, trusted)
    except HTTPError as error:
        with error:
            return _refused_by_issuer(error.code, error.read(500).decode(errors="replace"), config)
    except (URLError, HTTPException, OSError, ValueError) as error:
        return _unreachable_issuer(getattr(error, "reason", error), config)
    return _unusable_token(answer)


def _ask_issuer(config: Mapping[str, str], trusted: ssl.SSLContext) -> bytes:
    """Return the answer to a client credentials grant (RFC 6749, 4.4)."""
    url = config[TOKEN_URL]
    if not url.startswith(("http://", "https://")):
        raise ValueError("it is no http:// or https:// URL")
    user = base64.b64encode(f"{config[CLIENT_ID]}:{config[CLIENT_SECRET]}".encode()).decode()
    form = {"grant_type": "client_credentials", **({"scope": config[SCOPE]} if config.get(SCOPE) else {})}
    request = Request(url, urlencode(form).encode(), {"Authorization": f"Basic {user}"})  # noqa: S310 (checked above)
    opener = build_opener(HTTPSHandler(context=trusted), _StayHere)
    with opener.open(request, timeout=_SECONDS) as answer:
        body: bytes = answer.read(1_000_000)
    return body


class _StayHere(HTTPRedirectHandler):
    """A redirection is an answer like any other: Python would hand the client's secret to whoever it names."""

    def redirect_request(self, *_: object) -> None:
        return None


def _refused_by_issuer(status: int, body: str, config: Mapping[str, str]) -> Reason:
    found = scrubbed(f"HTTP status {status} of {config[TOKEN_URL]}: {body}", secret_values(config))
    if status >= 500 or status in _BUSY:
        return Reason(found, "wait for the issuer of tokens", is_outage=True)
    if "scope" in body:
        return Reason(found, f"correct {SCOPE}")
    if status in (401, 403) or "client" in body:
        return Reason(found, f"correct {CLIENT_ID} and {CLIENT_SECRET}")
    return Reason(found, f"correct {TOKEN_URL}")


def _unreachable_issuer(error: object, config: Mapping[str, str]) -> Reason:
    found = f"{config[TOKEN_URL]}: {error}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return Reason(found, _TRUST_ISSUER)
    if isinstance(error, ssl.SSLError | ValueError):
        return Reason(found, f"correct {TOKEN_URL}")
    return Reason(
        found, f"check that the issuer of tokens runs, and that this machine reaches {TOKEN_URL}", is_outage=True
    )


_TRUST_ISSUER = "set https.ca.location (or https.ca.pem) to the authority that signed the issuer's certificate"


def _unusable_token(answer: bytes) -> Reason | None:
    try:
        claims = _claims(answer)
        begins, ends = max(claims.get("nbf", 0), claims.get("iat", 0)), claims["exp"]
    except (ValueError, LookupError, TypeError, AttributeError, binascii.Error):
        return Reason(
            "an answer without a JWT that has exp", f"correct {TOKEN_URL}: brokers and librdkafka take JWTs alone"
        )
    now = time.time()
    if ends > now and begins <= now + _CLOCK_SECONDS:
        return None
    found = f"a token that is valid from {_utc(begins)} to {_utc(ends)}; this machine's clock says {_utc(now)}"
    return Reason(found, "set the clock of this machine, or that of the issuer (NTP)")


def _claims(answer: bytes) -> dict[str, float]:
    body = json.loads(answer)["access_token"].split(".")[1]
    claims: dict[str, float] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return claims


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _refused_token(words: str, config: Mapping[str, str]) -> Reason:
    fault = token_fault(config)
    if fault is not None and not fault.is_outage:
        return Reason(f"{words}; {fault.found}", fault.remedy)
    return Reason(
        words,
        f"correct {TOKEN_URL} and {SCOPE}: a broker takes tokens of its own issuer and audience alone; or set the "
        "broker's clock, if it is off",
    )


# ----------
# All reasons by librdkafka's words.

#: Kafka's own answer to a login: the broker was up and understood it.
_ANSWER = re.compile(r"SASL authentication error|Unsupported SASL mechanism|not valid in current SASL state")


def is_answer(words: str) -> bool:
    """Tell whether librdkafka's words repeat a broker's answer to a login."""
    return _ANSWER.search(words) is not None


def passes(words: str, *, has_worked: bool) -> bool:
    """Tell words that sound like a refused login and are none: a lost connection, or a login with a renewed token.

    With a new token librdkafka (2.16) logs in again on its open connections. A broker that ends no sessions (without
    ``connections.max.reauth.ms``) takes no second login, and librdkafka connects anew.

    Args:
        words: Those of librdkafka.
        has_worked: A broker has answered this client before.
    """
    return "handshake failed: Local: " in words or (has_worked and "not valid in current SASL state" in words)


def reason_of(words: str, config: Mapping[str, str]) -> Reason:
    """Return what librdkafka's words about a refusal mean, and the settings that mend it."""
    if _BROKER_CERTIFICATE.search(words):
        return _broker_certificate(words, config)
    if _CLIENT_CERTIFICATE.search(words):
        return Reason(
            words,
            "set ssl.certificate.location and ssl.key.location (or ssl.certificate.pem and ssl.key.pem) to a client "
            "certificate that the broker trusts",
        )
    if "Unsupported SASL mechanism" in words:
        return Reason(words, "set sasl.mechanism to one that the broker supports")
    if "not valid in current SASL state" in words:
        return Reason(words, "set security.protocol to PLAINTEXT or SSL: this listener takes no login")
    if "SASL" in words and config.get("sasl.mechanism", "").upper() == "OAUTHBEARER":
        return _refused_token(words, config)
    if "SASL" in words:
        return Reason(words, "correct sasl.username and sasl.password")
    return Reason(words, "correct security.protocol, sasl.* and ssl.*")

"""What librdkafka's errors mean for us, in one place.

librdkafka reports a refused login or a broken certificate only as an event while the client is polled; the call that
needed the broker just times out. :class:`ClientEvents` collects those events, so that the error that is raised in the
end can say what the broker said.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException

from kafka_ingest.adapters.kafka_listener import certificate_fault, listener_protocols
from kafka_ingest.core.errors import BrokerUnavailable, ConfigError, IngestError
from kafka_ingest.core.secret_texts import scrubbed, secret_values

#: Key of the Airflow connection's id among a client's settings, which travel to the job with it; not librdkafka's.
CONNECTION = "kafka_ingest.connection"

#: The broker refuses this client, whatever the network does.
REFUSALS = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError._FATAL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)

#: So many refusals are taken as final before the time-out. A single one can be a broker that is starting.
FINAL_REFUSALS = 3
#: A load balancer before a starting broker, or a broker that has not loaded its certificates yet, refuses for some
#: seconds: half of a plan's time-out (30 s). A refusal that is an answer to a login needs no such patience.
PATIENCE_SECONDS = 15.0
#: After so long without an answer the listener itself is asked what it speaks; an election takes less.
SILENCE_SECONDS = 5.0

#: An answer by Kafka itself, which was up and understood the login.
_ANSWER = re.compile(r"SASL authentication error|Unsupported SASL mechanism|not valid in current SASL state")
_BROKER_CERTIFICATE = re.compile(r"certificate verify failed")
#: TLS alerts about the client's certificate (RFC 8446, 6.2), which librdkafka reports as a lost connection.
_CLIENT_CERTIFICATE = re.compile(r"SSL alert number (?:4[2-6]|48|116)\b")
_ADDRESS = re.compile(r"(?:^|//)((?:\[[^]]+\]|[^/:\s]+):\d+)/")


class OncePerMinute(logging.Filter):
    """Lets a line pass once a minute: librdkafka repeats a failed connection several times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Compares lines without their numbers (durations, ports, client numbers)."""
        line = re.sub(r"\d+", "", record.getMessage())
        now = time.monotonic()
        if now - self._passed.get(line, float("-inf")) < 60:
            return False
        self._passed[line] = now
        return True


#: librdkafka's own log goes where Python's logging sends it, not to stderr.
LIBRDKAFKA_LOG = logging.getLogger("kafka_ingest.librdkafka")
LIBRDKAFKA_LOG.addFilter(OncePerMinute())


class ClientEvents:
    """Collects what ``error_cb`` tells of one client, until something succeeds.

    Args:
        config: The client's settings, as ``kafka_config.client_config`` gives them.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.refusals: list[str] = []
        self.last_words = ""
        self._config = config
        self._since: float | None = None
        self._is_refused_now = False
        self._mismatch = ""
        self._has_asked = False

    def __call__(self, error: KafkaError) -> None:
        """Takes one event; used as ``error_cb``."""
        self._since = self._since or time.monotonic()
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # says less than what led to it
            return
        words = error.str()
        self._is_refused_now = error.code() in REFUSALS or error.fatal() or _is_about_certificates(words)
        if self._is_refused_now:
            self.refusals.append(words)
        self.last_words = words

    @property
    def refused_for_good(self) -> bool:
        """Whether waiting longer is pointless."""
        seconds = 0.0 if self._since is None else time.monotonic() - self._since
        if seconds > SILENCE_SECONDS and self._has_other_protocol():
            return True
        if len(self.refusals) < FINAL_REFUSALS:
            return False
        return seconds > PATIENCE_SECONDS or _ANSWER.search(self.refusals[-1]) is not None

    def forget(self) -> None:
        """Forgets what was collected: a broker has answered."""
        self.refusals.clear()
        self.last_words = ""
        self._since = None
        self._is_refused_now = self._has_asked = False

    def unavailable(self, *, tried: str, seconds: float) -> IngestError:
        """Gives the error for a broker that has not answered: refused, or just not there."""
        bootstrap, connection = self._config.get("bootstrap.servers", ""), connection_of(self._config)
        if self._has_other_protocol():
            return ConfigError(
                f"Kafka at {bootstrap} does not speak as {connection} does ({tried})",
                expected=f"security.protocol: {self._mismatch}, which the listener speaks",
                found=f"security.protocol: {self._protocol}",
                next_command=f"correct security.protocol, or the port in bootstrap.servers: {look_at(self._config)}",
            )
        # What came last counts: a broker that refused while it went down is down.
        if self._is_refused_now or self.refused_for_good:
            found, remedy = _explained(self.refusals[-1], self._config)
            return ConfigError(
                f"Kafka at {bootstrap} refuses the client of {connection} ({tried})",
                expected="a login, certificates and rights that both sides accept",
                found=found,
                next_command=f"{remedy}: {look_at(self._config)}",
            )
        return BrokerUnavailable(
            f"Kafka at {bootstrap} does not answer ({tried})",
            expected=f"an answer within {seconds:g} s",
            found=self.last_words or "none",
            next_command=f"check that the broker runs, that bootstrap.servers of {connection} can be reached from this "
            "machine, and that security.protocol fits that listener; the task tries again",
        )

    @property
    def _protocol(self) -> str:
        return self._config.get("security.protocol", "plaintext").upper()

    def _has_other_protocol(self) -> bool:
        """Whether a bootstrap listener says that it speaks another protocol; asked once."""
        if not self._has_asked and not self.refusals:
            self._has_asked = True
            first = self._config.get("bootstrap.servers", "").split(",")[0].strip().rpartition("://")[2]
            spoken = listener_protocols(first)
            self._mismatch = " or ".join(sorted(spoken)) if spoken and self._protocol not in spoken else ""
        return bool(self._mismatch)


def connection_of(config: Mapping[str, str]) -> str:
    """Return the name of the connection that the settings are from, for a message."""
    return f"the Airflow connection {config.get(CONNECTION) or 'of type kafka'}"


def look_at(config: Mapping[str, str]) -> str:
    """Return what to edit, and the command that then looks at the connection."""
    return f'edit the extra of {connection_of(config)}, then run "python -m kafka_ingest preflight PIPELINE"'


def client_fault(error: KafkaException, config: Mapping[str, str]) -> ConfigError:
    """Return the error for settings of which librdkafka makes no client on this machine, as without a file."""
    return ConfigError(
        f"The settings of {connection_of(config)} make no Kafka client on {socket.gethostname()}",
        expected="settings that librdkafka takes, and their files on every machine that reads",
        found=scrubbed(error.args[0].str(), secret_values(config)),
        next_command=look_at(config),
    )


def _is_about_certificates(words: str) -> bool:
    return bool(_BROKER_CERTIFICATE.search(words) or _CLIENT_CERTIFICATE.search(words))


def _explained(words: str, config: Mapping[str, str]) -> tuple[str, str]:
    """Return what was found, and the settings that mend it."""
    if _BROKER_CERTIFICATE.search(words):
        return _broker_certificate(words, config)
    if _CLIENT_CERTIFICATE.search(words):
        return words, (
            "set ssl.certificate.location and ssl.key.location (or ssl.certificate.pem and ssl.key.pem) to a client "
            "certificate that the broker trusts"
        )
    if "Unsupported SASL mechanism" in words:
        return words, "set sasl.mechanism to one that the broker supports"
    if "not valid in current SASL state" in words:
        return words, "set security.protocol to PLAINTEXT or SSL: this listener takes no login"
    if "SASL" in words:
        return words, "correct sasl.username and sasl.password"
    return words, "correct security.protocol, sasl.* and ssl.*"


def _broker_certificate(words: str, config: Mapping[str, str]) -> tuple[str, str]:
    address = _ADDRESS.search(words)
    fault = certificate_fault(address[1], config) if address else None
    if fault is None:
        return words, (
            "set ssl.ca.location (or ssl.ca.pem) to the authority of the broker's certificate, unless it has expired "
            "or is for another host name"
        )
    found = f"{words}; the certificate: {fault.verify_message}"
    if "expired" in fault.verify_message:
        return found, "renew the broker's certificate; no setting mends it"
    if "mismatch" in fault.verify_message:
        return found, (
            "name the broker in bootstrap.servers as its certificate does (advertised.listeners, too), or set "
            "ssl.endpoint.identification.algorithm to none"
        )
    return found, "set ssl.ca.location (or ssl.ca.pem) to the authority that signed the broker's certificate"


def is_truncation(error: KafkaError) -> bool:
    """Tells a truncated log from an expired offset: librdkafka gives both as ``_AUTO_OFFSET_RESET``.

    The reason is only in the text, which ends with the text of the inner code (``rd_kafka_offset_reset`` in
    rdkafka_offset.c, 2.16); that text is asked of the library instead of being written here.
    """
    inner = KafkaError(KafkaError._LOG_TRUNCATION).str()
    return error.code() == KafkaError._LOG_TRUNCATION or inner in error.str()

"""What librdkafka's errors mean for us, in one place.

librdkafka reports a refused login or a broken certificate only as an event while the client is polled; the call that
needed the broker just times out. :class:`ClientEvents` collects those events, so that the error that is raised in the
end can say what the broker said.
"""

from __future__ import annotations

import logging
import re
import time

from confluent_kafka import KafkaError

from kafka_ingest.core.errors import BrokerUnavailable, ConfigError, IngestError

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

#: So many refusals in a row are taken as final before the time-out. A single one can be a broker that is starting.
FINAL_REFUSALS = 3


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
    """Collects what ``error_cb`` tells of one client, until something succeeds."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.last_words = ""

    def __call__(self, error: KafkaError) -> None:
        """Takes one event; used as ``error_cb``."""
        if error.code() in REFUSALS or error.fatal():
            self.refusals.append(error.str())
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # says less than what led to it
            self.last_words = error.str()

    @property
    def refused_for_good(self) -> bool:
        """Whether waiting longer is pointless."""
        return len(self.refusals) >= FINAL_REFUSALS

    def forget(self) -> None:
        """Forgets what was collected: a broker has answered."""
        self.refusals.clear()
        self.last_words = ""

    def unavailable(self, bootstrap: str, *, tried: str, seconds: float) -> IngestError:
        """Gives the error for a broker that has not answered: refused, or just not there."""
        if self.refusals:
            return ConfigError(
                f"Kafka at {bootstrap} refuses this client ({tried})",
                expected="a login, certificates and rights that the broker accepts",
                found=self.refusals[-1],
                next_command="edit the extra of the Airflow connection (security.protocol, sasl.*, ssl.*), "
                'then run "python -m kafka_ingest check-config"',
            )
        return BrokerUnavailable(
            f"Kafka at {bootstrap} does not answer ({tried})",
            expected=f"an answer within {seconds:g} s",
            found=self.last_words or "none",
            next_command="check that the broker runs, that bootstrap.servers of the Airflow connection can be reached "
            "from this machine, and that security.protocol fits that listener; the task tries again",
        )


def is_truncation(error: KafkaError) -> bool:
    """Tells a truncated log from an expired offset: librdkafka gives both as ``_AUTO_OFFSET_RESET``.

    The reason is only in the text, which ends with the text of the inner code (``rd_kafka_offset_reset`` in
    rdkafka_offset.c, 2.16); that text is asked of the library instead of being written here.
    """
    inner = KafkaError(KafkaError._LOG_TRUNCATION).str()
    return error.code() == KafkaError._LOG_TRUNCATION or inner in error.str()

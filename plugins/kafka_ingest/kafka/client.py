"""Kafka's clients: their settings, and what their events mean."""

from __future__ import annotations

import json
import logging
import re
import socket
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, libversion

from kafka_ingest.errors import BrokerUnavailable, ConfigError, IngestError
from kafka_ingest.kafka import refusals
from kafka_ingest.secrets import scrubbed, secret_values
from kafka_ingest.settings import IsolationLevel

# ----------
# What librdkafka's errors mean.
#
# librdkafka reports a refused login or a broken certificate only as an event while the client is polled; the call that
# needed the broker just times out. :class:`ClientEvents` collects these events, so that the error says in the end what
# the broker said.

#: Key of the Airflow connection's id among a client's settings. Not librdkafka's; it travels to the job with them.
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

#: This many refusals are final before the time-out. A single one can come from a broker that is starting.
FINAL_REFUSALS = 3
#: A load balancer before a starting broker, or a broker that has not loaded its certificates yet, refuses for some
#: seconds: a third of a plan's time-out (30 s). A refusal that is an answer to a login needs no such patience.
PATIENCE_SECONDS = 10.0
#: After this time without an answer the listener itself is asked what it speaks; an election takes less.
SILENCE_SECONDS = 5.0


class OncePerMinute(logging.Filter):
    """A filter that passes a line once a minute: librdkafka repeats a failed connection several times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Compare lines without their numbers (durations, ports, client numbers)."""
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
    """What ``error_cb`` tells of one client, collected until something succeeds.

    Args:
        config: The client's settings, as :func:`client_config` returns them.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.refusals: list[str] = []
        self.output_tail = ""
        self._config = config
        self._since: float | None = None
        self._is_refused_now = False
        self._has_worked = False
        self._mismatch = ""
        self._has_asked = False
        self._lacks_token = False
        self._token_fault: refusals.Reason | None = None
        self._has_asked_issuer = False

    def __call__(self, error: KafkaError) -> None:
        """Take one event; used as ``error_cb``."""
        self._since = self._since or time.monotonic()
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # says less than the errors before it
            return
        words = error.str()
        self._lacks_token = refusals.lacks_token(words)
        if self._lacks_token:  # who refuses, if anybody does, is the issuer of tokens: it is asked
            self._has_asked_issuer = False
        is_refusal = error.code() in REFUSALS or error.fatal() or refusals.is_about_certificates(words)
        passes = self._lacks_token or refusals.passes(words, has_worked=self._has_worked)
        self._is_refused_now = is_refusal and not passes
        if self._is_refused_now:
            self.refusals.append(words)
        self.output_tail = words

    @property
    def refused_for_good(self) -> bool:
        """Whether waiting longer is pointless."""
        seconds = 0.0 if self._since is None else time.monotonic() - self._since
        if self._lacks_token and (fault := self._asked_issuer()) is not None and not fault.is_outage:
            return True
        if seconds > SILENCE_SECONDS and self._has_other_protocol():
            return True
        if len(self.refusals) < FINAL_REFUSALS:
            return False
        return seconds > PATIENCE_SECONDS or refusals.is_answer(self.refusals[-1])

    def forget(self) -> None:
        """Forget what was collected: a broker has answered."""
        self.refusals.clear()
        self.output_tail = ""
        self._since = None
        self._has_worked = True
        self._is_refused_now = self._has_asked = self._lacks_token = self._has_asked_issuer = False

    def unavailable(self, *, tried: str, seconds: float) -> IngestError:
        """Return the error for a broker that has not answered: refused, or just not there."""
        bootstrap, connection = self._config.get("bootstrap.servers", ""), connection_of(self._config)
        if self._has_other_protocol():
            return ConfigError(
                f"Kafka at {bootstrap} does not speak as {connection} does ({tried})",
                expected=f"security.protocol: {self._mismatch}, which the listener speaks",
                found=f"security.protocol: {self._protocol}",
                next_command=f"set security.protocol to {self._mismatch}, or correct the port in bootstrap.servers: "
                f"{look_at(self._config)}",
            )
        reason = self._reason()
        if reason is not None and not reason.is_outage:
            return ConfigError(
                f"Kafka at {bootstrap} refuses the client of {connection} ({tried})",
                expected="a login, certificates and rights that both sides accept",
                found=reason.found,
                next_command=f"{reason.remedy}: {look_at(self._config)}",
            )
        if reason is not None:
            return BrokerUnavailable(
                f"The client of {connection} gets no token for Kafka at {bootstrap} ({tried})",
                expected=f"a token within {seconds:g} s",
                found=reason.found,
                next_command=f"{reason.remedy}; the task tries again",
            )
        return BrokerUnavailable(
            f"Kafka at {bootstrap} does not answer ({tried})",
            expected=f"an answer within {seconds:g} s",
            found=self.output_tail or "none",
            next_command=f"check that the broker runs, that bootstrap.servers of {connection} can be reached from this "
            "machine, and that security.protocol fits that listener; the task tries again",
        )

    @property
    def _protocol(self) -> str:
        return self._config.get("security.protocol", "plaintext").upper()

    def _reason(self) -> refusals.Reason | None:
        """Return why there is no connection; ``None`` where nobody refuses."""
        # The last event counts: a broker that refused while it went down is down.
        if self._is_refused_now or (self.refusals and self.refused_for_good):
            return refusals.reason_of(self.refusals[-1], self._config)
        return self._asked_issuer()

    def _asked_issuer(self) -> refusals.Reason | None:
        """Return what the issuer of tokens says; asked once for each token that did not come."""
        if not self._has_asked_issuer:
            self._has_asked_issuer = True
            self._token_fault = refusals.token_fault(self._config)
        return self._token_fault

    def _has_other_protocol(self) -> bool:
        """Tell whether a bootstrap listener says that it speaks another protocol; asked once."""
        if not self._has_asked and not self.refusals:
            self._has_asked = True
            first = self._config.get("bootstrap.servers", "").split(",")[0].strip().rpartition("://")[2]
            spoken = refusals.listener_protocols(first)
            self._mismatch = " or ".join(sorted(spoken)) if spoken and self._protocol not in spoken else ""
        return bool(self._mismatch)


def connection_of(config: Mapping[str, str]) -> str:
    """Return the name of the settings' connection, for a message."""
    return f"the Airflow connection {config.get(CONNECTION) or 'of type kafka'}"


def look_at(config: Mapping[str, str]) -> str:
    """Return what to edit, and the command that checks the connection afterwards."""
    return f'edit the extra of {connection_of(config)}, then run "python -m kafka_ingest preflight PIPELINE"'


def client_fault(error: KafkaException, config: Mapping[str, str]) -> ConfigError:
    """Return the error for settings from which librdkafka makes no client here, such as a file that is missing."""
    return ConfigError(
        f"The settings of {connection_of(config)} make no Kafka client on {socket.gethostname()}",
        expected="settings that librdkafka takes, and their files on every machine that reads",
        found=scrubbed(error.args[0].str(), secret_values(config)),
        next_command=look_at(config),
    )


def library_version() -> str:
    """Return the version of librdkafka."""
    return str(libversion()[0])


def is_truncation(error: KafkaError) -> bool:
    """Tell a truncated log from an expired offset: librdkafka reports both as ``_AUTO_OFFSET_RESET``.

    Only the text shows the reason. It ends with the text of the inner code (``rd_kafka_offset_reset`` in
    rdkafka_offset.c, 2.16), which is read from the library instead of being written here.
    """
    inner = KafkaError(KafkaError._LOG_TRUNCATION).str()
    return error.code() == KafkaError._LOG_TRUNCATION or inner in error.str()


# ----------
# Progress without records: the fetch position in librdkafka's statistics.


class FetchPosition:
    """The fetch position of the followed partition, from librdkafka's statistics (``stats_cb``).

    A large aborted transaction brings no record and no event for a long time while it is fetched; ``next_offset`` of
    the partition (STATISTICS.md of librdkafka) moves all the same.
    """

    def __init__(self) -> None:
        self._latest = ""
        self._topic = ""
        self._partition = -1
        self._seen: int | None = None

    def __call__(self, statistics: str) -> None:
        """Take one document; it is parsed only when someone waits."""
        self._latest = statistics

    def follow(self, topic: str, partition: int) -> None:
        """Follow a partition from now on."""
        self._topic, self._partition = topic, partition
        self._seen = None

    def has_moved(self) -> bool:
        """Tell whether the position differs from the one at the last call; the first one seen is no movement."""
        latest, self._latest = self._latest, ""
        if not latest:
            return False
        position = json.loads(latest).get("topics", {}).get(self._topic, {}).get("partitions", {})
        offset = position.get(str(self._partition), {}).get("next_offset")
        before, self._seen = self._seen, offset
        return before is not None and offset != before


# ----------
# The librdkafka settings of a pipeline: what its Airflow connection says, plus what the protocol fixes.
#
# Planner and reader get the same settings, so that both mean the same records by "readable". A connection cannot change
# settings that exactly-once needs: they are left out with a note, because other consumers may share the connection.
# Another isolation level is refused: its owner means other records. All faults are reported at once.
# Reference of all keys: CONFIGURATION.md of librdkafka (2.16).

#: What the protocol fixes, beside the isolation level. The prefetch limit bounds a task's memory: 16 MB is about half a
#: second of reading at full speed, and one more fetch response of at most 50 MB can be under way.
FIXED: Mapping[str, str] = {
    "enable.auto.commit": "false",  # the position is in the ledger, in the transaction of the rows
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",  # an offset that is gone is a loss to report, never a jump
    "enable.partition.eof": "true",  # ends a range whose tail holds no readable record
    "allow.auto.create.topics": "false",
    "statistics.interval.ms": "1000",  # a moving fetch position is progress, also inside an aborted transaction
    "queued.max.messages.kbytes": "16384",
}

#: Better defaults than librdkafka's for reading what is already there; a connection may set others.
DEFAULTS: Mapping[str, str] = {
    "check.crcs": "true",  # a damaged batch is an error instead of wrong rows; no slowdown was measurable
    # All records are there already: only the fetch after a partition's last record waits, and with it the event that
    # ends the range. 80 partitions of 1,000 records took 110 ms each with 50, 10 with 1 (librdkafka's own is 500).
    "fetch.wait.max.ms": "1",
    "fetch.queue.backoff.ms": "20",  # after the prefetch limit; 1000 (librdkafka's) read 79 k records/s, 20: 375 k
    "group.id": "kafka-ingest-unused",  # librdkafka wants one; no group is joined and nothing is committed to it
}

#: Keys that name Python functions in Airflow's Kafka provider; they cannot travel to a Spark executor.
CALLBACKS = frozenset({"error_cb", "throttle_cb", "stats_cb", "log_cb", "oauth_cb", "on_commit", "logger"})

#: Keys above that an admin client does not know; it would log a warning about each.
CONSUMER_ONLY = frozenset({*FIXED, *DEFAULTS, "isolation.level"} - {"statistics.interval.ms"})

#: Settings of a consumer in a group, which no client here is: some exclude each other, or the fixed ones.
GROUP_ONLY = frozenset(
    {
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "auto.commit.interval.ms",
        "partition.assignment.strategy",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
    }
)

#: Other names that librdkafka accepts for keys above, and for one that the sample of record sizes sets (``log.py``).
ALIASES: Mapping[str, str] = {
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "auto.commit.enable": "enable.auto.commit",
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": refusals.CLIENT_ID,
    "sasl.oauthbearer.client.credentials.client.secret": refusals.CLIENT_SECRET,
}

#: What a key of a login must hold, where that is always the same.
_LOGIN: Mapping[str, str] = {"sasl.oauthbearer.method": "oidc"}

_QUOTED = re.compile(r'"([a-z][a-z0-9._]*)"')
_JAVA_KEYS = ("sasl.jaas", "ssl.keystore", "ssl.truststore")
_LOG = logging.getLogger(__name__)
_SILENT = logging.getLogger("kafka_ingest.kafka_config")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def client_config(
    extra: Mapping[str, object], isolation_level: IsolationLevel, *, client_id: str, connection: str = ""
) -> dict[str, str]:
    """Merge the settings of a Kafka connection with what the protocol fixes.

    Args:
        extra: The extra of Airflow's ``kafka`` connection: librdkafka settings.
        isolation_level: The pipeline's isolation level.
        client_id: Name that brokers see in their logs and quotas, unless the connection gives one.
        connection: Id of the Airflow connection, which messages name.

    Returns:
        A complete librdkafka configuration, with secrets and the connection's id: for ``KafkaLog`` and
        ``KafkaRangeReader``.

    Raises:
        ConfigError: The connection lacks ``bootstrap.servers``, asks for another isolation level, names callbacks, or
            has keys or values that librdkafka refuses. Lists every fault; shows no secret.
    """
    given = {ALIASES.get(key, key): _text(value) for key, value in extra.items() if value is not None}
    fixed = {**FIXED, "isolation.level": isolation_level.value}
    ours = {CONNECTION: connection} if connection else {}
    left_out = [key for key in given if key in GROUP_ONLY or given[key].lower() != FIXED.get(key, given[key].lower())]
    usable = {key: value for key, value in given.items() if key not in {*CALLBACKS, *fixed, *GROUP_ONLY}}
    merged = {**DEFAULTS, "client.id": client_id, **usable, **fixed}
    faults = [*_own_faults(given, fixed), *_librdkafka_faults(_with_login(merged))]
    if faults:
        raise ConfigError(
            f"{connection_of(ours)[0].upper()}{connection_of(ours)[1:]} cannot be used",
            expected="librdkafka settings that leave to this package what exactly-once rests on",
            found="\n    ".join(["", *faults]).rstrip(),
            next_command=look_at(ours),
        )
    if left_out:
        _note(connection_of(ours), ", ".join(sorted(left_out)))
    return merged | ours


def librdkafka_settings(config: Mapping[str, str]) -> dict[str, str]:
    """Return those of :func:`client_config`'s settings that librdkafka gets."""
    return {key: value for key, value in config.items() if key != CONNECTION}


@cache  # once in a process: every client asks for the settings again
def _note(connection: str, keys: str) -> None:
    _LOG.info(
        "Settings of %s that are left out, since this package joins no group and fixes the rest: %s", connection, keys
    )


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(_text(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _own_faults(given: Mapping[str, str], fixed: Mapping[str, str]) -> Iterator[str]:
    if not given.get("bootstrap.servers", "").strip():
        yield "bootstrap.servers: expected host:port of one or more brokers, found nothing"
    for key, value in given.items():
        if key in CALLBACKS:
            yield f"{key}: expected nothing, found a Python callback, which cannot travel to a Spark executor"
        elif key == "isolation.level" and value.strip().lower() != fixed[key]:
            yield f"{key}: expected {fixed[key]}, as kafka.isolation_level of the pipeline file says; found {value}"
    yield from (
        f"{key}: expected {_LOGIN.get(key, 'one')} beside sasl.mechanism, found nothing"
        for key in _missing_login(given)
    )


def _missing_login(config: Mapping[str, str]) -> list[str]:
    if not config.get("security.protocol", "").upper().startswith("SASL"):
        return []
    mechanism = config.get("sasl.mechanism", "").upper()
    wanted: tuple[str, ...] = ()
    if mechanism.startswith(("PLAIN", "SCRAM")):
        wanted = ("sasl.username", "sasl.password")
    elif mechanism == "OAUTHBEARER":
        secret = (refusals.CLIENT_ID, refusals.CLIENT_SECRET, refusals.TOKEN_URL)
        wanted = ("sasl.oauthbearer.method", *(secret if refusals.has_client_secret(config) else ()))
    return [key for key in wanted if not config.get(key)]


def _with_login(config: Mapping[str, str]) -> Mapping[str, str]:
    """Fill in a missing login, which is a reported fault already: librdkafka would blame the half that is there."""
    return {**config, **{key: _LOGIN.get(key, "?") for key in _missing_login(config)}}


def _on_trial(config: Mapping[str, str]) -> dict[str, str]:
    """Return settings whose client connects to nobody: to no broker, and to no issuer of tokens, which it waits for."""
    found = {key: value for key, value in config.items() if key != "bootstrap.servers"}
    if config.get("sasl.mechanism", "").upper() == "OAUTHBEARER" and "security.protocol" in config:
        found["security.protocol"] = config["security.protocol"].upper().removeprefix("SASL_")
    return found


def _librdkafka_faults(config: Mapping[str, str]) -> list[str]:
    """Return librdkafka's faults: it names one key at a time, so each one is taken out and the rest tried again."""
    left = _on_trial(config)
    faults: list[str] = []
    while True:
        try:
            Consumer(left, logger=_SILENT).close()
        except KafkaException as error:
            words = error.args[0].str()
            key = next(_named_keys(words, left), None)
            faults.append(_masked(_told(key, words, config), config))
            if key is None:
                return faults
            del left[key]
        else:
            return faults


def _told(key: str | None, words: str, config: Mapping[str, str]) -> str:
    if key in ("ssl.key.location", "ssl.key.pem") and _is_encrypted(config):
        return f"ssl.key.password: expected the password of the encrypted key, found another or none ({words})"
    if key in config and str(key).endswith(".pem") and "\n" not in config[str(key)].strip():
        return f"{key}: expected PEM with its line breaks, which JSON spells \\n, found a single line ({words})"
    return f"{key}: {words}" if key else words


def _is_encrypted(config: Mapping[str, str]) -> bool:
    try:
        key = config.get("ssl.key.pem") or Path(config.get("ssl.key.location", "")).read_text(encoding="ascii")
    except (OSError, ValueError):
        return False
    return "ENCRYPTED" in key


def _named_keys(words: str, config: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys that a refusal may be about, the likeliest first."""
    yield from (name for name in _QUOTED.findall(words) if name in config)
    if "Java" in words:  # a key of the Java client: the message names librdkafka's key instead
        yield from (key for key in config if key.startswith(_JAVA_KEYS))
    yield from (key for key in sorted(config, key=len, reverse=True) if key in words)


def _masked(words: str, config: Mapping[str, str]) -> str:
    return scrubbed(words, secret_values(config))

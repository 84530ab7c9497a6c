"""The librdkafka settings of a pipeline: what its Airflow connection says, plus what the protocol fixes.

Planner and reader get the same settings, so that both mean the same records by "readable". Settings on which
exactly-once rests are not the connection's. One that other consumers share may hold them: they are left out with a
note. Another isolation level is refused: its owner means other records. Every fault is told at once.
Reference of all keys: CONFIGURATION.md of librdkafka (2.16).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from confluent_kafka import Consumer, KafkaException

from kafka_ingest.adapters.kafka_faults import CONNECTION, connection_of, look_at
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.secret_texts import scrubbed, secret_values
from kafka_ingest.core.settings import IsolationLevel

#: What the protocol fixes, beside the isolation level. The prefetch limit bounds a task's memory: 16 MB is about half a
#: second of reading at full speed, and one more fetch response of at most 50 MB can be under way.
FIXED: Mapping[str, str] = {
    "enable.auto.commit": "false",  # the position lives in the ledger, in the transaction of the rows
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
    # All that is read is there already: only the fetch after a partition's last record waits, and with it the event
    # that ends the range. 80 partitions of 1,000 records took 110 ms each with 50, 10 with 1 (librdkafka's own is 500).
    "fetch.wait.max.ms": "1",
    "fetch.queue.backoff.ms": "20",  # after the prefetch limit; 1000 (librdkafka's) read 79 k records/s, 20: 375 k
    "group.id": "kafka-ingest-unused",  # librdkafka wants one; no group is joined and nothing is committed to it
}

#: Keys that name Python functions in Airflow's Kafka provider; they cannot travel to a Spark executor.
CALLBACKS = frozenset({"error_cb", "throttle_cb", "stats_cb", "log_cb", "oauth_cb", "on_commit", "logger"})

#: Keys above that an admin client does not know; it would log a warning about each.
CONSUMER_ONLY = frozenset({*FIXED, *DEFAULTS, "isolation.level"} - {"statistics.interval.ms"})

#: Settings of a consumer in a group, which no client here is: some of them exclude each other, or ours.
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

#: Other names that librdkafka accepts for keys above.
ALIASES: Mapping[str, str] = {
    "auto.commit.enable": "enable.auto.commit",
    "metadata.broker.list": "bootstrap.servers",
}

_QUOTED = re.compile(r'"([a-z][a-z0-9._]*)"')
_JAVA_KEYS = ("sasl.jaas", "ssl.keystore", "ssl.truststore")
_LOG = logging.getLogger(__name__)
_SILENT = logging.getLogger("kafka_ingest.kafka_config")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def client_config(
    extra: Mapping[str, object], isolation_level: IsolationLevel, *, client_id: str, connection: str = ""
) -> dict[str, str]:
    """Merges the settings of a Kafka connection with what the protocol fixes.

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
    """Return what librdkafka is to know of :func:`client_config`'s settings."""
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
    yield from (f"{key}: expected one beside sasl.mechanism, found nothing" for key in _missing_login(given))


def _missing_login(config: Mapping[str, str]) -> list[str]:
    protocol, mechanism = (
        config.get("security.protocol", ""),
        config.get("sasl.mechanism", config.get("sasl.mechanisms", "")),
    )
    has_password = mechanism.upper().startswith(("PLAIN", "SCRAM"))
    if not protocol.upper().startswith("SASL") or not has_password:
        return []
    return [key for key in ("sasl.username", "sasl.password") if not config.get(key)]


def _with_login(config: Mapping[str, str]) -> Mapping[str, str]:
    """Fill in a missing login, which is told already: librdkafka's words blame the half that is there."""
    return {**config, **dict.fromkeys(_missing_login(config), "?")}


def _librdkafka_faults(config: Mapping[str, str]) -> list[str]:
    """Lets librdkafka judge: it names one fault at a time, so the key it names is taken out and it is asked again."""
    left = {key: value for key, value in config.items() if key != "bootstrap.servers"}  # without it no connection opens
    faults: list[str] = []
    while True:
        try:
            Consumer(left, logger=_SILENT).close()
        except KafkaException as error:
            words = error.args[0].str()
            key = next(_named_keys(words, left), None)
            if key in ("ssl.key.location", "ssl.key.pem") and _is_encrypted(config):
                words = f"expected the password of the encrypted key, found another or none ({words})"
                faults.append(_masked(f"ssl.key.password: {words}", config))
            else:
                faults.append(_masked(f"{key}: {words}" if key else words, config))
            if key is None:
                return faults
            del left[key]
        else:
            return faults


def _is_encrypted(config: Mapping[str, str]) -> bool:
    try:
        key = config.get("ssl.key.pem") or Path(config.get("ssl.key.location", "")).read_text(encoding="ascii")
    except (OSError, ValueError):
        return False
    return "ENCRYPTED" in key


def _named_keys(words: str, config: Mapping[str, str]) -> Iterator[str]:
    """Gives the keys that a refusal may be about, the likeliest first."""
    yield from (name for name in _QUOTED.findall(words) if name in config)
    if "Java" in words:  # a key of the Java client: the message names librdkafka's key instead
        yield from (key for key in config if key.startswith(_JAVA_KEYS))
    yield from (key for key in sorted(config, key=len, reverse=True) if key in words)


def _masked(words: str, config: Mapping[str, str]) -> str:
    return scrubbed(words, secret_values(config))

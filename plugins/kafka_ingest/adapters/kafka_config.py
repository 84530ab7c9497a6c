"""The librdkafka settings of a pipeline: what its Airflow connection says, plus what the protocol fixes.

Planner and reader get the same settings, so that both mean the same records by "readable". Settings on which
exactly-once rests cannot be changed in the connection: a connection that tries is refused, with every fault at once.
Reference of all keys: CONFIGURATION.md of librdkafka (2.16).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaException

from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.secret_texts import is_secret_name, scrubbed, secret_values
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

#: Other names that librdkafka accepts for keys above.
ALIASES: Mapping[str, str] = {
    "auto.commit.enable": "enable.auto.commit",
    "metadata.broker.list": "bootstrap.servers",
}

_QUOTED = re.compile(r'"([a-z][a-z0-9._]*)"')
_JAVA_KEYS = ("sasl.jaas", "ssl.keystore", "ssl.truststore")
_EDIT = 'edit the extra of the Airflow connection, then run "python -m kafka_ingest check-config"'
_SILENT = logging.getLogger("kafka_ingest.kafka_config")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def client_config(extra: Mapping[str, object], isolation_level: IsolationLevel, *, client_id: str) -> dict[str, str]:
    """Merges the settings of a Kafka connection with what the protocol fixes.

    Args:
        extra: The extra of Airflow's ``kafka`` connection: librdkafka settings.
        isolation_level: The pipeline's isolation level.
        client_id: Name that brokers see in their logs and quotas, unless the connection gives one.

    Returns:
        A complete librdkafka configuration, with secrets: for ``KafkaLog`` and ``KafkaRangeReader``.

    Raises:
        ConfigError: The connection lacks ``bootstrap.servers``, sets a fixed key to something else, names callbacks,
            or has keys or values that librdkafka refuses. Lists every fault; shows no secret.
    """
    given = {ALIASES.get(key, key): _text(value) for key, value in extra.items() if value is not None}
    fixed = {**FIXED, "isolation.level": isolation_level.value}
    usable = {key: value for key, value in given.items() if key not in CALLBACKS and key not in fixed}
    merged = {**DEFAULTS, "client.id": client_id, **usable, **fixed}
    faults = [*_own_faults(given, fixed), *_librdkafka_faults(merged)]
    if faults:
        raise ConfigError(
            "The Kafka connection cannot be used",
            expected="librdkafka settings that leave to this package what exactly-once rests on",
            found="\n    ".join(["", *faults]).rstrip(),
            next_command=_EDIT,
        )
    return merged


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _own_faults(given: Mapping[str, str], fixed: Mapping[str, str]) -> Iterator[str]:
    if not given.get("bootstrap.servers", "").strip():
        yield "bootstrap.servers: expected host:port of one or more brokers, found nothing"
    for key, value in given.items():
        if key in CALLBACKS:
            yield f"{key}: expected nothing, found a Python callback, which cannot travel to a Spark executor"
        elif key in fixed and value.strip().lower() != fixed[key]:
            yield f"{key}: expected {fixed[key]} (fixed by this package; leave it out), found {shown(key, value)}"


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
            faults.append(_masked(f"{key}: {words}" if key else words, config))
            if key is None:
                return faults
            del left[key]
        else:
            return faults


def _named_keys(words: str, config: Mapping[str, str]) -> Iterator[str]:
    """Gives the keys that a refusal may be about, the likeliest first."""
    yield from (name for name in _QUOTED.findall(words) if name in config)
    if "Java" in words:  # a key of the Java client: the message names librdkafka's key instead
        yield from (key for key in config if key.startswith(_JAVA_KEYS))
    yield from (key for key in sorted(config, key=len, reverse=True) if key in words)


def shown(key: str, value: str) -> str:
    """Gives a setting's value for a message: masked when the key tells that it is a secret."""
    return "***" if is_secret_name(key) else value


def _masked(words: str, config: Mapping[str, str]) -> str:
    return scrubbed(words, secret_values(config))

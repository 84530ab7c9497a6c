"""Airflow connections as plain values for the adapters; their secrets are registered for masking.

Airflow masks passwords and values of keys that look sensitive, but not JAAS lines or PEM keys (seen on Airflow 3.3.2),
and not a password in the spelling that JSON or a URL gives it. So every secret is registered here, in every spelling
that a log line could show, before anyone else gets it.

The fewer texts the better: Airflow compiles one pattern of all texts anew for each (``SecretsMasker.add_mask``, 3.3.2).
So a private key is registered whole; that its lines are hidden one by one is up to ``core.secret_texts.scrubbed``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, mask_secret

from kafka_ingest.adapters.connections import ConnectionValues, environment_variable
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.secret_texts import secret_values, spellings

if TYPE_CHECKING:
    from airflow.sdk import Connection

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')

_EXAMPLES = {
    "kafka": """--conn-type kafka --conn-extra '{"bootstrap.servers": "HOST:9092"}'""",
    "postgres": "--conn-type postgres --conn-host HOST --conn-login USER --conn-password ... --conn-schema DATABASE",
    "spark": "--conn-type spark --conn-host 'local[*]'",
}


def kafka_connection(conn_id: str) -> ConnectionValues:
    """Gives an Airflow connection of type ``kafka``, as the Kafka provider's hook looks it up; secrets are masked.

    Raises:
        ConfigError: There is no such connection.
    """
    # It imports confluent_kafka, which must not be loaded while DAGs are parsed.
    from airflow.providers.apache.kafka.hooks.base import KafkaBaseHook

    hook = KafkaBaseHook(kafka_config_id=conn_id)  # type: ignore[no-untyped-call]
    return _values(hook, conn_id, "kafka")


def postgres_connection(conn_id: str) -> ConnectionValues:
    """Gives an Airflow connection of type ``postgres``; its secrets are masked.

    Raises:
        ConfigError: There is no such connection.
    """
    return _values(BaseHook(), conn_id, "postgres")


def spark_connection(conn_id: str) -> ConnectionValues:
    """Gives an Airflow connection of type ``spark`` for client mode.

    Raises:
        ConfigError: There is no such connection, or it asks for another deploy mode.
    """
    values = _values(BaseHook(), conn_id, "spark")
    deploy_mode = values.extra.get("deploy-mode") or "client"
    if deploy_mode != "client":
        raise ConfigError(
            f"Connection {conn_id} cannot be used",
            expected="deploy-mode client: Spark refuses Python jobs in cluster mode on spark://",
            found=f"deploy-mode {deploy_mode}",
            next_command=f"take deploy-mode out of the extra of connection {conn_id}",
        )
    return values


def _values(hook: BaseHook, conn_id: str, conn_type: str) -> ConnectionValues:
    try:
        connection = hook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ConfigError(
            f"There is no Airflow connection {conn_id}",
            expected=f"a connection of type {conn_type}",
            next_command=(
                f"airflow connections add {conn_id} {_EXAMPLES[conn_type]}, or set {environment_variable(conn_id)}"
            ),
        ) from None
    values = _plain(connection)
    if secrets := secrets_of(values):
        # One call is one message to the task's supervisor.
        mask_secret([*secrets])
    return values


def _plain(connection: Connection) -> ConnectionValues:
    extra = connection.extra_dejson
    if not isinstance(extra, Mapping):
        raise ConfigError(
            f"Connection {connection.conn_id} cannot be used",
            expected="an extra that is a JSON object",
            found=f"JSON of type {type(extra).__name__}",
            next_command=f"airflow connections delete {connection.conn_id}, and add it again",
        )
    return ConnectionValues(
        conn_id=connection.conn_id,
        conn_type=connection.conn_type or "",
        host=connection.host,
        port=connection.port,
        login=connection.login,
        password=connection.password,
        schema=connection.schema,
        extra=extra,
    )


def secrets_of(values: ConnectionValues) -> list[str]:
    """List the texts to mask: the secrets, the passwords in JAAS lines, and each in all its spellings."""
    whole = [values.password or "", *secret_values(values.extra)]
    parts = [part for secret in whole if secret for part in (secret, *_quoted(secret))]
    return list(dict.fromkeys(spelling for part in parts for spelling in spellings(part)))


def _quoted(secret: str) -> Iterator[str]:
    """Give what stands in quotes: the password inside a JAAS line may be shown alone."""
    yield from (re.sub(r"\\(.)", r"\1", quoted) for quoted in _QUOTED.findall(secret) if quoted)

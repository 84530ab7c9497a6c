"""Builds the ports of a pipeline without Airflow: connections come from the environment, else from Airflow."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec

from kafka_ingest.connections import (
    ConnectionValues,
    connection_from_environment,
    connection_from_json,
    environment_variable,
    kafka_settings_of,
    postgres_params_of,
)
from kafka_ingest.errors import ConfigError
from kafka_ingest.kafka.client import client_config
from kafka_ingest.kafka.log import KafkaGroupMirror, KafkaLog
from kafka_ingest.pipeline_files.files import pipeline_paths, read_pipelines
from kafka_ingest.postgres.database import KeptSession
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.protocol.batch import Request
from kafka_ingest.protocol.plan import PlanPorts
from kafka_ingest.settings import PipelineSettings

_DEFAULT_CONNECTION = "postgres_default"


class UnknownRunStates:
    """Port ``RunStates`` where no scheduler can be asked: a hold ends by its time-out only."""

    def is_finished(self, request: Request) -> bool:
        """Return ``False``: it cannot be known."""
        return False


def connection(conn_id: str, conn_type: str) -> ConnectionValues:
    """Look a connection up in ``AIRFLOW_CONN_<ID>``, then in Airflow, where it is installed.

    Args:
        conn_id: Connection id.
        conn_type: ``kafka``, ``postgres`` or ``spark``.

    Raises:
        ConfigError: It is in neither place, or cannot be read.
    """
    found = connection_from_environment(conn_id) or _from_airflow(conn_id)
    if found is None:
        raise ConfigError(
            f"there is no connection {conn_id}",
            expected=f"a connection of type {conn_type} in {environment_variable(conn_id)}, or in Airflow",
            found="neither",
            next_command=(
                f'export {environment_variable(conn_id)}=\'{{"conn_type": "{conn_type}", ...}}\', '
                f"or: airflow connections add {conn_id} --conn-type {conn_type} ..."
            ),
        )
    return found


def postgres_params(conn_id: str) -> dict[str, str]:
    """Return libpq's parameters of a connection of type ``postgres``."""
    return postgres_params_of(connection(conn_id, "postgres"))


def target_params(settings: PipelineSettings) -> dict[str, str]:
    """Return libpq's parameters of the pipeline's target database, which holds the ledger, too."""
    return postgres_params(settings.batch.target_connection)


def target_connections() -> Iterable[str]:
    """Target connections of all sound pipelines; the default one where there is no pipeline yet.

    A broken file must not keep the other databases from being migrated or tidied: check-config reports it.
    """
    sound = read_pipelines(pipeline_paths()).settings.values()
    return dict.fromkeys(settings.batch.target_connection for settings in sound) or (_DEFAULT_CONNECTION,)


def kafka_config(settings: PipelineSettings) -> Mapping[str, str]:
    """Return the complete librdkafka configuration of the pipeline."""
    extra = kafka_settings_of(connection(settings.batch.kafka_connection, "kafka"))
    return client_config(
        extra,
        settings.batch.isolation_level,
        client_id=f"kafka_ingest.{settings.pipeline}",
        connection=settings.batch.kafka_connection,
    )


def plan_ports(settings: PipelineSettings) -> PlanPorts:
    """Return what planning needs."""
    params = target_params(settings)
    sessions = KeptSession(params)
    return PlanPorts(
        ledger=PostgresLedger(params, sessions=sessions),
        log=KafkaLog(kafka_config(settings)),
        target=PostgresTarget(params, sessions=sessions),
        runs=UnknownRunStates(),
    )


def group_mirror(settings: PipelineSettings) -> KafkaGroupMirror:
    """Return the consumer groups of the pipeline's cluster."""
    return KafkaGroupMirror(kafka_config(settings))


def _from_airflow(conn_id: str) -> ConnectionValues | None:
    if find_spec("airflow") is None:
        return None
    # Airflow takes seconds to import: only when the environment has no answer.
    from airflow.models.connection import Connection
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    try:
        # Not BaseHook.get_connection: outside a task it does not ask Airflow's own database (Task SDK 1.3,
        # ensure_secrets_backend_loaded). This one asks secrets backends and database, as Airflow's servers do.
        found = Connection.get_connection_from_secrets(conn_id)
    except AirflowNotFoundException:
        return None
    return connection_from_json(conn_id, found.as_json())


def new_request_id() -> str:
    """Return the identity of a request that did not bring one."""
    return f"cli__{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}__{secrets.token_hex(3)}"

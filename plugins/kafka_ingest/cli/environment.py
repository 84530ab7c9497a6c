"""What commands find around them without a scheduler: connections, and the worlds of pipelines made of these."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.util import find_spec

from kafka_ingest.connections import (
    ConnectionValues,
    connection_from_environment,
    connection_from_json,
    environment_variable,
    postgres_params_of,
)
from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.files import pipeline_paths, read_pipelines
from kafka_ingest.settings import PipelineSettings
from kafka_ingest.world import World

_DEFAULT_CONNECTION = "postgres_default"


def world_of(settings: PipelineSettings) -> World:
    """Return the world of a pipeline. The states of Airflow's runs are unknown in it."""
    return World(settings, connection)


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


def postgres_params(conn_id: str) -> dict[str, str]:
    """Return libpq's parameters of a connection of type ``postgres``."""
    return postgres_params_of(connection(conn_id, "postgres"))


def target_connections() -> Iterable[str]:
    """Return the target connections of all sound pipelines; the default one where there is no pipeline yet.

    A broken file must not keep the other databases from being migrated or tidied: check-config reports it.
    """
    sound = read_pipelines(pipeline_paths()).settings.values()
    return dict.fromkeys(settings.batch.target_connection for settings in sound) or (_DEFAULT_CONNECTION,)


def new_request_id() -> str:
    """Return the identity of a request that did not bring one."""
    return f"cli__{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}__{secrets.token_hex(3)}"

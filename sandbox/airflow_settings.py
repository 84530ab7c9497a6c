"""Airflow's settings and connections, one source for the sandbox and, by a test, for ``docker-compose.yaml``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

AIRFLOW_VERSION = "3.3.2"

# Settings that the sandbox and docker-compose.yaml have in common.
AIRFLOW_SETTINGS: Mapping[str, str] = {
    "AIRFLOW__CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__PARALLELISM": "4",  # each task may start a Spark driver, and two cores are what we count on
    # A new or changed pipeline file shows within seconds; Airflow's defaults are 300 and 30.
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
    "AIRFLOW__API__WORKERS": "1",
}
# Airflow's own name for a connection that comes from the environment.
CONNECTION_PREFIX = "AIRFLOW_CONN_"


def kafka_connection(bootstrap: str) -> str:
    """Return ``kafka_default`` as Airflow reads it from the environment."""
    extra = {"bootstrap.servers": bootstrap, "security.protocol": "PLAINTEXT"}
    return json.dumps({"conn_type": "kafka", "extra": extra})


def postgres_connection(params: Mapping[str, Any]) -> str:
    """Return ``postgres_default`` from psycopg2's parameters; it holds the password."""
    connection = {
        "conn_type": "postgres",
        "host": params["host"],
        "port": params["port"],
        "login": params["user"],
        "password": params["password"],
        "schema": params["dbname"],
    }
    return json.dumps(connection)


def spark_connection(master: str, secret: str = "") -> str:
    """Return ``spark_default`` for a master in spark-submit's spelling, ``local[2]`` or ``spark://host:port``.

    Args:
        master: The master.
        secret: The secret that a cluster asks for; a local master makes its own.
    """
    scheme, separator, address = master.partition("://")
    if not separator:
        return json.dumps({"conn_type": "spark", "host": master})
    host, _, port = address.rpartition(":")
    extra = {"extra": {"spark.authenticate.secret": secret}} if secret else {}
    return json.dumps({"conn_type": "spark", "host": f"{scheme}://{host}", "port": int(port), **extra})


def schema_registry_connection(url: str) -> str:
    """Return ``schema_registry_default`` for the registry at this address, which has scheme and path."""
    return json.dumps({"conn_type": "http", "host": url})


def connection_variables(connections: Mapping[str, str]) -> dict[str, str]:
    """Return connections, by id, as the environment variables from which Airflow reads them."""
    return {CONNECTION_PREFIX + connection_id.upper(): text for connection_id, text in connections.items()}

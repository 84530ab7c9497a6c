"""Runs whose connection to PostgreSQL breaks during COMMIT."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.crash.cutting_proxy import CuttingProxy, Session
from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import DriverProcess, PipelineAtRisk


def proxy_for(
    pipeline: PipelineAtRisk, on_commit: Callable[[Session, bytes], None], application: str = "kafka_ingest publish"
) -> CuttingProxy:
    """Return a proxy before the pipeline's database that does something to the COMMIT of a publish, or of another."""
    database = pipeline.files.database
    return CuttingProxy((database["host"], database["port"]), application, on_commit)


def start_through(
    proxy: CuttingProxy, pipeline: PipelineAtRisk, *, parameters: str = "{}", lock_timeout_seconds: float = 30
) -> DriverProcess:
    """Starts the run ``cut``, whose every connection to the database goes through the proxy."""
    instructions = Instructions(pipeline.name, "cut", parameters, lock_timeout_seconds=lock_timeout_seconds)
    return pipeline.start(instructions, through(proxy, pipeline))


def through(proxy: CuttingProxy, pipeline: PipelineAtRisk) -> dict[str, str]:
    """Return the environment of a process whose every connection to the database goes through the proxy."""
    database = pipeline.files.database
    connection = {
        "conn_type": "postgres",
        "host": "127.0.0.1",
        "port": proxy.port,
        "login": database["user"],
        "password": database["password"],
        "schema": database["dbname"],
        "extra": {"sslmode": "disable", "gssencmode": "disable"},
    }
    return {"AIRFLOW_CONN_POSTGRES_DEFAULT": json.dumps(connection)}

"""Puts preflight's ports together from connections, wherever these come from: Airflow, or the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafka_ingest.connections import ConnectionValues, kafka_settings_of, postgres_params_of
from kafka_ingest.kafka.client import client_config
from kafka_ingest.preflight.database import PostgresPreflight
from kafka_ingest.preflight.kafka import KafkaPreflight, kafka_preflight
from kafka_ingest.preflight.preflight import PreflightPorts
from kafka_ingest.preflight.spark import SparkPreflight
from kafka_ingest.settings import PipelineSettings

#: A person waits for it: shorter than a load's 30 s, long enough for a broker that is busy.
_KAFKA_SECONDS = 10.0


def preflight_ports(settings: PipelineSettings, connection: Callable[[str, str], ConnectionValues]) -> PreflightPorts:
    """Yield the ports of one pipeline. No connection is looked up or opened before its check asks for it.

    Args:
        settings: The pipeline.
        connection: Looks a connection up by id and type (``kafka``, ``postgres``, ``spark``); raises ``ConfigError``.
    """

    @contextmanager
    def kafka() -> Iterator[KafkaPreflight]:
        extra = kafka_settings_of(connection(settings.batch.kafka_connection, "kafka"))
        client_id = f"kafka_ingest.{settings.pipeline}"
        config = client_config(
            extra,
            settings.batch.isolation_level,
            client_id=client_id,
            connection=settings.batch.kafka_connection,
        )
        with kafka_preflight(config, timeout_seconds=_KAFKA_SECONDS) as probe:
            yield probe

    return PreflightPorts(
        kafka=kafka,
        database=lambda: PostgresPreflight(
            postgres_params_of(connection(settings.batch.target_connection, "postgres"))
        ),
        spark=lambda: SparkPreflight(settings, connection(settings.job.spark_connection, "spark")),
    )

"""Builds the ports of a pipeline from Airflow connections. Called while a task runs, never while a DAG is parsed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow.sdk.exceptions import AirflowRuntimeError

from kafka_ingest.connections import kafka_settings_of, postgres_params_of
from kafka_ingest.operators.context import kafka_connection, postgres_connection, spark_connection
from kafka_ingest.protocol.batch import Batch, Request
from kafka_ingest.protocol.changes import ChangePorts
from kafka_ingest.protocol.housekeeping import Housekeeper
from kafka_ingest.protocol.plan import PlanPorts
from kafka_ingest.protocol.ports import GroupMirror, Ledger
from kafka_ingest.protocol.roll_back import RollBackPorts
from kafka_ingest.settings import PipelineSettings

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context

    from kafka_ingest.kafka.log import KafkaLog
    from kafka_ingest.preflight.preflight import PreflightPorts
    from kafka_ingest.spark.submission import JobSubmission


log = logging.getLogger(__name__)

#: States in which a DAG run does nothing more (Airflow's ``DagRunState``, whose values equal these texts).
FINISHED_STATES = frozenset({"success", "failed"})


class _AsksRunState(Protocol):
    def get_dagrun_state(self, dag_id: str, run_id: str) -> str: ...


@dataclass(frozen=True, slots=True)
class AirflowRunStates:
    """Port ``RunStates``: asks Airflow's API server through the task instance.

    A run that Airflow does not know (started from the command line, or deleted) counts as not finished: its hold ends
    by itself when it gives no sign of life.
    """

    task_instance: _AsksRunState

    def is_finished(self, request: Request) -> bool:
        """Whether the DAG run has ended."""
        try:
            return self.task_instance.get_dagrun_state(request.dag_id, request.run_id) in FINISHED_STATES
        except AirflowRuntimeError as fault:
            log.info("Airflow does not tell the state of %s: %s", request, fault)
            return False


def ledger(pipeline: PipelineSettings) -> Ledger:
    """Return the ledger in the pipeline's target database.

    Raises:
        ConfigError: The connection is missing or unusable.
    """
    from kafka_ingest.postgres.ledger import PostgresLedger

    return PostgresLedger(_postgres_params(pipeline))


def plan_ports(pipeline: PipelineSettings, context: Context) -> PlanPorts:
    """Return what planning needs: ledger, log, target table and the states of other runs.

    Raises:
        ConfigError: A connection is missing or unusable; the Kafka settings contradict the protocol.
    """
    from kafka_ingest.postgres.database import KeptSession
    from kafka_ingest.postgres.ledger import PostgresLedger
    from kafka_ingest.postgres.target import PostgresTarget

    params = _postgres_params(pipeline)
    sessions = KeptSession(params)
    return PlanPorts(
        ledger=PostgresLedger(params, sessions=sessions),
        log=_kafka_log(pipeline),
        target=PostgresTarget(params, sessions=sessions),
        runs=AirflowRunStates(context["ti"]),
    )


def group_mirror(pipeline: PipelineSettings) -> GroupMirror:
    """Return the consumer groups of the pipeline's cluster.

    Raises:
        ConfigError: The connection is missing or unusable.
    """
    from kafka_ingest.kafka.log import KafkaGroupMirror

    return KafkaGroupMirror(_kafka_config(pipeline))


def submission(pipeline: PipelineSettings, batch: Batch, outcome_file: Path) -> JobSubmission:
    """Return everything that spark-submit needs for a planned batch; write the job's secrets beside the outcome file.

    Raises:
        ConfigError: A connection is missing or unusable, or its Spark master would put secrets on a command line.
    """
    from kafka_ingest.spark.submission import JobConnections, job_submission

    connections = JobConnections(
        kafka=kafka_connection(pipeline.batch.kafka_connection),
        postgres=postgres_connection(pipeline.batch.target_connection),
        spark=spark_connection(pipeline.job.spark_connection),
    )
    return job_submission(pipeline, batch.batch_id, connections, outcome_file)


def settings_hash_of(pipeline: PipelineSettings) -> str:
    """Return the hash of everything that decides what a batch reads, decodes and writes."""
    from kafka_ingest.postgres.rows import settings_hash

    return settings_hash(pipeline.batch)


def change_ports(pipeline: PipelineSettings) -> ChangePorts:
    """Return what a position change needs.

    Raises:
        ConfigError: A connection is missing or unusable; the Kafka settings contradict the protocol.
    """
    from kafka_ingest.postgres.changes import PostgresPositionLedger

    return ChangePorts(PostgresPositionLedger(_postgres_params(pipeline)), _kafka_log(pipeline))


def roll_back_ports(pipeline: PipelineSettings) -> RollBackPorts:
    """Return what a roll-back needs.

    Raises:
        ConfigError: A connection is missing or unusable; the Kafka settings contradict the protocol.
    """
    from kafka_ingest.postgres.changes import PostgresRollBackLedger

    return RollBackPorts(PostgresRollBackLedger(_postgres_params(pipeline)), _kafka_log(pipeline))


def preflight_ports_of(pipeline: PipelineSettings) -> PreflightPorts:
    """Return what preflight needs; a connection is looked up by the check that uses it."""
    from kafka_ingest.world import preflight_ports

    look_up = {"kafka": kafka_connection, "postgres": postgres_connection, "spark": spark_connection}
    return preflight_ports(pipeline, lambda conn_id, conn_type: look_up[conn_type](conn_id))


def housekeeper(connection: str) -> Housekeeper:
    """Return what tidies the database of a connection.

    Raises:
        ConfigError: The connection is missing or unusable.
    """
    from kafka_ingest.postgres.staging_tables import PostgresHousekeeper

    return PostgresHousekeeper(postgres_params_of(postgres_connection(connection)))


def _postgres_params(pipeline: PipelineSettings) -> dict[str, str]:
    return postgres_params_of(postgres_connection(pipeline.batch.target_connection))


def _kafka_log(pipeline: PipelineSettings) -> KafkaLog:
    from kafka_ingest.kafka.log import KafkaLog

    return KafkaLog(_kafka_config(pipeline))


def _kafka_config(pipeline: PipelineSettings) -> Mapping[str, str]:
    from kafka_ingest.kafka.client import client_config

    return client_config(
        kafka_settings_of(kafka_connection(pipeline.batch.kafka_connection)),
        pipeline.batch.isolation_level,
        client_id=f"kafka_ingest.{pipeline.pipeline}",
        connection=pipeline.batch.kafka_connection,
    )

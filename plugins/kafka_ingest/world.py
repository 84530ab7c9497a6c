"""The world of a pipeline: the real ports of its steps, made from its connections, and what preflight says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TypeAlias

from kafka_ingest.connections import ConnectionValues, kafka_settings_of, postgres_params_of, registry_config_of
from kafka_ingest.kafka.client import client_config
from kafka_ingest.kafka.log import KafkaGroupMirror, KafkaLog
from kafka_ingest.kafka.registry import SchemaRegistry
from kafka_ingest.kafka.sample import TopicSampler
from kafka_ingest.postgres.changes import PostgresPositionLedger, PostgresRollBackLedger
from kafka_ingest.postgres.database import KeptSession
from kafka_ingest.postgres.ledger import PostgresAttempts, PostgresLedger
from kafka_ingest.postgres.reports import PostgresReports, PostgresWrittenTable
from kafka_ingest.postgres.staging_tables import PostgresHousekeeper
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.preflight.checks import CheckResult, answered
from kafka_ingest.preflight.database import PostgresPreflight, database_results
from kafka_ingest.preflight.kafka import KafkaPreflight, kafka_preflight, kafka_results, registry_results
from kafka_ingest.preflight.spark import SparkPreflight, spark_results
from kafka_ingest.preflight.traffic import Found, measured_traffic
from kafka_ingest.protocol.batch import Request
from kafka_ingest.protocol.changes import ChangePorts
from kafka_ingest.protocol.dead_letters import DeadLetterReport, DeadLetterRequest
from kafka_ingest.protocol.plan import PlanPorts
from kafka_ingest.protocol.ports import RunStates
from kafka_ingest.protocol.roll_back import RollBackPorts
from kafka_ingest.report import LagPorts
from kafka_ingest.settings import PipelineSettings
from kafka_ingest.spark.master import SparkMaster, spark_master_of
from kafka_ingest.spark.replay import ReplayOrder, run_replay
from kafka_ingest.spark.submission import JobEnvironment, JobSubmission, job_submission
from kafka_ingest.times import SystemClock, to_record_time_ms

#: Looks a connection up by its id and type (``kafka``, ``postgres``, ``spark`` or ``http``); raises ``ConfigError``.
LookUp: TypeAlias = Callable[[str, str], ConnectionValues]

#: A person waits for preflight: shorter than a load's 30 s, long enough for a broker that is busy.
_PREFLIGHT_SECONDS = 10.0


class UnknownRunStates:
    """Port ``RunStates`` where no scheduler can be asked: a hold ends by its time-out only."""

    def is_finished(self, request: Request) -> bool:
        """Return ``False``: it cannot be known."""
        return False


class World:
    """Makes the real ports of one pipeline.

    A method looks up the connections that its ports need, each time that it is called, and opens none. All raise
    ``ConfigError`` where a connection is missing, unusable, or contradicts the protocol.

    Args:
        pipeline: The pipeline.
        connection: Looks up connections: in Airflow for its tasks, in the environment for the command line.
        runs: States of other runs.
    """

    def __init__(self, pipeline: PipelineSettings, connection: LookUp, runs: RunStates | None = None) -> None:
        self.pipeline = pipeline
        self._connection = connection
        self._runs = runs or UnknownRunStates()

    def plan_ports(self) -> PlanPorts:
        """Return what planning needs. Ledger and target share a connection, which is closed with these ports."""
        params = self.postgres_params()
        sessions = KeptSession(params)
        return PlanPorts(
            ledger=PostgresLedger(params, sessions=sessions),
            log=self.log(),
            target=PostgresTarget(params, sessions=sessions),
            runs=self._runs,
        )

    def attempts(self) -> PostgresAttempts:
        """Return where it is recorded what became of each try."""
        return PostgresAttempts(self.postgres_params())

    def change_ports(self) -> ChangePorts:
        """Return what a position change needs."""
        return ChangePorts(PostgresPositionLedger(self.postgres_params()), self.log())

    def roll_back_ports(self) -> RollBackPorts:
        """Return what a roll-back needs."""
        return RollBackPorts(PostgresRollBackLedger(self.postgres_params()), self.log())

    def resolve_dead_letters(
        self, request: DeadLetterRequest, *, apply: bool, tell: Callable[[str], None]
    ) -> DeadLetterReport:
        """Replay or discard dead letters, or show what that would do; neither Kafka nor Spark is asked.

        Args:
            request: Who asks for what, and why.
            apply: Do it; else nothing is written.
            tell: Called with each line of the log of the process that does it.
        """
        order = ReplayOrder(self.postgres_params(), self.pipeline, request, apply, self.registry_config())
        return run_replay(order, tell)

    def lag_ports(self) -> LagPorts:
        """Return what a report of the lag needs."""
        return LagPorts(self.ledger(), self.log(), SystemClock())

    def preflight(self, *, submit_job: bool = False) -> tuple[CheckResult, ...]:
        """Check Kafka, the schema registry, the database and Spark, in this order; idempotent, and write nothing.

        A check that gets no answer, or no connection, is a result like any other: it never keeps the others from being
        made.

        Args:
            submit_job: Run a small Spark job that looks at the packages of the executors.
        """
        return (
            *answered("kafka", self._check_kafka),
            *answered("schema registry", self._check_registry),
            *answered("postgresql", lambda: database_results(self.pipeline.batch, self.database_probe())),
            *answered("spark", lambda: spark_results(self.pipeline, self.spark_probe(), submit_job=submit_job)),
        )

    def _check_kafka(self) -> Iterator[CheckResult]:
        with self.kafka_probe() as probe:
            yield from kafka_results(self.pipeline, probe)

    def _check_registry(self) -> Iterator[CheckResult]:
        if self.pipeline.batch.registry_connection:
            with closing(self.registry()) as registry:
                yield from registry_results(self.pipeline.batch, registry)

    def traffic(self, note: Callable[[str], None]) -> Mapping[str, Found]:
        """Measure the traffic of the topics; see :func:`measured_traffic`. ``note`` is told how far it is."""
        config = self.kafka_config()
        with self.kafka_probe() as probe, self.log() as log:
            now_ms = to_record_time_ms(SystemClock().now())
            return measured_traffic(self.pipeline, probe, log, lambda topic: TopicSampler(config, topic, note), now_ms)

    def kafka_probe(self) -> AbstractContextManager[KafkaPreflight]:
        """Open what preflight asks Kafka with."""
        return kafka_preflight(self.kafka_config(), timeout_seconds=_PREFLIGHT_SECONDS)

    def database_probe(self) -> PostgresPreflight:
        """Return what preflight asks the database with."""
        return PostgresPreflight(self.postgres_params())

    def spark_probe(self) -> SparkPreflight:
        """Return what preflight asks Spark with."""
        return SparkPreflight(self.pipeline, self.spark_master())

    def spark_master(self) -> SparkMaster:
        """Return where Spark runs.

        Raises:
            ConfigError: The connection cannot be used.
        """
        return spark_master_of(self._connection(self.pipeline.job.spark_connection, "spark"))

    def registry(self) -> SchemaRegistry:
        """Return the pipeline's schema registry; only for a pipeline that has one."""
        return SchemaRegistry(self.registry_config())

    def ledger(self) -> PostgresLedger:
        """Return the ledger, in the pipeline's target database."""
        return PostgresLedger(self.postgres_params())

    def reports(self) -> PostgresReports:
        """Return the reports about all pipelines of the target database."""
        return PostgresReports(self.postgres_params())

    def written_table(self) -> PostgresWrittenTable:
        """Return the target table as an audit of all batches counts it."""
        return PostgresWrittenTable(self.postgres_params(), self.pipeline.pipeline)

    def log(self) -> KafkaLog:
        """Return the pipeline's topics."""
        return KafkaLog(self.kafka_config())

    def mirror(self) -> KafkaGroupMirror:
        """Return the consumer groups of the pipeline's cluster."""
        return KafkaGroupMirror(self.kafka_config())

    def submission(self, batch_id: str, outcome_file: Path) -> JobSubmission:
        """Return all that spark-submit needs for a batch; write the job's secrets beside the outcome file.

        Args:
            batch_id: The batch.
            outcome_file: A path, not there yet, in a folder of ``spark/archive.py``.
        """
        return job_submission(
            self.pipeline.pipeline,
            batch_id,
            environment=self.job_environment(),
            spark=self.spark_master(),
            outcome_file=outcome_file,
        )

    def job_environment(self) -> JobEnvironment:
        """Return what the job gets from its submitter, secrets included."""
        job, hold = self.pipeline.job, self.pipeline.plan.hold
        return JobEnvironment(self.kafka_config(), self.postgres_params(), job, hold, self.registry_config())

    def registry_config(self) -> dict[str, str]:
        """Return the configuration of the schema registry, secrets included; empty for a pipeline without one."""
        conn_id = self.pipeline.batch.registry_connection
        return registry_config_of(self._connection(conn_id, "http")) if conn_id else {}

    def kafka_config(self) -> Mapping[str, str]:
        """Return the complete librdkafka configuration of the pipeline, secrets included."""
        batch = self.pipeline.batch
        return client_config(
            kafka_settings_of(self._connection(batch.kafka_connection, "kafka")),
            batch.isolation_level,
            client_id=f"kafka_ingest.{self.pipeline.pipeline}",
            connection=batch.kafka_connection,
        )

    def postgres_params(self) -> dict[str, str]:
        """Return libpq's parameters of the target database, secrets included."""
        return postgres_params_of(self._connection(self.pipeline.batch.target_connection, "postgres"))


def housekeeper(conn_id: str, connection: LookUp) -> PostgresHousekeeper:
    """Return what tidies a target database, whichever pipelines load into it.

    Args:
        conn_id: Connection id of the database.
        connection: Looks it up.

    Raises:
        ConfigError: The connection is missing or unusable.
    """
    return PostgresHousekeeper(postgres_params_of(connection(conn_id, "postgres")))

"""The full world of a pipeline: the ports of position changes, reports and housekeeping, and what preflight says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing

from kafka_ingest.connections import postgres_params_of
from kafka_ingest.kafka.registry import SchemaRegistry
from kafka_ingest.kafka.sample import TopicSampler
from kafka_ingest.postgres.changes import PostgresPositionLedger, PostgresRollBackLedger
from kafka_ingest.postgres.reports import PostgresReports, PostgresWrittenTable
from kafka_ingest.postgres.staging_tables import PostgresHousekeeper
from kafka_ingest.preflight.checks import CheckResult, answered
from kafka_ingest.preflight.database import PostgresPreflight, database_results
from kafka_ingest.preflight.kafka import KafkaPreflight, kafka_preflight, kafka_results, registry_results
from kafka_ingest.preflight.spark import SparkPreflight, spark_results
from kafka_ingest.preflight.traffic import Found, measured_traffic
from kafka_ingest.protocol.changes import ChangePorts
from kafka_ingest.protocol.dead_letters import DeadLetterReport, DeadLetterRequest
from kafka_ingest.protocol.roll_back import RollBackPorts
from kafka_ingest.report import LagPorts
from kafka_ingest.spark.replay import ReplayOrder, run_replay
from kafka_ingest.times import SystemClock, to_record_time_ms
from kafka_ingest.world import LookUp, World

#: A person waits for preflight: shorter than a load's 30 s, long enough for a broker that is busy.
_PREFLIGHT_SECONDS = 10.0


class FullWorld(World):
    """The world of a pipeline with all that people ask for, beside the steps of its runs."""

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

    def registry(self) -> SchemaRegistry:
        """Return the pipeline's schema registry; only for a pipeline that has one."""
        return SchemaRegistry(self.registry_config())

    def reports(self) -> PostgresReports:
        """Return the reports about all pipelines of the target database."""
        return PostgresReports(self.postgres_params())

    def written_table(self) -> PostgresWrittenTable:
        """Return the target table as an audit of all batches counts it."""
        return PostgresWrittenTable(self.postgres_params(), self.pipeline.pipeline)


def housekeeper(conn_id: str, connection: LookUp) -> PostgresHousekeeper:
    """Return what tidies a target database, whichever pipelines load into it.

    Args:
        conn_id: Connection id of the database.
        connection: Looks it up.

    Raises:
        ConfigError: The connection is missing or unusable.
    """
    return PostgresHousekeeper(postgres_params_of(connection(conn_id, "postgres")))

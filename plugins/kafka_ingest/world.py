"""The world of a pipeline: the real ports of its steps, made from its connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TextIO, TypeAlias

from kafka_ingest.connections import ConnectionValues, kafka_settings_of, postgres_params_of, registry_config_of
from kafka_ingest.errors import naming
from kafka_ingest.kafka.client import client_config
from kafka_ingest.kafka.log import KafkaGroupMirror, KafkaLog
from kafka_ingest.postgres.database import KeptSession
from kafka_ingest.postgres.ledger import PostgresAttempts, PostgresLedger
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.protocol.batch import Batch, LoadPhases, Request
from kafka_ingest.protocol.plan import PlanPorts
from kafka_ingest.protocol.ports import RunStates
from kafka_ingest.settings import PipelineSettings
from kafka_ingest.spark import submission as job
from kafka_ingest.spark.archive import job_folder
from kafka_ingest.spark.in_process import load_in_process
from kafka_ingest.spark.master import SparkMaster, spark_master_of

#: Looks a connection up by its id and type (``kafka``, ``postgres``, ``spark`` or ``http``); raises ``ConfigError``.
LookUp: TypeAlias = Callable[[str, str], ConnectionValues]
#: Runs spark-submit to its end, and tells how it ended.
Submit: TypeAlias = Callable[[job.JobSubmission], str]


class UnknownRunStates:
    """Port ``RunStates`` where no scheduler can be asked: a hold ends by its time-out only."""

    def is_finished(self, request: Request) -> bool:
        """Return ``False``: it cannot be known."""
        return False


class World:
    """Makes the real ports of one pipeline's steps; every task of a run imports it, and nothing that it does not need.

    A method looks up the connections that its ports need, that of the database once for all, and opens none. All raise
    ``ConfigError`` where a connection is missing, unusable, or contradicts the protocol. Ledger, target and tries share
    one session of the database, so they are for one thread, and it is closed with them.

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
        """Return what planning needs."""
        target = PostgresTarget(self._postgres_params, sessions=self._sessions)
        return PlanPorts(ledger=self.ledger(), log=self.log(), target=target, runs=self._runs)

    def attempts(self) -> PostgresAttempts:
        """Return where it is recorded what became of each try."""
        return PostgresAttempts(self._sessions)

    def spark_master(self) -> SparkMaster:
        """Return where Spark runs.

        Raises:
            ConfigError: The connection cannot be used.
        """
        return spark_master_of(self._connection(self.pipeline.job.spark_connection, "spark"))

    def ledger(self) -> PostgresLedger:
        """Return the ledger, in the pipeline's target database."""
        return PostgresLedger(self._postgres_params, sessions=self._sessions)

    def close_session(self) -> None:
        """Close the session of the database, before hours without use; the next port looks its connection up anew."""
        if "_sessions" in vars(self):
            self._sessions.close()
        for known in ("_sessions", "_postgres_params"):
            vars(self).pop(known, None)

    def log(self) -> KafkaLog:
        """Return the pipeline's topics."""
        return KafkaLog(self.kafka_config())

    def mirror(self) -> KafkaGroupMirror:
        """Return the consumer groups of the pipeline's cluster."""
        return KafkaGroupMirror(self.kafka_config())

    def submission(self, batch_id: str, outcome_file: Path) -> job.JobSubmission:
        """Return all that spark-submit needs for a batch; write the job's secrets beside the outcome file.

        Args:
            batch_id: The batch.
            outcome_file: A path, not there yet, in a folder of ``spark/archive.py``.
        """
        return job.job_submission(
            self.pipeline.pipeline,
            batch_id,
            environment=self.job_environment(),
            spark=self.spark_master(),
            outcome_file=outcome_file,
        )

    def load(
        self, batch: Batch, submit: Submit, *, in_process: bool, log_to: TextIO | None = None
    ) -> tuple[Batch, LoadPhases | None]:
        """Load a planned batch by its job; return it committed, and where the time went if this job published it.

        Args:
            batch: The batch.
            submit: Runs spark-submit and returns how it ended.
            in_process: Whether the job runs in this process, without Spark.
            log_to: What a job in this process logs goes there, too.

        Raises:
            IngestError: As ``loaded_batch`` raises it.
        """
        with naming(batch.pipeline, batch.batch_id), job_folder() as folder:
            outcome_file = folder / "outcome.json"
            job.require_unlocked(batch, self.ledger())
            if in_process:
                how_it_ended = load_in_process(batch, self.job_environment(), outcome_file, log_to=log_to)
            else:
                submission = self.submission(batch.batch_id, outcome_file)
                self.close_session()
                how_it_ended = submit(submission)
            return job.loaded_batch(batch, self.ledger(), outcome_file, how_it_ended), job.read_phases(outcome_file)

    def job_environment(self) -> job.JobEnvironment:
        """Return what the job gets from its submitter, secrets included."""
        settings, hold = self.pipeline.job, self.pipeline.plan.hold
        return job.JobEnvironment(self.kafka_config(), self.postgres_params(), settings, hold, self.registry_config())

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
        return dict(self._postgres_params)

    @cached_property
    def _postgres_params(self) -> dict[str, str]:
        return postgres_params_of(self._connection(self.pipeline.batch.target_connection, "postgres"))

    @cached_property
    def _sessions(self) -> KeptSession:
        return KeptSession(self._postgres_params)

"""The servers of a soak: its own PostgreSQL and Kafka, Airflow and a Spark cluster where wanted, all in one folder.

Airflow's own tables are in a PostgreSQL server of their own: a kill of the target's server then hits only the target.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox.airflow import AirflowServer, AirflowSetup
from sandbox.airflow_settings import connection_variables, kafka_connection, postgres_connection, spark_connection
from sandbox.kafka import KafkaBroker
from sandbox.paths import CHECKOUT, private_folder
from sandbox.postgres import PostgresServer
from sandbox.processes import ManagedProcess, stop_all_below
from sandbox.soak.choices import SoakOptions
from sandbox.soak.pipeline import TOPIC, write_pipeline
from sandbox.soak.traffic import PARTITIONS
from sandbox.spark import SparkCluster
from sandbox.system import LOCAL_SPARK, create_topics

WAREHOUSE = "warehouse"
_AIRFLOW_DATABASE = "airflow"
_LOCAL = spark_connection(LOCAL_SPARK)
#: Airflow notices a dead task or scheduler within half a minute; a DAG file that never changes is read once. Tasks of a
#: dead scheduler are watched over again only when the next one has adopted them (every 300 s by default).
_AIRFLOW_SETTINGS = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "5",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "600",
}

Report = Callable[[str], None]


class SoakWorld:
    """The servers of one soak.

    Args:
        state: Folder for all their files.
        options: Whether Airflow is one of them, the pipeline's mode, seed and rate of the producer's traffic.
    """

    def __init__(self, state: Path, options: SoakOptions) -> None:
        self.state = state
        self.postgres = PostgresServer(state / "postgres")
        self.kafka = KafkaBroker(state / "kafka", for_tests=True)
        self.spark = SparkCluster(state / "spark", workers=2, cores=1)
        self.producer = ManagedProcess("producer", state)
        self.tally_file = state / "tally.json"
        self._airflow_postgres = PostgresServer(state / "airflow-postgres") if options.airflow else None
        self._options = options

    def start(self, report: Report) -> None:
        """Start the servers, make topic and pipeline file, and start the producer.

        Raises:
            SandboxError: A part did not start.
        """
        private_folder(self.state)
        write_pipeline(self.state / "pipelines", self._options.mode)
        report("starting PostgreSQL and Kafka")
        self.postgres.start()
        self.postgres.create_database(WAREHOUSE)
        self.kafka.start()
        create_topics(self.kafka.bootstrap, {TOPIC: PARTITIONS})
        self._start_producer()
        if self._airflow_postgres is not None:
            self._airflow_postgres.start()
            self._airflow_postgres.create_database(_AIRFLOW_DATABASE)
            self.airflow().start(report)

    def stop(self) -> None:
        """Stop everything that was started, by anyone. Data and log stay. Idempotent."""
        stop_all_below(self.state)
        for server in filter(None, (self.postgres, self._airflow_postgres)):
            if server.folder.exists():
                server.stop()

    def destroy(self) -> None:
        """Stop everything and delete all data and logs. Idempotent."""
        self.stop()
        for server in filter(None, (self.postgres, self._airflow_postgres)):
            server.destroy()
        shutil.rmtree(self.state, ignore_errors=True)

    def airflow(self) -> AirflowServer:
        """Return the Airflow of this soak."""
        assert self._airflow_postgres is not None  # noqa: S101 (only called for a soak with Airflow)
        setup = AirflowSetup(
            self._airflow_postgres.dsn(_AIRFLOW_DATABASE, scheme="postgresql+psycopg2"),
            self._connections(_LOCAL),
            extra_env={**_AIRFLOW_SETTINGS, **self._pipelines()},
        )
        return AirflowServer(self.state / "airflow", setup)

    def command_environment(self, *, on_cluster: bool = False) -> dict[str, str]:
        """Return the variables of ``python -m kafka_ingest``; start the Spark cluster when it is wanted."""
        if on_cluster:
            self.spark.start()
        spark_default = spark_connection(self.spark.master_url, self.spark.secret) if on_cluster else _LOCAL
        paths = os.pathsep.join([str(CHECKOUT / "plugins"), str(CHECKOUT)])
        # A cluster's workers take "python3" otherwise, which need not have the libraries.
        spark = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        return {**os.environ, **spark, **self._connections(spark_default), **self._pipelines(), "PYTHONPATH": paths}

    def warehouse(self) -> dict[str, Any]:
        """Return the arguments for ``psycopg2.connect`` to target and ledger."""
        return self.postgres.params(WAREHOUSE)

    def _start_producer(self) -> None:
        options = self._options
        command = [sys.executable, "-m", "sandbox.soak.producer", "--bootstrap", self.kafka.bootstrap]
        command += ["--topic", TOPIC, "--seed", str(options.seed), "--rate", str(options.rate), "--mode", options.mode]
        self.producer.start([*command, "--tally", str(self.tally_file)], cwd=CHECKOUT)

    def _connections(self, spark_default: str) -> dict[str, str]:
        return connection_variables(
            {
                "kafka_default": kafka_connection(self.kafka.bootstrap),
                "postgres_default": postgres_connection(self.warehouse()),
                "spark_default": spark_default,
            }
        )

    def _pipelines(self) -> dict[str, str]:
        return {"KAFKA_INGEST_PIPELINES": str(self.state / "pipelines")}

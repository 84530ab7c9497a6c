"""All parts together, as ``make up`` runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Protocol

import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sandbox.airflow import PARTS, USER, AirflowServer, AirflowSetup
from sandbox.airflow_settings import (
    connection_variables,
    kafka_connection,
    postgres_connection,
    schema_registry_connection,
    spark_connection,
)
from sandbox.env_file import write_env_file
from sandbox.errors import SandboxError
from sandbox.java import java
from sandbox.kafka import KafkaBroker
from sandbox.paths import CHECKOUT, SandboxPaths, private_folder
from sandbox.postgres import PostgresServer
from sandbox.registry import SchemaRegistry
from sandbox.spark import SparkCluster

WAREHOUSE = "warehouse"  # database of the target tables and the ledger
AIRFLOW_DATABASE = "airflow"
LOCAL_SPARK = "local[2]"
TOPICS: Mapping[str, int] = {"orders": 4, "raw_events": 2}  # those of dags/pipelines

Report = Callable[[str], None]


class Part(Protocol):
    """A server of the sandbox that can be started."""

    def is_running(self) -> bool:
        """Tell whether it lives and answers."""

    def start(self) -> None:
        """Start it."""


class Sandbox:
    """PostgreSQL, Kafka, Airflow and, if wished, a Spark cluster and a schema registry, on loopback.

    Args:
        paths: Where state and downloads are.
        spark_cluster: Jobs run on a standalone cluster of its own instead of in ``local[2]``.
        registry: There is a schema registry, even where :func:`needs_registry` sees no need.
        extra_env: More variables for Airflow's parts.
    """

    def __init__(
        self,
        paths: SandboxPaths,
        *,
        spark_cluster: bool = False,
        registry: bool = False,
        extra_env: Mapping[str, str] | None = None,
    ) -> None:
        self.paths = paths
        self.postgres = PostgresServer(paths.state / "postgres")
        self.kafka = KafkaBroker(paths.state / "kafka", cache=paths.cache)
        self.spark = SparkCluster(paths.state / "spark", workers=2, cores=1) if spark_cluster else None
        wanted = registry or needs_registry(paths)
        self.registry = SchemaRegistry(paths.state / "registry", cache=paths.cache) if wanted else None
        self._extra_env = {"KAFKA_INGEST_PIPELINES": str(paths.pipelines), **(extra_env or {})}

    def start(self, report: Report = print) -> None:
        """Start all parts that are not running, Airflow last; idempotent, so it also restarts crashed parts.

        Raises:
            SandboxError: A part did not start.
        """
        java()
        private_folder(self.paths.pipelines)
        self._start_what_airflow_needs(report)
        for database in (WAREHOUSE, AIRFLOW_DATABASE):
            self.postgres.create_database(database)
        create_topics(self.kafka.bootstrap, TOPICS)
        report("ledger: migrating")
        self.ingest(["migrate"])
        self.airflow().start(report)
        self.write_env_file()

    def stop(self, report: Report = print) -> None:
        """Stop all parts; their data stays. Idempotent."""
        for name, stop in self._stops():
            report(f"{name}: stopping")
            stop()

    def destroy(self, report: Report = print) -> None:
        """Stop all parts and delete everything that they wrote. Idempotent."""
        self.stop(report)
        self.postgres.destroy()
        shutil.rmtree(self.paths.state, ignore_errors=True)

    def airflow(self) -> AirflowServer:
        """Return the Airflow of the running PostgreSQL and Kafka.

        Raises:
            SandboxError: PostgreSQL or Kafka was never started.
        """
        database_url = self.postgres.dsn(AIRFLOW_DATABASE, scheme="postgresql+psycopg2")
        setup = AirflowSetup(database_url, self.connections(), extra_env=self._extra_env)
        return AirflowServer(self.paths.state / "airflow", setup)

    def connections(self) -> dict[str, str]:
        """Return ``AIRFLOW_CONN_*`` for the three connections that the example pipelines name, and the registry's."""
        spark = self.spark
        cluster = spark_connection(spark.master_url, spark.secret) if spark else spark_connection(LOCAL_SPARK)
        return connection_variables(
            {
                "kafka_default": kafka_connection(self.kafka.bootstrap),
                "postgres_default": postgres_connection(self.postgres.params(WAREHOUSE)),
                "spark_default": cluster,
                **({"schema_registry_default": schema_registry_connection(url)} if (url := self.registry_url) else {}),
            }
        )

    @property
    def registry_url(self) -> str | None:
        """The address of the schema registry; None where none was started."""
        return self.registry.url if self.registry is not None and self.registry.folder.exists() else None

    def ingest(self, arguments: Sequence[str]) -> str:
        """Run ``python -m kafka_ingest`` on this sandbox and return its output.

        Raises:
            SandboxError: It failed; its own words are in the message.
        """
        command = [sys.executable, "-m", "kafka_ingest", *arguments]
        paths = os.pathsep.join([str(CHECKOUT / "plugins"), str(CHECKOUT)])
        environment = {**os.environ, **self.connections(), **self._extra_env, "PYTHONPATH": paths}
        answer = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=CHECKOUT, check=False)
        if answer.returncode != 0:
            raise SandboxError(f"kafka_ingest {' '.join(arguments)} failed", found=answer.stderr.strip())
        return answer.stdout

    def write_env_file(self) -> None:
        """Write every address to ``paths.env_file``."""
        airflow = self.airflow()
        address = self.postgres.params(WAREHOUSE)
        own = {
            "KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap,
            "POSTGRES_DSN": self.postgres.dsn(WAREHOUSE),
            **{f"PG{name.upper()}": str(address[key]) for name, key in _LIBPQ.items()},
            "AIRFLOW_URL": airflow.url,
            "AIRFLOW_USER": USER,
            "AIRFLOW_PASSWORD": airflow.password,
            "SPARK_MASTER": self.spark.master_url if self.spark is not None else LOCAL_SPARK,
            "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "plugins"), str(CHECKOUT)]),
        }
        if self.registry_url is not None:
            own["SCHEMA_REGISTRY_URL"] = self.registry_url
        folder = Path(sys.executable).parent
        write_env_file(self.paths.env_file, {**airflow.variables(), **own}, first_on_path=folder)

    def states(self) -> dict[str, str]:
        """Return for every part its address when it is running, else what is wrong."""
        found = {
            "PostgreSQL": self._state(self.postgres.is_running, lambda: f"127.0.0.1:{self.postgres.port}"),
            "Kafka": self._state(self.kafka.is_running, lambda: self.kafka.bootstrap),
        }
        registry, spark = self.registry, self.spark
        if registry is not None:
            found["Schema registry"] = self._state(registry.is_running, lambda: registry.url)
        if spark is not None:
            found["Spark"] = self._state(spark.is_running, lambda: spark.master_url)
        return {**found, **self._airflow_states()}

    def _start_what_airflow_needs(self, report: Report) -> None:
        """Start the servers that need no other one, beside each other."""
        parts: dict[str, Part | None] = {
            "PostgreSQL": self.postgres,
            "Kafka": self.kafka,
            "Schema registry": self.registry,
            "Spark": self.spark,
        }
        wanted = [(name, part) for name, part in parts.items() if part is not None]
        with ThreadPoolExecutor(len(wanted)) as threads:
            starts = [threads.submit(self._start, name, part, report) for name, part in wanted]
        for start in starts:
            start.result()

    def _start(self, name: str, part: Part, report: Report) -> None:
        if part.is_running():
            report(f"{name}: runs already")
            return
        report(f"{name}: starting")
        part.start()

    def _airflow_states(self) -> dict[str, str]:
        try:
            airflow = self.airflow()
            dead, url = airflow.dead_parts(), airflow.url
        except SandboxError:
            return {"Airflow": "stopped"}
        running = {part: url if part == "api-server" else "running" for part in PARTS}
        return {f"Airflow {part}": "stopped" if part in dead else running[part] for part in PARTS}

    def _state(self, is_running: Callable[[], bool], address: Callable[[], str]) -> str:
        try:
            return address() if is_running() else "stopped"
        except SandboxError:
            return "stopped"

    def _stops(self) -> list[tuple[str, Callable[[], None]]]:
        stops: list[tuple[str, Callable[[], None]]] = []
        if (self.paths.state / "airflow").exists():
            stops.append(("Airflow", self.airflow().stop))
        spark = self.paths.state / "spark"
        if spark.exists():
            stops.append(("Spark", SparkCluster(spark, workers=2).stop))
        if self.registry is not None and self.registry.folder.exists():
            stops.append(("Schema registry", self.registry.stop))
        if (self.paths.state / "kafka").exists():
            stops.append(("Kafka", self.kafka.stop))
        if (self.paths.state / "postgres").exists():
            stops.append(("PostgreSQL", self.postgres.stop))
        return stops


_LIBPQ = {"host": "host", "port": "port", "user": "user", "password": "password", "database": "dbname"}


def needs_registry(paths: SandboxPaths) -> bool:
    """Tell whether a sandbox needs a schema registry: a pipeline file names one, or it has had one before."""
    folders = (CHECKOUT / "dags" / "pipelines", paths.pipelines)
    files = chain.from_iterable(folder.glob("*.y*ml") for folder in folders)
    return (paths.state / "registry").exists() or any(_names_registry(path) for path in files)


def _names_registry(path: Path) -> bool:
    try:
        document = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError):  # `check-config` and Airflow say what is wrong with the file
        return False
    kafka = document.get("kafka") if isinstance(document, dict) else None
    return isinstance(kafka, dict) and bool(kafka.get("registry"))


def create_topics(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Create the topics that do not exist, by name and number of partitions. Idempotent."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    created = admin.create_topics([NewTopic(name, partitions, 1) for name, partitions in topics.items()])
    for topic in created.values():
        try:
            topic.result(30)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise

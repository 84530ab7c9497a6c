"""One pipeline file in a folder of its own, run by the command line against the shared Kafka and a fresh database."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import yaml
from confluent_kafka.serialization import MessageField, SerializationContext

from kafka_ingest.__main__ import main
from kafka_ingest.cli.command import world_of
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.postgres.rows import settings_hash
from kafka_ingest.protocol.audit import audit_batch, record_announcement
from kafka_ingest.protocol.batch import COMMAND_LINE, Batch, BatchState, Request, RunOptions
from kafka_ingest.protocol.load import load_batch
from kafka_ingest.protocol.plan import plan_batch
from kafka_ingest.report import batch_summary
from kafka_ingest.settings import PipelineSettings
from sandbox.airflow_settings import spark_connection
from spark_jobs.load_job import InProcessRunner, load_ports, stage_context
from tests.services import ProducerFactory, TopicFactory

RAW = {
    "first_run": "earliest",
    "value": {"format": "raw", "column": "payload"},
    "key": {"format": "raw", "column": "key"},
    "headers": {"column": "headers"},
    "metadata_columns": {"timestamp_type": "kafka_timestamp_type"},
}

LOCAL_SPARK = spark_connection("local[2]")


@dataclass
class PipelineUnderTest:
    """A pipeline named ``name`` that loads ``topic`` into the table ``shop.<name>``."""

    name: str
    folder: Path
    database: Mapping[str, Any] = field(repr=False)
    capture: pytest.CaptureFixture[str] = field(repr=False)

    @property
    def table(self) -> str:
        return f"shop.{self.name}"

    def write(self, topic: str, **sections: Any) -> None:
        """Writes the file; sections replace those of :data:`RAW`, ``None`` leaves one out, ``kafka`` adds to it."""
        kafka = {"topics": [topic], **sections.pop("kafka", {})}
        document = {
            "pipeline": self.name,
            "schedule": "@daily",
            "kafka": kafka,
            "target": {"table": self.table, "create_table": True},
            **RAW,
            **sections,
        }
        kept = {key: value for key, value in document.items() if value is not None}
        (self.folder / f"{self.name}.yaml").write_text(yaml.safe_dump(kept, sort_keys=False))

    def command(self, *arguments: str) -> tuple[int, Any, str]:
        """Runs a command with ``--json``; gives its exit code, its document and what it said on standard error."""
        self.capture.readouterr()
        code = main([*arguments, "--json"])
        shown = self.capture.readouterr()
        return code, json.loads(shown.out) if shown.out.strip() else None, shown.err

    def load(self, *arguments: str, runner: str = "in-process") -> dict[str, Any]:
        """Runs the pipeline and expects success; gives the batch's summary."""
        code, summary, notes = self.command("run", self.name, "--runner", runner, *arguments)
        assert code == 0, notes
        assert isinstance(summary, dict)
        return summary

    def plan_only(self, run_id: str) -> Batch:
        """Plans the batch of a run of the command line, which then does not go on."""
        settings = find_pipeline(self.name)
        request = Request(COMMAND_LINE, run_id, parameters=RunOptions().to_parameters())
        ports = world_of(settings).plan_ports()
        return plan_batch(settings, request, ports, settings_hash=settings_hash(settings.batch))

    def load_here(
        self, options: RunOptions | None = None, run_id: str = "", *, clear_number: int = 0
    ) -> dict[str, Any]:
        """Plans, loads and audits with the job's own code in this process: no process is started, so it is quick."""
        settings = find_pipeline(self.name)
        # A load that failed before must not hold this one up.
        ports = replace(world_of(settings).plan_ports(), runs=EveryRunHasEnded())
        parameters = (options or RunOptions()).to_parameters()
        request = Request("test", run_id or uuid.uuid4().hex, parameters=parameters, clear_number=clear_number)
        batch = plan_batch(settings, request, ports, settings_hash=settings_hash(settings.batch))
        if batch.state is not BatchState.COMMITTED:
            batch = self._loaded(settings, batch)
        report = audit_batch(batch.batch_id, batch.request, ports.ledger)
        record_announcement(report, ports.ledger)
        return batch_summary(report.batch)

    def _loaded(self, settings: PipelineSettings, batch: Batch) -> Batch:
        environment = world_of(settings).job_environment()
        runner = InProcessRunner(partial(stage_context, environment=environment), tasks=2)
        return load_batch(batch.batch_id, load_ports(environment, runner), hold=environment.hold, report=lambda _: None)

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Asks the database."""
        with closing(psycopg2.connect(**self.database)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            found = cursor.fetchall() if cursor.description else []
            connection.commit()
            return [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in found]

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        """Return the target's rows by partition and offset."""
        return self.query(f"SELECT {columns} FROM {self.table} ORDER BY kafka_partition, kafka_offset")

    def dead_letters(self, columns: str) -> list[tuple[Any, ...]]:
        """Return the pipeline's dead letters by partition and offset."""
        return self.query(
            f'SELECT {columns} FROM kafka_ingest.dead_letter WHERE pipeline = %s ORDER BY partition, "offset"',
            self.name,
        )


@dataclass
class FedPipeline(PipelineUnderTest):
    """A pipeline with topics of its own, to which the test sends records.

    Attributes:
        topic: The one that was opened last.
    """

    make_topic: TopicFactory = field(kw_only=True, repr=False)
    make_producer: ProducerFactory = field(kw_only=True, repr=False)
    topic: str = ""

    def open(self, partitions: int = 1, config: Mapping[str, str] | None = None, /, **sections: Any) -> str:
        """Makes a topic, writes the file that loads it, and gives the topic's name."""
        self.topic = self.make_topic(partitions, config)
        self.write(self.topic, **sections)
        return self.topic

    def send(self, *values: str | bytes | None, to: str = "", partition: int = 0, **record: Any) -> None:
        """Sends values, with this key, headers or timestamp, and waits for the broker."""
        with produced(self.make_producer()) as sender:
            for value in values:
                sender.produce(to or self.topic, value=value, partition=partition, **record)


class EveryRunHasEnded:
    """Port ``RunStates``."""

    def is_finished(self, request: Request) -> bool:
        return True


def set_connections(
    environment: pytest.MonkeyPatch, *, bootstrap: str, database: Mapping[str, Any], spark: str = LOCAL_SPARK
) -> None:
    """Sets the three connections that pipelines use by default."""
    connections: dict[str, dict[str, Any]] = {
        "KAFKA_DEFAULT": {"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap}},
        "POSTGRES_DEFAULT": {
            "conn_type": "postgres",
            "host": database["host"],
            "port": database["port"],
            "login": database["user"],
            "password": database["password"],
            "schema": database["dbname"],
        },
    }
    for name, values in connections.items():
        environment.setenv(f"AIRFLOW_CONN_{name}", json.dumps(values))
    environment.setenv("AIRFLOW_CONN_SPARK_DEFAULT", spark)


def password_of_the_database() -> str:
    """Return the password with which pipelines connect by default."""
    return str(json.loads(os.environ["AIRFLOW_CONN_POSTGRES_DEFAULT"])["password"])


def written(serializer: Callable[..., bytes], topic: str, value: object, field: str = MessageField.VALUE) -> bytes:
    """Returns what a serializer of confluent-kafka makes of a value, or of a key."""
    return serializer(value, SerializationContext(topic, field))


@contextmanager
def produced(producer: Any) -> Iterator[Any]:
    """Yield the producer and return when the broker has acknowledged everything."""
    yield producer
    assert producer.flush(30) == 0

"""A running Airflow with pipelines, and ways to hold a load up and to look at what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg2

from kafka_ingest.postgres.ledger import PostgresLedger
from sandbox.airflow import AirflowServer
from sandbox.airflow_client import AirflowClient
from sandbox.errors import SandboxError
from sandbox.orders import PIPELINE_COLUMNS, orders, send_records
from sandbox.verification import compare_orders
from tests.deadlines import until
from tests.services import FreshTopics

RECORDS, MALFORMED = 1_000, 3
#: Airflow's connections hold them; the second is not used.
PASSWORD, KAFKA_PASSWORD = 'p"a\\s;s@w/o%r$d x', "n0t-used-but-s3cret"
#: What the names of the pipelines begin with that the page is looked at with.
SHOWCASE_PREFIX = "seen_"
#: A Spark job has to start first, on a busy machine two at once.
START_SECONDS = 240.0

PIPELINE_FILE = """\
pipeline: {name}
schedule: {schedule}
kafka: {{topics: [{topic}]}}
first_run: earliest
{columns}\
tombstones: dead_letter
target: {{table: shop.{name}, create_table: true}}
spark: {{in_process_below_offsets: {in_process_below}}}
airflow: {{owner: shop, retries: {retries}, retry_delay_seconds: 1}}
"""


class PipelineUnderTest(Protocol):
    """A pipeline with a DAG in the running Airflow."""

    @property
    def name(self) -> str: ...

    @property
    def dag_id(self) -> str: ...

    def text(self) -> str:
        """Return the pipeline file."""


@dataclass(frozen=True)
class Shop:
    """One pipeline with a topic of its own, in which orders wait."""

    name: str
    topic: str
    schedule: str = "null"
    retries: int = 2
    records: int = RECORDS
    malformed: int = MALFORMED
    in_process_below: int | None = None

    @property
    def dag_id(self) -> str:
        return f"kafka_to_postgres__{self.name}"

    @property
    def table(self) -> str:
        return f"shop.{self.name}"

    def text(self) -> str:
        own: dict[str, object] = {
            "name": self.name,
            "topic": self.topic,
            "schedule": self.schedule,
            "retries": self.retries,
        }
        own["in_process_below"] = "null" if self.in_process_below is None else str(self.in_process_below)
        return PIPELINE_FILE.format(columns=PIPELINE_COLUMNS, **own)


def opened_shop(world: AirflowWorld, name: str, *, partitions: int = 2, **settings: Any) -> Shop:
    """Makes a pipeline's topic, sends orders to it, and adds the pipeline to the running Airflow."""
    shop = Shop(name, world.topics.create(partitions=partitions), **settings)
    send_records(world.bootstrap, shop.topic, orders(shop.records, malformed=shop.malformed))
    world.add(shop)
    return shop


@dataclass(frozen=True)
class AirflowWorld:
    """What the tests look at and act on.

    Attributes:
        server: Airflow.
        bootstrap: Kafka.
        warehouse: psycopg2's parameters of the database with targets and ledger.
        metadata: The same of Airflow's own database.
        pipelines: Folder of pipeline files: a new one is a DAG within seconds.
        own_dags: Folder of a user's own DAG files.
        topics: Makes topics.
    """

    server: AirflowServer
    bootstrap: str
    warehouse: Mapping[str, Any]
    metadata: Mapping[str, Any]
    pipelines: Path
    own_dags: Path
    topics: FreshTopics

    @property
    def airflow(self) -> AirflowClient:
        return self.server.client()

    def password_of(self, user: str) -> str:
        """Return the password of a person; Airflow has made those of all but the first."""
        passwords: dict[str, str] = json.loads((self.server.folder / "passwords.json").read_text())
        return passwords[user]

    def add(self, *pipelines: PipelineUnderTest) -> None:
        """Writes pipeline files and waits for their DAGs, which can run from now on."""
        for pipeline in pipelines:
            (self.pipelines / f"{pipeline.name}.yaml").write_text(pipeline.text())
        for pipeline in pipelines:
            self.open_dag(pipeline.dag_id)

    def open_dag(self, dag_id: str) -> None:
        """Waits for a DAG and lets it run."""
        self.airflow.wait_for_dag(dag_id)
        self.airflow.unpause(dag_id)

    def start_run(self, pipeline: PipelineUnderTest, **form: Any) -> str:
        return self.airflow.trigger(pipeline.dag_id, conf=form)

    def run(self, pipeline: PipelineUnderTest, **form: Any) -> str:
        """Runs a pipeline to its green end."""
        run_id = self.start_run(pipeline, **form)
        self.require_success(pipeline, run_id)
        return run_id

    def require_success(self, pipeline: PipelineUnderTest, run_id: str) -> None:
        self.require_end(pipeline.dag_id, run_id, "success")

    def require_end(self, dag_id: str, run_id: str, state: str) -> None:
        assert self.airflow.wait_for_run(dag_id, run_id) == state, self.logs_of(dag_id, run_id)

    def wait_for_success(self, pipeline: PipelineUnderTest, run_id: str) -> None:
        """Waits past a failure of the run that something else undoes."""
        try:
            self.airflow.wait_for_run(pipeline.dag_id, run_id, states=["success"])
        except SandboxError as error:
            raise AssertionError(self.logs_of(pipeline.dag_id, run_id)) from error

    def require_every_order_once(self, shop: Shop) -> None:
        """All orders are in the database once; every invariant of the ledger holds."""
        found = compare_orders(self.bootstrap, shop.topic, self.warehouse, ("shop", shop.name))
        expected = (shop.records, shop.records - shop.malformed, shop.malformed)
        assert (found.produced, found.rows, found.dead_letters) == expected
        assert (found.missing, found.duplicates, found.unexpected) == (0, 0, 0)
        assert PostgresLedger(self.warehouse).violations(shop.name) == []

    def batches(self, pipeline: PipelineUnderTest) -> list[tuple[Any, ...]]:
        """Return run, state and claim of all batches that had something to read, in the order of their plans."""
        return self.ask(
            "SELECT run_id, state, claim FROM kafka_ingest.batch b WHERE pipeline = %s"
            " AND EXISTS (SELECT FROM kafka_ingest.batch_partition p WHERE p.batch_id = b.batch_id) ORDER BY ordinal",
            pipeline.name,
        )

    def committed(self, pipeline: PipelineUnderTest) -> list[tuple[Any, ...]]:
        """Return run, number, kind, start, end and committed offset after, of all that loads of one partition read."""
        return self.ask(
            "SELECT b.run_id, b.request_number, b.kind, p.range_start, p.range_end, p.committed_after"
            " FROM kafka_ingest.batch b JOIN kafka_ingest.batch_partition p USING (batch_id)"
            " WHERE b.pipeline = %s AND b.state = 'committed' ORDER BY b.ordinal, p.partition",
            pipeline.name,
        )

    def batch_id(self, pipeline: PipelineUnderTest, run_id: str) -> str:
        query = "SELECT batch_id::text FROM kafka_ingest.batch WHERE pipeline = %s AND run_id = %s"
        return str(self.ask(query, pipeline.name, run_id)[0][0])

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(psycopg2.connect(**dict[str, Any](self.warehouse))) as connection, connection.cursor() as cursor:
            cursor.execute(query, values)
            rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
            connection.commit()
            return rows

    @contextmanager
    def held_before_commit(self, *pipelines: PipelineUnderTest) -> Iterator[None]:
        """Lets the loads stage everything and begin to publish, and no further while the context lasts.

        The context begins when all of them wait. Each waits for half a minute (``lock_timeout``), then a retry does.
        """
        names = [pipeline.name for pipeline in pipelines]
        for name in names:
            until(lambda: self._is_planned(name), f"{name} is planned", START_SECONDS)  # noqa: B023 - at once
        with closing(psycopg2.connect(**dict[str, Any](self.warehouse))) as holder, holder.cursor() as cursor:
            cursor.execute("SELECT FROM kafka_ingest.committed_offset WHERE pipeline = ANY (%s) FOR UPDATE", (names,))
            pid = holder.info.backend_pid
            until(lambda: self._blocked_by(pid) == len(names), f"the loads of {names} wait", START_SECONDS)
            yield

    def logs_of(self, dag_id: str, run_id: str) -> str:
        """Return the last lines of every try, for a test that fails."""
        tries = [
            (task["task_id"], number)
            for task in self.airflow.tasks(dag_id, run_id)
            for number in range(1, (task["try_number"] or 0) + 1)
        ]
        logs = [f"--- {name} {number}\n{self.airflow.task_log(dag_id, run_id, name, number)}" for name, number in tries]
        return "\n".join(logs)[-8_000:]

    def _is_planned(self, pipeline: str) -> bool:
        return bool(self.ask("SELECT 1 FROM kafka_ingest.batch WHERE pipeline = %s AND state = 'planned'", pipeline))

    def _blocked_by(self, pid: int) -> int:
        """How many publish transactions wait for locks of this session."""
        query = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'kafka_ingest publish' AND %s = ANY (pg_blocking_pids(pid))"
        )
        return int(self.ask(query, pid)[0][0])

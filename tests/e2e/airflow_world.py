"""A running Airflow with pipelines of orders, and ways to hold a load up and to look at what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2

from kafka_ingest.adapters.postgres_ledger import PostgresLedger
from sandbox.airflow import AirflowServer
from sandbox.airflow_client import AirflowClient
from sandbox.errors import SandboxError
from sandbox.orders import orders, send_orders
from sandbox.verification import compare_orders
from tests.deadlines import until
from tests.services import FreshTopics

RECORDS, MALFORMED = 1_000, 3
#: A Spark job has to start first, on a busy machine two at once.
START_SECONDS = 240.0

PIPELINE_FILE = """\
pipeline: {name}
schedule: {schedule}
kafka: {{topics: [{topic}]}}
first_run: earliest
value:
  format: json
  columns:
    - {{name: order_id, type: bigint, required: true}}
    - {{name: customer, type: text}}
    - {{name: status, type: varchar(20)}}
    - {{name: amount, type: "numeric(12,2)"}}
    - {{name: currency, type: varchar(3)}}
    - {{name: ordered_at, type: timestamptz}}
    - {{name: note, type: text}}
    - {{name: lines, type: jsonb}}
    - {{name: tags, type: "text[]"}}
key: {{format: text, column: customer_key}}
tombstones: dead_letter
target: {{table: shop.{name}, create_table: true}}
airflow: {{owner: shop, retries: {retries}, retry_delay_seconds: 1}}
"""


@dataclass(frozen=True)
class Shop:
    """One pipeline with a topic of its own, in which orders wait."""

    name: str
    topic: str
    schedule: str = "null"
    retries: int = 2

    @property
    def dag_id(self) -> str:
        return f"kafka_to_postgres__{self.name}"

    @property
    def table(self) -> str:
        return f"shop.{self.name}"

    def write_to(self, folder: Path) -> None:
        text = PIPELINE_FILE.format(name=self.name, topic=self.topic, schedule=self.schedule, retries=self.retries)
        (folder / f"{self.name}.yaml").write_text(text)


def opened_shop(bootstrap: str, topics: FreshTopics, name: str, **settings: Any) -> Shop:
    """Makes a pipeline's topic and sends orders to it."""
    topic = topics.create(partitions=2)
    send_orders(bootstrap, topic, orders(RECORDS, malformed=MALFORMED))
    return Shop(name, topic, **settings)


@dataclass(frozen=True)
class AirflowWorld:
    """What the tests look at and act on.

    Attributes:
        server: Airflow.
        bootstrap: Kafka.
        warehouse: psycopg2's parameters of the database with targets and ledger.
    """

    server: AirflowServer
    bootstrap: str
    warehouse: Mapping[str, Any]

    @property
    def airflow(self) -> AirflowClient:
        return self.server.client()

    def start_run(self, shop: Shop) -> str:
        self.airflow.wait_for_dag(shop.dag_id)
        self.airflow.unpause(shop.dag_id)
        return self.airflow.trigger(shop.dag_id)

    def require_success(self, shop: Shop, run_id: str) -> None:
        state = self.airflow.wait_for_run(shop.dag_id, run_id)
        assert state == "success", self.logs_of(shop, run_id)

    def wait_for_success(self, shop: Shop, run_id: str) -> None:
        """Waits past a failure of the run that something else undoes."""
        try:
            self.airflow.wait_for_run(shop.dag_id, run_id, states=["success"])
        except SandboxError as error:
            raise AssertionError(self.logs_of(shop, run_id)) from error

    def require_every_order_once(self, shop: Shop) -> None:
        """All orders are in the database once; every invariant of the ledger holds."""
        found = compare_orders(self.bootstrap, shop.topic, self.warehouse, ("shop", shop.name))
        assert (found.produced, found.rows, found.dead_letters) == (RECORDS, RECORDS - MALFORMED, MALFORMED)
        assert (found.missing, found.duplicates, found.unexpected) == (0, 0, 0)
        assert PostgresLedger(self.warehouse).violations(shop.name) == []

    def batches(self, shop: Shop) -> list[tuple[Any, ...]]:
        """Gives run, state and claim of all batches that had something to read, in the order of their plans."""
        return self.ask(
            "SELECT run_id, state, claim FROM kafka_ingest.batch b WHERE pipeline = %s"
            " AND EXISTS (SELECT FROM kafka_ingest.batch_partition p WHERE p.batch_id = b.batch_id) ORDER BY ordinal",
            shop.name,
        )

    def batch_id(self, shop: Shop, run_id: str) -> str:
        query = "SELECT batch_id::text FROM kafka_ingest.batch WHERE pipeline = %s AND run_id = %s"
        return str(self.ask(query, shop.name, run_id)[0][0])

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(psycopg2.connect(**dict[str, Any](self.warehouse))) as connection, connection.cursor() as cursor:
            cursor.execute(query, values)
            rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
            connection.commit()
            return rows

    @contextmanager
    def held_before_commit(self, *shops: Shop) -> Iterator[None]:
        """Lets the loads stage everything and begin to publish, and no further while the context lasts.

        The context begins when all of them wait. Each waits for half a minute (``lock_timeout``), then a retry does.
        """
        names = [shop.name for shop in shops]
        for shop in shops:
            until(lambda: self._is_planned(shop), f"{shop.name} is planned", START_SECONDS)  # noqa: B023 - at once
        with closing(psycopg2.connect(**dict[str, Any](self.warehouse))) as holder, holder.cursor() as cursor:
            cursor.execute("SELECT FROM kafka_ingest.committed_offset WHERE pipeline = ANY (%s) FOR UPDATE", (names,))
            pid = holder.info.backend_pid
            until(lambda: self._blocked_by(pid) == len(shops), f"the loads of {names} wait", START_SECONDS)
            yield

    def logs_of(self, shop: Shop, run_id: str) -> str:
        """Gives the last lines of every try, for a test that fails."""
        tries = [
            (task["task_id"], number)
            for task in self.airflow.tasks(shop.dag_id, run_id)
            for number in range(1, (task["try_number"] or 0) + 1)
        ]
        logs = [
            f"--- {name} {number}\n{self.airflow.task_log(shop.dag_id, run_id, name, number)}" for name, number in tries
        ]
        return "\n".join(logs)[-8_000:]

    def _is_planned(self, shop: Shop) -> bool:
        return bool(self.ask("SELECT 1 FROM kafka_ingest.batch WHERE pipeline = %s AND state = 'planned'", shop.name))

    def _blocked_by(self, pid: int) -> int:
        """How many publish transactions wait for locks of this session."""
        query = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'kafka_ingest publish' AND %s = ANY (pg_blocking_pids(pid))"
        )
        return int(self.ask(query, pid)[0][0])

"""Four pipelines, one in each state that the page is for: the pictures of the documentation show them, browser tests read them.

``orders`` has a history and is complete. ``payments`` is late: its DAG was paused while a scheduled run waited.
``customers`` fails: its topic was deleted and made again, which a run does not pass over. ``returns`` has dead letters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
from confluent_kafka.admin import AdminClient

from sandbox.airflow_client import AirflowClient
from sandbox.errors import SandboxError
from sandbox.orders import SentRecord, orders, send_records
from sandbox.system import create_topics

NAMES = ("orders", "payments", "customers", "returns")
PARTITIONS = 3
#: Records of each load of ``orders``, and of the one load of each other pipeline.
ORDERS, OTHERS = (400, 900, 250), 120
MALFORMED = 6
#: What somebody sends who would like a page to run it; it has no order id, so it does not fit.
HOSTILE = {
    "note": "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title = 'taken over'\">"
}
#: A run that waits for so long is late by any measure.
LATE_BY = "3 hours"

_FILE = """\
pipeline: {name}
description: {description}
schedule: {schedule}
kafka: {{topics: [{name}]}}
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
dead_letters: {{max_ratio: 0.5}}
airflow: {{owner: shop, retries: 0}}
"""
_DESCRIPTIONS = {
    "orders": "Orders of the shop",
    "payments": "Payments of orders",
    "customers": "Changes of customers",
    "returns": "Goods that came back",
}


@dataclass(frozen=True, slots=True)
class Showcase:
    """The four pipelines in a running Airflow.

    Attributes:
        prefix: What their names begin with, so that they meet no others; topics and tables are named like them.
        bootstrap: Kafka.
        pipelines: A folder of pipeline files that Airflow reads.
        airflow: Airflow.
        metadata: libpq's parameters of Airflow's own database.
        load: Loads a pipeline that is named, to the end of its topic.
    """

    prefix: str
    bootstrap: str
    pipelines: Path
    airflow: AirflowClient
    metadata: Mapping[str, Any]
    load: Callable[[str], object]

    def name(self, name: str) -> str:
        """Return the pipeline's own name."""
        return self.prefix + name

    def dag_id(self, name: str) -> str:
        """Return the pipeline's DAG."""
        return f"kafka_to_postgres__{self.name(name)}"

    def open(self) -> None:
        """Make topics, files, loads and faults.

        Raises:
            SandboxError: A run did not end as it should.
        """
        create_topics(self.bootstrap, {self.name(name): PARTITIONS for name in NAMES})
        for name in NAMES:
            schedule = "@daily" if name == "payments" else "null"
            text = _FILE.format(name=self.name(name), description=_DESCRIPTIONS[name], schedule=schedule)
            (self.pipelines / f"{self.name(name)}.yaml").write_text(text, encoding="utf-8")
        for name in NAMES:
            self.airflow.wait_for_dag(self.dag_id(name))
        for name in ("orders", "customers", "returns"):
            self.airflow.unpause(self.dag_id(name))
        self._load_orders()
        self._load_returns()
        self._load_payments_and_be_late()
        self._load_customers_and_fail()

    def _load_orders(self) -> None:
        first = 0
        for count in ORDERS:
            self._send("orders", orders(count, first=first))
            self.load(self.name("orders"))
            first += count

    def _load_returns(self) -> None:
        hostile = SentRecord(b"customer-1", json.dumps(HOSTILE).encode())
        self._send("returns", [*orders(OTHERS, malformed=MALFORMED), hostile])
        self.load(self.name("returns"))

    def _load_payments_and_be_late(self) -> None:
        self._send("payments", orders(OTHERS))
        self.load(self.name("payments"))
        self._send("payments", orders(OTHERS, first=OTHERS))
        # Runs of a paused DAG wait. That the schedule made it, and hours ago, cannot be asked of Airflow.
        run_id = self.airflow.trigger(self.dag_id("payments"))
        with closing(psycopg2.connect(**dict(self.metadata))) as connection, connection, connection.cursor() as cursor:
            cursor.execute(
                "UPDATE dag_run SET run_type = 'scheduled', run_after = now() + interval '1 second' WHERE dag_id = %s AND run_id = %s",
                (self.dag_id("payments"), run_id),
            )

    def _load_customers_and_fail(self) -> None:
        self._send("customers", orders(OTHERS))
        self.load(self.name("customers"))
        self._make_topic_again(self.name("customers"))
        self._send("customers", orders(OTHERS))
        for _ in range(2):
            run_id = self.airflow.trigger(self.dag_id("customers"))
            if (state := self.airflow.wait_for_run(self.dag_id("customers"), run_id)) != "failed":
                raise SandboxError(f"run {run_id} of {self.dag_id('customers')} ended {state}", expected="failed")

    def _make_topic_again(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        admin.delete_topics([topic])[topic].result(30)
        # Kafka answers before the name is free again.
        while topic in admin.list_topics(timeout=30).topics:
            pass
        create_topics(self.bootstrap, {topic: PARTITIONS})

    def _send(self, name: str, records: Sequence[SentRecord] | Any) -> None:
        send_records(self.bootstrap, self.name(name), iter(records))

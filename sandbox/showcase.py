"""Four pipelines, one in each state that the page is for: pictures of the documentation and browser tests show them.

``orders`` has a history and is complete. ``payments`` is late: its DAG was paused while a scheduled run waited.
``customers`` fails: its topic was deleted and made again, which a run does not pass over. ``returns`` has dead letters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
from confluent_kafka.admin import AdminClient
from psycopg2 import sql

from sandbox.airflow_client import AirflowClient
from sandbox.errors import SandboxError
from sandbox.orders import PIPELINE_COLUMNS, SentRecord, orders, send_records
from sandbox.system import create_topics

NAMES = ("orders", "payments", "customers", "returns")
PARTITIONS = 3
#: Records of each load of ``orders``, and of the one load of each other pipeline.
ORDERS, OTHERS = (400, 900, 250, 640, 820), 120
MALFORMED = 6
#: What somebody sends who would like a page to run it; it has no order id, so it does not fit.
HOSTILE = {
    "note": "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title = 'taken over'\">"
}
#: Tables whose times are moved back, since nobody waits for hours.
_TABLES = ("batch", "committed_offset", "log_observation", "attempt")
_TIMES = """
    SELECT column_name FROM information_schema.columns
     WHERE table_schema = 'kafka_ingest' AND table_name = %s AND data_type = 'timestamp with time zone'
       AND is_generated = 'NEVER' AND column_name NOT LIKE 'record_time%%'
"""

_FILE = """\
pipeline: {name}
description: {description}
schedule: {schedule}
kafka: {{topics: [{name}]}}
first_run: earliest
{columns}\
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
        warehouse: The same of the database with tables and ledger.
        load: Loads a pipeline that is named, to the end of its topic.
        given: Those whose pipeline file Airflow has already.
    """

    prefix: str
    bootstrap: str
    pipelines: Path
    airflow: AirflowClient
    metadata: Mapping[str, Any]
    warehouse: Mapping[str, Any]
    load: Callable[[str], object]
    given: frozenset[str] = frozenset()

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
        for name in set(NAMES) - self.given:
            schedule = '"@hourly"' if name == "payments" else "null"
            text = _FILE.format(
                name=self.name(name),
                description=_DESCRIPTIONS[name],
                schedule=schedule,
                columns=PIPELINE_COLUMNS,
            )
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
            self._move_back("orders", "1 hour")
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
        self._move_back("payments", "4 hours")
        self._send("payments", orders(OTHERS, first=OTHERS))
        # A run of a paused DAG waits. That the schedule made it, hours ago, cannot be asked of Airflow.
        run_id = self.airflow.trigger(self.dag_id("payments"))
        _execute(
            self.metadata,
            "UPDATE dag_run SET run_type = 'scheduled', run_after = date_trunc('hour', run_after - interval '3 hours')"
            " WHERE dag_id = %s AND run_id = %s",
            self.dag_id("payments"),
            run_id,
        )

    def _load_customers_and_fail(self) -> None:
        self._send("customers", orders(OTHERS))
        self.load(self.name("customers"))
        self._make_topic_again(self.name("customers"))
        self._send("customers", orders(OTHERS))
        for _ in range(2):
            run_id = self.airflow.trigger(self.dag_id("customers"))
            if (state := self.airflow.wait_for_run(self.dag_id("customers"), run_id)) != "failed":
                raise SandboxError(f"run {run_id} of {self.dag_id('customers')} should fail", found=state)

    def _send(self, name: str, records: Iterable[SentRecord]) -> None:
        send_records(self.bootstrap, self.name(name), iter(records))

    def _make_topic_again(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        admin.delete_topics([topic])[topic].result(30)
        # Kafka answers before the name is free again.
        deadline = time.monotonic() + 30
        while topic in admin.list_topics(timeout=30).topics and time.monotonic() < deadline:
            time.sleep(0.1)
        create_topics(self.bootstrap, {topic: PARTITIONS})

    def _move_back(self, name: str, span: str) -> None:
        """Let what the ledger has of a pipeline have happened earlier."""
        for table in _TABLES:
            columns = [column for (column,) in _execute(self.warehouse, _TIMES, table)]
            moved = [sql.SQL("{0} = {0} - interval {1}").format(sql.Identifier(c), sql.Literal(span)) for c in columns]
            statement = sql.SQL("UPDATE {} SET {} WHERE pipeline = %s")
            _execute(
                self.warehouse,
                statement.format(sql.Identifier("kafka_ingest", table), sql.SQL(", ").join(moved)),
                self.name(name),
            )


def _execute(params: Mapping[str, Any], statement: str | sql.Composed, *values: object) -> list[tuple[Any, ...]]:
    with closing(psycopg2.connect(**dict(params))) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

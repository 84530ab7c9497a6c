"""A pipeline of lines of text in one partition, of which a test knows every offset and every record time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer

from kafka_ingest.postgres.ledger import PostgresLedger
from tests.e2e.airflow_world import AirflowWorld

HOUR, DAY = timedelta(hours=1), timedelta(days=1)

PIPELINE_FILE = """\
pipeline: {name}
{options}
kafka: {{topics: [{topic}]}}
first_run: earliest
value: {{format: text, column: line}}
target: {{table: shop.{name}, create_table: true}}
airflow: {{owner: shop, retries: 1, retry_delay_seconds: 1{airflow}}}
"""


@dataclass(frozen=True)
class LinesPipeline:
    """The line at an offset is ``record <offset>``.

    Attributes:
        name: Pipeline and table.
        topic: Its topic.
        options: More lines of the pipeline file.
        airflow: More keys of its section ``airflow``, after a comma.
    """

    name: str
    topic: str
    options: str = "schedule: null"
    airflow: str = ""

    @property
    def dag_id(self) -> str:
        return f"kafka_to_postgres__{self.name}"

    def text(self) -> str:
        return PIPELINE_FILE.format(name=self.name, topic=self.topic, options=self.options, airflow=self.airflow)


def new_topic(world: AirflowWorld) -> str:
    """Makes a topic of one partition that keeps records of any age."""
    return world.topics.create(config={"retention.ms": "-1"})


def send_lines(world: AirflowWorld, topic: str, times: Iterable[datetime], *, first_offset: int = 0) -> None:
    """Sends a line for each record time; the first gets ``first_offset``, where the log ends by now."""
    producer = Producer({"bootstrap.servers": world.bootstrap, "enable.idempotence": True})
    for offset, time in enumerate(times, first_offset):
        line = f"record {offset}".encode()
        producer.produce(topic, line, partition=0, timestamp=int(time.timestamp() * 1_000))
    assert producer.flush(30) == 0


def two_each(start: datetime, step: timedelta, count: int) -> list[datetime]:
    """Return two record times in each of so many intervals, in order."""
    return [start + step * number + step / 10 * part for number in range(count) for part in (1, 2)]


def this_hour() -> datetime:
    """Return the beginning of the current hour."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def today() -> datetime:
    """Return the beginning of the current day."""
    return this_hour().replace(hour=0)


def require_lines_once(world: AirflowWorld, pipeline: LinesPipeline, offsets: Iterable[int]) -> None:
    """The table has these lines once and no other, and every invariant of the ledger holds."""
    rows = world.ask(f"SELECT kafka_offset, line FROM shop.{pipeline.name} ORDER BY kafka_offset")
    assert rows == [(offset, f"record {offset}") for offset in offsets]
    assert PostgresLedger(world.warehouse).violations(pipeline.name) == []

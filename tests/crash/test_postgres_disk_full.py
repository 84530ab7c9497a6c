"""The database runs out of room: nothing becomes a dead letter or is half there, and room is all it takes to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kafka_ingest.errors import DatabaseUnavailable
from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer
from tests.crash.eventful_run import EventfulRun
from tests.crash.small_disk import TABLESPACE, execute, file_size_limit, small_tablespace
from tests.integration.pipeline_under_test import PipelineUnderTest, set_connections
from tests.services import FreshTopics, Producers, as_role, fresh_database, services_of_one_test

#: Two of these fit neither into one file of the limit nor into the tablespace; one does.
RECORDS, SIZE_BYTES = 14_000, 1_000

#: Leaves the room in which a table lies too small while the context lasts.
Shortage = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class ScarceRoom:
    """A pipeline in a database whose tables can be put where there is little room."""

    pipeline: PipelineUnderTest
    topic: str
    shortage: Shortage
    has_tablespace: bool

    def place(self, tablespace: str) -> None:
        """Where tables are put that are created from now on."""
        if self.has_tablespace:
            name = self.pipeline.database["dbname"]
            execute(self.pipeline.database, f'ALTER DATABASE "{name}" SET default_tablespace = {tablespace}')

    def make_table(self, tablespace: str) -> None:
        """Loads one record, which makes the target."""
        self.place(tablespace)
        self.pipeline.write(self.topic, headers=None, limit={"offsets_per_run": 1})
        assert self.run("makes the table") == 1
        self.pipeline.write(self.topic, headers=None, limit={"offsets_per_run": RECORDS})

    def run(self, run_id: str) -> int:
        batch = EventfulRun(self.pipeline.name).run(run_id)
        assert batch.counts is not None
        return batch.counts.rows

    def require_full(self, run_id: str) -> None:
        with self.shortage():
            assert self.pipeline.query("SELECT 1") == [(1,)]
            with pytest.raises(DatabaseUnavailable):
                EventfulRun(self.pipeline.name).run(run_id)

    def require_offsets_up_to(self, end: int) -> None:
        rows = self.pipeline.query(f"SELECT count(*), count(DISTINCT kafka_offset) FROM {self.pipeline.table}")
        assert rows == [(end, end)]
        assert self.pipeline.query("SELECT committed_offset FROM kafka_ingest.committed_offset") == [(end,)]
        assert self.pipeline.dead_letters("reason") == []
        assert self.pipeline.command("audit", self.pipeline.name)[:2] == (0, [])


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    services = services_of_one_test()
    try:
        services.postgres.start()
        yield services.postgres
    finally:
        services.remove()


@pytest.fixture(scope="module")
def topic(kafka_broker: KafkaBroker) -> Iterator[str]:
    topics, producers = FreshTopics(kafka_broker.bootstrap), Producers(kafka_broker.bootstrap)
    name, sender = topics.create(), producers.create(linger_ms=50)
    for _ in range(2 * RECORDS):
        sender.produce(name, value=b"x" * SIZE_BYTES)
    producers.flush_all()
    yield name
    topics.delete_all()


@pytest.fixture(params=["file size limit", "file system"])
def scarce(
    request: pytest.FixtureRequest,
    own_server: PostgresServer,
    kafka_broker: KafkaBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[ScarceRoom]:
    is_limit = request.param == "file size limit"
    # The database goes before the tablespace in which its tables lie.
    with nullcontext() if is_limit else small_tablespace(own_server), fresh_database(own_server) as database:
        set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=as_role("loader", database))
        monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
        pipeline = PipelineUnderTest("events", tmp_path, database, capfd)
        shortage: Shortage = partial(file_size_limit, own_server) if is_limit else nullcontext
        yield ScarceRoom(pipeline, topic, shortage, has_tablespace=not is_limit)


def test_c12_a_disk_that_is_full_while_records_are_staged_fails_the_load_and_makes_no_dead_letter(
    scarce: ScarceRoom,
) -> None:
    scarce.make_table("pg_default")
    scarce.place(TABLESPACE)
    scarce.pipeline.write(scarce.topic, headers=None)
    scarce.require_full("full")
    scarce.require_offsets_up_to(1)
    scarce.place("pg_default")
    assert scarce.run("full") == 2 * RECORDS - 1
    scarce.require_offsets_up_to(2 * RECORDS)


def test_c12_a_disk_that_is_full_while_a_batch_is_published_publishes_nothing_of_it(scarce: ScarceRoom) -> None:
    scarce.make_table(TABLESPACE)
    scarce.place("pg_default")
    assert scarce.run("fits") == RECORDS
    scarce.require_full("full")
    scarce.require_offsets_up_to(1 + RECORDS)
    if scarce.has_tablespace:
        execute(scarce.pipeline.database, f"ALTER TABLE {scarce.pipeline.table} SET TABLESPACE pg_default")
    assert scarce.run("full") == RECORDS - 1
    scarce.require_offsets_up_to(2 * RECORDS)

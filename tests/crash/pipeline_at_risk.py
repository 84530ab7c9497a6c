"""A pipeline whose runs are killed: started as real processes, looked at from outside, and run again to success."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg2

from kafka_ingest.cli.command import world_of
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.rows import settings_hash
from kafka_ingest.protocol.audit import audit_batch, record_announcement
from kafka_ingest.protocol.batch import Batch, BatchState, Request
from kafka_ingest.protocol.load import load_batch
from kafka_ingest.protocol.plan import plan_batch
from sandbox.paths import CHECKOUT
from spark_jobs.load_job import InProcessRunner, load_ports, stage_context
from tests.crash.instructions import Instructions
from tests.crash.killed_driver import DAG_ID, EveryRunHasEnded
from tests.crash.mixed_topic import MixedTopic, Records
from tests.crash.process_tree import state_of
from tests.deadlines import until
from tests.integration.pipeline_under_test import PipelineUnderTest

#: Three runs work off a mixed topic; the one in the middle has every kind of record in each partition.
OFFSETS_PER_RUN = 40
DEADLINE_SECONDS = 60.0
#: (partition, offset, batch id) of rows and dead letters.
Owners = Counter[tuple[int, int, str]]
IMPORTS = f"{CHECKOUT / 'plugins'}{os.pathsep}{CHECKOUT}"

SECTIONS: dict[str, Any] = {
    # A time long before the first record: the plan of the first run asks Kafka for offsets by time.
    "first_run": {"timestamp": "2000-01-01T00:00:00Z"},
    "value": {
        "format": "json",
        "columns": [{"name": "n", "type": "bigint", "required": True}, {"name": "text", "type": "text"}],
    },
    "key": {"format": "text", "column": "key"},
    "headers": None,
    "metadata_columns": None,
    "tombstones": "count",
    "limit": {"offsets_per_run": OFFSETS_PER_RUN},
    "hold": {"start_timeout_seconds": 1_800, "heartbeat_timeout_seconds": 60, "heartbeat_interval_seconds": 1},
    "spark": {"tasks": 2},
}


@dataclass
class DriverProcess:
    """A driver that runs, was stopped, or has ended."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def end(self) -> int:
        """Waits for its end and gives its exit code; a signal is negative."""
        return self.process.wait(DEADLINE_SECONDS)

    def until_stopped(self) -> None:
        """Waits until it has stopped itself."""
        until(self._is_stopped, "the driver has stopped itself", DEADLINE_SECONDS)

    def wake(self) -> None:
        """Lets a stopped driver go on."""
        self.process.send_signal(signal.SIGCONT)

    def _is_stopped(self) -> bool:
        assert self.process.poll() is None, self.output
        return state_of(self.process.pid) == "T"


@dataclass
class PipelineAtRisk:
    """A pipeline, its table and its topic."""

    files: PipelineUnderTest
    topic: MixedTopic
    started: list[DriverProcess] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.files.name

    def start(self, instructions: Instructions, environment: Mapping[str, str] | None = None) -> DriverProcess:
        """Starts a driver that ends or stops itself, in a process of its own."""
        order = msgspec.json.encode(instructions).decode()
        return self.start_module("killed_driver", order, environment=environment)

    def start_module(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> DriverProcess:
        """Starts a module of this folder."""
        command = [sys.executable, "-m", "tests.crash.started", f"tests.crash.{module}", *arguments]
        return self.launch(command, environment)

    def start_command(self, *arguments: str, environment: Mapping[str, str] | None = None) -> DriverProcess:
        """Starts a command of the command line."""
        return self.launch([sys.executable, "-m", "kafka_ingest", *arguments], environment)

    def launch(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> DriverProcess:
        """Starts a process; what it says goes to a file of the test."""
        log = self.files.folder / f"driver{len(self.started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=CHECKOUT,
                env={**os.environ, "PYTHONPATH": IMPORTS, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.started.append(DriverProcess(process, log))
        return self.started[-1]

    def end_all(self) -> None:
        """Ends what a failed test has left."""
        for driver in self.started:
            driver.process.kill()
            driver.process.wait()

    def plan(self, run_id: str, parameters: str = "{}") -> Batch:
        """Plans in this process; all other runs have ended."""
        settings = find_pipeline(self.name)
        ports = replace(world_of(settings).plan_ports(), runs=EveryRunHasEnded())
        request = Request(DAG_ID, run_id, parameters=parameters)
        return plan_batch(settings, request, ports, settings_hash=settings_hash(settings.batch))

    def run(self, run_id: str, parameters: str = "{}") -> Batch:
        """Runs the three steps in this process to success; all other runs have ended."""
        batch = self.plan(run_id, parameters)
        if batch.state is not BatchState.COMMITTED:
            environment = world_of(find_pipeline(self.name)).job_environment()
            runner = InProcessRunner(partial(stage_context, environment=environment), tasks=2)
            ports = load_ports(environment, runner)
            batch = load_batch(batch.batch_id, ports, hold=environment.hold, report=lambda _: None)
        report = audit_batch(batch.batch_id, batch.request, self.ledger)
        record_announcement(report, self.ledger)
        return report.batch

    def run_until_nothing_is_left(self) -> None:
        """Runs later runs until one has nothing to read."""
        for number in range(10):
            if not self.run(f"rest {number}").ranges:
                return
        raise AssertionError("ten runs were not enough")

    @property
    def ledger(self) -> PostgresLedger:
        return PostgresLedger(self.files.database)

    def loaded(self) -> tuple[Records, dict[int, int]]:
        """Return all that a reader sees at one moment, rows and dead letters with their payloads, and the positions."""
        with closing(psycopg2.connect(**self.files.database)) as connection, connection.cursor() as cursor:
            connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
            cursor.execute("SELECT partition, committed_offset FROM kafka_ingest.committed_offset")
            positions = dict(cursor.fetchall())
            # A dead letter that was replayed is a row.
            cursor.execute(
                'SELECT partition, "offset", value FROM kafka_ingest.dead_letter'
                " WHERE resolution IS DISTINCT FROM 'replayed'"
            )
            found = Counter((partition, offset, bytes(content)) for partition, offset, content in cursor)
            cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (self.files.table,))
            if cursor.fetchone() == (True,):
                cursor.execute(f"SELECT kafka_partition, kafka_offset, n, text FROM {self.files.table}")
                found.update((p, o, json.dumps({"n": n, "text": text}).encode()) for p, o, n, text in cursor)
            return found, positions

    def require_all_or_nothing(self) -> None:
        """Every record below the positions is there once, and none above; every invariant holds."""
        found, positions = self.loaded()
        assert found == self.topic.below(positions)
        self.require_invariants()

    def require_every_record_once(self) -> None:
        """Everything in the topic is in the database or counted, once; every invariant holds.

        A reload is one of everything: it counts all tombstones anew.
        """
        self.require_every_value_once()
        newest_reload = "SELECT max(ordinal) FROM kafka_ingest.batch WHERE kind = 'reload' AND state = 'committed'"
        counted = "SELECT sum(tombstones)::int FROM kafka_ingest.batch WHERE state = 'committed'"
        since = f"ordinal >= coalesce(({newest_reload}), 0)"
        assert self.files.query(f"{counted} AND {since}") == [(self.topic.tombstones,)]

    def require_every_value_once(self) -> None:
        """Every record with a value is in the database, once; every invariant holds."""
        found, positions = self.loaded()
        assert found == self.topic.records
        assert tuple(positions[number] for number in range(len(self.topic.ends))) == self.topic.ends
        self.require_invariants()

    def require_invariants(self) -> None:
        exists = self.files.query("SELECT count(*) FROM kafka_ingest.batch WHERE pipeline = %s", self.name)
        if exists != [(0,)]:
            assert self.ledger.violations(self.name) == []

    def everything(self) -> list[tuple[Any, ...]]:
        """Return all that a run may change, as digests: rows, dead letters, positions, ranges, batches."""
        ledger = ("dead_letter", "committed_offset", "batch_partition")
        digest = "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM"
        tables = [self.files.table, *(f"kafka_ingest.{name}" for name in ledger)]
        digests = [self.files.query(f"{digest} {table} t")[0] for table in tables]
        return [*digests, *self.files.query("SELECT batch_id, state, claim FROM kafka_ingest.batch ORDER BY ordinal")]

    def contents(self) -> list[tuple[Any, ...]]:
        """Return rows, dead letters, and where each partition stands: what a run with nothing to read leaves alone."""
        columns = "topic, generation, partition, line, committed_offset, loaded_to, batch_id"
        positions = f"SELECT {columns} FROM kafka_ingest.committed_offset ORDER BY partition"
        return [*self.everything()[:2], *self.files.query(positions)]

    def owners(self) -> Owners:
        """Return partition and offset of every row and dead letter, with the batch that it is of."""
        rows = f"SELECT kafka_partition, kafka_offset, batch_id::text FROM {self.files.table}"
        dead_letters = 'SELECT partition, "offset", batch_id::text FROM kafka_ingest.dead_letter'
        return Counter((p, o, batch_id) for p, o, batch_id in self.files.query(f"{rows} UNION ALL {dead_letters}"))

    def waiting_for_a_lock(self, application: str) -> bool:
        """Whether a session of that application name waits for a lock."""
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s AND wait_event_type = 'Lock'"
        return self.files.query(f"{waiting} AND datname = current_database()", f"{application}%") != [(0,)]


class Reader(threading.Thread):
    """Somebody who reads the database all the time, and notes every moment that is neither all nor nothing."""

    def __init__(self, pipeline: PipelineAtRisk) -> None:
        super().__init__(name="reader", daemon=True)
        self._pipeline = pipeline
        self._expected: dict[tuple[int, int], int] = {}
        self._end = threading.Event()
        self.looks = 0
        self.torn: set[str] = set()

    def run(self) -> None:
        with closing(psycopg2.connect(**self._pipeline.files.database)) as connection:
            connection.autocommit = True
            while not self._end.wait(0.01):
                with connection.cursor() as cursor:
                    self._look(cursor)

    def end(self) -> None:
        self._end.set()
        self.join()

    def _look(self, cursor: Any) -> None:
        table = self._pipeline.files.table
        # One statement sees one moment.
        statement = f"""
            SELECT c.partition, c.committed_offset,
                   (SELECT count(*) FROM {table} t WHERE t.kafka_partition = c.partition)
                   + (SELECT count(*) FROM kafka_ingest.dead_letter d WHERE d.partition = c.partition)
            FROM kafka_ingest.committed_offset c"""
        try:
            cursor.execute(statement)
        except psycopg2.errors.UndefinedTable:
            return
        self.looks += 1
        for partition, position, found in cursor.fetchall():
            expected = sum(1 for p, o, _ in self._pipeline.topic.records if p == partition and o < position)
            if found != expected:
                self.torn.add(f"partition {partition} at {position}: {found} rows and dead letters, not {expected}")


@contextmanager
def read_all_the_time(pipeline: PipelineAtRisk) -> Iterator[None]:
    """Lets somebody read while the block runs; at the end nobody may have seen a part of a batch."""
    reader = Reader(pipeline)
    reader.start()
    try:
        yield
    finally:
        reader.end()
    assert reader.torn == set()

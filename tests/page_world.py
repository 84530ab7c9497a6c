"""A page over real ledgers, with fakes of what Airflow tells: its DAGs, and who reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import uuid4

import psycopg2
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from psycopg2 import sql

from kafka_ingest.errors import ConfigError
from kafka_ingest.page.access import Reader
from kafka_ingest.page.airflow_side import DagFacts, RunFacts
from kafka_ingest.page.answers import Answers
from kafka_ingest.page.app import create_app
from kafka_ingest.pipeline_files.files import dag_id_of

#: The moment at which the tests' pipelines were loaded; their times are given as minutes from here.
LOADED_AT = datetime(2026, 11, 30, 13, 0, 2, tzinfo=UTC)


def minutes(count: float) -> datetime:
    """Return a time, in minutes after :data:`LOADED_AT`."""
    return LOADED_AT + timedelta(minutes=count)


# ----------
# Fakes.


@dataclass
class FakeAirflow:
    """Port ``AirflowSide``.

    Attributes:
        facts: The DAGs.
        params: libpq's parameters by connection id.
        asked: How often the DAGs were asked for.
    """

    facts: Sequence[DagFacts]
    params: Mapping[str, Mapping[str, Any]]
    asked: int = 0

    def dags(self) -> Sequence[DagFacts]:
        self.asked += 1
        return self.facts

    def postgres_params(self, conn_id: str) -> Mapping[str, str]:
        if conn_id not in self.params:
            raise ConfigError(f"there is no connection {conn_id}", next_command=f"airflow connections add {conn_id}")
        return {name: str(value) for name, value in self.params[conn_id].items()}


@dataclass
class FakeReader:
    """A reader who may read these DAGs, and see payloads of those."""

    dag_ids: Collection[str] = ()
    payload_dag_ids: Collection[str] = ()
    name: str = "somebody"

    def readable(self, dag_ids: Collection[str]) -> frozenset[str]:
        return frozenset(dag_ids) & frozenset(self.dag_ids)

    def may_see_payloads(self, dag_id: str) -> bool:
        return dag_id in self.payload_dag_ids


def own_dag(pipeline: str, *connections: str, **facts: Any) -> DagFacts:
    """Return the DAG of a pipeline file."""
    return DagFacts(dag_id_of(pipeline), pipeline, connections or ("warehouse",), **facts)


def run(run_id: str, state: str, after: float, **facts: Any) -> RunFacts:
    """Return a scheduled run, in minutes after :data:`LOADED_AT`."""
    return RunFacts(run_id, "scheduled", state, minutes(after), **facts)


def page_client(
    airflow: FakeAirflow,
    reader: Reader | None,
    *,
    root: str = "",
    answers: Answers | None = None,
    environment: Mapping[str, str] | None = None,
) -> TestClient:
    """Return a client of the page where Airflow mounts it; without a reader nobody is logged in.

    Args:
        airflow: What Airflow tells.
        reader: Who reads.
        root: Prefix below which Airflow is served.
        answers: Threads and kept answers; new ones where none are given.
        environment: Environment variables of the API server.
    """

    def reader_of() -> Reader:
        if reader is None:
            raise HTTPException(401, "Log in to Airflow first")
        return reader

    outer = FastAPI(root_path=root)
    outer.mount("/kafka-ingest", create_app(airflow, reader_of, environment=environment or {}, answers=answers))
    return TestClient(outer, base_url=f"http://testserver{root}/kafka-ingest", follow_redirects=False)


class Answer(Protocol):
    """A response, of whichever version of httpx the test client has."""

    @property
    def status_code(self) -> int: ...

    @property
    def text(self) -> str: ...


# ----------
# Rows of a ledger, written by hand: what each test wants to see on the page.


@dataclass
class WrittenLedger:
    """Writes pipelines into a ledger as plans and loads would leave them."""

    params: Mapping[str, Any] = field(repr=False)

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        with closing(psycopg2.connect(**self.params)) as connection, connection, connection.cursor() as cursor:
            yield cursor

    def insert(self, table: str, **values: Any) -> None:
        """Insert one row."""
        statement = sql.SQL("INSERT INTO kafka_ingest.{} ({}) VALUES ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join([sql.Placeholder()] * len(values)),
        )
        with self.cursor() as cursor:
            cursor.execute(statement, list(values.values()))

    def pipeline(self, name: str, topic: str = "") -> None:
        """Bind a pipeline to ``shop.<name>``."""
        target = {"target_schema": "shop", "target_table": name, "cluster_id": "cluster-1"}
        columns = {f"{part}_column": f"kafka_{part}" for part in ("topic", "generation", "partition", "offset")}
        self.insert("pipeline", pipeline=name, **target, isolation_level="read_committed", first_run="{}", **columns)
        self.insert("served_topic", pipeline=name, topic=topic or f"shop.{name}", **target, joined_by="first_plan")

    def batch(self, pipeline: str, *, at: float = 0, state: str = "committed", **values: Any) -> str:
        """Record a batch, planned at this minute; return its id. Counts that are not given are 0."""
        batch_id = str(uuid4())
        counts = dict.fromkeys(
            ("rows", "deletes", "superseded", "dead_letters", "tombstones", "filtered", "invisible"), 0
        )
        committed = {"committed_at": minutes(at), **counts} if state in ("committed", "rolled_back") else {}
        own: dict[str, Any] = {
            "dag_id": dag_id_of(pipeline),
            "run_id": f"run of {batch_id}",
            "task_group": "",
            "map_index": -1,
            "request_number": 0,
            "clear_number": 0,
            "parameters": "{}",
            "kind": "live",
            "settings": "{}",
            "settings_hash": "hash",
            "protocol_version": 3,
            "target_schema": "shop",
            "target_table": pipeline,
            "cluster_id": "cluster-1",
            "planned_at": minutes(at),
        }
        self.insert("batch", batch_id=batch_id, pipeline=pipeline, state=state, **{**own, **committed, **values})
        return batch_id

    def range(self, batch_id: str, pipeline: str, partition: int, start: int, end: int, **counts: int) -> None:
        """Record a published range; the counts have to add up to its length."""
        names = ("rows", "deletes", "superseded", "dead_letters", "tombstones", "filtered", "invisible")
        self.insert(
            "batch_partition",
            batch_id=batch_id,
            pipeline=pipeline,
            topic=f"shop.{pipeline}",
            generation=0,
            partition=partition,
            line=0,
            range_start=start,
            range_end=end,
            committed_before=start,
            committed_after=end,
            loaded_to=start,
            reaches_high_watermark=True,
            published=True,
            **{**dict.fromkeys(names, 0), **counts},
        )

    def partition(
        self, pipeline: str, partition: int, committed: int, *, end: int | None = None, start: int = 0, **values: Any
    ) -> None:
        """Put a position; with an end offset also what the newest plan saw of its log."""
        place = {"pipeline": pipeline, "topic": f"shop.{pipeline}", "partition": partition}
        own = {"generation": 0, "cluster_id": "cluster-1", "loaded_to": committed, "line": 0}
        self.insert("committed_offset", **place, committed_offset=committed, **{**own, **values})
        if end is not None:
            self.observe(place, start=start, end=end)

    def observe(
        self,
        place: Mapping[str, Any],
        *,
        start: int,
        end: int,
        high: int | None = None,
        rate_from: int = 0,
        hours: int = 0,
    ) -> None:
        """Record what the newest plan saw; with hours also from where the log start has moved in them."""
        self.insert(
            "log_observation",
            **place,
            seen_at=LOADED_AT,
            log_start_offset=start,
            end_offset=end,
            high_watermark=end if high is None else high,
            rate_from_at=LOADED_AT - timedelta(hours=hours),
            rate_from_offset=rate_from if hours else start,
            next_rate_from_at=LOADED_AT,
            next_rate_from_offset=start,
        )

    def dead_letter(self, batch_id: str, pipeline: str, offset: int, reason: str, **values: Any) -> None:
        """Keep a record that did not fit, of partition 0."""
        place = {"pipeline": pipeline, "topic": f"shop.{pipeline}", "generation": 0, "partition": 0, "offset": offset}
        self.insert("dead_letter", **place, batch_id=batch_id, reason=reason, **{"detail": "because", **values})

    def attempt(self, pipeline: str, step: str, outcome: str | None, *, at: float, run_id: str, **values: Any) -> None:
        """Record a try of a task, of a minute's length."""
        self.insert(
            "attempt",
            pipeline=pipeline,
            step=step,
            run_id=run_id,
            task_id=f"{step}_batch",
            map_index=-1,
            started_at=minutes(at),
            ended_at=minutes(at + 1) if outcome else None,
            outcome=outcome,
            **{"dag_id": dag_id_of(pipeline), "try_number": 1, **values},
        )

"""Bytes that a real PostgreSQL writes for a load, against what the calculation of sizes says of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import psycopg2
import pytest

from kafka_ingest.cli.command import world_of
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.load import load_batch
from kafka_ingest.protocol.ports import Publication, Publisher
from kafka_ingest.settings import ValueFormat
from kafka_ingest.sizing.costs import RANGE_BYTES, LoadCost, Loading
from spark_jobs.load_job import InProcessRunner, load_ports, stage_context
from tests.benchmarks.workloads import WORKLOADS, Workload
from tests.integration.pipeline_under_test import FedPipeline, produced
from tests.unit.test_sizing_and_benchmarks import mean_bytes, require_near

RECORDS = 10_000
_STAGED = """
SELECT coalesce(sum(pg_total_relation_size(relation.oid)), 0)::bigint
FROM pg_class AS relation JOIN pg_namespace AS schema ON schema.oid = relation.relnamespace
WHERE schema.nspname = 'kafka_ingest_staging' AND relation.relkind = 'r'
"""


@dataclass
class MeasuredPublisher:
    """The port ``Publisher``: calls back before a publication begins."""

    publisher: Publisher
    before: Callable[[], None]

    def begin(self, batch: Batch) -> AbstractContextManager[Publication]:
        self.before()
        return self.publisher.begin(batch)


@dataclass(frozen=True)
class Written:
    """Bytes that one load wrote."""

    staging: int
    wal: int


def loaded(pipeline: FedPipeline, run_id: str) -> Written:
    """Load what the topic holds, and measure on the way. A checkpoint before makes the WAL hold whole pages."""
    settings = find_pipeline(pipeline.name)
    batch = pipeline.plan_only(run_id)
    environment = world_of(settings).job_environment()
    ports = load_ports(environment, InProcessRunner(partial(stage_context, environment=environment), tasks=2))
    staging: list[int] = []
    measured = MeasuredPublisher(ports.publisher, lambda: staging.append(pipeline.query(_STAGED)[0][0]))
    pipeline.query("CHECKPOINT")
    [(start,)] = pipeline.query("SELECT pg_current_wal_insert_lsn()")
    load_batch(batch.batch_id, replace(ports, publisher=measured), hold=environment.hold, report=lambda _: None)
    [(wal,)] = pipeline.query("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)::bigint", start)
    return Written(staging[0], wal)


def send(pipeline: FedPipeline, workload: Workload, records: int) -> None:
    with produced(pipeline.make_producer()) as sender:
        for number in range(records):
            key = workload.key(number) if workload.key else None
            sender.produce(pipeline.topic, workload.value(number), key, partition=workload.partition(number))
            sender.poll(0)


def sections(workload: Workload, **target: Any) -> dict[str, Any]:
    """Return the sections of a file that fills the workload's columns, and nothing else."""
    columns = [
        {"name": name, "type": kind, **({"from": "key"} if name == workload.key_column else {})}
        for name, kind in workload.columns.items()
    ]
    return {
        "value": {"format": "json", "columns": columns},
        "key": None,
        "headers": None,
        "metadata_columns": None,
        "target": {"table": "shop.events", "create_table": True, **target},
    }


UPSERT = {"mode": "upsert", "key": ["order_id"], "order": "offset", "deletes": "remove"}
JSON = ValueFormat.JSON_COLUMNS


@pytest.mark.parametrize(
    ("name", "target", "kind"),
    [
        pytest.param("narrow", {}, JSON, id="4 columns, 50 bytes"),
        pytest.param("orders", {}, JSON, id="8 columns, 300 bytes"),
        pytest.param("wide", {}, JSON, id="60 columns, 700 bytes"),
        pytest.param("orders", None, ValueFormat.RAW, id="as bytes, with key and headers"),
        pytest.param("orders", {"unique_key": True}, JSON, id="a unique key"),
        pytest.param("orders-state", UPSERT, JSON, id="current state"),
    ],
)
def test_staging_table_and_wal_are_as_calculated(
    name: str, target: dict[str, Any] | None, kind: ValueFormat, pipeline: FedPipeline
) -> None:
    workload = WORKLOADS[name]
    pipeline.open(workload.partitions, **({} if target is None else sections(workload, **target)))
    send(pipeline, workload, RECORDS)
    first = loaded(pipeline, "first")
    loading = Loading(
        format=kind,
        columns=len(workload.columns),
        is_upsert=target is UPSERT,
        has_unique_key="unique_key" in (target or {}),
    )
    cost = LoadCost(RECORDS, mean_bytes(name), workload.partitions, loading)
    require_near(cost.staging_bytes, first.staging)
    require_near(cost.wal_bytes, first.wal)
    [(table, rows)] = pipeline.query("SELECT pg_total_relation_size('shop.events'), count(*) FROM shop.events")
    # Of the first 500,000 orders that change none has the key of another.
    assert rows == RECORDS
    require_near(cost.table_bytes, table)

    send(pipeline, workload, RECORDS)
    second = loaded(pipeline, "second")
    assert pipeline.query("SELECT count(*) FROM shop.events") == [(RECORDS if target is UPSERT else 2 * RECORDS,)]
    require_near(cost.staging_bytes, second.staging)
    require_near(cost.wal_bytes, second.wal)


@pytest.mark.slow
def test_a_range_of_the_ledger_is_as_large_as_calculated(pipeline: FedPipeline) -> None:
    partitions, batches = 150, 3
    pipeline.open(partitions)
    for number in range(batches):
        with produced(pipeline.make_producer()) as sender:
            for partition in range(partitions):
                sender.produce(pipeline.topic, b"x", partition=partition)
        loaded(pipeline, f"run {number}")
        vacuum(pipeline)
    [(size, ranges)] = pipeline.query(
        "SELECT pg_total_relation_size('kafka_ingest.batch_partition'), count(*) FROM kafka_ingest.batch_partition"
    )
    assert ranges == partitions * batches
    require_near(RANGE_BYTES, size / ranges)


def vacuum(pipeline: FedPipeline) -> None:
    """Free the versions that the publish has replaced, as autovacuum does in a ledger that grows."""
    with closing(psycopg2.connect(**pipeline.database)) as connection:
        connection.autocommit = True
        connection.cursor().execute("VACUUM kafka_ingest.batch_partition")

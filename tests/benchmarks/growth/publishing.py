"""Times the publish transaction of batches of several sizes, and what it does to the server and to a replica meanwhile.

Staging is filled by the server itself, so the figures are those of the publish alone: by the product's publisher, into
a table as the product makes it, with ``fsync`` and ``synchronous_commit`` on.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg2
from psycopg2 import sql

from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.postgres.staging_tables import PostgresStaging, staging_table
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.publish import publish_batch
from kafka_ingest.protocol.staging import staging_name
from kafka_ingest.settings import BatchSettings, ColumnSettings, ValueFormat, ValueSettings
from sandbox.postgres import PostgresServer
from tests.benchmarks.growth.replica import replica_of
from tests.benchmarks.growth.servers import new_ledger, own_postgres
from tests.benchmarks.workloads import ORDERS
from tests.benchmarks.world import execute
from tests.builders import REQUEST, batch_settings, offset_range, position
from tests.contracts.ledger_values import new_plan, outcome_of
from tests.deadlines import until

_PARTITIONS = 4
_SAMPLE_SECONDS = 0.05
_REPLICA_SECONDS = 300.0
#: Rows like those of the workload ``orders``: about 250 bytes of JSON each.
_ROWS = """
INSERT INTO {rows} (
    order_id, customer, status, currency, amount, ordered_at, note, items, kafka_topic, kafka_generation,
    kafka_partition, kafka_offset, kafka_timestamp, batch_id, stage_task, stage_attempt
)
SELECT
    n, n * 7919 % 1000003, 'created', 'EUR', n % 100000 / 100.0, timestamptz '2026-01-01' + n * interval '1 second',
    'leave it at the door; call before delivery; ticket ' || lpad(n::text, 17, '0'),
    jsonb_build_array(
        jsonb_build_object('sku', n % 9973, 'qty', 1 + n % 3), jsonb_build_object('sku', n % 9967, 'qty', 1)
    ),
    'orders', 0, n % {partitions}, n / {partitions}, now(), {batch_id}::uuid, 0, 7
FROM generate_series(0::bigint, {records} - 1) AS n
"""
_SAMPLE = """
SELECT
    (SELECT extract(epoch FROM clock_timestamp() - xact_start) FROM pg_stat_activity
     WHERE application_name = 'kafka_ingest publish' AND xact_start IS NOT NULL),
    (SELECT backend_xmin::text FROM pg_stat_activity WHERE application_name = 'kafka_ingest publish'),
    (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)) FROM pg_stat_replication),
    (SELECT max(extract(epoch FROM replay_lag)) FROM pg_stat_replication)
"""


@dataclass
class Samples:
    """What was seen from outside while a batch was published.

    Attributes:
        transaction_seconds: Greatest age of the transaction.
        xmin_seconds: How long one ``backend_xmin`` of it kept VACUUM from removing rows, at most.
        replica_behind_bytes: Most WAL that the replica had not replayed yet.
        replica_lag_seconds: Greatest ``replay_lag``.
    """

    transaction_seconds: float = 0.0
    xmin_seconds: float = 0.0
    replica_behind_bytes: int = 0
    replica_lag_seconds: float = 0.0

    def take(self, row: tuple[Any, ...]) -> None:
        self.transaction_seconds = max(self.transaction_seconds, float(row[0] or 0))
        self.replica_behind_bytes = max(self.replica_behind_bytes, int(row[2] or 0))
        self.replica_lag_seconds = max(self.replica_lag_seconds, float(row[3] or 0))


def main() -> None:
    """Prints one JSON object: one entry for each size and round."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[500_000, 1_000_000, 2_000_000, 4_000_000])
    parser.add_argument("--rounds", type=int, default=1, help="of every size (%(default)s)")
    options = parser.parse_args()
    runs = []
    with own_postgres() as primary, replica_of(primary) as replica:
        for number in range(options.rounds):
            for records in options.records:
                run = {"round": number, **_publish(primary, replica, records)}
                print(_line(run), file=sys.stderr, flush=True)
                runs.append(run)
    print(json.dumps({"runs": runs}))


def _line(run: Mapping[str, Any]) -> str:
    return (
        f"{run['records']:,} rows: {run['seconds']:.1f} s ({run['records_per_second']:,.0f} rows/s), one xmin for"
        f" {run['xmin_seconds']:.1f} s, {run['wal_bytes'] / run['records']:.0f} bytes of WAL a row, replica at most"
        f" {run['replica_behind_bytes'] / 1e6:.0f} MB and {run['replica_lag_seconds']:.1f} s behind,"
        f" sees the rows {run['replica_sees_after_seconds']:.1f} s after COMMIT"
    )


def _publish(primary: PostgresServer, replica: PostgresServer, records: int) -> dict[str, Any]:
    params = new_ledger(primary)
    try:
        batch = _staged(params, records)
        _checkpoint_and_wait(params, replica.params())
        standby = replica.params(params["dbname"])
        ledger, publisher = PostgresLedger(params), PostgresPublisher(params)
        before = _wal_position(params)
        with _sampled(params) as samples:
            begin = time.perf_counter()
            publish_batch(batch, outcome_of(batch), publisher, ledger)
            seconds = time.perf_counter() - begin
            until(lambda: _rows(standby) == records, "the replica has the rows", _REPLICA_SECONDS)
            sees = time.perf_counter() - begin - seconds
        wal_bytes = _wal_position(params) - before
        _require_rows(params, records)
    finally:
        execute(primary.params(), sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(params["dbname"])))
    return {
        "records": records,
        "seconds": seconds,
        "records_per_second": records / seconds,
        "wal_bytes": wal_bytes,
        "replica_sees_after_seconds": sees,
        **vars(samples),
    }


def _settings() -> BatchSettings:
    columns = tuple(ColumnSettings(name, kind, path=(name,)) for name, kind in ORDERS.columns.items())
    return replace(batch_settings(), value=ValueSettings(ValueFormat.JSON_COLUMNS, columns))


def _staged(params: dict[str, Any], records: int) -> Batch:
    """Plans, claims and stages a batch whose every offset is a row."""
    settings, ledger = _settings(), PostgresLedger(params)
    execute(params, sql.SQL("CREATE SCHEMA shop"))
    PostgresTarget(params).prepare(settings)
    ranges = [offset_range(number, 0, records // _PARTITIONS) for number in range(_PARTITIONS)]
    plan = new_plan(*ranges, begins=tuple(position(number, 0) for number in range(_PARTITIONS)))
    planned = ledger.record_plan(replace(plan, settings=settings), ledger.plan_view("orders", REQUEST, settings.target))
    batch = ledger.claim(planned.batch_id, 3_600)
    PostgresStaging(params).create(batch)
    statement = sql.SQL(_ROWS).format(
        rows=staging_table(staging_name(batch.batch_id, batch.claim), "rows"),
        partitions=sql.Literal(_PARTITIONS),
        records=sql.Literal(records),
        batch_id=sql.Literal(batch.batch_id),
    )
    execute(params, statement)
    return batch


def _checkpoint_and_wait(params: dict[str, Any], standby: dict[str, Any]) -> None:
    """Nothing of the filling is left to be written or replayed.

    ``standby`` names a database that was there before: the new one may not have reached the replica yet.
    """
    execute(params, sql.SQL("CHECKPOINT"))
    here = _wal_position(params)
    statement = sql.SQL("SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')")
    until(lambda: int(execute(standby, statement)[0][0]) >= here, "the replica has replayed", _REPLICA_SECONDS)


def _wal_position(params: dict[str, Any]) -> int:
    return int(execute(params, sql.SQL("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))[0][0])


def _rows(params: dict[str, Any]) -> int:
    """Counts by the batch's row, which is visible just when its rows are."""
    found = execute(params, sql.SQL("SELECT rows FROM kafka_ingest.batch WHERE state = 'committed'"))
    return int(found[0][0]) if found else 0


def _require_rows(params: dict[str, Any], records: int) -> None:
    [(found,)] = execute(params, sql.SQL("SELECT count(*) FROM shop.orders"))
    if found != records:
        raise ValueError(f"{found} rows were published instead of {records}")


@contextmanager
def _sampled(params: dict[str, Any]) -> Iterator[Samples]:
    """Watches the publish from another session until the block ends."""
    samples, ends = Samples(), threading.Event()
    thread = threading.Thread(target=_sample, args=(params, samples, ends), daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ends.set()
        thread.join()


def _sample(params: dict[str, Any], samples: Samples, ends: threading.Event) -> None:
    xmin, since = None, 0.0
    with closing(psycopg2.connect(**params, application_name="kafka_ingest sampler")) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            while not ends.wait(_SAMPLE_SECONDS):
                cursor.execute(_SAMPLE)
                [row] = cursor.fetchall()
                samples.take(row)
                now = time.perf_counter()
                if row[1] is None or row[1] != xmin:
                    xmin, since = row[1], now
                elif xmin is not None:
                    samples.xmin_seconds = max(samples.xmin_seconds, now - since)


if __name__ == "__main__":
    main()

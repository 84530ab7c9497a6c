"""The application of the peer ``spark_staged``, run by ``spark-submit``."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg2
from psycopg2 import sql
from pyspark.sql import SparkSession

from tests.benchmarks.load import Load, load_of_command
from tests.benchmarks.peers.contender import ContenderError
from tests.benchmarks.peers.offsets import ADVANCE_FROM, OFFSETS, READ
from tests.benchmarks.peers.spark_jdbc_application import read, rows, write
from tests.benchmarks.peers.topic import bounds, new_consumer
from tests.benchmarks.workloads import WORKLOADS

#: First and end offset of every partition that has something to read.
Ranges = Mapping[int, tuple[int, int]]


def main() -> None:
    load, params = load_of_command("Spark's Kafka source, from_json, JDBC into staging, INSERT … SELECT")
    with closing(psycopg2.connect(**params)) as connection:
        ranges = unread(connection, load)
        if not ranges:
            return
        staging = create_staging(connection, load)
        spark = SparkSession.builder.appName("spark-staged").getOrCreate()
        messages = read(spark, load, _exactly(load, ranges))
        write(rows(messages, WORKLOADS[load.workload], json_mode="FAILFAST"), replace(load, table=staging), params)
        publish(connection, load, staging, ranges)
        spark.stop()


def unread(connection: Any, load: Load) -> Ranges:
    """Return what the topic holds after the kept offsets; makes the table of offsets, if there is none."""
    with connection, connection.cursor() as cursor:
        cursor.execute(OFFSETS)
        cursor.execute(READ, (load.table, load.topic))
        kept = dict(cursor.fetchall())
    with closing(new_consumer(load, "bench-spark-staged")) as consumer:
        found = bounds(consumer, load)
    begun = {partition: (kept.get(partition, low), end) for partition, (low, end) in found.items()}
    return {partition: (first, end) for partition, (first, end) in begun.items() if first < end}


def create_staging(connection: Any, load: Load) -> str:
    """Makes a table of this run alone, with the types of the target, so that the tasks convert and not the publish."""
    staging = f"{load.table}_staging_{uuid.uuid4().hex[:12]}"
    statement = sql.SQL("CREATE UNLOGGED TABLE {} (LIKE {}) WITH (autovacuum_enabled = false)")
    with connection, connection.cursor() as cursor:
        cursor.execute(statement.format(_public(staging), _public(load.table)))
    return staging


def _exactly(load: Load, ranges: Ranges) -> dict[str, str]:
    first, end = ({str(partition): both[at] for partition, both in ranges.items()} for at in (0, 1))
    return {
        "assign": json.dumps({load.topic: list(ranges)}),
        "startingOffsets": json.dumps({load.topic: first}),
        "endingOffsets": json.dumps({load.topic: end}),
    }


def publish(connection: Any, load: Load, staging: str, ranges: Ranges) -> None:
    """Writes the staged rows and the end offsets in one transaction, which drops the staging table, too.

    Every offset is expected to be a record: the benchmark's topics have no others.

    Raises:
        ContenderError: Another run has loaded of the same ranges, or other rows were staged than there are records.
    """
    with connection, connection.cursor() as cursor:
        for partition, (first, end) in ranges.items():
            cursor.execute(ADVANCE_FROM, (load.table, load.topic, partition, end, first))
            if cursor.rowcount != 1:
                raise ContenderError(f"partition {partition} was loaded from {first} by another run")
        cursor.execute(sql.SQL("INSERT INTO {} SELECT * FROM {}").format(_public(load.table), _public(staging)))
        records = sum(end - first for first, end in ranges.values())
        if cursor.rowcount != records:
            raise ContenderError(f"{cursor.rowcount} rows were staged of {records} records")
        cursor.execute(sql.SQL("DROP TABLE {}").format(_public(staging)))


def _public(table: str) -> sql.Identifier:
    return sql.Identifier("public", table)


if __name__ == "__main__":
    main()

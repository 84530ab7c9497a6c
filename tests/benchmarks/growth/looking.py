"""Times the pages over a ledger of years beside one query that an index answers.

300 pipelines, 10,000 partitions, more than 5 million rows in the ledger. A page is the whole answer: questions, HTML,
and a new connection to the database for each question; nothing is kept from one round to the next. So is the query: a
new connection, the transaction that the page would open, and one batch by its id.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from statistics import median
from typing import Any

import psycopg2

from kafka_ingest.page.answers import Answers
from kafka_ingest.pipeline_files.files import dag_id_of
from kafka_ingest.postgres.database import SNAPSHOT, connect, fetch_rows, transaction
from tests.benchmarks.growth.servers import new_ledger, own_postgres
from tests.integration import grown_ledger
from tests.page_world import FakeAirflow, FakeReader, own_dag, page_client

_PIPELINES, _WIDE_PARTITIONS, _PARTITIONS = 300, 2_000, 28
#: Each has two batches a week old; the first one is as wide as a topic gets.
_MORE = f"""
INSERT INTO kafka_ingest.pipeline (
    pipeline, target_schema, target_table, cluster_id, isolation_level, first_run, topic_column, generation_column,
    partition_column, offset_column
)
SELECT
    'pipeline_' || p, 'shop', 'table_' || p, 'cluster-1', 'read_committed', '{{}}', 'kafka_topic', 'kafka_generation',
    'kafka_partition', 'kafka_offset'
FROM generate_series({grown_ledger.PIPELINES + 1}, {_PIPELINES}) AS p;

INSERT INTO kafka_ingest.served_topic (target_schema, target_table, cluster_id, topic, pipeline, joined_by)
SELECT 'shop', 'table_' || p, 'cluster-1', 'topic_' || p, 'pipeline_' || p, 'first_plan'
FROM generate_series({grown_ledger.PIPELINES + 1}, {_PIPELINES}) AS p;

INSERT INTO kafka_ingest.committed_offset (
    pipeline, topic, partition, generation, topic_id, cluster_id, committed_offset, loaded_to, line, valid_through
)
SELECT 'pipeline_' || p, 'topic_' || p, part, 0, 'topic-id', 'cluster-1', 1000, 1000, 0, now()
FROM generate_series({grown_ledger.PIPELINES + 1}, {_PIPELINES}) AS p
CROSS JOIN LATERAL generate_series(0, CASE WHEN p = {_PIPELINES} THEN {_WIDE_PARTITIONS} ELSE {_PARTITIONS} END - 1)
    AS part;

INSERT INTO kafka_ingest.log_observation (
    pipeline, topic, partition, topic_id, seen_at, log_start_offset, end_offset, high_watermark, rate_from_at,
    rate_from_offset, next_rate_from_at, next_rate_from_offset
)
SELECT
    pipeline, topic, partition, topic_id, now(), 10, committed_offset + 5, committed_offset + 5,
    now() - interval '1 day', 0, now(), 10
FROM kafka_ingest.committed_offset;

INSERT INTO kafka_ingest.attempt (
    pipeline, step, batch_id, dag_id, run_id, task_id, map_index, try_number, started_at, ended_at, outcome,
    session_seconds, stage_seconds, publish_seconds
)
SELECT
    b.pipeline, 'load', b.batch_id, b.dag_id, b.run_id, 'load_batch', -1, 1, b.planned_at, b.planned_at, 'succeeded',
    4, 20, 3
FROM kafka_ingest.batch AS b
WHERE b.state = 'committed';
"""


def main() -> None:
    """Prints one JSON object: seconds of each round, medians and ratios."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="of each, interleaved (%(default)s)")
    options = parser.parse_args()
    with own_postgres() as postgres:
        params = new_ledger(postgres)
        grown_ledger.fill(params)
        with closing(psycopg2.connect(**params)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(_MORE)
            cursor.execute("ANALYZE")
        result = {"rows": _rows(params), "rounds": options.rounds, **_compare(params, options.rounds)}
    shown = ", ".join(f"{name}: {seconds:.3f} s" for name, seconds in result["median_seconds"].items())
    print(shown, file=sys.stderr)
    print(json.dumps(result))


def _rows(params: Mapping[str, Any]) -> dict[str, int]:
    tables = ("pipeline", "committed_offset", "batch", "batch_partition", "attempt", "dead_letter", "position_change")
    with closing(psycopg2.connect(**params)) as connection, connection.cursor() as cursor:
        counts = {}
        for table in tables:
            cursor.execute(f"SELECT count(*) FROM kafka_ingest.{table}")
            [(counts[table],)] = cursor.fetchall()
    return counts


def _compare(params: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    names = [f"pipeline_{number}" for number in range(1, _PIPELINES + 1)]
    dag_ids = [dag_id_of(name) for name in names]
    airflow = FakeAirflow([own_dag(name) for name in names], {"warehouse": params})
    client = page_client(airflow, FakeReader(dag_ids, dag_ids), answers=Answers(fresh_seconds=-1))
    old, wide = names[24], names[-1]
    batch_id = grown_ledger.batch_id_of(25, grown_ledger.BATCHES - 1)
    pages = {
        "overview": "/",
        "pipeline": f"/pipelines/{old}",
        "wide pipeline": f"/pipelines/{wide}",
        "wide pipeline, all partitions": f"/pipelines/{wide}?partitions=all",
        "batch": f"/batches/{batch_id}",
        "dead letters": f"/pipelines/{old}/dead-letters",
    }

    def ask(route: str) -> None:
        if client.get(route).status_code != 200:
            raise ValueError(f"{route} has no answer")

    work: dict[str, Callable[[], object]] = {"indexed query": lambda: _indexed_query(params, batch_id)}
    work |= {name: partial(ask, route) for name, route in pages.items()}
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(rounds + 1):
        for name, call in work.items():
            begin = time.perf_counter()
            call()
            if turn:  # the first round reads the tables and compiles the templates
                seconds[name].append(time.perf_counter() - begin)
    medians = {name: median(found) for name, found in seconds.items()}
    ratios = {name: found / medians["indexed query"] for name, found in medians.items()}
    return {"seconds": seconds, "median_seconds": medians, "ratio_to_indexed_query": ratios}


def _indexed_query(params: Mapping[str, Any], batch_id: str) -> None:
    with (
        closing(connect(params, application_name="kafka_ingest bench", read_only=True)) as connection,
        transaction(connection, SNAPSHOT) as cursor,
    ):
        fetch_rows(cursor, "select_batches", batch_ids=[batch_id])


if __name__ == "__main__":
    main()

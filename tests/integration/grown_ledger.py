"""A ledger of years: millions of ranges, filled by the server itself, with the statistics that ANALYZE gives.

Sizes follow the life of a deployment: 50 pipelines, 5,000 batches each (seven months of hourly runs), 19 partitions.
"""

from __future__ import annotations

import hashlib
import uuid
from contextlib import closing
from typing import Any

import psycopg2

PIPELINES, BATCHES, PARTITIONS = 50, 5_000, 19
#: Of each partition in a batch. The newest batch of each pipeline is planned, every twentieth is superseded.
OFFSETS = 1_000

_FILL = f"""
INSERT INTO kafka_ingest.pipeline (
    pipeline, target_schema, target_table, cluster_id, isolation_level, first_run, topic_column, generation_column,
    partition_column, offset_column
)
SELECT
    'pipeline_' || p, 'shop', 'orders', 'cluster-1', 'read_committed', '{{}}', 'kafka_topic', 'kafka_generation',
    'kafka_partition', 'kafka_offset'
FROM generate_series(1, {PIPELINES}) AS p;

INSERT INTO kafka_ingest.served_topic (target_schema, target_table, cluster_id, topic, pipeline, joined_by)
SELECT 'shop', 'orders', 'cluster-1', 'topic_' || p, 'pipeline_' || p, 'first_plan'
FROM generate_series(1, {PIPELINES}) AS p;

INSERT INTO kafka_ingest.batch (
    batch_id, pipeline, dag_id, run_id, task_group, map_index, request_number, clear_number, parameters, kind, state,
    claim, settings, settings_hash, protocol_version, target_schema, target_table, cluster_id, planned_at,
    committed_at, rows, deletes, superseded, dead_letters, tombstones, filtered, invisible, announced_at, announced_by
)
SELECT
    md5(p || '-' || b)::uuid, 'pipeline_' || p, 'dag_' || p, 'run_' || b, '', -1, 0, 0, '{{}}', 'live', state.name, 1,
    '{{}}', 'hash', 1, 'shop', 'orders', 'cluster-1', now(), state.at, state.zero, state.zero, state.zero, state.zero,
    state.zero, state.zero, state.zero, state.at, CASE WHEN state.at IS NOT NULL THEN 'request ' || p || '-' || b END
FROM generate_series(1, {BATCHES}) AS b
CROSS JOIN generate_series(1, {PIPELINES}) AS p
CROSS JOIN LATERAL (
    SELECT
        CASE WHEN b = {BATCHES} THEN 'planned' WHEN b % 20 = 0 THEN 'superseded' ELSE 'committed' END AS name,
        CASE WHEN b < {BATCHES} AND b % 20 > 0 THEN now() END AS at,
        CASE WHEN b < {BATCHES} AND b % 20 > 0 THEN 0 END AS zero
) AS state;

INSERT INTO kafka_ingest.batch_hold (batch_id, claim, hold_until, step, total_offsets)
SELECT batch_id, claim, now(), 'stage', 1 FROM kafka_ingest.batch WHERE state = 'planned';

INSERT INTO kafka_ingest.batch_partition (
    batch_id, pipeline, topic, generation, partition, topic_id, line, range_start, range_end, committed_before,
    committed_after, loaded_to, leader_epoch, reaches_high_watermark, published, rows, deletes, superseded,
    dead_letters, tombstones, filtered, invisible, record_time_min, record_time_max
)
SELECT
    md5(p || '-' || b)::uuid, 'pipeline_' || p, 'topic_' || p, 0, part, 'topic-id', 0, b * {OFFSETS},
    (b + 1) * {OFFSETS}, b * {OFFSETS}, (b + 1) * {OFFSETS}, b * {OFFSETS}, 0, true, is_published,
    CASE WHEN is_published THEN {OFFSETS} END, zero, zero, zero, zero, zero, zero,
    now() - ({BATCHES} - b) * interval '1 hour', now() - ({BATCHES} - b - 1) * interval '1 hour'
FROM generate_series(1, {BATCHES}) AS b
CROSS JOIN generate_series(1, {PIPELINES}) AS p
CROSS JOIN generate_series(0, {PARTITIONS} - 1) AS part
CROSS JOIN LATERAL (SELECT b < {BATCHES} AND b % 20 > 0 AS is_published) AS state
CROSS JOIN LATERAL (SELECT CASE WHEN is_published THEN 0 END AS zero) AS counts;

INSERT INTO kafka_ingest.committed_offset (
    pipeline, topic, partition, generation, topic_id, cluster_id, committed_offset, loaded_to, line
)
SELECT
    'pipeline_' || p, 'topic_' || p, part, 0, 'topic-id', 'cluster-1', {BATCHES} * {OFFSETS}, {BATCHES} * {OFFSETS}, 0
FROM generate_series(1, {PIPELINES}) AS p CROSS JOIN generate_series(0, {PARTITIONS} - 1) AS part;

INSERT INTO kafka_ingest.dead_letter (
    pipeline, topic, generation, partition, "offset", value, reason, detail, batch_id, resolved_at, resolution
)
SELECT
    'pipeline_' || p, 'topic_' || p, 0, n % {PARTITIONS}, (1 + n % ({BATCHES} - 1)) * {OFFSETS} + n / {BATCHES},
    'value', 'malformed', 'byte 0', md5(p || '-' || (1 + n % ({BATCHES} - 1)))::uuid,
    CASE WHEN n % 100 > 0 THEN now() END, CASE WHEN n % 100 > 0 THEN 'by hand' END
FROM generate_series(1, {PIPELINES}) AS p CROSS JOIN generate_series(1, 4000) AS n;

INSERT INTO kafka_ingest.position_change (
    request_id, kind, pipeline, topic, partition, who, why, to_offset, to_generation, to_line
)
SELECT 'request-' || p || '-' || n, 'initialised', 'pipeline_' || p, 'topic_' || p, part, 'operator', 'test', n, 0, 0
FROM generate_series(1, {PIPELINES}) AS p
CROSS JOIN generate_series(0, {PARTITIONS} - 1) AS part
CROSS JOIN generate_series(1, 50) AS n;
"""

#: Their indexes are built after the filling, which takes a fraction of the time. No foreign key rests on them.
_INDEXED_LATER = ["batch_partition", "dead_letter", "position_change"]
_INDEXES = """
SELECT
    CASE
        WHEN k.oid IS NULL THEN format('DROP INDEX kafka_ingest.%%I', c.relname)
        ELSE format('ALTER TABLE kafka_ingest.%%I DROP CONSTRAINT %%I', t.relname, k.conname)
    END,
    CASE
        WHEN k.oid IS NULL THEN pg_get_indexdef(c.oid)
        ELSE format(
            'ALTER TABLE kafka_ingest.%%I ADD CONSTRAINT %%I %%s', t.relname, k.conname, pg_get_constraintdef(k.oid)
        )
    END
FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_class AS t ON t.oid = i.indrelid
LEFT JOIN pg_constraint AS k ON k.conindid = c.oid AND k.contype IN ('p', 'u')
WHERE t.relnamespace = 'kafka_ingest'::regnamespace AND t.relname = ANY (%s)
"""


def batch_id_of(pipeline: int, batch: int) -> str:
    """Return the id of a pipeline's batch; both are numbered from 1."""
    return str(uuid.UUID(hashlib.md5(f"{pipeline}-{batch}".encode(), usedforsecurity=False).hexdigest()))


def fill(params: dict[str, Any]) -> None:
    """Fills a database with the empty ledger. Every constraint holds afterwards; foreign keys are not looked at."""
    with closing(psycopg2.connect(**params)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("SET LOCAL maintenance_work_mem = '256MB'")
        cursor.execute(_INDEXES, (_INDEXED_LATER,))
        indexes = cursor.fetchall()
        for drop, _ in indexes:
            cursor.execute(drop)
        cursor.execute(_FILL)
        for _, create in indexes:
            cursor.execute(create)
        cursor.execute("ANALYZE")

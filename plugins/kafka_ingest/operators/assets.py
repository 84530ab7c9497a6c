"""The target table as an Airflow asset, and what its events tell."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset

from kafka_ingest.core.batch import Batch
from kafka_ingest.core.settings import BatchSettings
from kafka_ingest.core.summary import batch_summary
from kafka_ingest.steps.audit_batch import AuditReport

_ANNOUNCED = (
    "batch_id",
    "pipeline",
    "kind",
    "committed_offsets",
    "record_time_min",
    "record_time_max",
    "valid_through",
)


def target_asset(settings: BatchSettings) -> Asset:
    """Gives the asset of a pipeline's target table: known while DAGs are parsed, without any connection.

    Name ``<connection>.<schema>.<table>``, for ``schedule=Asset.ref(name="warehouse.shop.orders")`` in another DAG. The
    connection id is part of it because Airflow wants names to be unique, and two databases may have a table of one
    name. The URI has a scheme of its own: ``postgres://`` needs host and database (Airflow's AIP-60 rules), which only
    the connection knows; schemes that begin with ``x-`` are free.
    """
    target = settings.target
    path = "/".join(quote(part, safe="") for part in (settings.target_connection, target.schema, target.table))
    return Asset(
        name=f"{settings.target_connection}.{target.schema}.{target.table}",
        uri=f"x-kafka-ingest://{path}",
        group="kafka-ingest",
    )


def event_extra(report: AuditReport) -> dict[str, Any]:
    """Gives the event's extra: the run's own batch, and under ``also_announced`` those of runs that never got there.

    A batch can be announced twice; consumers tell by ``batch_id``.
    """
    others = [batch for batch in report.announced if batch.batch_id != report.batch.batch_id]
    return {**_announcement(report.batch), "also_announced": [_announcement(batch) for batch in others]}


def _announcement(batch: Batch) -> dict[str, Any]:
    summary = batch_summary(batch)
    counts = batch.counts
    return {
        **{key: summary[key] for key in _ANNOUNCED},
        "rows": counts.rows if counts else 0,
        "dead_letters": counts.dead_letters if counts else 0,
        "warnings": list(batch.warnings),
    }

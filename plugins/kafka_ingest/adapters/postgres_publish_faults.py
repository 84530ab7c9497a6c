"""What it means when PostgreSQL refuses a statement of a publish.

Messages name the constraint and never the row: the server's detail can quote the record.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg2
from psycopg2 import errorcodes

from kafka_ingest.adapters.postgres_connection import ingest_error, server_message
from kafka_ingest.adapters.postgres_refusals import raised_by, was_raised
from kafka_ingest.adapters.target_catalog import TargetHook
from kafka_ingest.core.batch import Batch
from kafka_ingest.core.errors import AccountingMismatch, Fenced, IngestError, StagingLost, TargetMismatch
from kafka_ingest.core.target_shape import quoted_table

STAGING_SCHEMA = "kafka_ingest_staging"


def staging_fault(error: psycopg2.Error, batch: Batch) -> IngestError | None:
    """Gives the error for a staging table that is gone, or for a sick database; ``None`` for anything else."""
    if error.pgcode == errorcodes.UNDEFINED_TABLE and STAGING_SCHEMA in server_message(error):
        return StagingLost(
            "the staging table of this attempt is gone",
            found=server_message(error),
            next_command="none: a retry stages the batch again",
            pipeline=batch.pipeline,
            batch_id=batch.batch_id,
        )
    return ingest_error(error, "publish the staged records", pipeline=batch.pipeline, batch_id=batch.batch_id)


def target_fault(error: psycopg2.Error, batch: Batch, *, place: str = "") -> IngestError:
    """Gives the error for a statement that writes the target, or for a COMMIT that it refused.

    What is neither missing staging nor a sick database was said by the target: a constraint (class 23), a trigger
    (any class), or a table that was altered since the batch was planned (class 42).

    Args:
        error: What psycopg2 raised.
        batch: The claimed batch.
        place: The record that it is about, where known.
    """
    found = _refusal(error)
    return staging_fault(error, batch) or TargetMismatch(
        f"the target {batch.settings.target} refused the batch; nothing was published",
        expected="a table that takes every staged row",
        found=f"{place}: {found}" if place else found,
        next_command=_cure(error, batch),
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )


def hooks_fault(batch: Batch, hooks: Sequence[TargetHook], *, expected: str, found: str) -> TargetMismatch:
    """Gives the error for rows that a trigger or rule kept from being what was written."""
    return TargetMismatch(
        f"triggers or rules of {batch.settings.target} drop, keep, move or alter rows; nothing was published",
        expected=f"{expected}, found by topic, generation, partition, offset and batch id",
        found=f"{found}; it has {', '.join(map(str, hooks))}",
        next_command="let them leave rows and metadata columns alone, or drop them, then clear load_batch;"
        " records that are not wanted are left out by the producer or a view",
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )


def refused_by_ledger(error: psycopg2.IntegrityError, batch: Batch, *, what: str, expected: str) -> AccountingMismatch:
    """Gives the error for rows that a constraint of the ledger refused; the constraints are named for their rules."""
    return AccountingMismatch(
        f"the ledger refused the {what}; nothing was published",
        expected=expected,
        found=_refusal(error),
        next_command="see docs/runbook.md, section AccountingMismatch",
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )


def fenced(batch: Batch, found: str) -> Fenced:
    """Gives the error for an attempt that lost its batch."""
    return Fenced(
        "this attempt no longer owns the batch and changes nothing",
        expected=f"state planned, claim {batch.claim}",
        found=found,
        next_command="none: the newer attempt or plan does the work",
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )


def _cure(error: psycopg2.Error, batch: Batch) -> str:
    # 55000 "does not have a replica identity and publishes deletes" (execReplication.c, PostgreSQL 18).
    if error.pgcode == errorcodes.OBJECT_NOT_IN_PREREQUISITE_STATE and "replica identity" in server_message(error):
        table = quoted_table(batch.settings.target)
        return f"ALTER TABLE {table} REPLICA IDENTITY FULL; (a partition has its own), then clear load_batch"
    hint = "" if was_raised(error) else " ".join((error.diag.message_hint or "").split())
    advice = "change the constraint or trigger, or the pipeline file, then clear load_batch"
    return f"{advice}; the server's hint: {hint}" if hint else advice


def _refusal(error: psycopg2.Error) -> str:
    if was_raised(error):
        return raised_by(error)
    message, constraint = server_message(error), error.diag.constraint_name
    return f"constraint {constraint}: {message}" if constraint and constraint not in message else message

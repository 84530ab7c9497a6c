"""What it means when PostgreSQL refuses a statement of a publish.

Messages name the constraint and never the row: the server's detail can quote the record.
"""

from __future__ import annotations

import psycopg2
from psycopg2 import errorcodes

from kafka_ingest.adapters.postgres_connection import ingest_error, server_message
from kafka_ingest.core.batch import Batch
from kafka_ingest.core.errors import AccountingMismatch, Fenced, IngestError, StagingLost, TargetMismatch

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


def target_fault(error: psycopg2.Error, batch: Batch) -> IngestError:
    """Gives the error for a statement that writes the target, or for a COMMIT that it refused.

    What is neither missing staging nor a sick database was said by the target: a constraint (class 23), a trigger
    (any class), or a table that was altered since the batch was planned (class 42).
    """
    return staging_fault(error, batch) or TargetMismatch(
        f"the target {batch.settings.target} refused the batch; nothing was published",
        expected="a table that takes every staged row",
        found=_refusal(error),
        next_command="change the constraint or trigger, or the pipeline file, then clear load_batch",
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


def _refusal(error: psycopg2.Error) -> str:
    message, constraint = server_message(error), error.diag.constraint_name
    return f"constraint {constraint}: {message}" if constraint and constraint not in message else message

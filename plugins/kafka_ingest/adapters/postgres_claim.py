"""Claims, heartbeats, and the standing of a batch. Locks: batch, then hold."""

from __future__ import annotations

from kafka_ingest.adapters.postgres_connection import Cursor
from kafka_ingest.adapters.postgres_rows import fetch_row, fetch_rows, is_batch_id, load_batch, run_query, standing_of
from kafka_ingest.core.batch import Batch, BatchState
from kafka_ingest.core.errors import Busy, ConfigError, Fenced, IngestError, LockTimeout
from kafka_ingest.core.ports import BatchStanding
from kafka_ingest.core.staging import StageProgress


def claim_batch(cursor: Cursor, batch_id: str, hold_seconds: int) -> Batch:
    """Takes the next claim of a planned batch; gives a committed batch back as it is.

    Raises:
        Fenced: The batch is superseded or rolled back.
        ConfigError: There is no such batch.
    """
    standing = lock_standing(cursor, batch_id)
    if standing.state is BatchState.PLANNED:
        claim = fetch_rows(cursor, "claim_batch", batch_id=batch_id)[0]["claim"]
        run_query(cursor, "claim_hold", batch_id=batch_id, claim=claim, hold_seconds=hold_seconds)
    elif standing.state is not BatchState.COMMITTED:
        raise _not_claimable(batch_id, standing)
    batch = load_batch(cursor, batch_id)
    assert batch is not None  # noqa: S101 - its row is locked
    return batch


def lock_standing(cursor: Cursor, batch_id: str) -> BatchStanding:
    """Locks the batch row and reads its standing: final, because a COMMIT under way was waited for.

    Raises:
        ConfigError: There is no such batch.
    """
    row = fetch_row(cursor, "lock_batch", batch_id=batch_id) if is_batch_id(batch_id) else None
    if row is None:
        raise no_such_batch(batch_id)
    return standing_of(row)


def extend_hold(
    cursor: Cursor, batch_id: str, claim: int, *, step: str, progress: StageProgress, hold_seconds: int
) -> BatchStanding:
    """Extends the hold of the newest claim, without waiting for locks; gives the batch's standing.

    Raises:
        ConfigError: There is no such batch.
    """
    if not is_batch_id(batch_id):
        raise no_such_batch(batch_id)
    run_query(
        cursor,
        "extend_hold",
        batch_id=batch_id,
        claim=claim,
        hold_seconds=hold_seconds,
        step=step,
        staged_records=progress.records,
        staged_offsets=progress.offsets,
    )
    row = fetch_row(cursor, "select_standing", batch_id=batch_id)
    if row is None:
        raise no_such_batch(batch_id)
    return standing_of(row)


def release_hold(cursor: Cursor, batch_id: str, claim: int) -> None:
    """Ends the hold of a claim that is the newest, without waiting for locks; else it changes nothing."""
    if is_batch_id(batch_id):
        run_query(cursor, "release_hold", batch_id=batch_id, claim=claim)


def no_such_batch(batch_id: str) -> IngestError:
    """Gives the error for a batch id that the ledger does not know."""
    return ConfigError(
        "the ledger has no such batch",
        expected="a batch that the plan step recorded in this database",
        found=batch_id,
        next_command="python -m kafka_ingest batches",
        batch_id=batch_id,
    )


def is_locked(error: LockTimeout) -> Busy:
    """Gives the error for a plan or claim that another session keeps waiting: a large publish takes minutes."""
    return Busy(
        "another session has the batch locked, most likely an attempt that publishes it",
        expected="the rows of pipeline and batch free within the lock time-out",
        found=error.found,
        next_command="none: it is asked for again; pg_stat_activity shows the session",
        pipeline=error.pipeline,
        batch_id=error.batch_id,
    )


def _not_claimable(batch_id: str, standing: BatchStanding) -> Fenced:
    return Fenced(
        "the batch can no longer be loaded",
        expected="state planned or committed",
        found=f"state {standing.state.value}",
        next_command="none, or clear the whole run: its plan step records a new batch",
        batch_id=batch_id,
    )

"""Publishes a batch in PostgreSQL: port ``Publisher``. One connection, one transaction, READ COMMITTED.

Locks: batch row, then positions by (topic, partition), then what INSERT takes. The pipeline row is not locked: a plan
that holds it must also take the batch row to supersede, and that is what decides between the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from psycopg2 import sql

from kafka_ingest.adapters.postgres_connection import (
    Cursor,
    TransactionLimits,
    begin,
    commit,
    connect,
    database_faults,
    refused,
    server_message,
)
from kafka_ingest.adapters.postgres_insertion import StagedRows
from kafka_ingest.adapters.postgres_plan import pipeline_valid_through
from kafka_ingest.adapters.postgres_publish_faults import (
    STAGING_SCHEMA,
    fenced,
    refused_by_ledger,
    staging_fault,
    target_fault,
)
from kafka_ingest.adapters.postgres_replacement import replace_loaded
from kafka_ingest.adapters.postgres_rows import (
    fetch_row,
    query_with_identifiers,
    range_arrays,
    run_query,
    standing_of,
)
from kafka_ingest.core.batch import Batch, RecordCounts
from kafka_ingest.core.errors import (
    AccountingMismatch,
    Busy,
)
from kafka_ingest.core.outcome import BatchOutcome
from kafka_ingest.core.ports import BatchStanding
from kafka_ingest.core.replacement import Replacement
from kafka_ingest.core.staging import staging_name

#: Positions are locked for moments only; the target may be locked by a VACUUM FULL or ALTER TABLE for longer.
_PUBLISH_LIMITS = TransactionLimits(lock_timeout_seconds=30)


class PostgresPublisher:
    """Opens publications into one database.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
        limits: Time-outs of the transaction.
    """

    def __init__(self, params: Mapping[str, object], limits: TransactionLimits = _PUBLISH_LIMITS) -> None:
        self._params = params
        self._limits = limits

    @contextmanager
    def begin(self, batch: Batch) -> Iterator[PostgresPublication]:
        """Opens a new transaction for the batch and its claim; leaving the context without commit rolls it back."""
        # Closing a connection rolls back what was not committed, and cannot fail on a broken one.
        with closing(connect(self._params, application_name="kafka_ingest publish")) as connection:
            with database_faults("begin to publish", pipeline=batch.pipeline, batch_id=batch.batch_id):
                cursor = connection.cursor()
                begin(cursor, self._limits)
            yield PostgresPublication(cursor, batch)


class PostgresPublication:
    """The transaction that makes one batch visible; see the port for the order of the methods."""

    def __init__(self, cursor: Cursor, batch: Batch) -> None:
        self._cursor = cursor
        self._batch = batch
        self._place = {"pipeline": batch.pipeline, "batch_id": batch.batch_id}

    def lock_batch(self) -> BatchStanding:
        """Locks the batch row without waiting.

        Raises:
            Busy: Another session has it locked.
            Fenced: The ledger has no such batch, as after a restore of the database.
        """
        with database_faults("lock the batch", **self._place):
            try:
                row = fetch_row(self._cursor, "lock_batch_nowait", batch_id=self._batch.batch_id)
            except psycopg2.errors.LockNotAvailable as error:
                raise Busy(
                    "another session has the batch locked",
                    expected="a batch row that nobody else is claiming, superseding or publishing",
                    found=server_message(error),
                    next_command="none: a retry finds the batch committed or loads it again",
                    **self._place,
                ) from error
        if row is None:
            raise fenced(self._batch, "no such batch in the ledger")
        return standing_of(row)

    def advance_positions(self, outcome: BatchOutcome) -> int:
        """Compare-and-set of all positions; gives the number of rows that still stood as planned."""
        ranges = range_arrays([p.range for p in outcome.partitions])
        del ranges["leader_epoch"]
        with database_faults("advance the positions", **self._place):
            run_query(self._cursor, "lock_positions", pipeline=self._batch.pipeline, **ranges)
            return run_query(
                self._cursor,
                "advance_positions",
                **self._place,
                **ranges,
                end_leader_epoch=[p.end_leader_epoch for p in outcome.partitions],
                valid_through=[p.valid_through for p in outcome.partitions],
            )

    def replace(self, outcome: BatchOutcome, *, with_resolved: bool) -> Replacement:
        """Deletes what the batch replaces: rows and dead letters below ``loaded_to`` in its ranges, by identity.

        Raises:
            TargetMismatch: A constraint or trigger of the target refused the deletion, or the table no longer fits.
            StagingLost: A staging table is gone.
        """
        try:
            return replace_loaded(self._cursor, self._batch, outcome, with_resolved=with_resolved)
        except psycopg2.Error as error:
            raise target_fault(error, self._batch) from None

    def insert_rows(self, outcome: BatchOutcome) -> int:
        """Moves the winners' staged rows into the target; gives their number, as they stand there.

        Raises:
            RecordsRefused: The target refused single records; all of them are named.
            TargetMismatch: A constraint, trigger or rule of the target refused, dropped or altered them, or the table
                no longer fits.
            StagingLost: The staging table is gone.
        """
        return StagedRows(self._cursor, self._batch, outcome).insert()

    def insert_dead_letters(self, outcome: BatchOutcome) -> int:
        """Moves the winners' dead letters into the ledger; gives their number.

        Raises:
            AccountingMismatch: The ledger holds a dead letter of one of these records already, or refuses one.
            StagingLost: The staging table is gone.
        """
        statement = query_with_identifiers("queries/publish_dead_letters", staging=self._staging("dead_letters"))
        try:
            self._cursor.execute(statement, {**_winners(outcome), **self._place})
        except psycopg2.IntegrityError as error:
            raise refused_by_ledger(
                error, self._batch, what="dead letters", expected="each record once, with a reason of the closed list"
            ) from None
        except psycopg2.Error as error:
            raise staging_fault(error, self._batch) or refused(
                error, "publish the dead letters", **self._place
            ) from error
        return int(self._cursor.rowcount)

    def record_outcome(self, outcome: BatchOutcome) -> None:
        """Stores counts per range, and makes the batch ``committed`` with its counts and ``valid_through``.

        Raises:
            Fenced: The batch is not planned, or its claim is not ours.
            AccountingMismatch: The ranges in the ledger are not those of the outcome, or a constraint refused counts
                that do not add up or a range that does not continue its chain.
        """
        with database_faults("record the outcome", **self._place):
            try:
                self._record_ranges(outcome)
                self._record_batch(outcome)
            except psycopg2.IntegrityError as error:
                raise refused_by_ledger(
                    error, self._batch, what="outcome", expected="counts that add up, and ranges that form a chain"
                ) from error
            run_query(self._cursor, "delete_hold", batch_id=self._batch.batch_id)

    def commit(self) -> None:
        """Commits; durable on return.

        Raises:
            CommitStateUnknown: The connection broke before the answer; ``Ledger.settle`` decides.
            CommitDidNotHappen: The server answered something else than COMMIT: nothing was committed.
            TargetMismatch: A deferred constraint of the target refused the batch; nothing was committed.
        """
        try:
            commit(self._cursor)
        except psycopg2.Error as error:
            raise target_fault(error, self._batch) from None

    def _record_ranges(self, outcome: BatchOutcome) -> None:
        parts = outcome.partitions
        recorded = run_query(
            self._cursor,
            "record_range_outcomes",
            batch_id=self._batch.batch_id,
            topic=[p.range.topic for p in parts],
            generation=[p.range.generation for p in parts],
            partition=[p.range.partition for p in parts],
            **_count_arrays([p.counts for p in parts]),
            record_time_min=[p.record_time_min for p in parts],
            record_time_max=[p.record_time_max for p in parts],
        )
        if recorded != len(self._batch.ranges):
            raise AccountingMismatch(
                "the outcome does not cover the batch's ranges; nothing was published",
                expected=f"{len(self._batch.ranges)} ranges",
                found=f"{recorded} ranges",
                next_command="see docs/runbook.md, section AccountingMismatch",
                **self._place,
            )

    def _record_batch(self, outcome: BatchOutcome) -> None:
        committed = run_query(
            self._cursor,
            "commit_batch",
            batch_id=self._batch.batch_id,
            claim=self._batch.claim,
            **{name: values[0] for name, values in _count_arrays([outcome.counts]).items()},
            record_time_min=min((p.record_time_min for p in outcome.partitions if p.record_time_min), default=None),
            record_time_max=max((p.record_time_max for p in outcome.partitions if p.record_time_max), default=None),
            valid_through=pipeline_valid_through(self._cursor, self._batch.pipeline),
        )
        if committed != 1:
            raise fenced(self._batch, "another state or claim")

    def _staging(self, kind: str) -> sql.Identifier:
        return sql.Identifier(STAGING_SCHEMA, f"{staging_name(self._batch.batch_id, self._batch.claim)}_{kind}")


def _winners(outcome: BatchOutcome) -> dict[str, Any]:
    return {"task": list(outcome.winners.keys()), "attempt": list(outcome.winners.values())}


def _count_arrays(counts: list[RecordCounts]) -> dict[str, list[int]]:
    names = ("rows", "dead_letters", "tombstones", "filtered", "invisible")
    return {name: [getattr(count, name) for count in counts] for name in names}

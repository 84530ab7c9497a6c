"""The publish transaction: rows and offsets become visible together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import psycopg2
from psycopg2 import sql

from kafka_ingest.errors import AccountingMismatch, Busy
from kafka_ingest.postgres import refusals
from kafka_ingest.postgres.catalog import read_hooks, target_identifiers
from kafka_ingest.postgres.current_state import CurrentState
from kafka_ingest.postgres.database import (
    Cursor,
    Row,
    TransactionLimits,
    begin,
    commit,
    connect,
    database_faults,
    fetch_row,
    fetch_rows,
    refused,
    run_query,
    server_message,
    set_lock_timeout,
)
from kafka_ingest.postgres.ledger_write import pipeline_valid_through
from kafka_ingest.postgres.rows import count_arrays, range_arrays, replaced_arrays, standing_of
from kafka_ingest.postgres.staging_tables import staging_table
from kafka_ingest.protocol.accounting import (
    FIRST_OFFSETS,
    AppliedChanges,
    Fold,
    KeptDeadLetters,
    ReplacedPartition,
    Replacement,
)
from kafka_ingest.protocol.batch import Batch, BatchOutcome, BatchStanding, RunMode, RunOptions, run_options_of
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.staging import staging_name
from kafka_ingest.protocol.target import written_columns

# Deletion of what a batch replaces, within the publish transaction.


def replace_loaded(cursor: Cursor, batch: Batch, outcome: BatchOutcome, *, with_resolved: bool) -> Replacement:
    """Delete rows and dead letters in the replaced part of every range; without such a part nothing is queried.

    psycopg2's errors pass through.

    Args:
        cursor: The publish transaction, with batch and positions locked.
        batch: The claimed batch.
        outcome: Names the winners, whose staged records take the place.
        with_resolved: Whether resolved dead letters and their rows are deleted, too.

    Raises:
        TargetMismatch: A trigger or rule kept rows from being deleted.
    """
    replacing = [r for r in batch.ranges if r.replaced_to > r.start]
    if not replacing:
        return Replacement()
    parameters = {
        "pipeline": batch.pipeline,
        "with_resolved": with_resolved,
        "first_offsets": FIRST_OFFSETS,
        **_winners(outcome),
        **replaced_arrays(replacing),
    }
    names = _names(batch)
    replaced = tuple(_replaced(row) for row in fetch_rows(cursor, "delete_replaced", names, **parameters))
    _require_none_left(cursor, batch, parameters)
    return Replacement(replaced, () if with_resolved else _kept(cursor, names, parameters))


def _require_none_left(cursor: Cursor, batch: Batch, parameters: dict[str, Any]) -> None:
    """Stop where a trigger or rule kept rows, or put them back: these rows would then be there twice."""
    hooks = [hook for hook in read_hooks(cursor, batch.settings.target) if hook.on_delete]
    if not hooks:
        return
    target = target_identifiers(batch.settings.target, batch.settings.metadata.identity)
    (left,) = fetch_rows(cursor, "count_rows_left", target, **parameters)
    if left["found"]:
        found = f"{left['found']} rows still stand, as {left['example']}"
        raise refusals.hooks_fault(batch, hooks, expected="no row that is to be replaced", found=found)


def _kept(cursor: Cursor, names: dict[str, sql.Composable], parameters: dict[str, Any]) -> tuple[KeptDeadLetters, ...]:
    counted = fetch_row(cursor, "count_resolved", **parameters)
    if not counted or not counted["resolved"]:
        return ()
    return tuple(map(_kept_in_partition, fetch_rows(cursor, "discard_staged_resolved", names, **parameters)))


def _kept_in_partition(row: Row) -> KeptDeadLetters:
    rows, dead_letters, tombstones = row["rows"], row["dead_letters"], row["tombstones"]
    return KeptDeadLetters(
        TopicPartition(row["topic"], row["partition"]),
        rows=rows,
        dead_letters=dead_letters,
        tombstones=tombstones,
        invisible=row["kept"] - rows - dead_letters - tombstones,
    )


def _replaced(row: Row) -> ReplacedPartition:
    where = TopicPartition(row["topic"], row["partition"])
    return ReplacedPartition(where, row["rows"], row["dead_letters"], row["missing"], tuple(row["first_missing"] or ()))


def _names(batch: Batch) -> dict[str, sql.Composable]:
    stem, settings = staging_name(batch.batch_id, batch.claim), batch.settings
    metadata, target = settings.metadata, settings.target
    return {
        "target": sql.Identifier(target.schema, target.table),
        "topic_column": sql.Identifier(metadata.topic),
        "generation_column": sql.Identifier(metadata.generation),
        "partition_column": sql.Identifier(metadata.partition),
        "offset_column": sql.Identifier(metadata.offset),
        "staged_rows": staging_table(stem, "rows"),
        "staged_dead_letters": staging_table(stem, "dead_letters"),
        "staged_counted": staging_table(stem, "counted"),
    }


# Insertion of staged rows into the target, within the publish transaction.
#
# Two things can go wrong that staging cannot know. INSERT refuses a record (no partition takes it, an index entry would
# be too large, a CHECK reads a column that only the target fills): such records are found and named, so that they
# can become dead letters. Or a trigger or rule silently drops, moves, doubles or alters rows: tables that have one are
# compared with staging before COMMIT.


class StagedRows:
    """The winners' staged rows of one batch, and the publish transaction that moves them.

    Args:
        cursor: The transaction, with batch and positions locked.
        batch: The claimed batch.
        outcome: Who the winners are.
    """

    def __init__(self, cursor: Cursor, batch: Batch, outcome: BatchOutcome) -> None:
        self._cursor = cursor
        self._batch = batch
        self._winners = _winners(outcome)
        self._staging = staging_table(staging_name(batch.batch_id, batch.claim), "rows")
        columns = [sql.Identifier(column.name) for column in written_columns(batch.settings)]
        self._names: dict[str, sql.Composable] = {
            "staging": self._staging,
            **target_identifiers(batch.settings.target, batch.settings.metadata.identity),
            "columns": sql.SQL(", ").join(columns),
            "batch_column": sql.Identifier(batch.settings.metadata.batch_id),
        }

    def insert(self) -> int:
        """Insert the rows; return the number of rows in the target.

        Raises:
            RecordsRefused: The target refused single records; all of them are named.
            TargetMismatch: A constraint, trigger or rule of the target prevents it.
            StagingLost: The staging table is gone.
        """
        try:
            inserted = self._attempt("publish_rows")
            if isinstance(inserted, psycopg2.Error):
                raise self._refused(inserted) from None
            return self._standing(inserted)
        except psycopg2.Error as error:
            # The server's detail can quote a row: it must not appear as the cause.
            raise refusals.target_fault(error, self._batch) from None

    def _attempt(self, query: str, **parameters: str) -> int | psycopg2.Error:
        def insert() -> int:
            return run_query(self._cursor, query, self._names, **self._winners, **parameters)

        return refusals.attempted(self._cursor, insert)

    def _refused(self, error: psycopg2.Error) -> Exception:
        """Find every refused record; nothing that this inserts is committed."""
        between = partial(self._attempt, "publish_rows_between")
        places = refusals.refused_places(self._cursor, self._staging, lambda a, b: between(first=a, last=b))
        found = ((self._record_at(place), fault) for place, fault in places)
        return refusals.refused_records(found, error, self._batch)

    def _record_at(self, place: str) -> tuple[str, int, int] | None:
        run_query(self._cursor, "staged_record_at", self._names, place=place)
        return next(iter(self._cursor.fetchall()), None)

    def _standing(self, inserted: int) -> int:
        """Return the number of rows in the target; compare them with staging where something may have altered them.

        INSERT holds the target's lock by now: nobody can add a trigger or rule any more.
        """
        hooks = [hook for hook in read_hooks(self._cursor, self._batch.settings.target) if hook.on_insert]
        if not hooks:
            return inserted
        query: dict[str, Any] = {**self._winners, **range_arrays(self._batch.ranges)}
        query |= {"batch_id": self._batch.batch_id, "first_offsets": FIRST_OFFSETS}
        run_query(self._cursor, "run_deferred_triggers")
        (compared,) = fetch_rows(self._cursor, "compare_published", self._names, **query)
        if compared["staged"] == compared["sound"] == compared["standing"]:
            return int(compared["standing"])
        first = ", ".join(compared["first_wrong"] or ())
        found = f"{compared['standing']} rows, {compared['sound']} of them as staged; the first others: {first}"
        raise refusals.hooks_fault(
            self._batch, hooks, expected=f"{compared['staged']} rows as they were staged", found=found
        )


# The port ``Publisher``: one connection, one transaction, READ COMMITTED.
#
# Locks: batch row, then positions by (topic, partition), then what INSERT takes. The pipeline row is not locked: a plan
# that holds it must also lock the batch row to supersede the batch, and that decides between the two.

#: Positions are locked only for moments; a VACUUM FULL or ALTER TABLE may lock the target for longer.
_PUBLISH_LIMITS = TransactionLimits(lock_timeout_seconds=30)


#: An older attempt that finds itself fenced frees the batch row at once, so a newer one waits this long for it: if both
#: gave way, nobody would publish until the hold of the newer one ends.
_BATCH_WAIT_SECONDS = 1.0


def lock_batch(cursor: Cursor, batch: Batch, limits: TransactionLimits) -> BatchStanding:
    """Lock the batch row in the transaction that changes the target for it, and read it as it is then.

    Args:
        cursor: In the transaction.
        batch: The batch.
        limits: Of the transaction; they hold again afterwards.

    Raises:
        Busy: Another session has it locked, for longer than a second.
        Fenced: The ledger has no such batch, for example after a restore of the database.
    """
    with database_faults("lock the batch"):
        try:
            set_lock_timeout(cursor, min(_BATCH_WAIT_SECONDS, limits.lock_timeout_seconds))
            row = fetch_row(cursor, "lock_batch", batch_id=batch.batch_id)
            set_lock_timeout(cursor, limits.lock_timeout_seconds)
        except psycopg2.errors.LockNotAvailable as error:
            raise Busy(
                "another session has the batch locked",
                expected="a batch row that nobody else is claiming, superseding or publishing",
                found=server_message(error),
                next_command="none: a retry finds the batch committed or loads it again",
            ) from error
    if row is None:
        raise refusals.fenced(batch, "no such batch in the ledger")
    return standing_of(row)


class PostgresPublisher:
    """The port ``Publisher``, for one database.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
        limits: Time-outs of the transaction.
    """

    def __init__(self, params: Mapping[str, object], limits: TransactionLimits = _PUBLISH_LIMITS) -> None:
        self._params = params
        self._limits = limits

    @contextmanager
    def begin(self, batch: Batch) -> Iterator[PostgresPublication]:
        """Open a new transaction for the batch and its claim; leaving the context without commit rolls it back."""
        # Closing a connection rolls back what was not committed, and cannot fail on a broken one.
        with closing(connect(self._params, application_name="kafka_ingest publish")) as connection:
            with database_faults("begin to publish"):
                cursor = connection.cursor()
                begin(cursor, self._limits)
            yield PostgresPublication(cursor, batch, self._limits)


class PostgresPublication:
    """The transaction that makes one batch visible; see the port for the order of the methods."""

    def __init__(self, cursor: Cursor, batch: Batch, limits: TransactionLimits) -> None:
        self._cursor = cursor
        self._batch = batch
        self._limits = limits
        self._state: CurrentState | None = None

    def lock_batch(self) -> BatchStanding:
        """Lock the batch row; wait a second for it at most.

        Raises:
            Busy: Another session has it locked.
            Fenced: The ledger has no such batch, for example after a restore of the database.
        """
        return lock_batch(self._cursor, self._batch, self._limits)

    def advance_positions(self, outcome: BatchOutcome) -> int:
        """Compare and set all positions; return the number of rows that were still as planned."""
        ranges = range_arrays([p.range for p in outcome.partitions])
        del ranges["leader_epoch"]
        with database_faults("advance the positions"):
            run_query(self._cursor, "lock_positions", pipeline=self._batch.pipeline, **ranges)
            return run_query(
                self._cursor,
                "advance_positions",
                pipeline=self._batch.pipeline,
                batch_id=self._batch.batch_id,
                planned_at=self._batch.planned_at,
                is_rebuild=run_options_of(self._batch.request).mode is RunMode.REBUILD,
                **ranges,
                end_leader_epoch=[p.end_leader_epoch for p in outcome.partitions],
                valid_through=[p.valid_through for p in outcome.partitions],
            )

    def replace(self, outcome: BatchOutcome, *, with_resolved: bool) -> Replacement:
        """Delete what the batch replaces: rows and dead letters below ``loaded_to`` in its ranges, by identity.

        Raises:
            TargetMismatch: A constraint or trigger of the target refused the deletion, or the table no longer fits.
            StagingLost: A staging table is gone.
        """
        try:
            return replace_loaded(self._cursor, self._batch, outcome, with_resolved=with_resolved)
        except psycopg2.Error as error:
            raise refusals.target_fault(error, self._batch) from None

    def insert_rows(self, outcome: BatchOutcome) -> int:
        """Move the winners' staged rows into the target; return the number of rows that are there.

        Raises:
            RecordsRefused: The target refused single records; all of them are named.
            TargetMismatch: A constraint, trigger or rule of the target refused, dropped or altered them, or the table
                no longer fits.
            StagingLost: The staging table is gone.
        """
        return StagedRows(self._cursor, self._batch, outcome).insert()

    def fold(self, outcome: BatchOutcome, options: RunOptions, compacted: frozenset[str] = frozenset()) -> Fold:
        """Fold the winners' staged changes to the newest of each key, and take away what was read again and is gone.

        In a rebuild what was not read goes, too, or a new table is filled. Of compacted topics no value is filled that
        did not travel.

        Raises:
            TargetMismatch: The target refused it, or no longer fits.
            StagingLost: A staging table is gone.
        """
        replacing = [r for r in self._batch.ranges if r.replaced_to > r.start]
        self._state = CurrentState(self._cursor, self._batch, _winners(outcome))
        try:
            kept = () if options.replace_resolved or not replacing else self._kept_changes(outcome, replacing)
            return self._state.fold(
                replacing,
                kept,
                with_resolved=options.replace_resolved,
                is_rebuild=options.mode is RunMode.REBUILD,
                into_new_table=options.into_new_table,
                compacted=compacted,
            )
        except psycopg2.Error as error:
            raise refusals.target_fault(error, self._batch) from None

    def _kept_changes(self, outcome: BatchOutcome, replacing: Sequence[OffsetRange]) -> tuple[KeptDeadLetters, ...]:
        """Leave out what is staged of resolved dead letters that stay: rows, rows that are not whole, and deletes."""
        parameters = {"pipeline": self._batch.pipeline, **_winners(outcome), **replaced_arrays(replacing)}
        names = _names(self._batch)
        kept = _kept(self._cursor, names, parameters)
        if not kept:
            return ()
        stem = staging_name(self._batch.batch_id, self._batch.claim)
        partial, deletes = (
            _kept(self._cursor, {**names, "staged_rows": staging_table(stem, part)}, parameters)
            for part in ("partial", "deletes")
        )
        return tuple(
            one.with_others(rows=rows.rows, deletes=other.rows)
            for one, rows, other in zip(kept, partial, deletes, strict=True)
        )

    def write_newest(self) -> Mapping[TopicPartition, AppliedChanges]:
        """Write the newest change of each key, unless what stands is newer; return what applied, by partition.

        Raises:
            RecordsRefused: The target refused single records; all of them are named.
            TargetMismatch: A constraint, trigger or rule of the target refused, dropped or altered rows.
            RetryLater: Somebody else inserted rows of the same keys meanwhile.
        """
        assert self._state is not None  # noqa: S101 - fold comes first
        try:
            return self._state.write()
        except psycopg2.Error as error:
            raise refusals.target_fault(error, self._batch) from None

    def insert_dead_letters(self, outcome: BatchOutcome) -> int:
        """Move the winners' dead letters into the ledger; return their number.

        Raises:
            AccountingMismatch: The ledger holds a dead letter of one of these records already, or refuses one.
            StagingLost: The staging table is gone.
        """
        staging = staging_table(staging_name(self._batch.batch_id, self._batch.claim), "dead_letters")
        try:
            return run_query(
                self._cursor,
                "publish_dead_letters",
                {"staging": staging},
                **_winners(outcome),
                pipeline=self._batch.pipeline,
                batch_id=self._batch.batch_id,
            )
        except psycopg2.IntegrityError as error:
            raise refusals.refused_by_ledger(
                error, what="dead letters", expected="each record once, with a reason of the closed list"
            ) from None
        except psycopg2.Error as error:
            raise refusals.staging_fault(error) or refused(error, "publish the dead letters") from error

    def record_outcome(self, outcome: BatchOutcome) -> None:
        """Store count per range, and make the batch ``committed`` with its counts and ``valid_through``.

        Raises:
            Fenced: The batch is not planned, or its claim is not ours.
            AccountingMismatch: The ranges in the ledger are not those of the outcome, or a constraint refused counts
                that do not add up or a range that does not continue its chain.
        """
        with database_faults("record the outcome"):
            try:
                self._record_ranges(outcome)
                self._record_batch(outcome)
            except psycopg2.IntegrityError as error:
                raise refusals.refused_by_ledger(
                    error, what="outcome", expected="counts that add up, and ranges that form a chain"
                ) from error
            run_query(self._cursor, "delete_hold", batch_id=self._batch.batch_id)

    def commit(self) -> None:
        """Commit; durable on return.

        Raises:
            CommitStateUnknown: The connection broke before the answer; ``Ledger.settle`` decides.
            CommitDidNotHappen: The server gave another answer than COMMIT: nothing was committed.
            TargetMismatch: A deferred constraint of the target refused the batch; nothing was committed.
        """
        try:
            commit(self._cursor)
        except psycopg2.Error as error:
            raise refusals.target_fault(error, self._batch) from None

    def _record_ranges(self, outcome: BatchOutcome) -> None:
        parts = outcome.partitions
        recorded = run_query(
            self._cursor,
            "record_range_outcomes",
            batch_id=self._batch.batch_id,
            topic=[p.range.topic for p in parts],
            generation=[p.range.generation for p in parts],
            partition=[p.range.partition for p in parts],
            **count_arrays([p.counts for p in parts]),
            record_time_min=[p.record_time_min for p in parts],
            record_time_max=[p.record_time_max for p in parts],
        )
        if recorded != len(self._batch.ranges):
            raise AccountingMismatch(
                "the outcome does not cover the batch's ranges; nothing was published",
                expected=f"{len(self._batch.ranges)} ranges",
                found=f"{recorded} ranges",
            )

    def _record_batch(self, outcome: BatchOutcome) -> None:
        committed = run_query(
            self._cursor,
            "commit_batch",
            batch_id=self._batch.batch_id,
            claim=self._batch.claim,
            **{name: values[0] for name, values in count_arrays([outcome.counts]).items()},
            record_time_min=min((p.record_time_min for p in outcome.partitions if p.record_time_min), default=None),
            record_time_max=max((p.record_time_max for p in outcome.partitions if p.record_time_max), default=None),
            valid_through=pipeline_valid_through(self._cursor, self._batch.pipeline),
            warnings=list(outcome.warnings),
        )
        if committed != 1:
            raise refusals.fenced(self._batch, "another state or claim")


def _winners(outcome: BatchOutcome) -> dict[str, Any]:
    return {"task": list(outcome.winners.keys()), "attempt": list(outcome.winners.values())}

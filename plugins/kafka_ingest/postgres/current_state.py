"""The current state: the newest staged change of each key over what stands, in one publish or one replay.

A version says which of two changes of a key is newer: by offset the higher generation, then the higher offset; else the
greater time or value, then topic, generation, partition and offset. A row has the version of the record that wrote it,
in its metadata columns; a removed row leaves its key and its version in the ledger (``removed_key``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import psycopg2
from psycopg2 import errorcodes, sql

from kafka_ingest.errors import RetryLater, TargetMismatch
from kafka_ingest.postgres import refusals
from kafka_ingest.postgres.catalog import read_hooks
from kafka_ingest.postgres.database import Cursor, Identifiers, fetch_row, fetch_rows, run_query
from kafka_ingest.postgres.fold_statements import FoldStatements
from kafka_ingest.postgres.rebuilt_table import RebuiltTable
from kafka_ingest.postgres.refusals import MOST_REFUSED, is_bad_data
from kafka_ingest.postgres.rows import replaced_arrays
from kafka_ingest.protocol.accounting import (
    FIRST_KEYS,
    AppliedChanges,
    Fold,
    KeptDeadLetters,
    Keys,
    UnknownValues,
)
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.target import history_settings
from kafka_ingest.settings import Deletes, OrderBy

_FOLD = sql.Identifier("pg_temp", "kafka_ingest_fold")
#: Beyond the end of every file: a whole table is one stretch.
_FIRST, _LAST = "(0,0)", "(4294967295,0)"


class CurrentState:
    """The staged changes of one batch, folded into the table. psycopg2's errors pass through.

    Args:
        cursor: The transaction, with batch and positions locked.
        batch: The claimed batch of an upsert pipeline.
        winners: Task and attempt of the winners as arrays.
    """

    def __init__(self, cursor: Cursor, batch: Batch, winners: Mapping[str, Any]) -> None:
        assert batch.settings.upsert is not None  # noqa: S101 - who calls it has looked
        self._cursor = cursor
        self._batch = batch
        self._upsert = batch.settings.upsert
        self._winners = winners
        self._statements = FoldStatements(batch, self._upsert)
        self._names = self._statements.names
        self._filling: dict[str, sql.Composable] | None = None
        self._has_read = False
        self._staged = 0
        self._known_by: dict[str, Any] = {}
        self._rebuilt: RebuiltTable | None = None

    def fold(
        self,
        replacing: Sequence[OffsetRange],
        kept: tuple[KeptDeadLetters, ...],
        *,
        with_resolved: bool,
        is_rebuild: bool = False,
        into_new_table: bool = False,
        compacted: frozenset[str] = frozenset(),
    ) -> Fold:
        """Fold what is staged, and take away what was read again and is no row or delete of its key any more.

        Args:
            replacing: Ranges that read again what was loaded before.
            kept: Resolved dead letters that stay; what was staged in their place is left out already.
            with_resolved: Whether resolved dead letters that are read again are deleted, too.
            is_rebuild: Whether all that was not read goes, before anything is compared with it.
            into_new_table: Whether a rebuild fills a new table. What it would take away is the same.
            compacted: Topics of which a record may be gone that had a value which later ones leave out: none is filled.

        Raises:
            TargetMismatch: Rows of these keys have no version.
        """
        self._run("give_hashes_memory")
        if replacing:
            self._run("fold_read", **self._winners)
            self._analyze("kafka_ingest_read")
            self._has_read = True
        self._known_by = {"is_rebuild": is_rebuild, "compacted": sorted(compacted)}
        if into_new_table:
            found = self._begin_anew(replacing, with_resolved=with_resolved)
        else:
            found = self._judged(replacing, with_resolved=with_resolved, is_rebuild=is_rebuild)
        self._find_last_puts()
        staged = self._row("count_staged_changes", **self._winners)
        self._staged = staged["rows"] + staged["deletes"]
        return replace(found, staged_rows=staged["rows"], staged_deletes=staged["deletes"], kept=kept)

    def _judged(self, replacing: Sequence[OffsetRange], *, with_resolved: bool, is_rebuild: bool) -> Fold:
        """Fold what is staged beside what stands, of which that goes that must go."""
        unknown = self._fold_staged()
        unread = self._sweep() if is_rebuild and replacing else Keys()
        faults = self._faults()
        without_version = _keys(faults, "without_version")
        if without_version.count:
            raise self._without_version(without_version)
        lost = Keys()
        if replacing:
            with self._hash_joins():
                lost = self._let_go(replacing, with_resolved=with_resolved)
        return Fold(unknown=unknown, in_two_partitions=_keys(faults, "in_two_partitions"), lost=lost, unread=unread)

    def _begin_anew(self, replacing: Sequence[OffsetRange], *, with_resolved: bool) -> Fold:
        """Make a new table, and fold what is staged beside nothing; tell what a rebuild in place would take away."""
        self._cursor.execute("SAVEPOINT judged")
        in_place = self._judged(replacing, with_resolved=with_resolved, is_rebuild=True)
        self._cursor.execute("ROLLBACK TO SAVEPOINT judged")
        self._has_read = bool(replacing)
        rebuilt = self._rebuilt = RebuiltTable(self._cursor, self._batch)
        self._run_of_rebuilt("create_rebuilt_table")
        rebuilt.set_up()
        settings = replace(self._batch.settings, target=rebuilt.target)
        self._statements = FoldStatements(replace(self._batch, settings=settings), self._upsert)
        by = {"pipeline": self._batch.pipeline}
        self._run("forget_removed_keys", **by)
        if replacing:
            self._run("close_unread_dead_letters", **by)
            self._run("delete_read_dead_letters", **by, **replaced_arrays(replacing), with_resolved=with_resolved)
        unknown = self._fold_staged()
        names = {**self._names, **rebuilt.names}
        with self._hash_joins():
            (row,) = fetch_rows(self._cursor, "count_missing_keys", names, first_keys=FIRST_KEYS)
        missing, lost = _keys(row, "missing"), in_place.lost
        if missing.count > in_place.unread.count + lost.count:  # of values that did not travel only the old table knows
            lost = Keys(missing.count - in_place.unread.count, missing.first)
        in_two_partitions = _keys(self._faults(), "in_two_partitions")
        return replace(in_place, unknown=unknown, in_two_partitions=in_two_partitions, lost=lost)

    def _faults(self) -> dict[str, Any]:
        return self._row("fold_faults", is_by_offset=self._upsert.order is OrderBy.OFFSET, first_keys=FIRST_KEYS)

    def _run_of_rebuilt(self, query: str) -> None:
        assert self._rebuilt is not None  # noqa: S101 - who calls it has made one
        run_query(self._cursor, query, self._rebuilt.names)

    def _fold_staged(self) -> tuple[UnknownValues, ...]:
        """Fold what is staged, beside what stands; return the records that became dead letters."""
        unknown = self._tell_known()
        self._run("fold_newest", **self._winners)
        self._analyze("kafka_ingest_newest")
        self._run("fold_standing", pipeline=self._batch.pipeline)
        self._analyze("kafka_ingest_fold")
        return unknown

    def _tell_known(self) -> tuple[UnknownValues, ...]:
        """Find what the keys of rows had before of which values did not travel."""
        self._names, self._filling = self._statements.names, None
        if self._upsert.envelope is None:
            return ()
        in_doubt = [row["name"] for row in fetch_rows(self._cursor, "partial_columns", self._names, **self._winners)]
        if not in_doubt:
            return ()
        if not self._has_read:
            self._run("fold_nothing_read")
            self._has_read = True
        telling, self._filling = self._statements.of_partial(in_doubt)
        self._names = {**self._statements.names, **telling}
        self._run("fold_known", **self._winners, **self._known_by, pipeline=self._batch.pipeline)
        self._analyze("kafka_ingest_known")
        unknown = fetch_rows(self._cursor, "fold_unknown", self._names, first_offsets=FIRST_KEYS)
        return tuple(
            UnknownValues(
                TopicPartition(row["topic"], row["partition"]),
                row["records"],
                tuple(row["first_offsets"]),
                row["first_detail"],
            )
            for row in unknown
        )

    def _find_last_puts(self) -> None:
        if self._upsert.order is OrderBy.OFFSET and self._upsert.deletes is Deletes.MARK:
            self._run("fold_last_puts", **self._winners)

    def _let_go(self, replacing: Sequence[OffsetRange], *, with_resolved: bool) -> Keys:
        again = replaced_arrays(replacing)
        pipeline = self._batch.pipeline
        rows = self._row("let_go_rows", **again, first_keys=FIRST_KEYS)
        if rows["found"] != rows["gone"]:
            raise self._hooks_fault("rows whose record is none any more to be deleted", f"{rows['gone']} of them")
        removed = self._row("let_go_removed", **again, pipeline=pipeline, first_keys=FIRST_KEYS)
        self._run("delete_read_dead_letters", **again, pipeline=pipeline, with_resolved=with_resolved)
        return _keys(rows, "lost") + _keys(removed, "lost")

    def _sweep(self) -> Keys:
        """Take away rows and removed keys that a rebuild did not read, and close dead letters that it did not read.

        Returns:
            Keys whose row goes, and that the log does not hold at all.
        """
        pipeline = {"pipeline": self._batch.pipeline}
        with self._hash_joins():
            rows = self._row("sweep_rows", first_keys=FIRST_KEYS)
            if rows["found"] != rows["gone"]:
                raise self._hooks_fault("rows that the log does not hold to be deleted", f"{rows['gone']} of them")
            self._run("sweep_removed", **pipeline)
            self._run("close_unread_dead_letters", **pipeline)
        return _keys(rows, "unread")

    def write(self) -> Mapping[TopicPartition, AppliedChanges]:
        """Write the newest change of each key, unless what stands is newer; return what applied, by partition.

        Raises:
            RecordsRefused: The target refused single records; all of them are named.
            TargetMismatch: A trigger or rule dropped or altered rows.
            RetryLater: Somebody else inserted rows of the same keys meanwhile.
        """
        self._write_history()
        counted = fetch_rows(self._cursor, "count_folded", self._names)
        marks = self._upsert.deletes is Deletes.MARK
        # Deletes come first: a value that moves from a removed row to another one finds its place free.
        gone = 0 if marks else self._run("fold_remove_rows")
        written = self._written(_FIRST, _LAST)
        if isinstance(written, psycopg2.Error):
            raise self._refused(written)
        if not marks:
            by = {"pipeline": self._batch.pipeline}
            self._run("fold_remember_removed", **by, batch_id=self._batch.batch_id)
            self._run("fold_forget_removed", **by)
        self._require_written(counted, gone, written, marks=marks)
        if self._rebuilt:
            # Last: from here on nobody reads the table until this transaction ends.
            self._rebuilt.lock_replaced()
            self._run_of_rebuilt("replace_table")
            self._rebuilt.name_indexes()
        return {
            TopicPartition(row["topic"], row["partition"]): AppliedChanges(
                rows=row["updates"] + row["inserts"], deletes=row["hits"] + row["misses"]
            )
            for row in counted
        }

    def _write_history(self) -> None:
        if self._batch.settings.history is None:
            return
        of_history = replace(self._batch, settings=history_settings(self._batch.settings))
        try:
            names = {**self._names, **self._statements.of_history(of_history.settings)}
            written = run_query(self._cursor, "write_history", names, **self._winners)
        except psycopg2.Error as error:
            raise refusals.target_fault(error, of_history) from None
        if written != self._staged:
            hooks = read_hooks(self._cursor, of_history.settings.target)
            expected, found = f"{self._staged} rows in the history", f"{written} of them"
            raise refusals.hooks_fault(of_history, hooks, expected=expected, found=found)

    def resolve(self, *, pipeline: str, request_id: str) -> tuple[int, int]:
        """Mark the dead letters behind the changes as resolved, once these are written.

        Returns:
            How many are replayed, and how many a newer version of their key has superseded.
        """
        row = self._row("resolve_folded", pipeline=pipeline, request_id=request_id)
        return row["replayed"], row["superseded"]

    def _written(self, first: str, last: str) -> tuple[int, int] | psycopg2.Error:
        """Write a stretch of the fold; return how many rows were altered and how many were inserted."""
        found: list[int] = []

        def write() -> int:
            updates = inserts = 0
            for is_partial, names in ((False, self._names), (True, self._filling)):
                if names is None:
                    continue

                def run(query: str, names: Identifiers = names, *, is_partial: bool = is_partial) -> int:
                    return run_query(self._cursor, query, names, is_partial=is_partial, first=first, last=last)

                updates, inserts = updates + run("fold_update_rows"), inserts + run("fold_insert_rows")
                if self._upsert.deletes is Deletes.MARK:
                    updates, inserts = updates + run("fold_mark_rows"), inserts + run("fold_insert_marked")
            found.extend((updates, inserts))
            return 0

        answer = refusals.attempted(self._cursor, write)
        return answer if isinstance(answer, psycopg2.Error) else (found[0], found[1])

    def _refused(self, error: psycopg2.Error) -> Exception:
        """Find every refused record; nothing that this writes is committed.

        Where the newest change of a key is refused, the one before it would be written, and may be refused, too. All
        are named at once: a load reads its refused records a second time, and no third time.
        """
        if error.pgcode == errorcodes.UNIQUE_VIOLATION and (taken := self._taken()).count:
            return RetryLater(
                "somebody else inserted rows of the same keys while the batch was published; nothing was published",
                expected="keys without a row, as they were when the batch was folded",
                found=str(taken),
                next_command="none: a retry finds these rows",
            )
        found: list[tuple[tuple[str, int, int] | None, psycopg2.Error]] = []
        answer: tuple[int, int] | psycopg2.Error = error
        while isinstance(answer, psycopg2.Error):
            more = self._refused_now()
            found += more
            if (
                not more
                or not all(record and is_bad_data(fault) for record, fault in more)
                or len(found) > MOST_REFUSED
            ):
                break
            self._leave_out([record for record, _ in more if record])
            answer = self._written(_FIRST, _LAST)
        return refusals.refused_records(iter(found), error, self._batch)

    def _refused_now(self) -> list[tuple[tuple[str, int, int] | None, psycopg2.Error]]:
        """Return the newest changes that the target refuses; all others are written, and taken back."""

        def attempt(first: str, last: str) -> int | psycopg2.Error:
            answer = self._written(first, last)
            return answer if isinstance(answer, psycopg2.Error) else 0

        found: list[tuple[tuple[str, int, int] | None, psycopg2.Error]] = []
        self._cursor.execute("SAVEPOINT refusals")
        for place, fault in islice(refusals.refused_places(self._cursor, _FOLD, attempt), MOST_REFUSED + 1):
            found.append((self._record_at(place), fault))
            if found[-1][0] is None or not is_bad_data(fault):
                break
        self._cursor.execute("ROLLBACK TO SAVEPOINT refusals")
        return found

    def _leave_out(self, records: Sequence[tuple[str, int, int]]) -> None:
        """Fold once more without these records."""
        topic, partition, offset = (list(part) for part in zip(*records, strict=True))
        self._run("leave_out_staged", record_topic=topic, record_partition=partition, record_offset=offset)
        self._run("drop_fold")
        self._fold_staged()
        self._find_last_puts()

    def _taken(self) -> Keys:
        return _keys(self._row("count_taken_keys", first_keys=FIRST_KEYS), "taken")

    def _record_at(self, place: str) -> tuple[str, int, int] | None:
        row = fetch_row(self._cursor, "folded_record_at", place=place)
        return (row["topic"], row["partition"], row["offset"]) if row else None

    def _require_written(
        self, counted: Sequence[Mapping[str, Any]], gone: int, written: tuple[int, int], *, marks: bool
    ) -> None:
        """Require that each change had its effect: rows were locked, so that only triggers and rules can prevent it."""
        updates, inserts, hits, misses = (
            sum(row[part] for row in counted) for part in ("updates", "inserts", "hits", "misses")
        )
        expected = (0, updates + hits, inserts + misses) if marks else (hits, updates, inserts)
        found = (gone, *written)
        if found != expected:
            told = "{} rows deleted, {} altered, {} inserted"
            raise self._hooks_fault(told.format(*expected), told.format(*found))
        if read_hooks(self._cursor, self._batch.settings.target):
            self._require_standing()

    def _require_standing(self) -> None:
        run_query(self._cursor, "run_deferred_triggers")
        compared = self._row("compare_folded", batch_id=self._batch.batch_id, first_keys=FIRST_KEYS)
        wrong = _keys(compared, "wrong")
        if wrong.count:
            raise self._hooks_fault("every key as its newest record says", f"otherwise {wrong}")

    def _hooks_fault(self, expected: str, found: str) -> TargetMismatch:
        hooks = read_hooks(self._cursor, self._batch.settings.target)
        return refusals.hooks_fault(self._batch, hooks, expected=expected, found=found)

    def _without_version(self, keys: Keys) -> TargetMismatch:
        metadata, target = self._batch.settings.metadata, self._batch.settings.target
        return TargetMismatch(
            f"rows of {target} do not say which record they hold; nothing was published",
            expected=f"values in {metadata.topic}, {metadata.generation}, {metadata.partition}, {metadata.offset}"
            " and in the column of the order, in every row of the table",
            found=str(keys),
            next_command="delete these rows, which the next batches write as they come, or set these columns, then "
            "clear load_batch",
        )

    @contextmanager
    def _hash_joins(self) -> Iterator[None]:
        """Compare all that was read with all that stands in one pass; a fault ends the transaction, and the setting."""
        self._run("prefer_hash_joins", is_wanted=True)
        yield
        self._run("prefer_hash_joins", is_wanted=False)

    def _analyze(self, table: str) -> None:
        run_query(self._cursor, "analyze_fold", {"fold_table": sql.Identifier(table)})

    def _run(self, query: str, **parameters: object) -> int:
        return run_query(self._cursor, query, self._names, **parameters)

    def _row(self, query: str, **parameters: object) -> dict[str, Any]:
        (row,) = fetch_rows(self._cursor, query, self._names, **parameters)
        return row


def _keys(row: Mapping[str, Any], what: str) -> Keys:
    return Keys(row[what], tuple(row[f"first_{what}"] or ()))

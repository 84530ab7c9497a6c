"""Inserts staged rows into the target, within the publish transaction.

Two things can go wrong that staging cannot know. INSERT refuses a record (no partition takes it, an index entry would
be too large, a CHECK over a column that only the target fills): the records are looked for and named, so that they can
become dead letters. Or a trigger or rule drops, moves, doubles or alters rows without a word: tables that have one are
compared with staging before COMMIT.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg2
from psycopg2 import sql

from kafka_ingest.adapters.postgres_audit import target_identifiers
from kafka_ingest.adapters.postgres_connection import Cursor
from kafka_ingest.adapters.postgres_publish_faults import hooks_fault, target_fault
from kafka_ingest.adapters.postgres_refusals import concerns_one_row, is_bad_data, refusal
from kafka_ingest.adapters.postgres_rows import fetch_row, query_with_identifiers, range_arrays, rows_of
from kafka_ingest.adapters.postgres_staging import staging_table
from kafka_ingest.adapters.target_catalog import read_hooks
from kafka_ingest.core.batch import Batch
from kafka_ingest.core.dead_letters import RefusedRecord
from kafka_ingest.core.errors import RecordsRefused
from kafka_ingest.core.outcome import BatchOutcome
from kafka_ingest.core.replacement import FIRST_OFFSETS
from kafka_ingest.core.staging import staging_name
from kafka_ingest.core.target_shape import written_columns

#: Each refused record costs some twenty small INSERTs. As many are more than a few bad records: a person must look.
MOST_REFUSED = 1_000

#: Places that a block of the staging table can have at most: a block of 32 KB, the largest, takes 1,168 rows
#: (MaxHeapTuplesPerPage in htup_details.h, PostgreSQL 18).
_PLACES_IN_BLOCK = 2_048


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
        self._winners = {"task": list(outcome.winners.keys()), "attempt": list(outcome.winners.values())}
        self._staging = staging_table(staging_name(batch.batch_id, batch.claim), "rows")
        columns = [sql.Identifier(column.name) for column in written_columns(batch.settings)]
        self._names: dict[str, sql.Composable] = {
            "staging": self._staging,
            **target_identifiers(batch.settings.target, batch.settings.metadata.identity),
            "columns": sql.SQL(", ").join(columns),
            "batch_column": sql.Identifier(batch.settings.metadata.batch_id),
        }

    def insert(self) -> int:
        """Inserts the rows; gives the number that stands in the target.

        Raises:
            RecordsRefused: The target refused single records; all of them are named.
            TargetMismatch: A constraint, trigger or rule of the target stands in the way.
            StagingLost: The staging table is gone.
        """
        try:
            inserted = self._attempt("publish_rows")
            if isinstance(inserted, psycopg2.Error):
                raise self._refused(inserted) from None
            return self._standing(inserted)
        except psycopg2.Error as error:
            # The server's detail can quote a row: it must not follow as the cause.
            raise target_fault(error, self._batch) from None

    def _attempt(self, query: str, **parameters: str) -> int | psycopg2.Error:
        """Runs an INSERT in a savepoint; gives its count, or the error, it undone, where some row may be the cause."""
        statement = query_with_identifiers(f"queries/{query}", **self._names)
        self._cursor.execute("SAVEPOINT rows")
        try:
            self._cursor.execute(statement, {**self._winners, **parameters})
        except psycopg2.Error as error:
            if not concerns_one_row(error):
                raise
            self._cursor.execute("ROLLBACK TO SAVEPOINT rows")
            self._cursor.execute("RELEASE SAVEPOINT rows")
            return error
        inserted = int(self._cursor.rowcount)
        self._cursor.execute("RELEASE SAVEPOINT rows")
        return inserted

    def _refused(self, error: psycopg2.Error) -> Exception:
        """Looks for every refused record; nothing that this inserts is committed."""
        found: list[RefusedRecord] = []
        for place, fault in self._refused_places():
            record = self._record_at(place)
            if record is None:  # a statement without rows is refused, too: no row is the cause
                return target_fault(error, self._batch)
            topic, partition, offset = record
            if not is_bad_data(fault):
                return target_fault(fault, self._batch, place=f"{topic}[{partition}] offset {offset}")
            found.append(RefusedRecord(topic, partition, offset, *refusal(fault, may_quote=False)))
            if len(found) > MOST_REFUSED:
                return target_fault(error, self._batch, place=f"more than {MOST_REFUSED} records, the first {found[0]}")
        if not found:  # it passes now: something else than the records decides
            return target_fault(error, self._batch)
        batch = self._batch
        return RecordsRefused.naming(
            found, target=str(batch.settings.target), pipeline=batch.pipeline, batch_id=batch.batch_id
        )

    def _refused_places(self) -> Iterator[tuple[int, psycopg2.Error]]:
        """Halves the staging table's file down to single rows; stretches that are taken stay inserted."""
        row = fetch_row(self._cursor, "staging_blocks", staging=self._staging.as_string(self._cursor.connection))
        stretches = [(0, (row or {"blocks": 0})["blocks"] * _PLACES_IN_BLOCK)]
        while stretches:
            first, last = stretches.pop()
            answer = self._attempt("publish_rows_between", first=_ctid(first), last=_ctid(last))
            if not isinstance(answer, psycopg2.Error):
                continue
            if last - first == 1:
                yield first, answer
            else:
                middle = (first + last) // 2
                stretches += [(middle, last), (first, middle)]

    def _record_at(self, place: int) -> tuple[str, int, int] | None:
        statement = query_with_identifiers("queries/staged_record_at", **self._names)
        self._cursor.execute(statement, {"place": _ctid(place)})
        return next(iter(self._cursor.fetchall()), None)

    def _standing(self, inserted: int) -> int:
        """Gives the number of rows in the target; compares them with staging where something can have altered them.

        INSERT holds the target's lock by now: nobody adds a trigger or rule any more.
        """
        hooks = [hook for hook in read_hooks(self._cursor, self._batch.settings.target) if hook.on_insert]
        if not hooks:
            return inserted
        query: dict[str, Any] = {**self._winners, **range_arrays(self._batch.ranges)}
        query |= {"batch_id": self._batch.batch_id, "first_offsets": FIRST_OFFSETS}
        self._cursor.execute(query_with_identifiers("queries/run_deferred_triggers"))
        self._cursor.execute(query_with_identifiers("queries/compare_published", **self._names), query)
        (compared,) = rows_of(self._cursor)
        if compared["staged"] == compared["sound"] == compared["standing"]:
            return int(compared["standing"])
        first = ", ".join(compared["first_wrong"] or ())
        found = f"{compared['standing']} rows, {compared['sound']} of them as staged; the first others: {first}"
        raise hooks_fault(self._batch, hooks, expected=f"{compared['staged']} rows as they were staged", found=found)


def _ctid(place: int) -> str:
    block, item = divmod(place, _PLACES_IN_BLOCK)
    return f"({block},{item})"

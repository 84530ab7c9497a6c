"""What it means when PostgreSQL refuses a row or a statement of a publish."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import psycopg2
from psycopg2 import errorcodes, sql

from kafka_ingest.errors import (
    AccountingMismatch,
    DeadLetterReason,
    Fenced,
    IngestError,
    RecordsRefused,
    RefusedRecord,
    StagingLost,
    TargetMismatch,
)
from kafka_ingest.postgres.catalog import TargetHook
from kafka_ingest.postgres.database import Cursor, fetch_row, ingest_error, server_message, whole_message
from kafka_ingest.postgres.staging_tables import STAGING_SCHEMA
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.target import CheckConstraint, quoted_table

# What PostgreSQL's refusal of a statement says about the row that it refused.
#
# SQLSTATE classes: https://www.postgresql.org/docs/18/errcodes-appendix.html. Nothing here quotes the server's detail
# or context, which can hold the row.

#: 22 data exception, 23 integrity constraint violation, 54 program limit exceeded (a tsvector, a row or an index entry
#: that is too large).
_CLASSES_OF_BAD_DATA = ("22", "23", "54")
_NEVER_BAD_DATA = {
    # These come only from a wrong encoding of COPY itself, never from a record.
    errorcodes.BAD_COPY_FILE_FORMAT,
    errorcodes.INVALID_BINARY_REPRESENTATION,
    # Other rows decide these: the record may be right, and a person must choose.
    errorcodes.FOREIGN_KEY_VIOLATION,
    errorcodes.UNIQUE_VIOLATION,
    errorcodes.EXCLUSION_VIOLATION,
}
#: P0 PL/pgSQL error (RAISE), 38 external routine exception, 39 external routine invocation exception.
_CLASSES_OF_FUNCTIONS = ("P0", "38", "39")
#: The first line of the context names the function, and its arguments' types only (plpgsql_exec_error_callback in
#: pl_exec.c, PostgreSQL 18).
_FUNCTION = re.compile(r"PL/pgSQL (function \S+\([^)]*\))")


def is_bad_data(error: psycopg2.Error) -> bool:
    """Tell whether the row's own values are the fault: the record becomes a dead letter."""
    code = error.pgcode or ""
    return code.startswith(_CLASSES_OF_BAD_DATA) and code not in _NEVER_BAD_DATA


def was_raised(error: psycopg2.Error) -> bool:
    """Tell whether a function of a CHECK, a generated column or a trigger raised it, for an unknown reason."""
    return (error.pgcode or "").startswith(_CLASSES_OF_FUNCTIONS)


def concerns_one_row(error: psycopg2.Error) -> bool:
    """Tell whether one row can be the cause: it is a constraint, a limit, a value, or a function that raises."""
    return was_raised(error) or (error.pgcode or "").startswith(_CLASSES_OF_BAD_DATA)


def refusal(
    error: psycopg2.Error, checks: Sequence[CheckConstraint] = (), *, may_quote: bool = True
) -> tuple[DeadLetterReason, str]:
    """Return the reason and the detail of a row that PostgreSQL refused on its own.

    Args:
        error: The error from PostgreSQL.
        checks: CHECKs whose expressions are known; of others only the name is shown.
        may_quote: Whether the detail may quote a value of the record: in a dead letter yes, in a message never.
    """
    if error.pgcode == errorcodes.NOT_NULL_VIOLATION and error.diag.column_name:
        return DeadLetterReason.NOT_NULL_VIOLATION, not_null_detail(error.diag.column_name)
    if error.pgcode == errorcodes.CHECK_VIOLATION and error.diag.constraint_name:
        known = {check.name: check for check in checks}
        name = error.diag.constraint_name
        return DeadLetterReason.CHECK_VIOLATION, check_detail(known.get(name, CheckConstraint(name, "")))
    message = whole_message(error) if may_quote else server_message(error)
    return DeadLetterReason.REFUSED_BY_DATABASE, f"{message} (SQLSTATE {error.pgcode})"


def not_null_detail(column: str) -> str:
    """Return the text that a column must not be NULL."""
    return f"column {column} of the target is NOT NULL"


def check_detail(check: CheckConstraint) -> str:
    """Return the text that a CHECK is false."""
    return f"CHECK {check.name} of the target is false" + (f": {check.expression}" if check.expression else "")


def raised_by(error: psycopg2.Error) -> str:
    """Name the function that raised an error, as far as the server tells, without its message: that can quote rows."""
    found = _FUNCTION.search(error.diag.context or "")
    return f"{found[1] if found else 'a function'} raised SQLSTATE {error.pgcode}"


# What it means when PostgreSQL refuses a statement of a publish.
#
# Messages name the constraint and never the row: the server's detail can quote the record.


def staging_fault(error: psycopg2.Error) -> IngestError | None:
    """Return the error for a staging table that is gone, or for a sick database; ``None`` for anything else."""
    if error.pgcode == errorcodes.UNDEFINED_TABLE and STAGING_SCHEMA in server_message(error):
        return StagingLost(
            "the staging table of this attempt is gone",
            found=server_message(error),
            next_command="none: a retry stages the batch again",
        )
    return ingest_error(error, "publish the staged records")


def target_fault(error: psycopg2.Error, batch: Batch, *, place: str = "") -> IngestError:
    """Return the error for a statement that writes the target, or for a COMMIT that it refused.

    Every error that is neither missing staging nor a sick database comes from the target: a constraint (class 23), a
    trigger (any class), or a table that was altered since the batch was planned (class 42).

    Args:
        error: What psycopg2 raised.
        batch: The claimed batch.
        place: The record concerned, where known.
    """
    found = _refusal(error)
    return staging_fault(error) or TargetMismatch(
        f"the target {batch.settings.target} refused the batch; nothing was published",
        expected="a table that takes every staged row",
        found=f"{place}: {found}" if place else found,
        next_command=_cure(error, batch),
    )


def hooks_fault(batch: Batch, hooks: Sequence[TargetHook], *, expected: str, found: str) -> TargetMismatch:
    """Return the error for rows that a trigger or rule dropped or altered."""
    return TargetMismatch(
        f"triggers or rules of {batch.settings.target} drop, keep, move or alter rows; nothing was published",
        expected=f"{expected}, found by topic, generation, partition, offset and batch id",
        found=f"{found}; it has {', '.join(map(str, hooks))}",
        next_command="let them leave rows and metadata columns alone, or drop them, then clear load_batch;"
        " records that are not wanted are left out by the producer or a view",
    )


def refused_by_ledger(error: psycopg2.IntegrityError, *, what: str, expected: str) -> AccountingMismatch:
    """Return the error for rows that a constraint of the ledger refused; the constraints are named for their rules."""
    return AccountingMismatch(
        f"the ledger refused the {what}; nothing was published",
        expected=expected,
        found=_refusal(error),
    )


# Which records the target refuses, where a statement over all of them failed: found by halving.

#: Each refused record costs some twenty small statements. More than this are not a few bad records: a person must look.
MOST_REFUSED = 1_000

#: Most places in a block of a table's file: a block of 32 KB, the largest, takes 1,168 rows
#: (MaxHeapTuplesPerPage in htup_details.h, PostgreSQL 18).
_PLACES_IN_BLOCK = 2_048


def attempted(cursor: Cursor, write: Callable[[], int]) -> int | psycopg2.Error:
    """Write in a savepoint; return the count, or the error, all undone, where some row may be the cause."""
    cursor.execute("SAVEPOINT rows")
    try:
        written = write()
    except psycopg2.Error as error:
        if not concerns_one_row(error):
            raise
        cursor.execute("ROLLBACK TO SAVEPOINT rows")
        cursor.execute("RELEASE SAVEPOINT rows")
        return error
    cursor.execute("RELEASE SAVEPOINT rows")
    return written


def refused_places(
    cursor: Cursor, table: sql.Identifier, attempt: Callable[[str, str], int | psycopg2.Error]
) -> Iterator[tuple[str, psycopg2.Error]]:
    """Halve a table's file down to single rows, and yield those that fail; stretches without an error stay written.

    Args:
        cursor: The transaction.
        table: What is halved.
        attempt: Writes what comes of its rows in ``[first, last)``, each a place in the file (ctid as text).
    """
    row = fetch_row(cursor, "staging_blocks", staging=table.as_string(cursor.connection))
    stretches = [(0, (row or {"blocks": 0})["blocks"] * _PLACES_IN_BLOCK)]
    while stretches:
        first, last = stretches.pop()
        answer = attempt(_ctid(first), _ctid(last))
        if not isinstance(answer, psycopg2.Error):
            continue
        if last - first == 1:
            yield _ctid(first), answer
        else:
            middle = (first + last) // 2
            stretches += [(middle, last), (first, middle)]


def _ctid(place: int) -> str:
    block, item = divmod(place, _PLACES_IN_BLOCK)
    return f"({block},{item})"


def refused_records(
    places: Iterable[tuple[tuple[str, int, int] | None, psycopg2.Error]], error: psycopg2.Error, batch: Batch
) -> IngestError:
    """Return the error that names every refused record, or why no record is the cause.

    Args:
        places: Topic, partition and offset of each record that failed alone, and its error.
        error: That of the statement over all of them.
        batch: The batch.
    """
    found: list[RefusedRecord] = []
    for record, fault in places:
        if record is None:  # a statement without rows is refused, too: no row is the cause
            return target_fault(error, batch)
        topic, partition, offset = record
        if not is_bad_data(fault):
            return target_fault(fault, batch, place=f"{topic}[{partition}] offset {offset}")
        found.append(RefusedRecord(topic, partition, offset, *refusal(fault, may_quote=False)))
        if len(found) > MOST_REFUSED:
            return target_fault(error, batch, place=f"more than {MOST_REFUSED} records, the first {found[0]}")
    if not found:  # it passes now: something other than the records decides
        return target_fault(error, batch)
    return RecordsRefused.naming(
        found, target=str(batch.settings.target), pipeline=batch.pipeline, batch_id=batch.batch_id
    )


def fenced(batch: Batch, found: str) -> Fenced:
    """Return the error for an attempt that lost its batch."""
    return Fenced(
        "this attempt no longer owns the batch and changes nothing",
        expected=f"state planned, claim {batch.claim}",
        found=found,
        next_command="none: the newer attempt or plan does the work",
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

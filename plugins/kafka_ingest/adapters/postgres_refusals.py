"""What PostgreSQL's refusal of a statement says about the row that it refused.

SQLSTATE classes: https://www.postgresql.org/docs/18/errcodes-appendix.html. Nothing here quotes the server's detail or
context, which can hold the row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import psycopg2
from psycopg2 import errorcodes

from kafka_ingest.adapters.postgres_connection import server_message, whole_message
from kafka_ingest.core.dead_letters import DeadLetterReason
from kafka_ingest.core.target_shape import CheckConstraint

#: 22 data exception, 23 integrity constraint violation, 54 program limit exceeded (a tsvector, a row or an index entry
#: that is too large).
_CLASSES_OF_BAD_DATA = ("22", "23", "54")
_NEVER_BAD_DATA = {
    # Only a wrong encoding of COPY itself says these, never a record.
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
    """Whether the row's own values are the fault: the record becomes a dead letter."""
    code = error.pgcode or ""
    return code.startswith(_CLASSES_OF_BAD_DATA) and code not in _NEVER_BAD_DATA


def was_raised(error: psycopg2.Error) -> bool:
    """Whether a function of a CHECK, a generated column or a trigger raised it: some record did, nobody knows why."""
    return (error.pgcode or "").startswith(_CLASSES_OF_FUNCTIONS)


def concerns_one_row(error: psycopg2.Error) -> bool:
    """Whether looking for the row that causes it makes sense: a constraint, a limit, a value, or a raising function."""
    return was_raised(error) or (error.pgcode or "").startswith(_CLASSES_OF_BAD_DATA)


def refusal(
    error: psycopg2.Error, checks: Sequence[CheckConstraint] = (), *, may_quote: bool = True
) -> tuple[DeadLetterReason, str]:
    """Gives the reason and the detail of a row that PostgreSQL refused on its own.

    Args:
        error: What it said.
        checks: CHECKs whose expressions are known; of others only the name is told.
        may_quote: Whether the detail may quote a value of the record, as a dead letter's does; a message's must not.
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
    """Says that a column must not be NULL."""
    return f"column {column} of the target is NOT NULL"


def check_detail(check: CheckConstraint) -> str:
    """Says that a CHECK is false."""
    return f"CHECK {check.name} of the target is false" + (f": {check.expression}" if check.expression else "")


def raised_by(error: psycopg2.Error) -> str:
    """Names the function that raised an error, as far as the server tells, without its message: that can quote rows."""
    found = _FUNCTION.search(error.diag.context or "")
    return f"{found[1] if found else 'a function'} raised SQLSTATE {error.pgcode}"

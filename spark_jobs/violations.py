"""Finds the rows of a chunk that the target's NOT NULLs and CHECKs refuse, and says why PostgreSQL refused a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg2
from psycopg2 import sql

from kafka_ingest.adapters.postgres_refusals import check_detail, not_null_detail, refusal
from kafka_ingest.adapters.sql_files import sql_text
from kafka_ingest.core.dead_letters import DeadLetterReason
from kafka_ingest.core.target_shape import TargetShape
from spark_jobs.decode.decoded import DeadRow


@dataclass(frozen=True, slots=True)
class Violation:
    """A row that a constraint refuses: its offset, and the first constraint in the order NOT NULLs, CHECKs."""

    offset: int
    reason: DeadLetterReason
    detail: str


@dataclass(frozen=True, slots=True)
class _Constraint:
    is_violated: sql.Composable
    reason: DeadLetterReason
    detail: str


class Violations:
    """Asks the session's chunk table for rows that violate the target's constraints.

    Args:
        shape: The target's columns and CHECKs.
        offset_column: Column that identifies a row within a chunk.
    """

    def __init__(self, shape: TargetShape, offset_column: str) -> None:
        self._constraints = (*_not_nulls(shape), *_checks(shape))
        self._statement = sql.SQL(sql_text("queries/chunk_violations")).format(
            offset=sql.Identifier(offset_column),
            constraints=sql.SQL(", ").join([constraint.is_violated for constraint in self._constraints]),
        )

    def find(self, cursor: Any) -> Sequence[Violation]:
        """Gives the violating rows by rising offset; reads the whole chunk table once."""
        if not self._constraints:
            return ()
        cursor.execute(self._statement)
        return [self._violation(offset, violated) for offset, violated in cursor.fetchall()]

    def _violation(self, offset: int, violated: Sequence[bool]) -> Violation:
        constraint = self._constraints[violated.index(True)]
        return Violation(offset, constraint.reason, constraint.detail)


def refused_row(error: psycopg2.Error, row_index: int, shape: TargetShape) -> DeadRow:
    """Says why PostgreSQL refused a record on its own, in its primary message or by the constraint's name."""
    reason, detail = refusal(error, shape.checks)
    return DeadRow(row_index, reason, detail)


def _not_nulls(shape: TargetShape) -> list[_Constraint]:
    return [
        _Constraint(
            sql.SQL("({} IS NULL)").format(sql.Identifier(column.name)),
            DeadLetterReason.NOT_NULL_VIOLATION,
            not_null_detail(column.name),
        )
        for column in shape.columns
        if column.is_not_null
    ]


def _checks(shape: TargetShape) -> list[_Constraint]:
    # A CHECK refuses a row only where it is false; NULL passes. The expression is the catalog's own text.
    return [
        _Constraint(
            sql.SQL("(({}) IS FALSE)").format(sql.SQL(check.expression)),
            DeadLetterReason.CHECK_VIOLATION,
            check_detail(check),
        )
        for check in shape.checks
    ]

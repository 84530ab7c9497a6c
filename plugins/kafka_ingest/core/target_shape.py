"""The target table as its catalog describes it, as far as staging must know it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column that the pipeline fills: name, type in PostgreSQL's spelling, and whether it is NOT NULL."""

    name: str
    type: str
    is_not_null: bool


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """A CHECK constraint of the target: its name and its expression as ``pg_get_expr`` gives it."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class TargetShape:
    """The columns that the pipeline fills, in the order in which they are written, and the table's CHECKs."""

    columns: tuple[TargetColumn, ...]
    checks: tuple[CheckConstraint, ...]

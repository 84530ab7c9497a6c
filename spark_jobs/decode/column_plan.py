"""What decoding knows of one column: its name, where its value stands, and whether NULL is allowed."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_ingest.core.column_types import ColumnType, parse_column_type
from kafka_ingest.core.dead_letters import DeadLetterReason
from kafka_ingest.core.json_path import json_path_text
from kafka_ingest.core.settings import BatchSettings
from kafka_ingest.core.target_shape import TargetShape, written_columns
from spark_jobs.decode.misfits import Misfit


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One written column.

    Attributes:
        name: Name of the column.
        type: Its type.
        path: Keys from the root of a JSON value; empty for the root, and for columns that no JSON path fills.
        source: Where its value comes from, for details: ``the value``, ``the key``, ``the record time``.
        required: Whether the pipeline refuses NULL.
        not_null: Whether the target refuses NULL.
    """

    name: str
    type: ColumnType
    path: tuple[str, ...] = ()
    source: str = "the value"
    required: bool = False
    not_null: bool = False
    place: str = field(init=False)

    def __post_init__(self) -> None:
        where = json_path_text(self.path) if self.path else self.source
        object.__setattr__(self, "place", f'column "{self.name}" from {where}')

    @property
    def refuses_null(self) -> bool:
        """Whether a record without a value for this column is a dead letter."""
        return self.required or self.not_null

    def null_misfit(self, found: str) -> Misfit:
        """Why NULL does not fit; only for a column that refuses it."""
        if self.required:
            return Misfit(DeadLetterReason.MISSING_REQUIRED, f"{self.place}: expected a value, found {found}")
        expected = "a value, as the column is NOT NULL in the target"
        return Misfit(DeadLetterReason.NOT_NULL_VIOLATION, f"{self.place}: expected {expected}, found {found}")


def value_plans(settings: BatchSettings, shape: TargetShape) -> tuple[ColumnPlan, ...]:
    """Plans the columns that the value fills, in their order."""
    not_null = _not_null_names(shape)
    return tuple(
        ColumnPlan(c.name, parse_column_type(c.type), c.path, "the value", c.required, c.name in not_null)
        for c in settings.value.columns
    )


def key_plan(settings: BatchSettings, shape: TargetShape) -> ColumnPlan | None:
    """Plans the column that the key fills, if there is one."""
    key = settings.key
    if key is None:
        return None
    types = {column.name: column.type for column in written_columns(settings)}
    is_not_null = key.column in _not_null_names(shape)
    return ColumnPlan(key.column, parse_column_type(types[key.column]), (), "the key", key.required, is_not_null)


def metadata_plan(name: str, type_name: str, source: str, shape: TargetShape) -> ColumnPlan:
    """Plans a column that neither value nor key fills."""
    return ColumnPlan(name, parse_column_type(type_name), (), source, False, name in _not_null_names(shape))


def _not_null_names(shape: TargetShape) -> frozenset[str]:
    return frozenset(column.name for column in shape.columns if column.is_not_null)

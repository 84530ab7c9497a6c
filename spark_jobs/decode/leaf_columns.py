"""Columns from the values of leaves, many at once: in a column's own type where that is sure, else from their JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.avro_leaves import category, leaf_json, time_texts
from spark_jobs.decode.avro_schema import AvroType
from spark_jobs.decode.event_values import column_rule
from spark_jobs.decode.paths import PathNode
from spark_jobs.decode.record_bytes import Numbers
from spark_jobs.decode.texts import JsonbRule, default_of
from spark_jobs.decode.values import ColumnPlan, QuickColumn, ValueRule, positions_containing, read_each

# Which columns can be filled, of records of a schema.


def may_have_others(of: AvroType, tree: PathNode) -> bool:
    """Tell whether a record may have a field that a tree does not have, in an object that columns do not take whole."""
    if tree.places:
        return False
    if of.other_than_null is not None:
        of = of.other_than_null
    if of.kind != "record" or of.meaning:
        return True
    known = tree.children
    return any(name not in known or may_have_others(field, known[name]) for name, field in of.fields)


def with_one_path(plan: ColumnPlan, root: AvroType, *, null_is_missing: bool = False) -> ColumnPlan | None:
    """Return the plan with the one path that the schema has of its paths; ``None`` where that is not sure.

    Of several paths, the first that the schema has counts if no union is on it, for there a record may have null. Where
    null is how a missing value is told, no first path is sure.
    """
    kept = [(path, found) for path in plan.paths if (found := _way(root, path)) is not None]
    if any(found == "unsure" for _, found in kept):
        return None
    if len(kept) > 1 and (null_is_missing or kept[0][1] != "sure"):
        return None
    if not kept:
        return replace(plan, other_paths=())
    return replace(plan, path=kept[0][0], other_paths=(), default=None)  # null is not missing


def _way(root: AvroType, path: Sequence[str]) -> str | None:
    """Tell whether every record has a path (``sure``), or those without null on it; ``None``: no record has it.

    ``unsure`` where it leads through anything but records and unions of null and a record.
    """
    of, found = root, "sure" if path else "unsure"
    for key in path:
        if of.other_than_null is not None:
            of, found = of.other_than_null, "nullable"
        if of.kind != "record" or of.meaning:
            return "unsure"
        below = dict(of.fields).get(key)
        if below is None:
            return None
        of = below
    return found


# Columns from values.


@cache
def rule_of(plan: ColumnPlan) -> ValueRule:
    """Return the rule that reads a column's values of a binary format."""
    return column_rule(plan, of_binary=True)


@cache
def missing_of(plan: ColumnPlan) -> pa.Scalar:
    """Return what a column has where the schema has none of its paths."""
    return pa.scalar(default_of(plan), rule_of(plan).arrow_type)


def spread(array: pa.Array, places: Numbers, length: int) -> pa.Array:
    """Return an array that has these values at these places, and null elsewhere."""
    if len(places) == length:
        return array
    found = np.full(length, -1)
    found[places] = np.arange(len(places))
    return array.take(pa.array(found, mask=found < 0))


def column_of_texts(of: AvroType, rule: ValueRule, texts: pa.Array) -> QuickColumn:
    """Read a column of JSON values of a type."""
    if isinstance(rule, JsonbRule):
        is_null = pc.equal(texts, "null")
        values = pc.if_else(is_null, pa.scalar(None, pa.string()), texts) if pc.any(is_null).as_py() else texts
        return QuickColumn(values, _jsonb_doubtful(of, rule, texts))
    values = texts.cast(pa.binary()).to_pylist()
    return rule.quick(values) if rule.quick_type is msgspec.Raw else read_each(rule, values)


def _jsonb_doubtful(of: AvroType, rule: JsonbRule, texts: pa.Array) -> list[int]:
    """Search texts for numbers beyond numeric's limits only where the type has any: the search takes 80 ns a text."""
    if of.holds(lambda inner: inner.kind in ("float", "double") or "decimal" in inner.meaning):
        return rule.doubtful(texts)
    return positions_containing(texts, "\\u0000", sign=b"\\")


# What the values of a leaf are in a column's type. Where no maker stands, or one gives ``None``, their JSON is read.


def _column(values: Numbers, doubtful: Numbers) -> QuickColumn:
    return QuickColumn(pa.array(values), np.flatnonzero(doubtful).tolist())


def _boolean(_of: AvroType, _plan: ColumnPlan, values: Any) -> QuickColumn:
    return QuickColumn(pa.array(values))


def _integer(_of: AvroType, plan: ColumnPlan, values: Any) -> QuickColumn:
    kind = np.dtype(rule_of(plan).arrow_type.to_pandas_dtype())
    bounds = np.iinfo(kind)
    return _column(values.astype(kind), (values < bounds.min) | (values > bounds.max))


def _whole_float(_of: AvroType, plan: ColumnPlan, values: Any) -> QuickColumn:
    """Take whole numbers up to where a float of the width misses one."""
    kind = np.dtype(rule_of(plan).arrow_type.to_pandas_dtype())
    bound = 2 ** np.finfo(kind).nmant
    return _column(values.astype(kind), (values > bound) | (values < -bound))


def _float(_of: AvroType, plan: ColumnPlan, values: Any) -> QuickColumn:
    kind = np.dtype(rule_of(plan).arrow_type.to_pandas_dtype())
    return _column(values.astype(kind), ~np.isfinite(values))


def _number(_of: AvroType, plan: ColumnPlan, values: Any) -> QuickColumn:
    return QuickColumn(pa.array(values).cast(pa.string()), _too_large(plan, values, 0))


def _too_large(plan: ColumnPlan, values: Numbers, scale: int) -> list[int]:
    """Return where an unscaled number has more digits before the point than the column."""
    if plan.type.precision is None or plan.type.scale is None:
        return []
    bound = 10 ** (plan.type.precision - plan.type.scale + scale)
    return np.flatnonzero((values >= bound) | (values <= -bound)).tolist()


def _text(_of: AvroType, plan: ColumnPlan, values: Any) -> QuickColumn:
    return rule_of(plan).quick(values)


def _bytea(_of: AvroType, plan: ColumnPlan, values: Any) -> QuickColumn:
    return QuickColumn(values.cast(rule_of(plan).arrow_type))


def _decimal(of: AvroType, plan: ColumnPlan, values: Any) -> QuickColumn | None:
    """Take decimals of no more digits after the point than the column."""
    texts = leaf_json(of, values)
    if texts is None or (plan.type.scale is not None and plan.type.scale < of.digits):
        return None
    return QuickColumn(texts.array, [*texts.doubtful, *_too_large(plan, values[0], of.digits)])


def _time(of: AvroType, plan: ColumnPlan, values: Any) -> QuickColumn:
    texts = time_texts(of, values)
    column = rule_of(plan).quick(texts.array)
    return QuickColumn(column.array, [*column.doubtful, *texts.doubtful])


_MAKERS: Mapping[tuple[str, str], Callable[[AvroType, ColumnPlan, Any], QuickColumn | None]] = {
    ("boolean", "boolean"): _boolean,
    **{("integer", name): _integer for name in ("smallint", "integer", "bigint")},
    **{("integer", name): _whole_float for name in ("real", "double precision")},
    ("integer", "numeric"): _number,
    ("float", "real"): _float,
    ("float", "double precision"): _float,
    ("double", "double precision"): _float,
    **{("string", name): _text for name in ("text", "character varying", "uuid", "date")},
    **{("string", f"{name} time zone"): _text for name in ("timestamp with", "timestamp without", "time without")},
    ("bytes", "bytea"): _bytea,
    ("decimal", "numeric"): _decimal,
    ("date", "date"): _time,
    ("time", "time without time zone"): _time,
    ("instant", "timestamp with time zone"): _time,
    ("local", "timestamp without time zone"): _time,
}


def column_of(of: AvroType, plan: ColumnPlan, values: Any) -> QuickColumn | None:
    """Return what :func:`read_leaf` read in a column's type; ``None`` where its JSON must be read."""
    if plan.conversion or plan.type.is_array or (plan.unavailable and plan.type.name == "bytea"):
        return None
    make = _MAKERS.get((category(of), plan.type.name))
    return make(of, plan, values) if make else None

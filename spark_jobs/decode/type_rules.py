"""Which rule reads which column type."""

from __future__ import annotations

from collections.abc import Callable

from kafka_ingest.core.column_types import ColumnType
from spark_jobs.decode.arrays import ArrayRule
from spark_jobs.decode.decimals import NumericRule
from spark_jobs.decode.jsonb import JsonbRule
from spark_jobs.decode.numbers import BooleanRule, FloatRule, IntegerRule
from spark_jobs.decode.texts import ByteaRule, TextRule, UuidRule
from spark_jobs.decode.times import DATE_RULE, TIME_RULE, TIMESTAMP_RULE, TIMESTAMPTZ_RULE
from spark_jobs.decode.value_rules import ValueRule

_RULES: dict[str, Callable[[ColumnType], ValueRule]] = {
    "boolean": lambda _: BooleanRule(),
    "smallint": lambda _: IntegerRule("smallint", bits=16),
    "integer": lambda _: IntegerRule("integer", bits=32),
    "bigint": lambda _: IntegerRule("bigint", bits=64),
    "real": lambda _: FloatRule("real", bits=32),
    "double precision": lambda _: FloatRule("double precision", bits=64),
    "numeric": lambda of: NumericRule(of.sql, precision=of.precision, scale=of.scale),
    "text": lambda _: TextRule(),
    "character varying": lambda of: TextRule(of.length),
    "date": lambda _: DATE_RULE,
    "time without time zone": lambda _: TIME_RULE,
    "timestamp without time zone": lambda _: TIMESTAMP_RULE,
    "timestamp with time zone": lambda _: TIMESTAMPTZ_RULE,
    "uuid": lambda _: UuidRule(),
    "jsonb": lambda _: JsonbRule(),
    "bytea": lambda _: ByteaRule(),
}


def rule_for(column_type: ColumnType) -> ValueRule:
    """Gives the rule of a column type; of an array, the array rule over its element's rule."""
    rule = _RULES[column_type.name](column_type.element)
    return ArrayRule(rule) if column_type.is_array else rule

"""Column types: every spelling ends in PostgreSQL's own, all else is refused; and which types hold which."""

from __future__ import annotations

import pytest

from kafka_ingest.column_types import ColumnType, can_hold, parse_column_type


# The right-hand sides are what PostgreSQL 18 answers to SELECT format_type(atttypid, atttypmod) for such a column.
@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("boolean", "boolean"),
        ("bool", "boolean"),
        ("int2", "smallint"),
        ("int", "integer"),
        ("int4", "integer"),
        ("INTEGER", "integer"),
        ("int8", "bigint"),
        ("float4", "real"),
        ("float8", "double precision"),
        ("float", "double precision"),
        ("double   precision", "double precision"),
        ("decimal", "numeric"),
        ("numeric(10)", "numeric(10,0)"),
        ("decimal(10,2)", "numeric(10,2)"),
        ("dec(10,2)", "numeric(10,2)"),
        ("numeric ( 10 , 2 )", "numeric(10,2)"),
        ("text", "text"),
        ("varchar", "character varying"),
        ("varchar(20)", "character varying(20)"),
        ("char varying(20)", "character varying(20)"),
        ("character varying(20)", "character varying(20)"),
        ("date", "date"),
        ("time", "time without time zone"),
        ("timestamp", "timestamp without time zone"),
        ("timestamp without time zone", "timestamp without time zone"),
        ("timestamptz", "timestamp with time zone"),
        ("Timestamp With Time Zone", "timestamp with time zone"),
        ("uuid", "uuid"),
        ("jsonb", "jsonb"),
        ("bytea", "bytea"),
        ("text[]", "text[]"),
        ("int8 []", "bigint[]"),
        ("varchar(5)[]", "character varying(5)[]"),
        ("numeric(4,1)[]", "numeric(4,1)[]"),
        ("timestamptz[]", "timestamp with time zone[]"),
        ("bytea[]", "bytea[]"),
    ],
)
def test_every_spelling_becomes_that_of_format_type(text: str, sql: str) -> None:
    assert parse_column_type(text).sql == sql
    assert parse_column_type(sql) == parse_column_type(text)


def test_modifiers_are_kept_apart() -> None:
    assert parse_column_type("numeric(10,2)[]") == ColumnType("numeric", precision=10, scale=2, is_array=True)
    assert parse_column_type("varchar(7)") == ColumnType("character varying", length=7)
    assert parse_column_type("varchar(7)[]").element == ColumnType("character varying", length=7)


@pytest.mark.parametrize(
    "text",
    ["", "int9", "json", "char(3)", "interval", "timetz", "money", "serial", "_int8", "int[][]", "int[3]", "public.x"],
)
def test_an_unsupported_type_is_told_what_is_supported(text: str) -> None:
    with pytest.raises(ValueError, match=r"supported types: boolean, .*timestamptz, uuid, jsonb, bytea, and an array"):
        parse_column_type(text)


@pytest.mark.parametrize(
    ("text", "expectation"),
    [
        ("varchar(0)", r"varchar\(n\) with n from 1 to 10485760"),
        ("varchar(10485761)", r"varchar\(n\) with n from 1 to 10485760"),
        ("numeric(0)", r"p from 1 to 1000 and s from 0 to p"),
        ("numeric(1001)", r"p from 1 to 1000 and s from 0 to p"),
        ("numeric(2,3)", r"p from 1 to 1000 and s from 0 to p"),
        ("timestamp(3)", r"timestamp without time zone without a number"),
        ("varchar(3,2)", r"only varchar\(n\) and numeric\(p,s\) take one"),
        ("jsonb[]", r"a jsonb column holds a JSON array itself"),
    ],
)
def test_a_modifier_that_postgresql_would_refuse_or_that_would_round_is_refused(text: str, expectation: str) -> None:
    with pytest.raises(ValueError, match=expectation):
        parse_column_type(text)


@pytest.mark.parametrize(
    ("found", "written"),
    [
        ("integer", "integer"),
        ("integer", "smallint"),
        ("bigint", "smallint"),
        ("bigint", "integer"),
        ("text", "character varying(10)"),
        ("character varying", "text"),
        ("character varying(10)", "character varying(10)"),
        ("character varying(11)", "character varying(10)"),
        ("numeric", "numeric(10,2)"),
        ("numeric(12,2)", "numeric(10,2)"),
        ("numeric(12,4)", "numeric(10,2)"),
        ("text[]", "character varying(3)[]"),
    ],
)
def test_a_wider_type_keeps_every_value(found: str, written: str) -> None:
    assert can_hold(found, written)


@pytest.mark.parametrize(
    ("found", "written"),
    [
        ("smallint", "integer"),
        ("character varying(10)", "text"),
        ("character varying(9)", "character varying(10)"),
        ("character(10)", "character varying(10)"),
        ("numeric(10,2)", "numeric"),
        ("numeric(10,3)", "numeric(10,2)"),
        ("numeric(12,1)", "numeric(10,2)"),
        ("double precision", "real"),
        ("real", "double precision"),
        ("json", "jsonb"),
        ("text", "uuid"),
        ("bigint[]", "bigint"),
        ("timestamp(3) with time zone", "timestamp with time zone"),
    ],
)
def test_a_type_that_could_change_a_value_does_not_fit(found: str, written: str) -> None:
    assert not can_hold(found, written)

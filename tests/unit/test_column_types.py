"""Column types: every spelling ends in PostgreSQL's own, everything else is refused in plain words."""

from __future__ import annotations

import pytest

from kafka_ingest.column_types import ColumnType, parse_column_type


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

"""The spelling of column types is the one that PostgreSQL itself gives."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg2
import pytest
from psycopg2 import sql

from kafka_ingest.column_types import parse_column_type

_SCALARS = [
    *("bool", "boolean", "int2", "smallint", "int", "int4", "integer", "int8", "bigint", "float4", "real", "float8"),
    *("float", "double precision", "numeric", "decimal", "dec", "numeric(10)", "numeric(12,2)", "decimal(1000,1000)"),
    *("text", "varchar", "varchar(20)", "character varying(10485760)", "char varying(3)", "date", "time"),
    *("time without time zone", "timestamp", "timestamp without time zone", "timestamptz", "timestamp with time zone"),
    *("uuid", "bytea"),
]


@pytest.mark.parametrize("suffix", ["", "[]"])
def test_every_spelling_is_canonical_as_format_type_gives_it(database: dict[str, Any], suffix: str) -> None:
    texts = [text + suffix for text in _SCALARS] + ([] if suffix else ["jsonb"])
    columns = ", ".join(f"c{number} {text}" for number, text in enumerate(texts))
    with closing(psycopg2.connect(**database)) as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE TABLE spelling ({})").format(sql.SQL(columns)))
        cursor.execute(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = 'spelling'::regclass AND attnum > 0 ORDER BY attnum"
        )
        catalog = [row[0] for row in cursor.fetchall()]
    assert dict(zip(texts, catalog, strict=True)) == {text: parse_column_type(text).sql for text in texts}

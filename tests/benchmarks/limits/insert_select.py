"""Limit: ``INSERT … SELECT`` from an unlogged table that holds the finished rows: what a publish is made of."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import psycopg2
from psycopg2 import sql

from tests.benchmarks.load import load_of_command

#: Where the harness has put the rows.
STAGED = "bench_staged"


def main() -> None:
    """Inserts and commits."""
    load, params = load_of_command(str(__doc__))
    print(json.dumps({"records_per_second": load.records / insert_staged(params, load.table)}))


def insert_staged(params: Mapping[str, Any], table: str) -> float:
    """Inserts all staged rows into a table and commits, in one transaction; gives the seconds of it."""
    with closing(psycopg2.connect(**params)) as connection, connection.cursor() as cursor:
        begin = time.perf_counter()
        statement = sql.SQL("INSERT INTO {} SELECT * FROM {}")
        cursor.execute(statement.format(sql.Identifier(table), sql.Identifier(STAGED)))
        connection.commit()
        return time.perf_counter() - begin


if __name__ == "__main__":
    main()

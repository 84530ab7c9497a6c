"""Limit: ``INSERT … SELECT`` from an unlogged table that holds the finished rows: what a publish is made of."""

from __future__ import annotations

import json
import time
from contextlib import closing

import psycopg2
from psycopg2 import sql

from tests.benchmarks.load import load_of_command

#: Where the harness has put the rows.
STAGED = "bench_staged"


def main() -> None:
    """Inserts and commits, in one transaction."""
    load, params = load_of_command(str(__doc__))
    with closing(psycopg2.connect(**params)) as connection, connection.cursor() as cursor:
        begin = time.perf_counter()
        statement = sql.SQL("INSERT INTO {} SELECT * FROM {}")
        cursor.execute(statement.format(sql.Identifier(load.table), sql.Identifier(STAGED)))
        connection.commit()
        seconds = time.perf_counter() - begin
    print(json.dumps({"records_per_second": load.records / seconds}))


if __name__ == "__main__":
    main()

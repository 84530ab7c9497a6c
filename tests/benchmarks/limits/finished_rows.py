"""Rows as a load leaves them, in files: what the limits of the database are measured with."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2 import sql

_PIECE_BYTES = 1 << 20


def write_finished_rows(params: Mapping[str, Any], table: str, streams: int, folder: Path) -> list[Path]:
    """Writes a table's rows as binary COPY files, the partitions shared between the streams. Idempotent."""
    files = [folder / f"stream-{number}.binary" for number in range(streams)]
    if all(path.exists() for path in files):
        return files
    folder.mkdir(parents=True, exist_ok=True)
    statement = sql.SQL(
        "COPY (SELECT * FROM {} WHERE kafka_partition % {} = {} ORDER BY kafka_partition, kafka_offset)"
        " TO STDOUT (FORMAT binary)"
    )
    with closing(psycopg2.connect(**params)) as connection, connection.cursor() as cursor:
        for number, path in enumerate(files):
            draft = path.with_suffix(".draft")
            with draft.open("wb") as file:
                chosen = (sql.Identifier(table), sql.Literal(streams), sql.Literal(number))
                cursor.copy_expert(statement.format(*chosen), file, size=_PIECE_BYTES)
            draft.rename(path)
    return files


def read_finished_rows(params: Mapping[str, Any], table: str, path: Path) -> None:
    """Copies one file into a table, in one transaction."""
    with closing(psycopg2.connect(**params)) as connection, path.open("rb") as file, connection.cursor() as cursor:
        statement = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(sql.Identifier(table))
        cursor.copy_expert(statement, file, size=_PIECE_BYTES)
        connection.commit()


def copy_by_streams(params: Mapping[str, Any], table: str, folder: str) -> float:
    """Copies all files of a folder into a table at once, one process a file.

    Returns:
        Seconds from the first stream's beginning to the last one's COMMIT, without the start of the processes.
    """
    files = sorted(Path(folder).glob("*.binary"))
    with multiprocessing.get_context("spawn").Pool(len(files)) as pool:
        spans = pool.starmap(_timed_reading, [(params, table, path) for path in files], chunksize=1)
    return max(end for _, end in spans) - min(begin for begin, _ in spans)


def _timed_reading(params: Mapping[str, Any], table: str, path: Path) -> tuple[float, float]:
    begin = time.time()
    read_finished_rows(params, table, path)
    return begin, time.time()

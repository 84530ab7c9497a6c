"""Finds the project's SQL: one statement a file, called by name.

A wheel or the job's zip carries the files inside the package (``kafka_ingest/sql``); in a checkout they stand in
``sql/`` at the top.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


@cache
def _root() -> Traversable:
    packaged = files("kafka_ingest").joinpath("sql")
    if packaged.is_dir():
        return packaged
    return Path(__file__).resolve().parents[3] / "sql"


@cache
def sql_text(name: str) -> str:
    """Gives the text of an SQL file.

    Args:
        name: Path below ``sql/`` without ``.sql``, such as ``queries/claim_batch``.

    Raises:
        FileNotFoundError: There is no such file: the package is not complete.
    """
    return _root().joinpath(*f"{name}.sql".split("/")).read_text(encoding="utf-8")


def sql_names(folder: str) -> list[str]:
    """Lists the SQL files of a folder in the order of their names, without ``.sql``."""
    names = [entry.name for entry in _root().joinpath(folder).iterdir()]
    return sorted(name.removesuffix(".sql") for name in names if name.endswith(".sql"))

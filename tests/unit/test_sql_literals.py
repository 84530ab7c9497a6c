"""SQL files mean the same whatever ``standard_conforming_strings`` is: psycopg2 allows no change of it in a session."""

from __future__ import annotations

import pytest

from kafka_ingest.postgres.database import sql_names, sql_text

FILES = [f"{folder}/{name}" for folder in ("queries", "migrations", "invariants") for name in sql_names(folder)]


@pytest.mark.parametrize("name", FILES)
def test_no_statement_has_a_backslash(name: str) -> None:
    assert "\\" not in sql_text(name)

"""Airflow for tests without services; no database is made."""

from __future__ import annotations

import pytest

import tests.airflow_home  # noqa: F401 (before anything imports Airflow)


@pytest.fixture(autouse=True)
def spark_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan looks at the Spark connection, too."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')

"""Airflow for tests without services; a database, on SQLite, is made only for tests that ask for its tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tests.airflow_home  # noqa: F401 (before anything imports Airflow)


@pytest.fixture(scope="module")
def airflow_tables() -> Iterator[None]:
    from airflow import settings
    from airflow.models import import_all_models
    from airflow.models.base import Base

    import_all_models()  # type: ignore[no-untyped-call]
    Base.metadata.create_all(settings.engine)
    yield
    Base.metadata.drop_all(settings.engine)


@pytest.fixture(autouse=True)
def spark_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan looks at the Spark connection, too."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')

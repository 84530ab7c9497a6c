"""Airflow for tests without services; no database is made."""

from __future__ import annotations

import tests.airflow_home  # noqa: F401 (before anything imports Airflow)

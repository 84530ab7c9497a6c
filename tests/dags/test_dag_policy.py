"""Integrity and policy of a DAG folder: this project's, or that of ``KAFKA_INGEST_DAGS``.

The pipeline files of ``KAFKA_INGEST_PIPELINES`` are part of it: a broken one is an import error here as in Airflow.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from airflow.utils.file import might_contain_dag

from kafka_ingest.pipeline_files.files import FOLDERS_VARIABLE
from tests.dags.dag_policy import CHECKOUT, POLICIES, Policy, Report, load, parse_times, violations


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = Path(os.environ.get("KAFKA_INGEST_DAGS", CHECKOUT / "dags"))
    pipelines = os.environ.get(FOLDERS_VARIABLE, "")
    loaded = load(folder, tmp_path_factory.mktemp("airflow"), KAFKA_INGEST_PIPELINES=pipelines)
    request.config.get_terminal_writer().line(f"\nparse times in {folder}:\n{parse_times(loaded)}")
    return loaded


def test_every_file_loads_and_there_are_dags(report: Report) -> None:
    # As a text of its own, which pytest shows whole: it is where a user reads what is wrong with a file of theirs.
    errors = "\n".join(f"{file}\n{error}" for file, error in report["import_errors"].items())
    assert not errors, errors
    assert report["dags"], "no DAG in the folder"


def test_airflow_looks_at_every_dag_file() -> None:
    """Its safe mode passes over files without the words airflow and dag (``airflow/utils/file.py``, Airflow 3.3)."""
    files = (CHECKOUT / "dags").glob("*.py")
    assert [file.name for file in files if not might_contain_dag(str(file), safe_mode=True)] == []


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_every_dag_keeps_the_policy(report: Report, policy: Policy) -> None:
    assert violations(report, policy) == [], policy.__doc__


def test_no_heavy_library_is_loaded_while_parsing(report: Report) -> None:
    assert {file["file"]: file["heavy"] for file in report["files"] if file["heavy"]} == {}


def test_no_network_is_used_while_parsing(report: Report) -> None:
    assert {file["file"]: file["network"] for file in report["files"] if file["network"]} == {}

"""The tests that users run on DAG folders of their own, on this project's folder and on good and broken ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from airflow.utils.file import might_contain_dag

from sandbox.paths import CHECKOUT
from tests.pipeline_texts import pipeline_text

NO_DOCS = "from airflow.sdk import DAG\ndag = DAG('no_docs', schedule=None)\n"


def integrity_tests(*options: str, cwd: Path, **variables: str) -> tuple[int, str]:
    """Runs them as docs/deploying.md says; gives the exit code and what they printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_INGEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "kafka_ingest.integrity", *options],
        cwd=cwd,
        env={**kept, "PYTHONPATH": str(CHECKOUT / "plugins"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def pipelines(folder: Path, **keys: str) -> Path:
    folder.mkdir()
    own = pipeline_text(pipeline="own", kafka="{topics: [own]}", target="{table: shop.own}", **keys)
    (folder / "own.yaml").write_text(own, encoding="utf-8")
    return folder


def test_the_folder_of_this_project_passes_with_a_pipeline_file_of_ones_own_that_catches_up(tmp_path: Path) -> None:
    keys = {"schedule": '"0 * * * *"', "end": "interval", "catchup": "true", "start_date": "2026-11-01"}
    sound = pipelines(tmp_path / "sound", **keys)
    code, text = integrity_tests("-s", "-W", "error", cwd=CHECKOUT, KAFKA_INGEST_PIPELINES=str(sound))
    assert code == 0, text
    assert " s  kafka_to_postgres.py\n" in text, text


def test_airflow_looks_at_every_dag_file() -> None:
    """Its safe mode passes over files without the words airflow and dag (``airflow/utils/file.py``, Airflow 3.3)."""
    files = (CHECKOUT / "dags").glob("*.py")
    assert [file.name for file in files if not might_contain_dag(str(file), safe_mode=True)] == []


def test_a_broken_pipeline_file_of_ones_own_turns_them_red(tmp_path: Path) -> None:
    broken = pipelines(tmp_path / "broken", schedule='"every hour"')
    code, text = integrity_tests(cwd=CHECKOUT, KAFKA_INGEST_PIPELINES=str(broken))
    assert code == 1, text
    assert "own.yaml" in text
    assert "schedule: expected a cron expression" in text


def test_a_dag_file_of_ones_own_is_told_all_that_is_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    connects = "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9))\nexcept OSError:\n    pass\n"
    (tmp_path / "dags" / "dag.py").write_text(f"import pandas\n{connects}{NO_DOCS}", encoding="utf-8")
    code, text = integrity_tests(cwd=tmp_path)
    assert code == 1, text
    assert "no_docs: no description" in text, text
    assert "dag.py: numpy, pandas" in text, text
    assert "dag.py: ('127.0.0.1', 9" in text, text


def test_a_dag_id_that_two_files_have_is_told_with_both(tmp_path: Path) -> None:
    for name in ("one.py", "other.py"):
        (tmp_path / name).write_text(NO_DOCS, encoding="utf-8")
    code, text = integrity_tests(cwd=tmp_path, KAFKA_INGEST_DAGS=str(tmp_path))
    assert code == 1, text
    assert "AirflowDagDuplicatedIdException" in text
    assert str(tmp_path / "one.py") in text
    assert str(tmp_path / "other.py") in text


def test_a_folder_that_is_not_there_is_a_wrong_command(tmp_path: Path) -> None:
    code, text = integrity_tests(cwd=tmp_path)
    assert code == 2, text
    assert f"no DAG folder: expected {tmp_path / 'dags'}" in text
    assert "next: KAFKA_INGEST_DAGS=/path/to/dags pytest" in text

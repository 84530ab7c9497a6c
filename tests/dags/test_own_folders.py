"""The integrity tests look at a user's own pipeline files and DAG folder, where the environment names them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.dags.dag_policy import CHECKOUT
from tests.pipeline_texts import pipeline_text


def integrity_tests(**variables: str) -> tuple[int, str]:
    """Runs them as ``make test-dags`` does; gives the exit code and what they printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_INGEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/dags/test_dag_policy.py"],
        cwd=CHECKOUT,
        env=kept | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def pipelines(folder: Path, **keys: str) -> Path:
    folder.mkdir()
    own = pipeline_text(pipeline="own", kafka="{topics: [own]}", target="{table: shop.own}", **keys)
    (folder / "own.yaml").write_text(own, encoding="utf-8")
    return folder


def test_a_broken_pipeline_file_of_ones_own_turns_them_red(tmp_path: Path) -> None:
    code, text = integrity_tests(KAFKA_INGEST_PIPELINES=str(pipelines(tmp_path / "broken", schedule='"every hour"')))
    assert code == 1, text
    assert "own.yaml" in text
    assert "schedule: expected a cron expression" in text


def test_a_sound_file_of_ones_own_keeps_the_policies_also_with_catchup(tmp_path: Path) -> None:
    keys = {"schedule": '"0 * * * *"', "end": "interval", "catchup": "true", "start_date": "2026-11-01"}
    code, text = integrity_tests(KAFKA_INGEST_PIPELINES=str(pipelines(tmp_path / "sound", **keys)))
    assert code == 0, text


def test_a_dag_folder_of_ones_own_is_what_they_look_at(tmp_path: Path) -> None:
    (tmp_path / "dag.py").write_text(
        "from airflow.sdk import DAG\ndag = DAG('no_docs', schedule=None)\n", encoding="utf-8"
    )
    code, text = integrity_tests(KAFKA_INGEST_DAGS=str(tmp_path))
    assert code == 1, text
    assert "no_docs: no description" in text

"""The archive of Spark's classes on the real Java: made by the command, taken by a job that is submitted afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from kafka_ingest.__main__ import main
from kafka_ingest.spark.installation import CACHE_VARIABLE
from kafka_ingest.spark.master import MasterKind, SparkMaster
from kafka_ingest.spark.submission import package_report_submission, spark_submit_command
from tests.builders import pipeline_settings


def test_prepare_spark_makes_an_archive_that_the_next_job_takes_its_classes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache, logs = tmp_path / "a cache", tmp_path / "logs"
    logs.mkdir()
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    assert main(["prepare-spark", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [str(path) for path in cache.iterdir()] == [made["archive"]]
    assert 0 < made["classes of these from it"] <= made["classes loaded by a start"]

    spark = SparkMaster("spark_default", "local[1]", MasterKind.LOCAL)
    submission = package_report_submission(pipeline_settings("orders"), spark, tmp_path / "report.json")
    # Every JVM of the job logs where its classes come from; the first one only puts the command together.
    logging = {"JAVA_TOOL_OPTIONS": f"-Xlog:class+load:file={logs}/%p"}
    command = spark_submit_command(submission)
    done = subprocess.run(
        command, env={**os.environ, **submission.env_vars, **logging}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert any("source: shared objects file (top)" in log.read_text() for log in logs.iterdir())

    assert main(["prepare-spark", "--json"]) == 0
    assert "nothing to do" in json.loads(capsys.readouterr().out)["result"]

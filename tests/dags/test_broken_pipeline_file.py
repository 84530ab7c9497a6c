"""A broken pipeline file is an import error with its text; every other DAG loads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kafka_ingest.integrity import Report, load
from sandbox.paths import CHECKOUT

GOOD = """\
pipeline: good
schedule: "0 * * * *"
kafka: {topics: [good]}
first_run: earliest
value: {format: raw, column: payload}
target: {table: shop.good, create_table: true}
timezone: America/New_York
"""
BROKEN = """\
pipeline: broken
schedule: "every hour"
kafka: {topic: [typo]}
first_run: earliest
value: {format: raw, column: payload}
target: {table: shop.broken}
"""


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """The package in a place of its own, with ``dags`` beside it, as it is deployed."""
    shutil.copytree(CHECKOUT / "plugins", tmp_path / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(CHECKOUT / "dags", tmp_path / "dags", ignore=shutil.ignore_patterns("*.yaml", "__pycache__"))
    return tmp_path / "plugins"


def load_with(plugins: Path, files: dict[str, str], **variables: str) -> Report:
    pipelines = plugins.parent / "dags" / "pipelines"
    pipelines.mkdir(exist_ok=True)
    for name, text in files.items():
        (pipelines / name).write_text(text)
    return load(plugins.parent / "dags", plugins.parent / "airflow", plugins, **variables)


def dag_ids(report: Report) -> list[str]:
    """Those of pipelines."""
    return [dag["dag_id"] for dag in report["dags"] if dag["dag_id"].startswith("kafka_to_postgres__")]


def test_a_broken_file_shows_every_fault_and_the_other_dag_loads(plugins: Path) -> None:
    report = load_with(plugins, {"good.yaml": GOOD, "broken.yaml": BROKEN})

    assert dag_ids(report) == ["kafka_to_postgres__good"]
    assert list(report["import_errors"]) == ["pipeline_file_faults.py"]
    text = report["import_errors"]["pipeline_file_faults.py"]
    broken = plugins.parent / "dags" / "pipelines" / "broken.yaml"
    assert f"{broken}:2: schedule: expected a cron expression" in text
    assert f"{broken}:3: kafka.topic" in text
    assert "next: correct the files, then: python -m kafka_ingest check-config" in text


def test_the_error_goes_away_when_the_file_is_right(plugins: Path) -> None:
    load_with(plugins, {"good.yaml": GOOD, "broken.yaml": BROKEN})
    mended = BROKEN.replace("every hour", "@hourly").replace("topic:", "topics:")
    report = load_with(plugins, {"broken.yaml": mended})

    assert report["import_errors"] == {}
    assert sorted(dag_ids(report)) == ["kafka_to_postgres__broken", "kafka_to_postgres__good"]


def test_two_files_with_one_name_hide_each_other_only(plugins: Path) -> None:
    twice = GOOD.replace("good", "twice")
    report = load_with(plugins, {"good.yaml": GOOD, "one.yaml": twice, "other.yaml": twice})

    assert dag_ids(report) == ["kafka_to_postgres__good"]
    assert "expected a name of its own; found twice" in report["import_errors"]["pipeline_file_faults.py"]


def test_a_missing_folder_is_an_import_error_and_the_other_folders_load(plugins: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (more / "other.yaml").write_text(GOOD.replace("good", "other"))
    folders = f"{more}:{tmp_path / 'unmounted'}"
    report = load_with(plugins, {"good.yaml": GOOD}, KAFKA_INGEST_PIPELINES=folders)

    assert sorted(dag_ids(report)) == ["kafka_to_postgres__good", "kafka_to_postgres__other"]
    assert str(tmp_path / "unmounted") in report["import_errors"]["pipeline_file_faults.py"]


def test_pipelines_beside_the_dag_file_are_found_wherever_the_package_is(plugins: Path) -> None:
    """As with a wheel, or a DAG bundle of its own."""
    dags, home = plugins.parent / "dags", plugins.parent / "airflow"
    (dags / "pipelines").mkdir(exist_ok=True)
    (dags / "pipelines" / "good.yaml").write_text(GOOD)

    assert dag_ids(load(dags, home, CHECKOUT / "plugins")) == ["kafka_to_postgres__good"]


def test_a_task_whose_file_broke_since_sees_the_fault(plugins: Path) -> None:
    context = {"_AIRFLOW_PARSING_CONTEXT_DAG_ID": "kafka_to_postgres__broken"}
    report = load_with(plugins, {"good.yaml": GOOD, "broken.yaml": BROKEN}, **context)

    assert dag_ids(report) == []
    assert "schedule: expected a cron expression" in report["import_errors"]["kafka_to_postgres.py"]


def test_a_task_builds_its_own_dag_alone(plugins: Path) -> None:
    files = {"good.yaml": GOOD, "other.yaml": GOOD.replace("good", "other"), "broken.yaml": BROKEN}
    report = load_with(plugins, files, _AIRFLOW_PARSING_CONTEXT_DAG_ID="kafka_to_postgres__other")

    assert dag_ids(report) == ["kafka_to_postgres__other"]


def test_a_task_of_another_dag_does_not_mind_the_pipelines(plugins: Path) -> None:
    """`airflow dags test ANOTHER` reads every file with the name of that DAG."""
    files = {"good.yaml": GOOD, "broken.yaml": BROKEN}
    report = load_with(plugins, files, _AIRFLOW_PARSING_CONTEXT_DAG_ID="kafka_ingest_housekeeping")

    assert list(report["import_errors"]) == ["pipeline_file_faults.py"]


def test_an_hourly_schedule_in_new_york_keeps_its_time_zone(plugins: Path) -> None:
    dags = {dag["dag_id"]: dag for dag in load_with(plugins, {"good.yaml": GOOD})["dags"]}
    dag = dags["kafka_to_postgres__good"]

    assert dag["timetable"] == "CronDataIntervalTimetable"
    assert "America/New_York" in json.dumps(json.loads(dag["serialized"])["dag"]["timetable"])

"""Many pipeline files: each is opened once for each DAG file, and each makes its DAG."""

from __future__ import annotations

from pathlib import Path

from kafka_ingest.integrity import load
from sandbox.paths import CHECKOUT
from tests.pipeline_texts import pipeline_text

_FILES = 40


def write_pipelines(folder: Path, count: int) -> list[str]:
    """Writes pipeline files; gives their paths."""
    for number in range(count):
        name = f"orders_{number:03d}"
        text = pipeline_text(pipeline=name, kafka=f"{{topics: [{name}]}}", target=f"{{table: shop.{name}}}")
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return sorted(map(str, folder.iterdir()))


def test_each_pipeline_file_is_opened_once_by_each_dag_file(tmp_path: Path) -> None:
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    written = write_pipelines(pipelines, _FILES)
    report = load(CHECKOUT / "dags", tmp_path / "airflow", KAFKA_INGEST_PIPELINES=str(pipelines))

    assert report["import_errors"] == {}
    assert sum(dag["dag_id"].startswith("kafka_to_postgres__orders_") for dag in report["dags"]) == _FILES
    opened = {
        file["file"]: [path for path in file["opened_yaml"] if path.startswith(str(pipelines))]
        for file in report["files"]
    }
    assert opened["kafka_to_postgres.py"] == written
    assert {name: paths for name, paths in opened.items() if paths not in ([], written)} == {}
    assert {file["file"]: file["heavy"] for file in report["files"] if file["heavy"]} == {}

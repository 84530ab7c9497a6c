"""The zip with the job's code: what is in it, that it can be imported from, and that it is always the same."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from kafka_ingest.adapters.job_archive import entry_script, job_archive


def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    first, second = job_archive(tmp_path / "a"), job_archive(tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_a_file_with_the_same_bytes_is_reused_and_another_is_replaced(tmp_path: Path) -> None:
    path = job_archive(tmp_path)
    written = path.stat().st_mtime_ns
    assert job_archive(tmp_path).stat().st_mtime_ns == written
    content = path.read_bytes()
    path.write_bytes(b"cut off")
    assert job_archive(tmp_path).read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_zip_holds_sources_of_the_job_and_nothing_of_airflow(tmp_path: Path) -> None:
    with zipfile.ZipFile(job_archive(tmp_path)) as archive:
        names = archive.namelist()
    assert {name.rpartition(".")[2] for name in names} <= {"py", "sql"}
    folders = {"/".join(name.split("/")[:2]) for name in names if name.startswith("kafka_ingest/")}
    assert folders == {f"kafka_ingest/{part}" for part in ("__init__.py", "core", "steps", "adapters", "sql")}
    assert "spark_jobs/stage_context.py" in names


def test_code_and_sql_are_read_from_the_zip_alone(tmp_path: Path) -> None:
    program = (
        "import importlib.resources, spark_jobs.stage_context, kafka_ingest.core.errors as errors\n"
        "sql = importlib.resources.files('kafka_ingest') / 'sql'\n"
        "print(errors.__file__)\n"
        "print(sorted(p.name for p in sql.iterdir()))\n"
    )
    path = job_archive(tmp_path)
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(path)!r})\n{program}"]
    lines = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines[0].startswith(str(path))
    assert "migrations" in lines[1]


def test_the_entry_scripts_are_there() -> None:
    for name in ("load_batch", "report_packages"):
        assert entry_script(name).is_file()

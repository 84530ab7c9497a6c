"""The zip with the job's code: what is in it, that it can be imported from, and that it is always the same."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from kafka_ingest.spark.archive import entry_script, job_archive


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_two_builds_have_the_same_name_and_the_same_sources(tmp_path: Path) -> None:
    first, second = job_archive(tmp_path / "a"), job_archive(tmp_path / "b")
    assert first.name == second.name
    sources = {name: text for name, text in contents(first).items() if not name.endswith(".pyc")}
    assert sources.items() <= contents(second).items()
    assert contents(first).keys() == contents(second).keys()


def test_a_whole_file_is_reused_and_another_is_replaced(tmp_path: Path) -> None:
    path = job_archive(tmp_path)
    written, whole = path.stat().st_mtime_ns, contents(path)
    assert job_archive(tmp_path).stat().st_mtime_ns == written
    path.write_bytes(path.read_bytes()[:-100])
    assert contents(job_archive(tmp_path)).keys() == whole.keys()
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in whole.items():
            archive.writestr(name, b"raise SystemExit" if name == "spark_jobs/load_job.py" else text)
    assert contents(job_archive(tmp_path))["spark_jobs/load_job.py"] == whole["spark_jobs/load_job.py"]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_each_module_has_its_compiled_form_which_another_python_passes_over(tmp_path: Path) -> None:
    names = contents(path := job_archive(tmp_path)).keys()
    assert {name for name in names if name.endswith(".pyc")} == {f"{name}c" for name in names if name.endswith(".py")}
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        for name, content in contents(path).items():
            archive.writestr(name, b"\0\0\r\n" + content[4:] if name.endswith(".pyc") else content)
    program = "import spark_jobs.load_batch as module; print(module.__loader__.get_code(module.__name__).co_filename)"
    assert run_with(path, program) == ["spark_jobs/load_batch.py"]
    assert run_with(other, program) == [f"{other}/spark_jobs/load_batch.py"]


def run_with(archive: Path, program: str) -> list[str]:
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(archive)!r})\n{program}"]
    done = subprocess.run(command, cwd=archive.parent, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_the_zip_holds_sources_of_the_job_and_nothing_of_airflow(tmp_path: Path) -> None:
    with zipfile.ZipFile(job_archive(tmp_path)) as archive:
        names = archive.namelist()
    assert {name.rpartition(".")[2] for name in names} <= {"py", "pyc", "sql"}
    folders = {name.split("/")[1] for name in names if name.startswith("kafka_ingest/") and name.count("/") > 1}
    assert folders == {"protocol", "postgres", "kafka", "spark", "sql"}
    assert "spark_jobs/load_batch.py" in names


def test_code_and_sql_are_read_from_the_zip_alone(tmp_path: Path) -> None:
    program = (
        "import importlib.resources, spark_jobs.load_job, kafka_ingest.errors as errors\n"
        "sql = importlib.resources.files('kafka_ingest') / 'sql'\n"
        "print(errors.__file__)\n"
        "print(sorted(p.name for p in sql.iterdir()))\n"
    )
    path = job_archive(tmp_path)
    lines = run_with(path, program)
    assert lines[0].startswith(str(path))
    assert "migrations" in lines[1]


def test_the_entry_scripts_are_there() -> None:
    for name in ("load_batch", "report_packages"):
        assert entry_script(name).is_file()

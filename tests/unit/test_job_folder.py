"""The folder of a submission: whose it is, how long it stays, and what killed submissions leave."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kafka_ingest.spark import archive as module
from kafka_ingest.spark.archive import job_folder, own_folder

#: Makes a job's folder as a submitter, or keeps one as a driver; says where it is, and holds it until it is ended.
HOLDER = """
import os, sys
from pathlib import Path
from kafka_ingest.spark.archive import job_folder, keep_job_folder
folder = sys.argv[1]
if folder == "new":
    context = job_folder()
    folder = str(context.__enter__())
else:
    keep_job_folder(Path(folder))
print(folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def holder(folder: str, temporary_folder: Path) -> tuple[subprocess.Popen[str], Path]:
    environment = {**os.environ, "TMPDIR": str(temporary_folder), "PYTHONPATH": str(Path(module.__file__).parents[2])}
    command = [sys.executable, "-c", HOLDER, folder]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_only_its_user_can_enter_a_jobs_folder_and_it_ends_with_the_job() -> None:
    with job_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        (folder / "settings.json").write_text("s3cret")
    assert not folder.exists()


def test_what_a_killed_submission_left_is_deleted_by_the_next_one(temporary_folder: Path) -> None:
    process, left = holder("new", temporary_folder)
    (left / "settings.json").write_text("s3cret")
    with job_folder():
        assert (left / "settings.json").exists(), "its submitter lives"
    killed(process)
    with job_folder():
        assert not left.exists()


def test_the_folder_of_a_driver_that_outlives_its_submitter_stays_until_the_driver_ends(temporary_folder: Path) -> None:
    submitter, left = holder("new", temporary_folder)
    driver, _ = holder(str(left), temporary_folder)
    killed(submitter)
    with job_folder():
        assert left.exists()
    killed(driver)
    with job_folder():
        assert not left.exists()


def test_where_others_may_write_to_its_name_another_folder_is_made_once(temporary_folder: Path) -> None:
    taken = temporary_folder / f"kafka-ingest-{os.getuid()}"
    taken.mkdir()
    taken.chmod(0o777)
    first = own_folder()
    assert first != taken
    assert first.stat().st_mode & 0o777 == 0o700
    assert own_folder() == first


def test_a_link_with_its_name_is_not_followed(temporary_folder: Path) -> None:
    elsewhere = temporary_folder / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (temporary_folder / f"kafka-ingest-{os.getuid()}").symlink_to(elsewhere)
    assert own_folder() not in (elsewhere, temporary_folder / f"kafka-ingest-{os.getuid()}")

"""The two ways to deploy, as docs/deploying.md has them: what a wheel installs, and that a load runs from each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sandbox.paths import CHECKOUT
from tests.integration.pipeline_under_test import FedPipeline


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what pip would put into site-packages."""
    dist, folder = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(dist), str(CHECKOUT)], check=True)
    (built,) = dist.iterdir()
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugins folder of an Airflow, with ``spark_jobs`` and ``sql`` beside it."""
    place = tmp_path_factory.mktemp("airflow")
    for name in ("plugins", "spark_jobs", "sql"):
        shutil.copytree(CHECKOUT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    return place / "plugins"


def test_the_wheel_installs_one_name_at_the_top(wheel: Path) -> None:
    names = sorted(path.name for path in wheel.iterdir())
    assert [name for name in names if not name.endswith(".dist-info")] == ["kafka_ingest"]
    assert {"spark_jobs", "sql"} <= {path.name for path in (wheel / "kafka_ingest").iterdir()}


@pytest.mark.parametrize("way", ["wheel", "folders"])
def test_a_load_runs_beside_a_spark_jobs_package_of_the_users_own(
    way: str, request: pytest.FixtureRequest, pipeline: FedPipeline, tmp_path: Path
) -> None:
    pipeline.open()
    pipeline.send(b"one")
    theirs = tmp_path / "theirs" / "spark_jobs"
    theirs.mkdir(parents=True)
    (theirs / "__init__.py").write_text("raise RuntimeError('this is not the package of the job')\n")
    done = subprocess.run(
        [sys.executable, "-m", "kafka_ingest", "run", pipeline.name],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(theirs.parent), str(request.getfixturevalue(way))])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert pipeline.rows("payload") == [(b"one",)]

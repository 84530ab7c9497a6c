"""The two ways to deploy, as docs/deploying.md has them, each in an environment that has the locked packages alone.

Airflow's own constraints are a file of its repository; the environments are made of ``constraints.txt``, which is made
of the same index. Most tests link the installed files of these packages into an environment without pip; a slow one
installs them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path

import pytest

from kafka_ingest.pipeline_files.files import FOLDERS_VARIABLE, dag_id_of
from sandbox.paths import CHECKOUT
from tests.integration.pipeline_under_test import FedPipeline
from tools.requirements_lock import CONSTRAINTS, pins

#: What runs the tests of a DAG folder; the only package that is not among the locked ones of the product.
PYTEST = ("pytest", "iniconfig", "pluggy", "pygments")
WAYS = ("wheel", "folders")


@dataclass(frozen=True)
class Deployment:
    """An Airflow home with the DAG files, and the environment that runs it."""

    python: Path
    home: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a Python module; only connections and the folder of pipeline files come from the test."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW__", "PYTHON"))}
        settings = {
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "KAFKA_INGEST_DAGS": str(self.home / "dags"),
        }
        return subprocess.run(
            [str(self.python), "-m", *arguments],
            cwd=self.home,
            env={**kept, **settings, **self.variables, **variables},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    dist = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(dist), str(CHECKOUT)], check=True)
    (built,) = dist.iterdir()
    return built


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A metadata database with Airflow's tables, to be copied."""
    first = Deployment(Path(sys.executable), tmp_path_factory.mktemp("home"))
    migrated = first.run("airflow", "db", "migrate")
    assert migrated.returncode == 0, migrated.stderr
    return first.home / "airflow.db"


@pytest.fixture
def deploy(wheel: Path, metadata: Path, tmp_path: Path) -> Callable[[str, Path], Deployment]:
    """Makes a deployment: ``deploy(way, python)``."""

    def deployed(way: str, python: Path) -> Deployment:
        home = tmp_path / way
        home.mkdir()
        shutil.copy(metadata, home)
        shutil.copytree(CHECKOUT / "dags", home / "dags", ignore=shutil.ignore_patterns("pipelines", "__pycache__"))
        if way == "wheel":
            install(python, "--no-deps", str(wheel))
            return Deployment(python, home)
        for name in ("plugins", "spark_jobs", "sql"):
            shutil.copytree(CHECKOUT / name, home / name, ignore=shutil.ignore_patterns("__pycache__"))
        return Deployment(python, home, {"PYTHONPATH": str(home / "plugins")})

    return deployed


def install(python: Path, *arguments: str) -> None:
    """Installs into another environment than the one that runs the tests."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-input", *arguments], check=True)


def bare_environment(folder: Path) -> Path:
    """Makes an environment with nothing in it; gives its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def linked_environment(folder: Path) -> Path:
    """Makes an environment with the locked packages, as links to their installed files."""
    python = bare_environment(folder)
    site = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    installed = Path(sysconfig.get_path("purelib"))
    for name in top_level_names():
        (site / name).symlink_to(installed / name)
    for file in distribution("pyspark").files or ():  # spark-submit and what it calls
        if file.parts[-2] == "bin" and file.parts[0] == "..":
            (python.parent / file.name).symlink_to(Path(sysconfig.get_path("scripts")) / file.name)
    return python


def top_level_names() -> set[str]:
    """Return what the locked packages have in site-packages."""
    locked = [pin.name for pin, _ in pins(CHECKOUT / CONSTRAINTS) if pin.marker is None or pin.marker.evaluate()]
    files = (file for name in (*locked, *PYTEST) for file in distribution(name).files or ())
    return {file.parts[0] for file in files} - {"..", "__pycache__"}


def require_that_a_batch_loads(deployment: Deployment, pipeline: FedPipeline) -> None:
    """The configuration is checked, the services are asked, then a run of the DAG loads what the topic has."""
    pipeline.open()
    pipeline.send(b"one")
    for command in ("check-config", "preflight"):
        done = deployment.run("kafka_ingest", command)
        assert done.returncode == 0, done.stdout + done.stderr
    # Somebody else's package of the same name comes first on the path.
    theirs = deployment.home / "theirs" / "spark_jobs"
    theirs.mkdir(parents=True)
    (theirs / "__init__.py").write_text("raise RuntimeError('this is not the package of the job')\n")
    path = os.pathsep.join(filter(None, (str(theirs.parent), deployment.variables.get("PYTHONPATH"))))
    done = deployment.run("airflow", "dags", "test", dag_id_of(pipeline.name), PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert pipeline.rows("payload") == [(b"one",)], done.stdout + done.stderr


def require_that_folders_are_judged(deployment: Deployment, pipelines: Path) -> None:
    """A sound folder passes; with a broken pipeline file beside it the same command is red and says why."""
    command = ("pytest", "-p", "no:cacheprovider", "--pyargs", "kafka_ingest.integrity")
    sound = deployment.run(*command)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    (pipelines / "broken.yaml").write_text("pipeline: broken\n")
    broken = deployment.run(*command, "-k", "every_file_loads")
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert f"{pipelines / 'broken.yaml'}:1: schedule: expected" in broken.stdout, broken.stdout


def test_the_wheel_installs_one_name_at_the_top(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {tuple(name.split("/")[:2]) for name in archive.namelist()}
    assert {name[0] for name in names if not name[0].endswith(".dist-info")} == {"kafka_ingest"}
    assert {("kafka_ingest", "spark_jobs"), ("kafka_ingest", "sql")} <= names


def test_the_wheel_has_every_template_and_file_of_the_page(wheel: Path) -> None:
    page = CHECKOUT / "plugins" / "kafka_ingest" / "page"
    wanted = {path.relative_to(page.parent.parent).as_posix() for path in page.rglob("*") if path.is_file()}
    wanted = {name for name in wanted if not name.endswith(".pyc")}
    assert any(name.endswith(".html") for name in wanted)
    with zipfile.ZipFile(wheel) as archive:
        assert wanted - set(archive.namelist()) == set()


def test_the_environment_has_the_locked_packages_and_nothing_of_this_project(tmp_path: Path) -> None:
    deployment = Deployment(linked_environment(tmp_path / "environment"), tmp_path)
    assert deployment.run("airflow", "version").returncode == 0
    for missing in ("kafka_ingest", "spark_jobs", "sandbox", "hypothesis", "psutil"):
        assert f"No module named {missing}" in deployment.run(missing).stderr


@pytest.mark.parametrize("way", WAYS)
def test_a_deployment_loads_a_batch(
    way: str, deploy: Callable[[str, Path], Deployment], pipeline: FedPipeline, tmp_path: Path
) -> None:
    require_that_a_batch_loads(deploy(way, linked_environment(tmp_path / "environment")), pipeline)


def test_the_wheel_brings_the_tests_of_a_dag_folder(
    deploy: Callable[[str, Path], Deployment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipelines = tmp_path / "pipelines"
    shutil.copytree(CHECKOUT / "dags" / "pipelines", pipelines)
    monkeypatch.setenv(FOLDERS_VARIABLE, str(pipelines))
    require_that_folders_are_judged(deploy("wheel", linked_environment(tmp_path / "environment")), pipelines)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment into which pip installed the wheel with its extras, under the constraints, and pytest."""
    python = bare_environment(tmp_path_factory.mktemp("installed"))
    install(python, f"{wheel}[airflow,spark]", "pytest", "--constraint", str(CHECKOUT / CONSTRAINTS))
    yield python
    shutil.rmtree(python.parents[1])


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_what_pip_installs_under_the_constraints_loads_a_batch(
    way: str, installed: Path, deploy: Callable[[str, Path], Deployment], pipeline: FedPipeline
) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(installed)]
    subprocess.run([*pip, "check"], check=True)
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "kafka-ingest"], check=True)
    deployment = deploy(way, installed)
    require_that_a_batch_loads(deployment, pipeline)
    require_that_folders_are_judged(deployment, pipeline.folder)

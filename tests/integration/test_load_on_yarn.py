"""A load on a real YARN whose nodes have Python alone: its packages come in an archive, made with venv-pack."""

from __future__ import annotations

import json
import shutil
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from sandbox.airflow_settings import connection_variables
from sandbox.yarn import YarnCluster
from tests.integration.pipeline_under_test import FedPipeline

#: What a task needs (pyproject.toml, the dependencies without extras); PySpark travels with each submission.
PACKAGES = ("confluent-kafka", "msgspec", "psycopg2-binary", "pyarrow")
RECORDS = 1_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[YarnCluster]:
    yarn = YarnCluster(tmp_path / "cluster" / "yarn", memory_mb=3_072)
    yarn.start()
    yield yarn
    yarn.destroy()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A packed environment with the packages alone, in the versions that this Python has."""
    import venv_pack

    environment, packed = tmp_path / "environment", tmp_path / "environment.tar.gz"
    venv.create(environment, symlinks=True)
    [site] = environment.glob("lib/python*/site-packages")
    for name in PACKAGES:
        install(name, site)
    venv_pack.pack(prefix=str(environment), output=str(packed), compress_level=1)
    return packed


def install(name: str, site: Path) -> None:
    """Copies a package as its list of files says: nothing is downloaded, and nothing else comes along."""
    found = distribution(name)
    for file in found.files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(found.locate_file(file)), site / file)


@pytest.mark.slow
def test_a_load_runs_on_the_python_and_the_packages_of_an_archive(
    pipeline: FedPipeline, cluster: YarnCluster, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connection_variables({"spark_default": json.dumps({"conn_type": "spark", "host": "yarn"})})
    for name, value in {**connection, **cluster.environment}.items():
        monkeypatch.setenv(name, value)
    # This Python exists in a container only if the archive was unpacked there.
    conf = {
        "spark.archives": f"{archive}#environment",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.executor.instances": "1",
    }
    pipeline.open(spark={"executor_memory": "512m", "conf": conf})
    pipeline.send(*(f"value {number}" for number in range(RECORDS)))
    pipeline.load(runner="spark")
    assert pipeline.rows("payload") == [(f"value {number}".encode(),) for number in range(RECORDS)]

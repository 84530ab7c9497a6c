"""Runs an application with ``spark-submit`` and Spark's Kafka source, as on a machine where its jars are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark

from sandbox.maven import Artifact
from sandbox.paths import CHECKOUT, tool
from tests.benchmarks.load import Load
from tests.benchmarks.peers import versions
from tests.benchmarks.peers.contender import ContenderError
from tests.benchmarks.peers.installs import fetched

_FOLDER = Path(__file__).parent


def install() -> Path:
    """Fetches the connectors: Spark's Kafka source and PostgreSQL's JDBC driver, with what they need."""
    return fetched(
        "spark",
        [
            Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", versions.SPARK),
            Artifact("org.postgresql", "postgresql", versions.POSTGRES_JDBC),
        ],
    )


def install_avro() -> Path:
    """Fetches Spark's Avro functions, which it does not bring."""
    return fetched("spark-avro", [Artifact("org.apache.spark", "spark-avro_2.13", versions.SPARK)])


def submit(application: str, load: Load, options: Sequence[str] = (), *, more_jars: Path | None = None) -> None:
    """Runs the application, a file of this folder, with the load's file as its argument.

    ``more_jars`` is a folder with jars besides those of :func:`install`.

    Raises:
        ContenderError: It failed; its output is in ``spark.log`` of the load's folder.
    """
    folder = Path(load.folder)
    path = folder / "spark-load.json"
    load.write(path)
    jars = ["--jars", ",".join(_jars(more_jars))]
    command = [tool("spark-submit"), *options, *jars, str(_FOLDER / application), str(path)]
    log = folder / "spark.log"
    with log.open("wb") as sink:
        code = subprocess.run(
            command, cwd=folder, env=_environment(), stdout=sink, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code != 0:
        raise ContenderError(f"spark-submit ended with {code}; its output: {log}")


def _jars(more: Path | None) -> list[str]:
    """Return the jars that Spark does not bring itself."""
    own = {path.name for path in (Path(pyspark.__file__).parent / "jars").iterdir()}
    found = {path.name: path for folder in (more, install()) if folder for path in folder.iterdir()}
    return [str(found[name]) for name in sorted(found.keys() - own)]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(CHECKOUT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }

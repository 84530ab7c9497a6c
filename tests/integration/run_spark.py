"""Runs a script with ``spark-submit`` and a connector of Spark's own: what Spark reads is an oracle."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from sandbox.paths import CHECKOUT

#: The product needs no jar; its oracles need Spark's.
_VERSION = "4.2.0"
_SECONDS = 300


def run_spark(script: Path, connector: str, request: Path, answer: Path) -> None:
    """Have a script read a request and write its answer.

    Args:
        script: The application; its arguments are both files.
        connector: Name of the artifact without versions, ``spark-avro`` for one.
        request: What it reads.
        answer: What it writes.
    """
    ivy_settings = os.environ.get("KAFKA_INGEST_IVY_SETTINGS")
    settings = [
        *("--master", "local[2]", "--driver-memory", "1g"),
        *("--packages", f"org.apache.spark:{connector}_2.13:{_VERSION}"),
        *("--conf", f"spark.jars.ivy={CHECKOUT / '.cache' / 'ivy-spark'}"),
        *(("--conf", f"spark.jars.ivySettings={ivy_settings}") if ivy_settings else ()),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.session.timeZone=UTC"),
    ]
    submit = shutil.which("spark-submit", path=str(Path(sys.executable).parent))
    assert submit, "pyspark brings spark-submit"
    ended = subprocess.run(
        [submit, *settings, str(script), str(request), str(answer)],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr[-4_000:]

"""The machine and the versions that figures belong to."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil
from psycopg2 import sql

from sandbox.kafka_jars import KAFKA_VERSION
from tests.benchmarks.world import BenchWorld, execute

_PACKAGES = ("apache-airflow", "pyspark", "confluent-kafka", "psycopg2-binary", "pyarrow", "msgspec")


def machine(world: BenchWorld) -> dict[str, str]:
    """Return what the page says about where it was measured."""
    [(postgres,)] = execute(world.postgres.params(), sql.SQL("SHOW server_version"))
    return {
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": platform.system(),
        "python": platform.python_version(),
        "java": _java(),
        "postgresql": str(postgres),
        "kafka": KAFKA_VERSION,
        **{name: version(name) for name in _PACKAGES},
    }


def load_average() -> float:
    """Return the mean number of runnable processes in the last minute: above 0 before a run, the machine was shared."""
    return os.getloadavg()[0]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _java() -> str:
    answer = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return answer.stderr.splitlines()[0]

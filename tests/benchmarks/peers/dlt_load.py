"""Peer: dlt with a resource like its verified source "kafka" and the destination postgres, in its own environment.

It loads into ``<table>_dlt.<table>``: dlt's tables carry two columns more, and it wants to have made them itself.

Each of dlt's load files is a transaction of its own, so a reader sees part of a load; its offsets are in dlt's state,
which is one of these files. It has no dead letters: a value of another type gets a column of its own (a variant).
"""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2 import sql

from sandbox.paths import CHECKOUT
from tests.benchmarks.load import Load
from tests.benchmarks.peers import versions
from tests.benchmarks.peers.contender import ContenderError, run
from tests.benchmarks.peers.installs import environment


def install() -> Path:
    """Makes the environment; gives its Python."""
    return environment("dlt", [f"dlt[postgres]=={versions.DLT}", f"confluent-kafka=={versions.CONFLUENT_KAFKA_OF_DLT}"])


def load_records(load: Load, params: dict[str, Any]) -> dict[str, str]:
    """Loads the topic; gives the ``table`` that it made."""
    _forget(load, params)
    folder = Path(load.folder)
    path = folder / "dlt-load.json"
    load.write(path)
    log = folder / "dlt.log"
    command = [str(install()), "-m", "tests.benchmarks.peers.dlt_pipeline", str(path)]
    variables = {**os.environ, "PYTHONPATH": str(CHECKOUT), "RUNTIME__DLTHUB_TELEMETRY": "false"}
    with log.open("wb") as sink:
        code = subprocess.run(
            command, cwd=folder, env=variables, stdout=sink, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code != 0:
        raise ContenderError(f"dlt ended with {code}; its output: {log}")
    return {"table": f"{load.table}_dlt.{load.table}"}


def _forget(load: Load, params: dict[str, Any]) -> None:
    """Drops what an earlier run made: dlt would go on from the offsets that it finds there."""
    with closing(psycopg2.connect(**params)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(f"{load.table}_dlt")))


if __name__ == "__main__":
    run(load_records, install=install)

"""Killing a Spark driver while it copies rows."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2

from sandbox.errors import SandboxError

_POLL_SECONDS = 0.02
# The size of a table grows while COPY runs; its rows are visible only after the task's commit.
_STAGED = """
    SELECT b.batch_id::text, pg_relation_size(c.oid)
      FROM kafka_ingest.batch b
      JOIN pg_class c ON c.relname = 'b' || replace(b.batch_id::text, '-', '') || '_c' || b.claim || '_rows'
      JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'kafka_ingest_staging'
     WHERE b.pipeline = %s AND b.state = 'planned' AND pg_relation_size(c.oid) > 0
"""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """A batch whose rows are being copied."""

    batch_id: str
    staged_bytes: int


def wait_for_staged_rows(postgres: Mapping[str, Any], pipeline: str, *, timeout_seconds: float = 180.0) -> StagedRows:
    """Wait until rows of the pipeline's planned batch are in staging.

    Raises:
        SandboxError: None came in time.
    """
    deadline = time.monotonic() + timeout_seconds
    with closing(psycopg2.connect(**dict[str, Any](postgres))) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            while time.monotonic() < deadline:
                cursor.execute(_STAGED, (pipeline,))
                if row := cursor.fetchone():
                    return StagedRows(*row)
                time.sleep(_POLL_SECONDS)
    raise SandboxError(
        f"no row of pipeline {pipeline} was staged within {timeout_seconds:.0f} s",
        next_step="make demo KEEP=1, then look at the run in Airflow",
    )


def kill_driver(batch_id: str) -> str:
    """Kill the JVM of the batch's Spark driver with SIGKILL; its Python process asks the kernel to die with it.

    Raises:
        SandboxError: There is no such process.
    """
    for pid, command in _commands():
        is_driver_jvm = any("SparkSubmit" in word for word in command)
        if is_driver_jvm and batch_id in command:
            os.kill(pid, signal.SIGKILL)
            return f"process {pid}, the Spark driver"
    raise SandboxError(f"there is no Spark driver of batch {batch_id} to kill")


def _commands() -> Iterator[tuple[int, list[str]]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield int(path.parent.name), path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended meanwhile

"""What one benchmark run loads, as every contender is told it.

A contender is a command, started with the path of a file that holds a :class:`Load` as JSON; the database's connection
parameters come in an environment variable, because they hold a password. It ends when all records are in the table. It
may print one JSON object on its last line of standard output: figures that only it can know.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

POSTGRES_VARIABLE = "KAFKA_INGEST_BENCH_POSTGRES"


@dataclass(frozen=True, slots=True)
class Load:
    """One load.

    Attributes:
        workload: Name of the workload, see ``workloads.py``.
        records: Records in the topic, all with a value that fits the table.
        partitions: Partitions of the topic.
        bootstrap: Address of the broker.
        topic: The topic; nothing is written to it while it is read.
        table: Target table in schema ``public``, which exists and is empty: the workload's columns and then
            ``kafka_topic text, kafka_partition integer, kafka_offset bigint, kafka_timestamp timestamptz``.
        folder: An empty folder for whatever the contender writes.
        registry_url: Address of the schema registry that has the records' schema; empty where they have none.
    """

    workload: str
    records: int
    partitions: int
    bootstrap: str
    topic: str
    table: str
    folder: str
    registry_url: str = ""

    def write(self, path: Path) -> None:
        """Writes it for :func:`load_of_command`."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def load_of_command(description: str) -> tuple[Load, dict[str, Any]]:
    """Reads what a contender's command line names: the load, and the arguments for ``psycopg2.connect``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("load", type=Path, help="file with the load as JSON")
    path: Path = parser.parse_args().load
    return Load(**json.loads(path.read_text(encoding="utf-8"))), json.loads(os.environ[POSTGRES_VARIABLE])

"""Measures contenders side by side: in rounds, each of them once a round, so that a busy moment meets them all."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg2 import sql

from tests.benchmarks.contenders import Contender
from tests.benchmarks.load import Load
from tests.benchmarks.measure import Measured, measure
from tests.benchmarks.topics import filled_topic
from tests.benchmarks.workloads import WORKLOADS, Workload
from tests.benchmarks.world import BenchWorld, execute, fresh_database

TABLE = "bench"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Contenders that load the same topic, or the beginning of it that they get through in bearable time.

    Attributes:
        name: Name in the results.
        workload: What is loaded.
        records: How many records; a contender gets its ``most_records`` when they are fewer.
        contenders: Who loads.
        rounds: How often each does.
    """

    name: str
    workload: Workload
    records: int
    contenders: Sequence[Contender]
    rounds: int


def compare(world: BenchWorld, comparison: Comparison) -> list[dict[str, Any]]:
    """Runs all rounds; gives one entry for each run.

    Raises:
        CommandFailed: A contender failed.
        ValueError: A contender left another number of rows than there are records.
    """
    runs = []
    for number in range(comparison.rounds):
        for contender in comparison.contenders:
            with _folder(world) as folder, fresh_database(world) as params:
                load = _load(world, comparison, contender, str(folder))
                command = contender.prepare(load, params, world.folder)
                measured = measure(command, _servers(world), world.folder / f"{_slug(contender.name)}.log")
                if contender.loads:
                    _require_all_rows(contender, measured, load, params)
                run = _entry(comparison, contender, load, number, measured) | dict(contender.also_tells(load))
            runs.append(run)
            print(_line(run), file=sys.stderr, flush=True)
    return runs


def _load(world: BenchWorld, comparison: Comparison, contender: Contender, folder: str) -> Load:
    workload = contender.workload or comparison.workload
    records, bootstrap = min(comparison.records, contender.most_records), world.kafka.bootstrap
    registry_url = world.registry_url(workload)
    topic = filled_topic(bootstrap, workload, records, registry_url=registry_url)
    return Load(workload.name, records, workload.partitions, bootstrap, topic, TABLE, folder, registry_url)


def _line(run: dict[str, Any]) -> str:
    return (
        f"{run['comparison']}, round {run['round'] + 1}: {run['contender']}: {run['seconds']:.1f} s,"
        f" {run['records_per_second']:,.0f} records/s"
    )


def _entry(comparison: Comparison, contender: Contender, load: Load, number: int, measured: Measured) -> dict[str, Any]:
    told = measured.told.get("records_per_second")
    return {
        "comparison": comparison.name,
        "workload": load.workload,
        "records": load.records,
        "contender": contender.name,
        "kind": contender.kind,
        "round": number,
        "records_per_second": told or _steady(measured) or load.records / measured.seconds,
        **measured.as_json(),
    }


def _steady(measured: Measured) -> float | None:
    """The rate of a service that does not end by itself: between its first and its last row."""
    seconds = measured.told.get("steady_seconds")
    return measured.told["steady_rows"] / seconds if seconds else None


def _require_all_rows(contender: Contender, measured: Measured, load: Load, params: Any) -> None:
    table = measured.told.get("table", load.table).split(".")
    [(found,)] = execute(params, sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(*table)))
    if found != WORKLOADS[load.workload].rows(load.records):
        raise ValueError(f"{contender.name} left {found} rows of {load.records} records")


def _servers(world: BenchWorld) -> dict[str, int]:
    pids = {"postgres": world.postgres.pid(), "kafka": world.kafka.pid()}
    return {name: pid for name, pid in pids.items() if pid is not None}


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())


@contextmanager
def _folder(world: BenchWorld) -> Iterator[Path]:
    folder = world.folder / f"run-{time.time_ns()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)

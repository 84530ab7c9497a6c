"""Who is measured: the product, what people use instead, and the limits of the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from psycopg2 import sql

from tests.benchmarks.limits.finished_rows import read_finished_rows, write_finished_rows
from tests.benchmarks.limits.insert_select import STAGED
from tests.benchmarks.load import Load
from tests.benchmarks.measure import Command, measure
from tests.benchmarks.ours import phases_of, planned_load
from tests.benchmarks.workloads import ORDERS_AVRO, ORDERS_JSON_SCHEMA, ORDERS_PROTOBUF, WORKLOADS, Workload
from tests.benchmarks.world import create_table, execute, fill_with_states, postgres_environment

Params = Mapping[str, Any]
#: Streams of the limit "binary COPY".
_STREAMS = 2


def _nothing_more(_load: Load) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to load a topic, or a limit.

    Attributes:
        name: Name in results and on the page.
        prepare: Makes everything ready in a fresh database, untimed, and gives the command that is timed.
        kind: ``ours``, ``peer`` or ``limit``.
        most_records: Of a larger load it gets only so many records: a slow peer is in its steady state long before.
        loads: Whether the records are in the table at the end; they are counted.
        also_tells: Figures that the contender left behind, as a mapping for the results.
        workload: What it loads instead of the comparison's workload: the same records in another format.
    """

    name: str
    prepare: Callable[[Load, Params, Path], Command]
    kind: str = "peer"
    most_records: int = 2_000_000
    loads: bool = True
    also_tells: Callable[[Load], Mapping[str, Any]] = _nothing_more
    workload: Workload | None = None


def _ours(**sections: Any) -> Callable[[Load, Params, Path], Command]:
    def prepare(load: Load, params: Params, _state: Path) -> Command:
        return planned_load(load, params, **sections)

    return prepare


def _ours_of_state(*, filled: bool) -> Callable[[Load, Params, Path], Command]:
    """Return the preparation of a load into a table of current state, empty or with a row of every key."""

    def prepare(load: Load, params: Params, _state: Path) -> Command:
        workload = WORKLOADS[load.workload]
        columns = [
            {"name": name, "type": kind, **({"from": "key"} if name == workload.key_column else {})}
            for name, kind in workload.columns.items()
        ]
        state = {"mode": "upsert", "key": [workload.key_column], "order": "offset", "deletes": "remove"}
        target = {"table": f"public.{load.table}", "create_table": True, **state}
        command = planned_load(load, params, value={"format": "json", "columns": columns}, target=target)
        if filled:
            fill_with_states(params, load.table, load.topic, workload)
        return command

    return prepare


def _script(
    module: str, *options: str, before: Sequence[str] = (), filled: bool = False
) -> Callable[[Load, Params, Path], Command]:
    """Return the preparation of a script that loads into a table made before, empty or with a row of every key.

    ``before`` names options with which the script is run once before it is timed: ``--install``, ``--prepare``.
    """

    def prepare(load: Load, params: Params, state: Path) -> Command:
        create_table(params, load.table, WORKLOADS[load.workload])
        if filled:
            fill_with_states(params, load.table, load.topic, WORKLOADS[load.workload])
        for option in before:
            measure(script_command(module, load, params, option), {}, state / "preparation.log")
        return script_command(module, load, params, *options)

    return prepare


def script_command(module: str, load: Load, params: Params, *options: str) -> Command:
    """Return the command of a contender's script; see ``load.py``."""
    path = Path(load.folder) / "load.json"
    load.write(path)
    arguments = [sys.executable, "-m", f"tests.benchmarks.{module}", *options, str(path)]
    return Command(arguments, {**postgres_environment(params), "PYTHONPATH": "plugins:."})


def _copy_binary(load: Load, params: Params, state: Path) -> Command:
    folder = finished_rows(load, params, state)
    create_table(params, load.table, WORKLOADS[load.workload])
    return script_command("limits.copy_binary", replace(load, folder=str(folder)), params)


def _copy_then_insert(load: Load, params: Params, state: Path) -> Command:
    folder = finished_rows(load, params, state)
    create_table(params, load.table, WORKLOADS[load.workload])
    _create_staged(params, load.table)
    return script_command("limits.copy_then_insert", replace(load, folder=str(folder)), params)


def _create_staged(params: Params, like: str) -> None:
    """Makes an empty table for staged rows: unlogged, without index and autovacuum, as the product stages."""
    statement = sql.SQL("CREATE UNLOGGED TABLE {} (LIKE {}) WITH (autovacuum_enabled = false)")
    execute(params, statement.format(sql.Identifier(STAGED), sql.Identifier(like)))


def _insert_select(load: Load, params: Params, state: Path) -> Command:
    folder = finished_rows(load, params, state)
    create_table(params, load.table, WORKLOADS[load.workload])
    _create_staged(params, load.table)
    for path in sorted(folder.glob("*.binary")):
        read_finished_rows(params, STAGED, path)
    execute(params, sql.SQL("CHECKPOINT"))
    return script_command("limits.insert_select", load, params)


def finished_rows(load: Load, params: Params, state: Path) -> Path:
    """Return the folder with the load's rows as files; the first time a plain consumer loads and dumps them."""
    folder = state / "finished-rows" / load.topic
    if not (folder / f"stream-{_STREAMS - 1}.binary").exists():
        table = "bench_finished"
        create_table(params, table, WORKLOADS[load.workload])
        command = script_command("peers.python_copy", replace(load, table=table), params)
        measure(command, {}, Path(load.folder) / "finished.log")
        write_finished_rows(params, table, _STREAMS, folder)
        execute(params, sql.SQL("DROP TABLE {}").format(sql.Identifier(table)))
    return folder


_EVERY_SIZE = 1_000_000_000

OURS = Contender("ours", _ours(), "ours", _EVERY_SIZE, also_tells=phases_of)
OURS_WITH_KEY = Contender(
    "ours, unique key",
    _ours(target={"table": "public.bench", "create_table": True, "unique_key": True}),
    "ours",
    also_tells=phases_of,
)
#: As on a small worker; what a batch needs must not grow with it.
OURS_IN_1_GB = Contender(
    "ours, 1 GB",
    _ours(spark={"driver_memory": "1g", "executor_memory": "1g"}),
    "ours",
    _EVERY_SIZE,
    also_tells=phases_of,
)
OURS_AVRO = Contender("ours, Avro", _ours(), "ours", _EVERY_SIZE, also_tells=phases_of, workload=ORDERS_AVRO)
OURS_PROTOBUF = Contender(
    "ours, Protobuf", _ours(), "ours", _EVERY_SIZE, also_tells=phases_of, workload=ORDERS_PROTOBUF
)
OURS_JSON_SCHEMA = Contender(
    "ours, JSON Schema", _ours(), "ours", _EVERY_SIZE, also_tells=phases_of, workload=ORDERS_JSON_SCHEMA
)
SPARK_JDBC = Contender(
    "Spark Kafka source + from_json + JDBC", _script("peers.spark_jdbc", before=["--install"]), most_records=_EVERY_SIZE
)
SPARK_STAGED = Contender(
    "Spark Kafka source + from_json + JDBC into staging + INSERT … SELECT",
    _script("peers.spark_staged", before=["--install"]),
    most_records=_EVERY_SIZE,
)
SPARK_AVRO = Contender(
    "Spark Kafka source + from_avro + JDBC",
    _script("peers.spark_jdbc", before=["--install"]),
    most_records=_EVERY_SIZE,
    workload=ORDERS_AVRO,
)
PYTHON_COPY = Contender("Python consumer, COPY", _script("peers.python_copy"), most_records=_EVERY_SIZE)
PYTHON_COPY_PLAIN = Contender("Python consumer, COPY with json and csv", _script("peers.python_copy", "--plain"))
EXECUTE_VALUES = Contender("Python consumer, execute_values", _script("peers.execute_values"), most_records=1_000_000)
DEBEZIUM = Contender("Debezium JDBC sink", _script("peers.kafka_connect", before=["--install", "--prepare"]))
DEBEZIUM_UNNEST = Contender(
    "Debezium JDBC sink, UNNEST", _script("peers.kafka_connect", "--unnest", before=["--install", "--prepare"])
)
DLT = Contender("dlt", _script("peers.dlt_load", before=["--install"]), most_records=1_000_000)

OURS_STATE = Contender("ours, upsert", _ours_of_state(filled=False), "ours", also_tells=phases_of)
OURS_FULL_STATE = Contender("ours, upsert into a full table", _ours_of_state(filled=True), "ours", also_tells=phases_of)
PYTHON_UPSERT = Contender("Python consumer, INSERT … ON CONFLICT", _script("peers.python_upsert"))
PYTHON_FULL_UPSERT = Contender(
    "Python consumer, INSERT … ON CONFLICT into a full table", _script("peers.python_upsert", filled=True)
)
DEBEZIUM_UPSERT = Contender(
    "Debezium JDBC sink, upsert", _script("peers.kafka_connect", "--upsert", before=["--install"])
)
DEBEZIUM_FULL_UPSERT = Contender(
    "Debezium JDBC sink, upsert into a full table",
    _script("peers.kafka_connect", "--upsert", before=["--install"], filled=True),
)

CONSUME_ONE = Contender("limit: consuming, 1 process", _script("limits.consume"), "limit", _EVERY_SIZE, loads=False)
CONSUME_TWO = Contender(
    "limit: consuming, 2 processes", _script("limits.consume", "--two"), "limit", _EVERY_SIZE, loads=False
)
CONSUME_JAVA = Contender(
    "limit: consuming, Java", _script("limits.consume_java", before=["--install"]), "limit", _EVERY_SIZE, loads=False
)
COPY_BINARY = Contender("limit: binary COPY, 2 streams", _copy_binary, "limit", _EVERY_SIZE)
INSERT_SELECT = Contender("limit: INSERT … SELECT", _insert_select, "limit", _EVERY_SIZE)
#: The bound of the protocol: rows are staged, then published.
COPY_THEN_INSERT = Contender("limit: COPY by 2 streams, then INSERT … SELECT", _copy_then_insert, "limit", _EVERY_SIZE)

ALL = (
    OURS,
    SPARK_JDBC,
    DEBEZIUM,
    DEBEZIUM_UNNEST,
    PYTHON_COPY,
    PYTHON_COPY_PLAIN,
    EXECUTE_VALUES,
    DLT,
    CONSUME_ONE,
    CONSUME_TWO,
    COPY_BINARY,
    INSERT_SELECT,
)

#: A topic with one record, in which nothing but the start is measured.
ONE_RECORD = (
    OURS,
    Contender("spark-submit reading one record", _script("peers.spark_one_record", before=["--install"]), loads=False),
)

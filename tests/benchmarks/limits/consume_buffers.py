"""Trial: records from librdkafka into Arrow's buffers without a Python object for each, beside the product's reader.

A C function (``consume_buffers.c``, compiled here; without a C compiler this script says so and measures nothing) takes
messages from librdkafka's queue and writes offsets, times, keys and values into the buffers of Arrow arrays, with the
interpreter's lock released. The library is the one that the wheel of confluent-kafka brings, called through ctypes.

Measured are reading alone and whole staging tasks, with either reader, in turns; each run is a process of its own. CPU
time is that of the processes, librdkafka's threads included, and beside it that of both servers meanwhile.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
from psycopg2 import sql

from kafka_ingest.kafka.client import client_config, librdkafka_settings
from kafka_ingest.protocol.staging import Split, StageTask, relaxed_gc
from kafka_ingest.settings import ColumnSettings, IsolationLevel, TargetSettings
from spark_jobs.reader import KafkaRangeReader
from spark_jobs.records import MAX_BYTES, MAX_RECORDS, RECORD_SCHEMA, RangeReader
from spark_jobs.stage import stage_task
from tests.benchmarks.growth.servers import new_ledger, own_kafka, own_postgres
from tests.benchmarks.machine import load_average
from tests.benchmarks.measure import cpu_of_tree
from tests.benchmarks.topics import filled_topic
from tests.benchmarks.workloads import ORDERS
from tests.staging_bench import StagingBench, json_settings

OURS, BUFFERS, LIBRARY = "the product's reader", "the trial", "librdkafka, records thrown away"
READING, ONE_TASK, TWO_TASKS = "reading", "staging by one task", "staging by two tasks"

_SOURCE = Path(__file__).with_suffix(".c")
_COMPILERS = ("cc", "gcc", "clang")
_POLL_MS = 500
_TIMEOUT_SECONDS = 60.0
#: What ``fill`` of the C source returns, in its order.
_FILL_RESULTS = (
    "nothing there",
    "full",
    "ended",
    "a record with headers",
    "records out of order",
    "librdkafka's error",
)
_EMPTY, _FULL, _ENDED, *_FAULTS = _FILL_RESULTS
_CONSUMER = 1  # RD_KAFKA_CONSUMER of rdkafka.h
_NO_EPOCH = -1


class _Texts(ctypes.Structure):
    _fields_ = (
        ("ends", ctypes.c_void_p),
        ("valid", ctypes.c_void_p),
        ("bytes", ctypes.c_void_p),
        ("nulls", ctypes.c_int64),
    )


class _Batch(ctypes.Structure):
    """The struct ``Batch`` of the C source."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        *((name, ctypes.c_int64) for name in ("partition", "end", "next", "most_records", "most_bytes")),
        *((name, ctypes.c_int64) for name in ("records", "needed_bytes", "error", "first_epoch", "end_epoch")),
        *((name, ctypes.c_void_p) for name in ("offsets", "times", "times_valid")),
        ("no_times", ctypes.c_int64),
        ("time_types", ctypes.c_void_p),
        ("keys", _Texts),
        ("values", _Texts),
        ("held_at", ctypes.c_int64),
        ("held_count", ctypes.c_int64),
        ("held", ctypes.c_void_p * 250),
    )


class _Columns:
    """Memory for the columns of one batch, which becomes Arrow arrays without being copied."""

    def __init__(self, batch: _Batch, most_bytes: int) -> None:
        self._batch = batch
        self._keys, self._values = _texts(batch.keys, most_bytes), _texts(batch.values, most_bytes)
        self._offsets, self._times = _zeros(8 * MAX_RECORDS), _zeros(8 * MAX_RECORDS)
        self._times_valid, self._time_types = _zeros(MAX_RECORDS // 8 + 1), _zeros(MAX_RECORDS)
        batch.offsets, batch.times = self._offsets.address, self._times.address
        batch.times_valid, batch.time_types = self._times_valid.address, self._time_types.address
        batch.records = batch.no_times = 0
        batch.most_records, batch.most_bytes = MAX_RECORDS, most_bytes

    def record_batch(self, split: Split) -> pa.RecordBatch:
        count, batch = self._batch.records, self._batch
        times = [self._times_valid if batch.no_times else None, self._times]
        headers = RECORD_SCHEMA.field("headers").type
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(split.topic, pa.string()), count),
                pa.repeat(pa.scalar(split.partition, pa.int32()), count),
                pa.Array.from_buffers(pa.int64(), count, [None, self._offsets], 0),
                pa.Array.from_buffers(pa.int64(), count, times, batch.no_times),
                pa.Array.from_buffers(pa.int8(), count, [None, self._time_types], 0),
                pa.Array.from_buffers(pa.large_binary(), count, self._keys, batch.keys.nulls),
                pa.Array.from_buffers(pa.large_binary(), count, self._values, batch.values.nulls),
                pa.nulls(count, headers),
                pa.repeat(pa.scalar(True), count),
            ],
            schema=RECORD_SCHEMA,
        )


def _zeros(size: int) -> Any:
    buffer = pa.allocate_buffer(size)
    ctypes.memset(buffer.address, 0, size)
    return buffer


def _texts(texts: _Texts, most_bytes: int) -> list[Any]:
    """Return validity, ends and bytes of a large_binary array; only the bytes need no zeros."""
    buffers = [_zeros(MAX_RECORDS // 8 + 1), _zeros(8 * (MAX_RECORDS + 1)), pa.allocate_buffer(most_bytes)]
    texts.valid, texts.ends, texts.bytes = (buffer.address for buffer in buffers)
    texts.nulls = 0
    return buffers


class _Client:
    """A consumer of librdkafka's own, made through its public C interface."""

    def __init__(self, config: Mapping[str, str], filler: Path) -> None:
        # Global, so that the compiled source finds the library's functions.
        self.rd = ctypes.CDLL(str(_bundled_library()), mode=ctypes.RTLD_GLOBAL)
        self.filler = ctypes.CDLL(str(filler))
        self.filler.discard.restype = ctypes.c_int64
        for name in ("conf_new", "new", "queue_get_consumer", "topic_partition_list_new"):
            getattr(self.rd, f"rd_kafka_{name}").restype = ctypes.c_void_p
        words = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(self.rd.rd_kafka_conf_new())
        for key, value in librdkafka_settings(config).items():
            if self.rd.rd_kafka_conf_set(conf, key.encode(), value.encode(), words, ctypes.c_size_t(len(words))):
                raise ValueError(words.value.decode())
        self.handle = ctypes.c_void_p(self.rd.rd_kafka_new(_CONSUMER, conf, words, ctypes.c_size_t(len(words))))
        if not self.handle:
            raise ValueError(words.value.decode())
        self.rd.rd_kafka_poll_set_consumer(self.handle)
        self.queue = ctypes.c_void_p(self.rd.rd_kafka_queue_get_consumer(self.handle))

    def assign(self, split: Split) -> None:
        place = split.topic.encode(), ctypes.c_int32(split.partition)
        listed = ctypes.c_void_p(self.rd.rd_kafka_topic_partition_list_new(1))
        self.rd.rd_kafka_topic_partition_list_add(listed, *place)
        self.rd.rd_kafka_topic_partition_list_set_offset(listed, *place, ctypes.c_int64(split.start))
        error = self.rd.rd_kafka_assign(self.handle, listed)
        self.rd.rd_kafka_topic_partition_list_destroy(listed)
        if error:
            raise ValueError(f"librdkafka refuses to assign {split.topic_partition}: error {error}")

    def leave(self, batch: _Batch) -> None:
        self.rd.rd_kafka_assign(self.handle, None)
        self.filler.leave(self.queue, ctypes.byref(batch))

    def close(self) -> None:
        self.rd.rd_kafka_queue_destroy(self.queue)
        self.rd.rd_kafka_consumer_close(self.handle)
        self.rd.rd_kafka_destroy(self.handle)


def _bundled_library() -> Path:
    (found,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka-*")
    return found


class BufferReader:
    """The port ``RangeReader`` for a trial: no headers, no check of leader epochs, no causes of faults."""

    def __init__(self, config: Mapping[str, str], filler: Path) -> None:
        self._client = _Client(config, filler)
        self._batch = _Batch()

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        batch = self._batch
        batch.topic, batch.partition = split.topic.encode(), split.partition
        batch.next, batch.end = split.start, split.end
        batch.first_epoch = batch.end_epoch = _NO_EPOCH
        self._client.assign(split)
        try:
            result, most_bytes = _FULL, MAX_BYTES
            while result != _ENDED:
                columns = _Columns(batch, most_bytes)
                result = self._filled(split)
                most_bytes = max(MAX_BYTES, batch.needed_bytes)
                if batch.records:
                    yield columns.record_batch(split)
        finally:
            self._client.leave(batch)

    def start_leader_epoch(self) -> int | None:
        return None if self._batch.first_epoch == _NO_EPOCH else int(self._batch.first_epoch)

    def end_leader_epoch(self) -> int | None:
        return None if self._batch.end_epoch == _NO_EPOCH else int(self._batch.end_epoch)

    def close(self) -> None:
        self._client.close()

    def discard(self, split: Split) -> int:
        """Read a partition to its end and throw the records away; return their number."""
        self._batch.topic, self._batch.partition = split.topic.encode(), split.partition
        self._client.assign(split)
        count = int(self._client.filler.discard(self._client.queue, ctypes.byref(self._batch), 20 * _POLL_MS))
        self._client.leave(self._batch)
        return count

    def _filled(self, split: Split) -> str:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            code = self._client.filler.fill(self._client.queue, ctypes.byref(self._batch), _POLL_MS)
            result = _FILL_RESULTS[code]
            if result in _FAULTS or (result == _EMPTY and time.monotonic() > deadline):
                raise ValueError(f"{split.topic_partition} at {self._batch.next}: {result}, {self._batch.error}")
            if result != _EMPTY:
                return result


# ----------
# What is measured.


@dataclass(frozen=True, slots=True)
class _Trial:
    """What every run needs, in whatever process; ``servers`` are the main processes of both, by their names."""

    bootstrap: str
    topic: str
    records: int
    filler: Path
    servers: Mapping[str, int]

    @property
    def splits(self) -> tuple[Split, ...]:
        share = self.records // ORDERS.partitions
        return tuple(Split(number, self.topic, number, 0, 0, share) for number in range(ORDERS.partitions))

    @property
    def config(self) -> dict[str, str]:
        return client_config(
            {"bootstrap.servers": self.bootstrap}, IsolationLevel.READ_COMMITTED, client_id="consume-buffers"
        )

    @contextmanager
    def reader(self, name: str) -> Iterator[RangeReader]:
        made = KafkaRangeReader(self.config) if name == OURS else BufferReader(self.config, self.filler)
        with closing(made):
            yield made


def _read(trial: _Trial, name: str) -> dict[str, Any]:
    """Read all partitions; make a bytes object of each value, as decoders do, and say what that takes of it."""
    clock, count, bytes_seconds = _Clock(), 0, 0.0
    with relaxed_gc(), trial.reader(name) as reader:
        for split in trial.splits:
            for batch in reader.read(split):
                began = time.thread_time()
                count += len(batch.column("value").to_pylist())
                bytes_seconds += time.thread_time() - began
    return {**clock.taken(count, trial.records), "bytes_seconds": bytes_seconds}


def _discard(trial: _Trial) -> dict[str, Any]:
    clock = _Clock()
    with closing(BufferReader(trial.config, trial.filler)) as reader:
        count = sum(map(reader.discard, trial.splits))
    return {**clock.taken(count, trial.records), "bytes_seconds": 0.0}


def _stage(trial: _Trial, params: Mapping[str, Any], name: str, tasks: int, number: int) -> dict[str, Any]:
    """Stage a share of the partitions as one task of the product does, from its first to its last statement."""
    bench, splits = _bench(params), trial.splits[number::tasks]
    clock = _Clock()
    with trial.reader(name) as reader:
        result = stage_task(StageTask(number, splits), bench.context(), number + 1, reader=reader)
    count = sum(split.counts.rows for split in result.splits)
    seconds = result.seconds
    parts = {"read": seconds.read, "decode": seconds.decode, "copy": seconds.copy}
    return {**clock.taken(count, trial.records // tasks), "task_seconds": parts}


class _Clock:
    """Time since it was made: by the clock, of the process's CPU, and of this thread's."""

    def __init__(self) -> None:
        self._began = time.time()
        self._cpu, self._thread = time.process_time(), time.thread_time()

    def taken(self, count: int, expected: int) -> dict[str, Any]:
        if count != expected:
            raise ValueError(f"{count} records instead of {expected}")
        cpu, thread = time.process_time() - self._cpu, time.thread_time() - self._thread
        return {"began": self._began, "ended": time.time(), "cpu_seconds": cpu, "thread_cpu_seconds": thread}


def _bench(params: Mapping[str, Any]) -> StagingBench:
    columns = (ColumnSettings(name, kind) for name, kind in ORDERS.columns.items())
    return StagingBench(params, json_settings(*columns, target=TargetSettings("public", "orders", create_table=True)))


def _staged(trial: _Trial, new_database: Callable[[], Mapping[str, Any]], name: str, tasks: int) -> dict[str, Any]:
    """Stage everything into the tables of a new database, by tasks side by side, each a process of its own."""
    params = new_database()
    bench = _bench(params)
    bench.prepare()
    runs, servers = _measured(trial, [partial(_stage, trial, params, name, tasks, number) for number in range(tasks)])
    [staged] = bench.query(
        sql.SQL("SELECT count(*), sum(order_id) FROM {}").format(
            sql.Identifier("kafka_ingest_staging", f"{bench.stem}_rows")
        )
    )
    if staged != (trial.records, trial.records * (trial.records - 1) // 2):
        raise ValueError(f"{name} staged other rows: {staged}")
    bench.staging.drop(bench.batch)
    return {
        "seconds": max(run["ended"] for run in runs) - min(run["began"] for run in runs),
        "cpu_seconds": sum(run["cpu_seconds"] for run in runs),
        "server_cpu_seconds": servers,
        "task_seconds": {part: sum(run["task_seconds"][part] for run in runs) for part in ("read", "decode", "copy")},
    }


def _reading(trial: _Trial, name: str) -> dict[str, Any]:
    [run], servers = _measured(trial, [partial(_discard, trial) if name == LIBRARY else partial(_read, trial, name)])
    return {"seconds": run.pop("ended") - run.pop("began"), **run, "server_cpu_seconds": servers}


def _measured(
    trial: _Trial, calls: Sequence[Callable[[], dict[str, Any]]]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Make each call in a process of its own; return their answers, and the CPU seconds of the servers meanwhile."""
    before = {name: cpu_of_tree(pid) for name, pid in trial.servers.items()}
    with multiprocessing.get_context("spawn").Pool(len(calls)) as pool:
        answers = [answer.get(600) for answer in [pool.apply_async(call) for call in calls]]
    return answers, {name: cpu_of_tree(pid) - before[name] for name, pid in trial.servers.items()}


def _rounds(trial: _Trial, new_database: Callable[[], Mapping[str, Any]], rounds: int) -> Iterator[dict[str, Any]]:
    """Measure in turns: what is first in one round is last in the next."""
    calls: list[tuple[str, str, Callable[[], dict[str, Any]]]] = [
        *((READING, name, partial(_reading, trial, name)) for name in (LIBRARY, OURS, BUFFERS)),
        *((ONE_TASK, name, partial(_staged, trial, new_database, name, 1)) for name in (OURS, BUFFERS)),
        *((TWO_TASKS, name, partial(_staged, trial, new_database, name, 2)) for name in (OURS, BUFFERS)),
    ]
    for number in range(rounds):
        for what, name, call in calls if number % 2 == 0 else reversed(calls):
            run: dict[str, Any] = {"what": what, "contender": name, "round": number, "load_average": load_average()}
            run |= call()
            whole = run["cpu_seconds"] + sum(run["server_cpu_seconds"].values())
            told = f"{run['seconds']:.2f} s; CPU {run['cpu_seconds']:.2f} s, with the servers {whole:.2f} s"
            print(f"round {number + 1}, {what}, {name}: {told}", file=sys.stderr, flush=True)
            yield run


def _require_equal_records(trial: _Trial) -> None:
    """Require that both readers give the same records, in batches of the same sizes or not."""
    split = Split(0, trial.topic, 1, 0, 1_000, min(40_000, trial.records // ORDERS.partitions))
    tables = []
    for name in (OURS, BUFFERS):
        with trial.reader(name) as reader:
            tables.append(pa.Table.from_batches(reader.read(split)).combine_chunks())
    if not tables[0].equals(tables[1]):
        raise ValueError("the trial reads other records than the product's reader")


def _compiled(folder: Path) -> Path | None:
    """Compile the C source; ``None`` without a compiler."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return None
    path = folder / "consume_buffers.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(path), str(_SOURCE)], check=True)
    return path


def main() -> None:
    """Prints one JSON object with every run; nothing without a C compiler."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="of the topic (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="of each, in turns (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-trial-") as folder:
        filler = _compiled(Path(folder))
        if filler is None:
            print(f"not measured: no C compiler ({', '.join(_COMPILERS)}) on PATH", file=sys.stderr)
            return
        with own_postgres() as postgres, own_kafka() as broker:
            topic = filled_topic(broker.bootstrap, ORDERS, options.records)
            servers = {"postgres": postgres.pid() or 0, "kafka": broker.pid() or 0}
            trial = _Trial(broker.bootstrap, topic, options.records, filler, servers)
            _require_equal_records(trial)
            runs = list(_rounds(trial, partial(new_ledger, postgres), options.rounds))
    version = confluent_kafka.libversion()[0]
    found = {"records": options.records, "rounds": options.rounds, "librdkafka": version, "cores": os.cpu_count()}
    print(json.dumps({**found, "trial_runs": runs}))


if __name__ == "__main__":
    main()

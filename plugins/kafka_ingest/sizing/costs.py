"""What one load takes: seconds, CPU time, bytes, memory. Pure calculation from rates that were measured.

The rates are those of ``tests/benchmarks/results`` (docs/benchmarks.md), on the machine described there: two cores that
Spark, Kafka and PostgreSQL share. One set of rates serves all records: what a record costs follows from the columns and
the bytes of its row. ``tests/unit/test_sizing_and_benchmarks.py`` holds the calculation to every measured load, by a
factor of 1.5, and ``tests/integration/test_measured_sizes.py`` to the bytes that a real PostgreSQL writes.

Units are in the names; MB, GB and TB are powers of ten.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from kafka_ingest.protocol.staging import tasks_at_once
from kafka_ingest.settings import OffsetLimit, ValueFormat

MB = 1_000_000

# ----------
# Rates. The names behind them are those of the benchmark's result files. The three of a record were chosen together
# over all loads; start, partitions, a unique key and current state have one or two results each, which are named.


@dataclass(frozen=True, slots=True)
class _Rate:
    """Microseconds of one record: so many for each, for each of its columns and for each byte of its row."""

    record: float
    column: float
    byte: float

    def seconds(self, columns: int, row_bytes: float) -> float:
        """Return the seconds of one record."""
        return (self.record + self.column * columns + self.byte * row_bytes) / 1e6


#: By the clock, in one of two tasks at a time: read, decode, COPY (peers-*, narrow, wide, large, formats-1m, state-2m).
_STAGE = _Rate(1.0, 0.30, 0.018)
#: By the clock, in one session: ``INSERT ... SELECT`` (the phase ``publish`` of the same loads).
_PUBLISH = _Rate(0.5, 0, 0.006)
#: CPU time of driver, tasks and JVMs, and of PostgreSQL.
_SPARK_CPU, _DATABASE_CPU = _Rate(0.5, 0.22, 0.0125), _Rate(0.6, 0.11, 0.009)
#: The publish of a table of current state: 3.1 µs a record into an empty table (state-2m), 4.7 into a full one
#: (full-state-2m), whatever the columns; and the CPU time that PostgreSQL takes on top.
_FOLD, _FOLD_CPU = _Rate(4.0, 0, 0), _Rate(1.0, 0, 0)
#: The publish with a unique key, as a multiple, and its CPU time on top (unique-key: 8.5 s instead of 4.6).
_UNIQUE_KEY_FACTOR, _UNIQUE_KEY_CPU = 1.8, _Rate(2.0, 0, 0)
#: Rows above so many take half as long again: the kernel has to find new memory (peers-10m, memory-20m).
_BIG_PUBLISH_ROWS, _BIG_PUBLISH_FACTOR = 2_000_000, 1.5

#: A load of one record: spark-submit, session, Python workers, publish; and its CPU time (one-record).
_START_SECONDS, _START_SPARK_CPU, _START_DATABASE_CPU = 4.4, 4.5, 0.12
#: A DAG run beside its load: plan, audit, and Airflow between tasks (airflow-run).
AIRFLOW_SECONDS = 14.6
#: Of a partition: its plan (planning, a record in each of 2,000), its beginning in a task, and CPU (many-partitions).
_PLAN_SECONDS, _BEGIN_SECONDS, _BEGIN_CPU_SECONDS = 0.15e-3, 10e-3, 4e-3

#: What a row holds beside the record, its header and metadata columns; and a staged row on top.
_ROW_BYTES, _STAGED_BYTES = 90, 26
#: Share of a record's bytes that is stored: names of JSON are not; Avro and Protobuf carry none, and are denser.
_STORED = {
    ValueFormat.JSON_COLUMNS: 0.75,
    ValueFormat.JSON_SCHEMA: 0.75,
    ValueFormat.JSON: 1.0,
    ValueFormat.RAW: 1.0,
    ValueFormat.TEXT: 1.0,
    ValueFormat.AVRO: 1.7,
    ValueFormat.PROTOBUF: 1.7,
}
#: WAL of a row beside its bytes: header; entry of a unique key; entry of a key and a share of the pages that it
#: changes, in a table of current state.
_WAL_BYTES, _UNIQUE_WAL_BYTES, _UPSERT_WAL_BYTES = 30, 130, 120
#: An entry of the index of a unique key, or of the key of a table of current state.
_INDEX_BYTES = 70
#: The range of one partition in one batch of the ledger, with the entries of its five indexes.
RANGE_BYTES = 650

#: A Python worker that has loaded everything (one-record), librdkafka's prefetch and one answer (``kafka/client.py``).
_WORKER_BYTES, _PREFETCH_BYTES, _ANSWER_BYTES = 150 * MB, 16 * MB, 50 * MB
#: A chunk is at most so many records and bytes (``spark_jobs/records.py``); decoded and copied it takes 18 times its
#: bytes (large, narrow, wide), a single record ten times its own (docs/runbook.md).
_CHUNK_RECORDS, _CHUNK_BYTES, _CHUNK_FACTOR, _RECORD_FACTOR = 10_000, 8 * MB, 18, 10
#: Heap of a JVM: the default of the pipeline file. None took more than 255 MB (memory-20m).
HEAP_BYTES = 1_000 * MB
#: Python's part of the driver (one-record).
DRIVER_BYTES = 150 * MB


# ----------
# The calculation.


@dataclass(frozen=True, slots=True)
class Loading:
    """How records are loaded.

    Attributes:
        tasks: Tasks that can run at once in a load.
        limit_offsets: Most offsets of a run.
        format: What values are.
        columns: Columns that are filled from a record.
        is_upsert: Whether the table holds the current state.
        has_unique_key: Whether a table that is appended to has a unique key.
        pace: Time that the pipeline's own batches took, as a multiple of what the benchmark's rates say.
    """

    tasks: int = 2
    limit_offsets: int = OffsetLimit().total_offsets
    format: ValueFormat = ValueFormat.JSON_COLUMNS
    columns: int = 10
    is_upsert: bool = False
    has_unique_key: bool = False
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class LoadCost:
    """One load.

    Attributes:
        records: Records that it reads.
        record_bytes: Key, value and headers of a record, without compression: the mean.
        partitions: Partitions of the pipeline.
        loading: How they are loaded.
    """

    records: float
    record_bytes: float
    partitions: int
    loading: Loading

    @property
    def row_bytes(self) -> float:
        """A row of the table, without indexes."""
        return _ROW_BYTES + _STORED[self.loading.format] * self.record_bytes

    @property
    def partitions_read(self) -> int:
        """Partitions with something to read: all of them, if there are records enough."""
        return min(self.partitions, ceil(self.records))

    @property
    def tasks(self) -> int:
        """Tasks that run at once."""
        return tasks_at_once(ceil(self.records), self.loading.tasks, ceil(self.record_bytes))

    @property
    def task_seconds(self) -> float:
        """What the tasks take in sum to read, decode and copy."""
        return self.records * self._of_record(_STAGE) + self.partitions_read * _BEGIN_SECONDS

    @property
    def publish_seconds(self) -> float:
        """The transaction that publishes: one session, whatever the number of tasks."""
        if self.loading.is_upsert:
            return self.records * self._of_record(_FOLD)
        more = max(0.0, self.records - _BIG_PUBLISH_ROWS) * (_BIG_PUBLISH_FACTOR - 1)
        factor = _UNIQUE_KEY_FACTOR if self.loading.has_unique_key else 1
        return (self.records + more) * self._of_record(_PUBLISH) * factor

    @property
    def load_seconds(self) -> float:
        """From spark-submit to its end."""
        staged = self.task_seconds / self.tasks
        return (_START_SECONDS + staged + self.publish_seconds) * self.loading.pace

    @property
    def run_seconds(self) -> float:
        """A whole DAG run: plan, load, audit."""
        return AIRFLOW_SECONDS + self.partitions * _PLAN_SECONDS + self.load_seconds

    @property
    def spark_cpu_seconds(self) -> float:
        """CPU time of driver and tasks, and of the JVMs, which is all start."""
        begun = self.partitions_read * _BEGIN_CPU_SECONDS
        return _START_SPARK_CPU + begun + self.records * self._of_record(_SPARK_CPU)

    @property
    def database_cpu_seconds(self) -> float:
        """CPU time of PostgreSQL, for staging and publish."""
        seconds = self._of_record(_DATABASE_CPU)
        if self.loading.is_upsert:
            seconds += self._of_record(_FOLD_CPU)
        elif self.loading.has_unique_key:
            seconds += self._of_record(_UNIQUE_KEY_CPU)
        return _START_DATABASE_CPU + self.records * seconds

    @property
    def staging_bytes(self) -> float:
        """The unlogged staging tables of one attempt."""
        return self.records * (self.row_bytes + _STAGED_BYTES)

    @property
    def table_bytes(self) -> float:
        """What table and index grow by: for current state as if every record had a key of its own."""
        has_index = self.loading.is_upsert or self.loading.has_unique_key
        return self.records * (self.row_bytes + (_INDEX_BYTES if has_index else 0))

    @property
    def wal_bytes(self) -> float:
        """WAL of the publish, for staging writes none; for current state as if every record wrote a row."""
        appended = _UNIQUE_WAL_BYTES if self.loading.has_unique_key else _WAL_BYTES
        return self.records * (self.row_bytes + (_UPSERT_WAL_BYTES if self.loading.is_upsert else appended))

    def task_bytes(self, largest_bytes: float = 0) -> float:
        """Return the memory of the Python process of one task, where the largest record has so many bytes."""
        chunk = min(_CHUNK_RECORDS * self.record_bytes, _CHUNK_BYTES)
        work = max(_CHUNK_FACTOR * chunk, _RECORD_FACTOR * largest_bytes)
        return _WORKER_BYTES + _PREFETCH_BYTES + _ANSWER_BYTES + work

    def _of_record(self, rate: _Rate) -> float:
        return rate.seconds(self.loading.columns, self.row_bytes)

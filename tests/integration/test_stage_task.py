from __future__ import annotations

import gc
import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import psycopg2
import pyarrow as pa
import pytest

from kafka_ingest.errors import (
    AccountingMismatch,
    BrokerUnavailable,
    DatabaseUnavailable,
    RetryLater,
    TooManyDeadLetters,
)
from kafka_ingest.protocol.batch import RecordCounts
from kafka_ingest.protocol.staging import DeadLetterSample, Split, StageProgress, StageTask
from kafka_ingest.settings import ColumnSettings, DeadLetterLimits, TargetSettings, Tombstones
from spark_jobs import stage
from spark_jobs.decode.record import RecordDecoder
from spark_jobs.decode.values import DecodedBatch
from spark_jobs.stage import stage_task
from tests.fakes.listed_reader import ListedReader
from tests.kafka_records import NOON_MS, Record
from tests.staging_bench import StagingBench, json_settings

TASK = StageTask(3, (Split(6, "orders", 0, 1, 0, 100), Split(7, "orders", 1, 1, 50, 60)))
ONE = StageTask(3, TASK.splits[:1])
TARGET = TargetSettings("shop", "orders", create_table=True)


def order(number: int, offset: int, partition: int = 0) -> Record:
    return Record(offset, json.dumps({"id": number}).encode(), partition=partition)


def broken(offset: int) -> Record:
    return Record(offset, b"{broken")


def bench_of(database: dict[str, Any], **changes: Any) -> StagingBench:
    settings = json_settings(ColumnSettings("id", "integer"), target=TARGET, **changes)
    bench = StagingBench(database, settings)
    bench.prepare()
    return bench


class BreakingReader(ListedReader):
    """Return its records, then fail as a broker would."""

    def __init__(self, records: Sequence[Record], fault: Exception) -> None:
        super().__init__(records, batch_records=1)
        self._fault = fault
        self.is_left = False

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        try:
            yield from super().read(split)
            raise self._fault
        finally:
            self.is_left = True


def test_every_offset_of_every_split_is_accounted_for(database: dict[str, Any]) -> None:
    bench = bench_of(database, tombstones=Tombstones.COUNT)
    records = [order(1, 0), broken(1), Record(5, None), order(2, 98), order(3, 50, partition=1)]

    result = stage_task(TASK, bench.context(), 11, reader=ListedReader(records, end_leader_epoch=4))

    assert (result.task_index, result.attempt_id) == (3, 11)
    first, second = result.splits
    assert first.counts == RecordCounts(rows=2, dead_letters=1, tombstones=1, invisible=96)
    assert (first.record_time_min_ms, first.record_time_max_ms) == (NOON_MS, NOON_MS + 98)
    assert (first.last_record_time_ms, first.end_leader_epoch) == (NOON_MS + 98, 4)
    assert (first.dead_letter_run.longest, first.dead_letter_run.longest_start) == (1, 1)
    assert [(s.topic, s.partition, s.offset, s.reason) for s in first.samples] == [("orders", 0, 1, "malformed")]
    assert (second.index, second.counts) == (7, RecordCounts(rows=1, invisible=9))
    assert bench.rows("id", "kafka_partition", "kafka_offset", "kafka_generation", "stage_task", "stage_attempt") == [
        (1, 0, 0, 1, 3, 11),
        (3, 1, 50, 1, 3, 11),
        (2, 0, 98, 1, 3, 11),
    ]
    assert [(offset, bytes(value)) for offset, value in bench.dead_letters("offset", "value")] == [(1, b"{broken")]


def test_an_empty_split_stages_nothing(database: dict[str, Any]) -> None:
    bench = bench_of(database)

    result = stage_task(ONE, bench.context(), 11, reader=ListedReader([]))

    assert result.splits[0].counts == RecordCounts(invisible=100)
    assert bench.rows("id") == []


def test_the_garbage_collector_is_rarer_during_a_task_and_as_before_after_it(database: dict[str, Any]) -> None:
    bench = bench_of(database)
    before = gc.get_threshold()
    during: list[tuple[int, int, int]] = []

    class WatchingReader(BreakingReader):
        def read(self, split: Split) -> Iterator[pa.RecordBatch]:
            during.append(gc.get_threshold())
            return super().read(split)

    with pytest.raises(BrokerUnavailable):
        stage_task(ONE, bench.context(), 11, reader=WatchingReader([order(1, 0)], BrokerUnavailable("gone")))

    assert during == [(100_000, *before[1:])]
    assert gc.get_threshold() == before


def test_many_chunks_end_in_the_same_staging_as_one(database: dict[str, Any]) -> None:
    bench = bench_of(database)
    records = [broken(n) if n % 10 == 7 else order(n, n) for n in range(100)]

    whole = stage_task(ONE, bench.context(), 1, reader=ListedReader(records))
    small = stage_task(ONE, bench.context(), 2, reader=ListedReader(records, batch_records=7))

    assert small.splits == whole.splits
    assert whole.splits[0].counts == RecordCounts(rows=90, dead_letters=10)
    rows = bench.rows("stage_attempt", "id", "kafka_offset")
    assert [row[1:] for row in rows if row[0] == 1] == [row[1:] for row in rows if row[0] == 2]


def test_two_attempts_of_a_task_stay_apart(database: dict[str, Any]) -> None:
    bench = bench_of(database)
    for attempt in (11, 12):
        stage_task(ONE, bench.context(), attempt, reader=ListedReader([order(1, 0)]))

    assert bench.rows("id", "stage_attempt") == [(1, 11), (1, 12)]


def test_check_violations_count_as_dead_letters_between_those_of_decoding(database: dict[str, Any]) -> None:
    bench = bench_of(database)
    bench.run("ALTER TABLE shop.orders ADD CONSTRAINT small CHECK (id < 10)")
    bench.staging.drop(bench.batch)
    bench.staging.create(bench.batch)
    records = [order(1, 0), broken(1), order(99, 2), broken(3), order(4, 4)]

    result = stage_task(ONE, bench.context(), 11, reader=ListedReader(records)).splits[0]

    assert result.counts == RecordCounts(rows=2, dead_letters=3, invisible=95)
    assert (result.dead_letter_run.longest, result.dead_letter_run.longest_start) == (3, 1)
    assert result.samples[1] == DeadLetterSample(
        "orders", 0, 2, "check_violation", "CHECK small of the target is false: (id < 10)"
    )
    assert bench.dead_letters("offset", "reason") == [
        (1, "malformed"),
        (2, "check_violation"),
        (3, "malformed"),
    ]
    assert bench.rows("id") == [(1,), (4,)]


def test_a_null_for_a_stricter_target_is_a_dead_letter(database: dict[str, Any]) -> None:
    bench = bench_of(database)
    bench.run("ALTER TABLE shop.orders ALTER COLUMN id SET NOT NULL")
    bench.staging.drop(bench.batch)
    bench.staging.create(bench.batch)

    result = stage_task(ONE, bench.context(), 11, reader=ListedReader([Record(0, b'{"id": null}'), order(1, 1)]))

    assert result.splits[0].counts == RecordCounts(rows=1, dead_letters=1, invisible=98)
    assert bench.dead_letters("offset") == [(0,)]


@pytest.mark.parametrize(
    ("limits", "passed"),
    [
        (DeadLetterLimits(max_count=2), "3 dead letters"),
        (DeadLetterLimits(max_consecutive=2), "3 in a row"),
    ],
)
def test_a_task_that_passes_the_limit_alone_stops_and_leaves_nothing(
    database: dict[str, Any], limits: DeadLetterLimits, passed: str
) -> None:
    bench = bench_of(database, dead_letters=limits)
    records = [order(1, 0), broken(1), broken(2), broken(3)]

    with pytest.raises(TooManyDeadLetters) as stop:
        stage_task(ONE, bench.context(), 11, reader=ListedReader(records))

    assert passed in stop.value.found
    assert "orders[0] offset 1" in stop.value.found
    assert bench.rows("id") == []
    assert bench.dead_letters("offset") == []


def test_a_share_of_dead_letters_is_not_judged_by_one_task(database: dict[str, Any]) -> None:
    bench = bench_of(database, dead_letters=DeadLetterLimits(max_ratio=0.01, ratio_from_count=0))

    result = stage_task(ONE, bench.context(), 11, reader=ListedReader([order(1, 0), broken(1)]))

    assert result.splits[0].counts.dead_letters == 1


@pytest.mark.parametrize(
    "records",
    [[order(1, 0), order(2, 100)], [order(1, 5), order(2, 5)], [order(1, 5), order(2, 4)], [order(1, 0, partition=1)]],
)
def test_a_reader_that_gives_what_was_not_asked_for_is_stopped(database: dict[str, Any], records: list[Record]) -> None:
    bench = bench_of(database)

    with pytest.raises(AccountingMismatch):
        stage_task(ONE, bench.context(), 11, reader=ListedReader(records, trust=True))

    assert bench.rows("id") == []


def test_a_record_that_comes_twice_is_noticed_across_chunks(database: dict[str, Any]) -> None:
    bench = bench_of(database)
    reader = ListedReader([order(1, 5), order(1, 5)], batch_records=1, trust=True)

    with pytest.raises(AccountingMismatch):
        stage_task(ONE, bench.context(), 11, reader=reader)


def test_a_fault_of_the_broker_leaves_nothing_and_the_partition_is_left(database: dict[str, Any]) -> None:
    bench = bench_of(database)
    reader = BreakingReader([order(1, 0), order(2, 1)], BrokerUnavailable("no answer"))

    with pytest.raises(BrokerUnavailable):
        stage_task(ONE, bench.context(), 11, reader=reader)

    assert bench.rows("id") == []
    assert reader.is_left


class TerminatingReader(ListedReader):
    """Ends the task's database session after the first batch, as an administrator or a crash would."""

    def __init__(self, records: Sequence[Record], params: dict[str, Any]) -> None:
        super().__init__(records, batch_records=1)
        self._params = params

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(super().read(split)):
            if number == 2:
                self._terminate()
            yield batch

    def _terminate(self) -> None:
        connection = psycopg2.connect(**self._params)
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'kafka_ingest stage task 3'"
            )
            assert cursor.fetchall() == [(True,)]
        connection.close()


def test_a_session_that_is_ended_is_no_dead_letter(database: dict[str, Any]) -> None:
    bench = bench_of(database)

    with pytest.raises(DatabaseUnavailable):
        stage_task(ONE, bench.context(), 11, reader=TerminatingReader([order(n, n) for n in range(5)], database))

    assert bench.rows("id") == []


def test_an_attempt_whose_tables_a_newer_claim_dropped_ends_without_a_trace(database: dict[str, Any]) -> None:
    bench = bench_of(database)
    context = bench.context()
    bench.staging.create(replace(bench.batch, claim=2))

    with pytest.raises(RetryLater, match="staging tables of this attempt are gone"):
        stage_task(ONE, context, 11, reader=ListedReader([order(1, 0)]))


def test_progress_is_told_while_the_rows_are_still_invisible(
    database: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "INTERVAL_SECONDS", 0.0)
    bench = bench_of(database)
    seen: list[tuple[StageProgress, int]] = []

    class WatchingReader(ListedReader):
        def read(self, split: Split) -> Iterator[pa.RecordBatch]:
            for batch in super().read(split):
                seen.append((bench.staging.progress(bench.batch), len(bench.rows("id"))))
                yield batch

    records = [order(1, 10), order(2, 20), order(3, 30), order(4, 55, partition=1)]
    stage_task(TASK, bench.context(), 11, reader=WatchingReader(records, batch_records=1))

    # When the record at 30 is asked for, the chunks of offsets 10 and 20 are staged: 21 offsets passed.
    assert seen[2] == (StageProgress(2, 21), 0)
    assert bench.staging.progress(bench.batch) == StageProgress(4, 110)


def test_a_progress_report_that_fails_is_logged_and_told_again_and_never_fails_the_task(
    database: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stage, "INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(stage, "_INTERVAL_AFTER_FAULT_SECONDS", 0.0)
    bench = bench_of(database)

    class EndingReader(ListedReader):
        """Has the server end the idle session of the progress once, as idle_session_timeout would."""

        def read(self, split: Split) -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(super().read(split)):
                if number == 2:
                    assert bench.query(
                        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                        " WHERE application_name = 'kafka_ingest stage task 3 progress'"
                        " AND datname = current_database()"
                    ) == [(True,)]
                yield batch

    records = [order(number, number) for number in range(5)]
    result = stage_task(ONE, bench.context(), 11, reader=EndingReader(records, batch_records=1))

    assert result.splits[0].counts == RecordCounts(rows=5, invisible=95)
    assert "the progress of a task was not told, the task goes on: server closed the connection" in caplog.text
    assert bench.staging.progress(bench.batch) == StageProgress(5, 100)


def test_a_killed_task_leaves_the_offsets_that_it_was_at(
    database: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(database)
    records, context = [order(number, 10 * number) for number in range(1, 6)], bench.context()
    assert bench.staging.places(bench.batch) == []

    killed = os.fork()
    if not killed:
        decode = RecordDecoder.decode

        def die_at_thirty(decoder: RecordDecoder, batch: pa.RecordBatch, *, generation: int) -> DecodedBatch:
            if 30 in batch["offset"].to_pylist():
                os.kill(os.getpid(), signal.SIGKILL)
            return decode(decoder, batch, generation=generation)

        monkeypatch.setattr(RecordDecoder, "decode", die_at_thirty)
        stage_task(ONE, context, 11, reader=ListedReader(records, batch_records=2))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == -signal.SIGKILL
    assert bench.staging.places(bench.batch) == ["orders[0] offsets [30, 41)"]

    stage_task(ONE, context, 12, reader=ListedReader(records))
    assert bench.staging.places(bench.batch) == []


def test_tasks_that_ended_are_at_no_offsets(database: dict[str, Any]) -> None:
    bench = bench_of(database)
    stage_task(TASK, bench.context(), 11, reader=ListedReader([order(1, 10), order(2, 20, partition=1)]))
    assert bench.staging.places(bench.batch) == []


def test_a_task_that_runs_twice_counts_once_in_the_progress(database: dict[str, Any]) -> None:
    bench = bench_of(database)
    for attempt in (11, 12):
        stage_task(ONE, bench.context(), attempt, reader=ListedReader([order(1, 0)]))

    assert bench.staging.progress(bench.batch) == StageProgress(1, 100)


def test_dropping_does_not_wait_for_a_running_task_whose_rows_go_when_it_has_ended(
    database: dict[str, Any],
) -> None:
    bench = bench_of(database)
    copied, go_on = threading.Event(), threading.Event()

    class WaitingReader(ListedReader):
        def read(self, split: Split) -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(super().read(split)):
                if number == 2:  # a chunk is one record here, so offsets 0 and 1 have been copied
                    copied.set()
                    assert go_on.wait(60)
                yield batch

    reader = WaitingReader([order(n, n) for n in range(3)], batch_records=1)
    failures: list[BaseException] = []
    thread = threading.Thread(target=_stage_in_thread, args=(bench.context(), reader, failures))
    thread.start()
    assert copied.wait(60)
    bench.staging.drop(bench.batch)
    assert bench.tables() == ["rows"]
    go_on.set()
    thread.join(60)

    # Nothing can be published of it: the table of its dead letters is gone.
    assert failures == []
    bench.staging.drop(bench.batch)
    assert bench.tables() == []


def _stage_in_thread(context: Any, reader: ListedReader, failures: list[BaseException]) -> None:
    try:
        stage_task(ONE, context, 11, reader=reader)
    except Exception as error:  # noqa: BLE001 (the test looks at it)
        failures.append(error)

"""Loads through the command line, real Kafka and PostgreSQL, tasks run in one process: the many small cases."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafka_ingest.kafka.log import KafkaLog
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.staging import StageResult, StageTask
from sandbox.kafka import KafkaBroker
from spark_jobs.load_job import InProcessRunner
from tests.deadlines import until
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest, produced, set_connections
from tests.services import ProducerFactory, TopicFactory


def test_rows_are_loaded_once_and_a_second_run_reads_only_what_is_new(pipeline: FedPipeline) -> None:
    name = pipeline.open(2)
    pipeline.send(*"02468")
    pipeline.send(*"13579", partition=1)
    first = pipeline.load()
    assert (first["counts"]["rows"], first["ranges"]) == (10, {name: {"0": [0, 5], "1": [0, 5]}})
    pipeline.send("late", partition=1)
    second = pipeline.load()
    assert (second["counts"]["rows"], second["ranges"]) == (1, {name: {"1": [5, 6]}})
    expected = [(0, o, f"{2 * o}".encode()) for o in range(5)] + [(1, o, f"{2 * o + 1}".encode()) for o in range(5)]
    assert pipeline.rows("kafka_partition, kafka_offset, payload") == [*expected, (1, 5, b"late")]


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Offsets of each task of each load, which samples for as long as a busy machine needs."""
    found: list[list[int]] = []
    run = InProcessRunner.run

    def noted(runner: InProcessRunner, batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        found.append([sum(split.span_offsets for split in task.splits) for task in tasks])
        return run(runner, batch, tasks)

    monkeypatch.setattr(InProcessRunner, "run", noted)
    monkeypatch.setattr("spark_jobs.load_job.KafkaLog", partial(KafkaLog, sample_seconds=30))
    return found


MEGABYTE = "x" * 990_000


def test_large_records_are_several_tasks_and_as_many_small_ones_are_one(
    pipeline: FedPipeline, cuts: list[list[int]]
) -> None:
    pipeline.open()
    pipeline.send(*[MEGABYTE] * 60)
    assert pipeline.load_here()["counts"]["rows"] == 60
    pipeline.send(*["x" * 300] * 60)
    assert pipeline.load_here()["counts"]["rows"] == 60
    assert cuts == [[30, 30], [60]]
    lengths = [(offset, 990_000 if offset < 60 else 300) for offset in range(120)]
    assert pipeline.rows("kafka_offset, length(payload)") == lengths


def test_large_records_in_transactions_are_several_tasks_and_each_is_loaded_once(
    pipeline: FedPipeline, producer: ProducerFactory, kafka_broker: KafkaBroker, cuts: list[list[int]]
) -> None:
    """Forty records, each before its marker, are 40 MB in 80 offsets; behind them five are aborted."""
    name = pipeline.open()
    sender = producer(transactional_id=f"{name}-t")
    sender.init_transactions(30)
    for number in range(45):
        sender.begin_transaction()
        sender.produce(name, MEGABYTE)
        assert sender.flush(30) == 0
        end = sender.commit_transaction if number < 40 else sender.abort_transaction
        end(30)
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    latest = {TopicPartition(name, 0): OffsetSpec.latest()}
    # The broker answers before it has written the marker.
    until(lambda: admin.list_offsets(latest)[TopicPartition(name, 0)].result(30).offset == 90, "all markers are there")
    counts = pipeline.load_here()["counts"]
    assert (counts["rows"], counts["invisible"]) == (40, 50)
    assert pipeline.rows("kafka_offset") == [(offset,) for offset in range(0, 80, 2)]
    assert cuts == [[45, 45]]


def test_a_load_that_gets_no_sample_is_cut_by_offsets(
    pipeline: FedPipeline, cuts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.load_job.KafkaLog", partial(KafkaLog, sample_seconds=0))
    pipeline.open()
    pipeline.send(*[MEGABYTE] * 20)
    assert pipeline.load_here()["counts"]["rows"] == 20
    assert cuts == [[20]]


def test_a_connection_with_a_ca_bundle_of_300_kb_is_loaded_from(
    pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than Linux lets one variable of a process hold (128 KiB, execve(2)).
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
    kafka = json.loads(os.environ["AIRFLOW_CONN_KAFKA_DEFAULT"])
    kafka["extra"]["ssl.ca.pem"] = f"-----BEGIN CERTIFICATE-----\n{line}\n-----END CERTIFICATE-----\n" * 2_600
    assert len(kafka["extra"]["ssl.ca.pem"]) > 300_000
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    pipeline.open()
    pipeline.send("a")
    assert pipeline.load(runner="spark")["counts"]["rows"] == 1


def test_the_same_run_again_is_the_same_batch(pipeline: FedPipeline) -> None:
    pipeline.open()
    pipeline.send("a")
    first = pipeline.load("--run-id", "r1")
    pipeline.send("b")
    again = pipeline.load("--run-id", "r1")
    assert again == first
    assert pipeline.rows("payload") == [(b"a",)]


def test_the_same_run_with_another_limit_is_refused(pipeline: FedPipeline) -> None:
    pipeline.open()
    pipeline.send(*map(str, range(5)))
    assert pipeline.load("--run-id", "r1", "--limit", "2")["counts"]["rows"] == 2
    code, _, notes = pipeline.command("run", "events", "--runner", "in-process", "--run-id", "r1", "--limit", "3")
    assert code == 78
    assert '"class": "RequestChanged"' in notes


def test_a_limit_is_worked_off_run_by_run(pipeline: FedPipeline) -> None:
    pipeline.open()
    pipeline.send(*map(str, range(5)))
    assert [pipeline.load("--limit", "2")["span_offsets"] for _ in range(4)] == [2, 2, 1, 0]
    assert pipeline.rows("kafka_offset") == [(o,) for o in range(5)]


def test_c42_an_empty_range_is_green_and_starts_no_job(pipeline: FedPipeline) -> None:
    name = pipeline.open(2)
    for _ in range(3):
        code, summary, notes = pipeline.command("run", "events", "--runner", "spark")
        assert (code, summary["state"], summary["ranges"]) == (0, "committed", {})
        assert "has nothing to read: Spark is not started" in notes
    pipeline.send("first", partition=1)
    loaded = pipeline.load()
    assert loaded["ranges"] == {name: {"1": [0, 1]}}
    assert pipeline.rows("kafka_partition, payload") == [(1, b"first")]


def test_c12_one_bad_record_is_a_dead_letter_with_its_bytes_and_the_others_are_rows(
    pipeline: PipelineUnderTest, topic: TopicFactory, producer: ProducerFactory
) -> None:
    # The times lie in 1970: time-based retention would delete the records.
    name = topic(1, {"retention.ms": "-1"})
    columns = [{"name": "n", "type": "integer", "required": True}]
    pipeline.write(name, value={"format": "json", "columns": columns}, tombstones="dead_letter")
    with produced(producer()) as sender:
        for number in range(100):
            value = b"{broken" if number == 57 else json.dumps({"n": number}).encode()
            sender.produce(name, key=b"\x80", value=value, headers=[("a", b"\xff"), ("a", None)], timestamp=number + 1)
    counts = pipeline.load_here()["counts"]
    assert (counts["rows"], counts["dead_letters"]) == (99, 1)
    assert pipeline.rows("n") == [(number,) for number in range(100) if number != 57]
    stored = (
        'topic, generation, partition, "offset", reason, key, value, header_names, record_time_ms, record_time_type'
    )
    assert pipeline.dead_letters(stored) == [
        (name, 0, 0, 57, "malformed", b"\x80", b"{broken", ["a", "a"], 58, "create")
    ]
    [(headers,)] = pipeline.dead_letters("header_values")
    assert [None if v is None else bytes(v) for v in headers] == [b"\xff", None]


def test_c12_a_sick_database_is_never_a_dead_letter(pipeline: FedPipeline) -> None:
    pipeline.open()
    pipeline.load("--run-id", "creates the table")
    pipeline.send("a")
    pipeline.query(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'disk full' USING ERRCODE = 'disk_full'; END $$"
    )
    pipeline.query("CREATE TRIGGER refuse BEFORE INSERT ON shop.events FOR EACH ROW EXECUTE FUNCTION refuse()")
    code, _, notes = pipeline.command("run", "events", "--runner", "in-process", "--run-id", "r1")
    assert code != 0, notes
    assert (pipeline.rows("payload"), pipeline.dead_letters("reason")) == ([], [])
    pipeline.query("DROP TRIGGER refuse ON shop.events")
    assert pipeline.load("--run-id", "r1")["counts"]["rows"] == 1
    assert pipeline.rows("payload") == [(b"a",)]


def test_over_the_limit_of_dead_letters_nothing_is_written_and_the_first_offsets_are_named(
    pipeline: FedPipeline,
) -> None:
    name = pipeline.open(
        value={"format": "json", "columns": [{"name": "n", "type": "integer"}]}, dead_letters={"max_count": 2}
    )
    pipeline.send(b'{"n": 1}', b"{", b"{", b"{")
    for _ in range(2):  # the second is another run: the first one holds the pipeline no more
        code, _, notes = pipeline.command("run", "events", "--runner", "in-process")
        assert (code, '"class": "TooManyDeadLetters"' in notes) == (78, True), notes
    assert f"{name}[0]" in notes
    assert (pipeline.rows("n"), pipeline.dead_letters("reason")) == ([], [])


def test_c18_null_empty_and_json_null_are_three_different_things(
    pipeline: FedPipeline, producer: ProducerFactory
) -> None:
    pipeline.open(value={"format": "json", "column": "document"}, tombstones="row")
    with produced(producer()) as sender:
        for key, value in ((b"1", b'{"a": 1}'), (b"1", None), (None, b"{}"), (b"", b"null"), (b"2", b"")):
            sender.produce(pipeline.topic, key=key, value=value)
    counts = pipeline.load_here()["counts"]
    assert (counts["rows"], counts["dead_letters"]) == (4, 1)
    assert pipeline.rows("key, document::text") == [
        (b"1", '{"a": 1}'),
        (b"1", None),
        (None, "{}"),
        (b"", "null"),
    ]
    assert pipeline.dead_letters('"offset", key, value, reason') == [(4, b"2", b"", "malformed")]


def test_c18_raw_bytes_keep_null_and_empty_apart(pipeline: FedPipeline, producer: ProducerFactory) -> None:
    pipeline.open(tombstones="row")
    with produced(producer()) as sender:
        for key, value in ((b"1", b"{}"), (b"1", None), (None, b"{}"), (b"", b""), (b"1", b"null")):
            sender.produce(pipeline.topic, key=key, value=value)
    pipeline.load_here()
    assert pipeline.rows("key, payload") == [
        (b"1", b"{}"),
        (b"1", None),
        (None, b"{}"),
        (b"", b""),
        (b"1", b"null"),
    ]


def test_tombstones_can_be_counted_instead(pipeline: FedPipeline) -> None:
    pipeline.open(tombstones="count")
    pipeline.send(b"a", None, key=b"1")
    counts = pipeline.load_here()["counts"]
    assert (counts["rows"], counts["tombstones"]) == (1, 1)


def test_c16_markers_and_aborted_records_end_a_range_and_are_counted_as_invisible(
    pipeline: FedPipeline, producer: ProducerFactory
) -> None:
    name = pipeline.open()
    sender = producer(transactional_id=f"{name}-t")
    sender.init_transactions()
    sender.begin_transaction()
    for number in range(100):
        sender.produce(name, value=f"{number}")
    sender.commit_transaction()
    first = pipeline.load_here()
    assert first["committed_offsets"] == {name: {"0": 101}}
    assert (first["counts"]["rows"], first["counts"]["invisible"]) == (100, 1)
    sender.begin_transaction()
    for _ in range(3):
        sender.produce(name, value="never")
    # Aborting throws away what has not been sent.
    sender.flush()
    sender.abort_transaction()
    second = pipeline.load_here()
    assert second["committed_offsets"] == {name: {"0": 105}}
    assert (second["counts"]["rows"], second["counts"]["invisible"]) == (0, 4)
    _, lags, _ = pipeline.command("lag", "events")
    assert lags[0]["lag_offsets"] == 0
    assert len(pipeline.rows("kafka_offset")) == 100


def test_c43_framed_bytes_are_landed_untouched(pipeline: FedPipeline) -> None:
    pipeline.open()
    values = [
        b"\x00\x00\x00\x00\x01\x02ab",
        b"\x00\x00\x00\x00\x02\x06xyz",
        b'{"a": 1}',
        b"\x00\x01\x02",
        bytes(range(256)),
    ]
    pipeline.send(*values)
    pipeline.load_here()
    assert pipeline.rows("payload") == [(value,) for value in values]


def test_c43_framed_bytes_are_never_decoded_as_text_or_json(pipeline: FedPipeline) -> None:
    framed = [b"\x00\x00\x00\x00\x01\x02ab", b'\x00\x00\x00\x00\x02{"a": 1}']
    pipeline.open(value={"format": "json", "columns": [{"name": "a", "type": "integer"}]})
    pipeline.send(*framed)
    pipeline.load_here()
    assert pipeline.rows("a") == []
    assert [value for (value,) in pipeline.dead_letters("value")] == framed


def test_reports_tell_status_lag_batches_and_dead_letters(pipeline: FedPipeline) -> None:
    pipeline.open(value={"format": "text", "column": "line"})
    _, [before], _ = pipeline.command("status", "events")
    assert before["standing"] == "never planned"
    pipeline.send(b"a", b"b\xff", b"c", key=b"k")
    code, preview, _ = pipeline.command("plan", "events", "--dry-run", "--limit", "2")
    assert (code, preview["backlog_offsets"], [(r["start"], r["end"]) for r in preview["ranges"]]) == (0, 3, [(0, 2)])
    summary = pipeline.load("--limit", "2", "--run-id", "r1")
    _, [status], _ = pipeline.command("status", "events")
    assert (status["standing"], status["last_rows"], status["unresolved_dead_letters"]) == ("idle", 1, 1)
    assert (status["last_deletes"], status["last_superseded"]) == (0, 0)
    _, [lag], _ = pipeline.command("lag", "events")
    assert (lag["committed_offset"], lag["end_offset"], lag["lag_offsets"], lag["headroom_offsets"]) == (2, 3, 1, 2)
    _, [batch], _ = pipeline.command("batches", "events")
    assert (batch["batch_id"], batch["run_id"], batch["offsets"]) == (summary["batch_id"], "r1", 2)
    assert (batch["rows"], batch["deletes"], batch["superseded"]) == (1, 0, 0)
    _, [hidden], _ = pipeline.command("dead-letters", "list", "events", "--batch", summary["batch_id"])
    assert "value" not in hidden
    _, [shown], _ = pipeline.command("dead-letters", "list", "events", "--show-values")
    assert (shown["offset"], shown["reason"], shown["value"]) == (1, "not_utf8", "Yv8=")
    assert pipeline.command("audit", "events")[:2] == (0, [])


def test_an_audit_finds_a_row_that_somebody_took_away(pipeline: FedPipeline) -> None:
    pipeline.open()
    pipeline.send("a")
    pipeline.load("--run-id", "r1")
    pipeline.query("DELETE FROM shop.events")
    code, violations, _ = pipeline.command("audit", "events")
    assert (code, bool(violations)) == (65, True)
    assert pipeline.command("run", "events", "--runner", "in-process", "--run-id", "r1")[0] == 65


def test_c11_records_that_expire_between_plan_and_load_stop_the_batch(
    pipeline: FedPipeline, kafka_broker: KafkaBroker
) -> None:
    name = pipeline.open()
    pipeline.send(*map(str, range(10)))
    pipeline.plan_only("r1")
    admin, partition = AdminClient({"bootstrap.servers": kafka_broker.bootstrap}), TopicPartition(name, 0, 4)
    admin.delete_records([partition])[partition].result(30)
    code, _, notes = pipeline.command("run", "events", "--run-id", "r1", "--runner", "in-process")
    assert (code, '"class": "OffsetsExpired"' in notes) == (78, True), notes
    assert pipeline.rows("payload") == []
    # The failed run holds the pipeline no more: another one need not wait for a time-out.
    assert pipeline.command("change", "events", "accept-loss", "--reason", "x", "--supersede", "--apply")[0] == 0
    assert pipeline.load()["counts"]["rows"] == 6


def test_a_spark_connection_that_cannot_be_used_is_found_before_anything_is_planned(
    pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C85: Airflow's own default connection."""
    pipeline.open()
    pipeline.send("a")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "yarn"}')
    code, _, notes = pipeline.command("run", "events")
    assert (code, '"class": "ConfigError"' in notes) == (78, True), notes
    assert pipeline.command("batches", "events")[1] == []
    assert pipeline.load()["counts"]["rows"] == 1


def test_another_run_is_told_to_come_back_while_a_batch_is_planned(pipeline: FedPipeline) -> None:
    pipeline.open()
    pipeline.send("a")
    pipeline.plan_only("r1")
    code, _, notes = pipeline.command("run", "events", "--run-id", "r2", "--runner", "in-process")
    assert (code, '"class": "Busy"' in notes) == (75, True), notes
    assert "ask again after " in notes
    assert "run the same command again" in notes
    _, preview, _ = pipeline.command("plan", "events", "--dry-run")
    _, [status], _ = pipeline.command("status", "events")
    assert (preview["outstanding_batch_id"], status["outstanding_request"]) == (
        status["outstanding_batch_id"],
        "cli r1",
    )
    assert pipeline.load("--run-id", "r1")["counts"]["rows"] == 1


def test_a_missing_topic_stops_before_anything_is_written(pipeline: PipelineUnderTest) -> None:
    pipeline.write("there-is-no-such-topic")
    code, _, notes = pipeline.command("run", "events")
    assert code == 78
    assert '"class": "TopicMissing"' in notes
    assert pipeline.command("batches", "events")[1] == []


def test_a_database_without_a_ledger_names_the_command(
    pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch, kafka_broker: KafkaBroker
) -> None:
    pipeline.open()
    bare = {**pipeline.database, "dbname": "postgres"}
    set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=bare)
    code, _, notes = pipeline.command("run", "events")
    assert code == 78
    assert "python -m kafka_ingest migrate" in notes

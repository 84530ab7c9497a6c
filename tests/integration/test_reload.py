"""Spans that are read again, on real Kafka and PostgreSQL: replaced below the position, ingested above, never a gap."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_ingest.errors import OffsetsExpired, ReloadWouldLose, RequestChanged
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions, TimeSpan
from sandbox.kafka import KafkaBroker
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest, produced
from tests.services import ProducerFactory

HOUR_MS = 3_600_000
#: 2026-01-02 00:00 UTC: record times of the tests count from here.
MIDNIGHT_MS = 1_767_312_000_000
#: The records are older than a broker keeps any by default.
KEPT = {"retention.ms": "-1"}


@pytest.fixture
def hours(pipeline: FedPipeline) -> str:
    """One partition with two records an hour: offsets 0, 1 in the first hour of the day, up to 7 in the fourth."""
    name = pipeline.open(1, KEPT)
    send(pipeline, [(hour, f"{hour}:{half}") for hour in range(4) for half in (0, 30)])
    return name


def send(pipeline: FedPipeline, records: list[tuple[float, str | None]]) -> None:
    """Sends values with record times, in hours since midnight."""
    with produced(pipeline.make_producer()) as sender:
        for hour, value in records:
            sender.produce(pipeline.topic, value=value, timestamp=MIDNIGHT_MS + int(hour * HOUR_MS), partition=0)


def of_hours(first: float, beyond: float | None, **more: bool) -> RunOptions:
    end = None if beyond is None else MIDNIGHT_MS + int(beyond * HOUR_MS)
    span = TimeSpan(MIDNIGHT_MS + int(first * HOUR_MS), end)
    return RunOptions(RunMode.RELOAD, times=span, reload_what_is_left=more.get("what_is_left", False))


def by_hand(pipeline: PipelineUnderTest, statement: str) -> None:
    pipeline.query(statement)


def content(pipeline: PipelineUnderTest) -> list[tuple[Any, ...]]:
    return pipeline.rows("kafka_offset, payload")


def owners(pipeline: PipelineUnderTest) -> list[str]:
    return [batch_id for (batch_id,) in pipeline.rows("batch_id::text")]


def delete_before(broker: KafkaBroker, name: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (answer,) = admin.delete_records([TopicPartition(name, 0, offset)]).values()
    answer.result(30)


def test_an_hour_is_replaced_and_the_position_stays(pipeline: PipelineUnderTest, hours: str) -> None:
    first = pipeline.load_here()
    by_hand(pipeline, "UPDATE shop.events SET payload = 'spoilt' WHERE kafka_offset BETWEEN 1 AND 4")
    reload = pipeline.load_here(of_hours(1, 2))
    assert (reload["kind"], reload["ranges"]) == ("reload", {hours: {"0": [2, 4]}})
    assert reload["committed_offsets"] == {hours: {"0": 8}}
    assert [offset for offset, payload in content(pipeline) if payload == b"spoilt"] == [1, 4]
    assert owners(pipeline) == [first["batch_id"]] * 2 + [reload["batch_id"]] * 2 + [first["batch_id"]] * 4


def test_rows_that_somebody_deleted_come_back(pipeline: PipelineUnderTest, hours: str) -> None:
    pipeline.load_here()
    whole = content(pipeline)
    by_hand(pipeline, "DELETE FROM shop.events WHERE kafka_offset IN (2, 5)")
    pipeline.load_here(of_hours(0, None))
    assert content(pipeline) == whole


def test_a_span_above_the_position_is_ingested_from_the_position_on(pipeline: PipelineUnderTest, hours: str) -> None:
    assert pipeline.load_here(RunOptions(limit_offsets=2))["ranges"] == {hours: {"0": [0, 2]}}
    reload = pipeline.load_here(of_hours(2, 3))
    assert reload["ranges"] == {hours: {"0": [2, 6]}}
    assert [offset for offset, _ in content(pipeline)] == [0, 1, 2, 3, 4, 5]
    assert pipeline.load_here()["ranges"] == {hours: {"0": [6, 8]}}


def test_backwards_backfills_of_an_empty_table_load_every_record_once(pipeline: PipelineUnderTest, hours: str) -> None:
    """The newest hour comes first and takes all before it along; the others find their hour loaded and replace it."""
    ranges = [pipeline.load_here(of_hours(hour, hour + 1))["ranges"][hours]["0"] for hour in (3, 2, 1, 0)]
    assert ranges == [[0, 8], [4, 6], [2, 4], [0, 2]]
    assert [offset for offset, _ in content(pipeline)] == list(range(8))


def test_live_runs_with_an_interval_take_their_own_hour(pipeline: PipelineUnderTest, hours: str) -> None:
    taken = [
        pipeline.load_here(RunOptions(until_ms=MIDNIGHT_MS + hour * HOUR_MS))["ranges"].get(hours, {}).get("0")
        for hour in (1, 2, 2, 5)
    ]
    assert taken == [[0, 2], [2, 4], None, [4, 8]]


def test_a_late_record_goes_with_the_interval_that_reads_its_offset(pipeline: FedPipeline) -> None:
    """Offsets: 0 of hour 0, 1 of hour 1, 2 late of hour 0, 3 of hour 2."""
    name = pipeline.open(1, KEPT)
    send(pipeline, [(0.5, "a"), (1.5, "b"), (0.7, "late"), (2.5, "c")])
    assert pipeline.load_here(RunOptions(until_ms=MIDNIGHT_MS + HOUR_MS))["ranges"] == {name: {"0": [0, 1]}}
    assert pipeline.load_here(RunOptions(until_ms=MIDNIGHT_MS + 2 * HOUR_MS))["ranges"] == {name: {"0": [1, 3]}}
    # A backfill of hour 0 begins at its first record and ends before the first of a later hour: the late one is not in.
    assert pipeline.load_here(of_hours(0, 1))["ranges"] == {name: {"0": [0, 1]}}


def test_a_record_from_the_future_does_not_stop_the_pipeline(pipeline: FedPipeline) -> None:
    name = pipeline.open(1, {**KEPT, "message.timestamp.after.max.ms": str(2**62)})
    send(pipeline, [(0.5, "a"), (10_000_000, "from the year 3166"), (0.6, "b")])
    assert pipeline.load_here(RunOptions(until_ms=MIDNIGHT_MS + HOUR_MS))["ranges"] == {name: {"0": [0, 3]}}


def test_a_span_of_offsets_reads_just_these(pipeline: PipelineUnderTest, hours: str) -> None:
    pipeline.load_here()
    options = RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(hours, 0, 3, 5),))
    reload = pipeline.load_here(options)
    assert reload["ranges"] == {hours: {"0": [3, 5]}}
    assert [index for index, owner in enumerate(owners(pipeline)) if owner == reload["batch_id"]] == [3, 4]


def test_a_reload_can_reach_back_before_the_first_position(pipeline: FedPipeline, hours: str) -> None:
    pipeline.write(hours, first_run="latest")
    assert pipeline.load_here()["ranges"] == {}
    send(pipeline, [(4, "new")])
    assert pipeline.load_here()["ranges"] == {hours: {"0": [8, 9]}}
    assert pipeline.load_here(of_hours(2, 3))["ranges"] == {hours: {"0": [4, 6]}}
    assert [offset for offset, _ in content(pipeline)] == [4, 5, 8]


def test_a_span_that_retention_has_eaten_into_stops_with_the_table_untouched(
    pipeline: PipelineUnderTest, hours: str, kafka_broker: KafkaBroker
) -> None:
    pipeline.load_here()
    whole = content(pipeline)
    delete_before(kafka_broker, hours, 3)
    with pytest.raises(OffsetsExpired, match=r"log start offset 3"):
        pipeline.load_here(of_hours(1, 3))
    assert content(pipeline) == whole
    left = pipeline.load_here(of_hours(1, 3, what_is_left=True))
    assert left["ranges"] == {hours: {"0": [3, 6]}}
    assert content(pipeline) == whole
    # A span that is whole above the log start is no concern.
    assert pipeline.load_here(of_hours(2, 3))["ranges"] == {hours: {"0": [4, 6]}}


def test_the_same_run_is_the_same_reload_and_another_span_is_refused(pipeline: PipelineUnderTest, hours: str) -> None:
    pipeline.load_here()
    reload = pipeline.load_here(of_hours(1, 2), "r")
    assert pipeline.load_here(of_hours(1, 2), "r") == reload
    with pytest.raises(RequestChanged):
        pipeline.load_here(of_hours(1, 3), "r")


def test_a_backfill_run_that_is_reprocessed_reads_again_and_a_retry_does_not(
    pipeline: PipelineUnderTest, hours: str
) -> None:
    first = pipeline.load_here(of_hours(0, 2), "backfill")
    assert pipeline.load_here(of_hours(0, 2), "backfill")["batch_id"] == first["batch_id"]
    again = pipeline.load_here(of_hours(0, 2), "backfill", clear_number=1)
    assert again["batch_id"] != first["batch_id"]
    assert set(owners(pipeline)) == {again["batch_id"]}
    assert pipeline.load_here(of_hours(0, 2), "backfill", clear_number=1)["batch_id"] == again["batch_id"]


def test_dead_letters_that_fit_by_now_become_rows(pipeline: FedPipeline) -> None:
    narrow = {"format": "json", "columns": [{"name": "n", "type": "smallint", "required": True}]}
    name = pipeline.open(1, KEPT, value=narrow, tombstones="count")
    send(pipeline, [(0, '{"n": 1}'), (0, '{"n": 70000}'), (0, '{"n": "x"}'), (0, '{"n": 4}')])
    assert pipeline.load_here()["counts"]["dead_letters"] == 2
    by_hand(pipeline, "ALTER TABLE shop.events ALTER COLUMN n TYPE integer")
    wide = {"format": "json", "columns": [{"name": "n", "type": "integer", "required": True}]}
    pipeline.write(name, value=wide, tombstones="count")
    assert pipeline.load_here(of_hours(0, None))["counts"]["dead_letters"] == 1
    assert pipeline.rows("kafka_offset, n") == [(0, 1), (1, 70_000), (3, 4)]
    assert pipeline.dead_letters('"offset"') == [(2,)]


def test_tombstones_that_are_counted_by_now_are_no_loss(pipeline: FedPipeline) -> None:
    name = pipeline.open(1, KEPT, tombstones="row")
    send(pipeline, [(0, "a"), (0, None), (0, "b")])
    assert pipeline.load_here()["counts"]["rows"] == 3
    pipeline.write(name, tombstones="count")
    counts = pipeline.load_here(of_hours(0, None))["counts"]
    assert (counts["rows"], counts["tombstones"]) == (2, 1)
    assert [offset for offset, _ in content(pipeline)] == [0, 2]


def test_a_row_without_a_record_behind_it_stops_a_reload_and_is_given_up_when_told(
    pipeline: FedPipeline, producer: ProducerFactory
) -> None:
    """An aborted record's offset, which somebody has put a row at, stands for one that compaction took."""
    name = pipeline.open(1, KEPT)
    send(pipeline, [(0, "a")])
    transactional = producer(transactional_id="t")
    transactional.init_transactions()
    transactional.begin_transaction()
    transactional.produce(name, value="aborted", partition=0, timestamp=MIDNIGHT_MS)
    assert transactional.flush(30) == 0
    transactional.abort_transaction()
    send(pipeline, [(0, "b")])
    pipeline.load_here()
    whole = content(pipeline)
    by_hand(
        pipeline,
        "INSERT INTO shop.events (kafka_topic, kafka_generation, kafka_partition, kafka_offset, batch_id, payload)"
        f" SELECT '{name}', 0, 0, 1, batch_id, 'ghost' FROM shop.events WHERE kafka_offset = 0",
    )
    with pytest.raises(ReloadWouldLose, match=r"1 gone, the first at 1"):
        pipeline.load_here(of_hours(0, None))
    assert (1, b"ghost") in content(pipeline)
    pipeline.load_here(of_hours(0, None, what_is_left=True))
    assert content(pipeline) == whole

"""The reader against a broker: what only a real one can show."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_ingest.errors import BrokerUnavailable, ConfigError, LogTruncated, OffsetsExpired
from kafka_ingest.kafka.client import client_config
from kafka_ingest.protocol.staging import Split
from kafka_ingest.settings import IsolationLevel
from sandbox.kafka import KafkaBroker
from spark_jobs.reader import KafkaRangeReader
from spark_jobs.records import CREATE_TIME, LOG_APPEND_TIME, RECORD_SCHEMA
from tests.deadlines import until
from tests.native_producer import produce_with_header_name
from tests.services import FreshTopics, ProducerFactory, TestServices, TopicFactory

ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
UNREACHABLE = "127.0.0.1:1"


def config_of(bootstrap: str, **changed: str) -> dict[str, str]:
    config = client_config({"bootstrap.servers": bootstrap}, IsolationLevel.READ_COMMITTED, client_id="test")
    return {**config, **{key.replace("_", "."): value for key, value in changed.items()}}


@pytest.fixture
def reader(kafka_broker: KafkaBroker) -> Iterator[KafkaRangeReader]:
    with KafkaRangeReader(config_of(kafka_broker.bootstrap), no_progress_timeout_seconds=10) as found:
        yield found


def span(topic: str, start: int, end: int, leader_epoch: int | None = None, partition: int = 0) -> Split:
    return Split(0, topic, partition, 0, start, end, leader_epoch)


def rows(reader: KafkaRangeReader, split: Split) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.Table.from_batches(reader.read(split), RECORD_SCHEMA).to_pylist()
    return found


def send(producer: Producer, topic: str, count: int, size: int = 1, **more: Any) -> None:
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, b"x" * size, partition=0, **more)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(30) == 0


def test_keys_headers_and_times_arrive_exactly(
    reader: KafkaRangeReader, topic: TopicFactory, producer: ProducerFactory
) -> None:
    """C18: order, repeats and null values of headers; null and empty keys; times before 1970 and far ahead."""
    name, sender = topic(config=ANY_TIME), producer()
    headers = [("b", b"1"), ("a", None), ("b", b""), ("", b"\xff"), ("é", b"2")]
    sent = [(b"k", headers, 1_000), (None, None, -5_000), (b"", [("a", None)], 2**63 - 1), (b"\xff\x00", [], 0)]
    for key, record_headers, time_ms in sent:
        sender.produce(name, b"v", key=key, headers=record_headers, timestamp=time_ms or 7)
        assert sender.flush(30) == 0
    found = rows(reader, span(name, 0, 4))
    assert [row["key"] for row in found] == [b"k", None, b"", b"\xff\x00"]
    assert [row["timestamp_ms"] for row in found] == [1_000, -5_000, 2**63 - 1, 7]
    assert {row["timestamp_type"] for row in found} == {CREATE_TIME}
    assert [row["headers"] and [(h["name"], h["value"]) for h in row["headers"]] for row in found] == [
        headers,
        None,
        [("a", None)],
        None,
    ]


def test_log_append_time_is_told_as_such(
    reader: KafkaRangeReader, topic: TopicFactory, producer: ProducerFactory
) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    send(producer(), name, 1, timestamp=1_000)
    (row,) = rows(reader, span(name, 0, 1))
    assert row["timestamp_type"] == LOG_APPEND_TIME
    assert row["timestamp_ms"] > 1_000


def test_a_header_name_that_is_not_utf8_is_told_and_loses_no_record(
    reader: KafkaRangeReader, kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory
) -> None:
    name = topic()
    send(producer(), name, 1, headers=[("a", b"1")])
    produce_with_header_name(kafka_broker.bootstrap, name, b"\xff\xfe", b"odd")
    send(producer(), name, 1, headers=[("b", None)])
    found = rows(reader, span(name, 0, 3))
    assert [row["headers_readable"] for row in found] == [True, False, True]
    assert [row["headers"] for row in found] == [[{"name": "a", "value": b"1"}], None, [{"name": "b", "value": None}]]
    assert found[1]["value"] == b"odd"


def test_records_larger_than_a_fetch_are_read(
    reader: KafkaRangeReader, topic: TopicFactory, producer: ProducerFactory
) -> None:
    """1.5 MB each, where one partition's share of a fetch is 1 MB."""
    name = topic(config={"max.message.bytes": "3000000"})
    send(producer(message_max_bytes=3_000_000), name, 5, size=1_500_000)
    batches = list(reader.read(span(name, 0, 5)))
    assert [len(value) for batch in batches for value in batch["value"].to_pylist()] == [1_500_000] * 5


def test_batches_are_bounded_in_records(
    reader: KafkaRangeReader, topic: TopicFactory, producer: ProducerFactory
) -> None:
    name = topic()
    send(producer(linger_ms=20), name, 25_000)
    sizes = [batch.num_rows for batch in reader.read(span(name, 0, 25_000))]
    assert sum(sizes) == 25_000
    assert max(sizes) <= 10_000


def test_aborted_records_that_are_passed_are_progress(
    kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory
) -> None:
    """C16: for 6 s nothing but aborted records arrives, without end-of-partition events; the time-out is 2.5 s."""
    name, sender = topic(), producer(transactional_id="aborts-for-long")
    sender.init_transactions(30)
    only_the_position_moves = config_of(kafka_broker.bootstrap, enable_partition_eof="false")
    started, end = time.monotonic(), 1_000
    with (
        KafkaRangeReader(only_the_position_moves, no_progress_timeout_seconds=2.5) as reader,
        ThreadPoolExecutor(1) as thread,
    ):
        found = thread.submit(rows, reader, span(name, 0, end))
        while not found.done() and time.monotonic() < started + 6:
            abort(sender, name, 1)
        abort(sender, name, end)
        send(producer(), name, 1)
        assert found.result(30) == []


def abort(sender: Producer, topic: str, count: int) -> None:
    sender.begin_transaction()
    send(sender, topic, count)
    sender.abort_transaction(30)


def test_records_deleted_while_they_are_read_stop_the_read(
    kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory
) -> None:
    """C11: 30,000 records; the first 29,000 are deleted after the first batch; the rest must not pass as all."""
    name = topic()
    send(producer(linger_ms=20), name, 30_000, size=1_000)
    little_ahead = config_of(kafka_broker.bootstrap, queued_max_messages_kbytes="100", fetch_message_max_bytes="100000")
    with KafkaRangeReader(little_ahead, no_progress_timeout_seconds=10) as reader:
        batches = reader.read(span(name, 0, 30_000))
        first = next(batches)
        admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
        (deleted,) = admin.delete_records([TopicPartition(name, 0, 29_000)]).values()
        deleted.result(30)
        with pytest.raises(OffsetsExpired) as caught:
            list(batches)
    assert first["offset"].to_pylist()[0] == 0
    assert f"{name}[0]" in caught.value.what
    assert "log start offset 29000" in caught.value.found


def test_time_that_the_caller_takes_is_no_silence_of_the_broker(
    kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory
) -> None:
    name = topic()
    send(producer(linger_ms=20), name, 25_000)
    with KafkaRangeReader(config_of(kafka_broker.bootstrap), no_progress_timeout_seconds=1) as reader:
        batches = reader.read(span(name, 0, 25_000))
        count = next(batches).num_rows
        paused_until = time.monotonic() + 1.5
        until(lambda: time.monotonic() > paused_until, "the caller has taken longer than the time-out")
        count += sum(batch.num_rows for batch in batches)
    assert count == 25_000


def test_a_broker_that_does_not_answer_is_unavailable_and_named() -> None:
    with (
        KafkaRangeReader(config_of(UNREACHABLE), no_progress_timeout_seconds=0.5) as reader,
        pytest.raises(BrokerUnavailable, match=UNREACHABLE) as caught,
    ):
        rows(reader, span("orders", 0, 1))
    assert "Connection refused" in caught.value.found


def test_a_login_that_the_broker_refuses_is_a_fault_of_configuration(kafka_broker: KafkaBroker) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a"}
    config = {**config_of(kafka_broker.bootstrap), **login, "sasl.password": "hunter2"}
    with (
        KafkaRangeReader(config, no_progress_timeout_seconds=30) as reader,
        pytest.raises(ConfigError, match="SASL") as caught,
    ):
        rows(reader, span("orders", 0, 1))
    assert "hunter2" not in str(caught.value)


def test_no_thread_is_left_after_close(kafka_broker: KafkaBroker, topic: TopicFactory) -> None:
    name = topic()
    before = threads()
    for _ in range(3):
        with KafkaRangeReader(config_of(kafka_broker.bootstrap), no_progress_timeout_seconds=1) as reader:
            next(iter(reader.read(span(name, 0, 0))), None)
    until(lambda: threads() <= before, "the clients' threads have ended")


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_a_log_that_went_another_way_is_truncated_also_for_a_topic_that_is_being_read(
    own_services: TestServices,
) -> None:
    """Ten records in epoch 0, a crash, ten more in a later epoch: offset 12 after epoch 0 never existed.

    The second reader has read another partition of the topic before; there ``assign`` alone would not check.
    """
    broker = own_services.kafka
    broker.start()
    name = FreshTopics(broker.bootstrap).create(partitions=2)
    send(Producer({"bootstrap.servers": broker.bootstrap}), name, 10)
    broker.kill()
    broker.start()
    send(Producer({"bootstrap.servers": broker.bootstrap}), name, 10)
    for read_before in (False, True):
        with KafkaRangeReader(config_of(broker.bootstrap), no_progress_timeout_seconds=20) as reader:
            if read_before:
                rows(reader, span(name, 0, 0, partition=1))
            with pytest.raises(LogTruncated, match="epoch 0"):
                rows(reader, span(name, 12, 20, leader_epoch=0))
            assert len(rows(reader, span(name, 10, 20, leader_epoch=0))) == 10
            epoch = reader.end_leader_epoch()
            assert epoch is not None
            assert epoch > 0
            assert reader.start_leader_epoch() == epoch
            rows(reader, span(name, 0, 10))
            assert reader.end_leader_epoch() == epoch, "what ended the range counts, not its last record"
            assert reader.start_leader_epoch() == 0


def test_a_range_is_read_in_rising_order_with_every_record_once(
    reader: KafkaRangeReader, topic: TopicFactory, producer: ProducerFactory
) -> None:
    name = topic()
    send(producer(linger_ms=5), name, 12_000)
    halves = [span(name, 0, 6_000), span(name, 6_000, 12_000)]
    offsets = [offset for half in halves for batch in reader.read(half) for offset in batch["offset"].to_pylist()]
    assert len(offsets) == 12_000
    assert all(later == earlier + 1 for earlier, later in pairwise(offsets))

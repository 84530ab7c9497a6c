"""From librdkafka's messages to Arrow, exactly and in bounded pieces."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from spark_jobs import records
from spark_jobs.records import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP, RECORD_SCHEMA, TakenMessages
from tests.kafka_messages import record


def record_batch(messages: list[Message]) -> pa.RecordBatch:
    (batch,) = TakenMessages(messages).batches()
    return batch


INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def test_a_record_becomes_a_row() -> None:
    batch = record_batch([record(7, b"value", key=b"key", headers=[("a", b"1")])])
    assert batch.schema == RECORD_SCHEMA
    assert batch.to_pylist() == [
        {
            "topic": "orders",
            "partition": 0,
            "offset": 7,
            "timestamp_ms": 1_007,
            "timestamp_type": CREATE_TIME,
            "key": b"key",
            "value": b"value",
            "headers": [{"name": "a", "value": b"1"}],
            "headers_readable": True,
        }
    ]


def test_null_and_empty_keys_and_values_are_kept_apart() -> None:
    """C18."""
    batch = record_batch([record(0, None, key=b""), record(1, b"", key=None), record(2, b"null", key=b"null")])
    assert batch["key"].to_pylist() == [b"", None, b"null"]
    assert batch["value"].to_pylist() == [None, b"", b"null"]


def test_headers_keep_order_repeats_null_values_and_records_without_any() -> None:
    batch = record_batch(
        [
            record(0, headers=[("b", b"1"), ("a", None), ("b", b""), ("", b"\xff"), ("é", b"2")]),
            record(1),
            record(2, headers=[("z", None)]),
        ]
    )
    pairs = [None if row is None else [(h["name"], h["value"]) for h in row] for row in batch["headers"].to_pylist()]
    assert pairs == [[("b", b"1"), ("a", None), ("b", b""), ("", b"\xff"), ("é", b"2")], None, [("z", None)]]
    assert batch["headers_readable"].to_pylist() == [True, True, True]


@pytest.mark.parametrize("time_ms", [INT64_MIN, -5_000, -2, 0, 1, INT64_MAX])
def test_a_time_is_kept_exactly_however_odd(time_ms: int) -> None:
    batch = record_batch([record(0, timestamp=(TIMESTAMP_CREATE_TIME, time_ms))])
    assert batch["timestamp_ms"].to_pylist() == [time_ms]


def test_the_time_is_null_just_where_there_is_none() -> None:
    batch = record_batch(
        [
            record(0, timestamp=(TIMESTAMP_NOT_AVAILABLE, -1)),
            record(1, timestamp=(TIMESTAMP_LOG_APPEND_TIME, 7)),
            record(2, timestamp=(TIMESTAMP_CREATE_TIME, 5)),
            record(3, timestamp=(TIMESTAMP_CREATE_TIME, -1)),
        ]
    )
    assert batch["timestamp_type"].to_pylist() == [NO_TIMESTAMP, LOG_APPEND_TIME, CREATE_TIME, NO_TIMESTAMP]
    assert batch["timestamp_ms"].to_pylist() == [None, 7, 5, None]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([0], []),
        ([3], [[0, 1, 2]]),
        ([1, 0, 2], [[0, 1, 2]]),
        ([2, 2, 1], [[0, 1], [2, 3, 4]]),
        ([3, 1], [[0, 1, 2, 3]]),
        ([9], [[0, 1, 2, 3], [4, 5], [6, 7, 8]]),
    ],
)
def test_batches_hold_every_record_once_in_order(
    sizes: list[int], expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_RECORDS", 4)
    taken, offsets = TakenMessages(), itertools.count()
    for size in sizes:
        taken.add(TakenMessages([record(next(offsets)) for _ in range(size)]))
    assert [batch["offset"].to_pylist() for batch in taken.batches()] == expected


def test_no_batch_has_more_than_ten_thousand_records() -> None:
    messages = [record(offset) for offset in range(10_001)]
    batches = list(TakenMessages(messages).batches())
    assert [batch.num_rows for batch in batches] == [5_000, 5_001]
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(10_001))


def test_no_batch_has_more_than_eight_megabytes_but_a_single_larger_record() -> None:
    megabyte = b"x" * 1_000_000
    messages = [record(0, megabyte * 9), *[record(offset, megabyte, key=megabyte) for offset in range(1, 6)]]
    sizes = [(batch.num_rows, sum(map(len, batch["value"].to_pylist()))) for batch in TakenMessages(messages).batches()]
    assert sizes == [(1, 9_000_000), (2, 2_000_000), (3, 3_000_000)]


def test_no_messages_are_no_batch() -> None:
    assert list(TakenMessages().batches()) == []


@pytest.mark.parametrize("place", ["value", "name"])
def test_bytes_of_headers_count_like_those_of_values(place: str) -> None:
    megabyte = 1_000_000
    header = ("n" * megabyte, b"v") if place == "name" else ("n", b"v" * megabyte)
    batches = list(TakenMessages([record(offset, headers=[header]) for offset in range(20)]).batches())
    assert [batch.num_rows for batch in batches] == [5, 5, 5, 5]
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(20))


def test_many_small_headers_count_as_what_they_take() -> None:
    messages = [record(offset, headers=[("a", None)] * 50_000) for offset in range(4)]
    assert [batch.num_rows for batch in TakenMessages(messages).batches()] == [2, 2]


def test_messages_fill_a_batch_by_their_headers() -> None:
    taken = TakenMessages()
    for offset in range(8):
        more = TakenMessages([record(offset, headers=[("h", b"x" * 1_000_000)])])
        assert taken.has_room_for(more) is (offset < 7)  # each takes a few bytes more than a million
        taken.add(more)


def test_messages_fill_a_batch_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_RECORDS", 4)
    taken = TakenMessages([record(0), record(1)])
    assert taken.has_room_for(TakenMessages([record(2), record(3)]))
    assert not taken.has_room_for(TakenMessages([record(2), record(3), record(4)]))

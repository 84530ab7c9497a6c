"""Turns librdkafka's messages into Arrow record batches: column by column, exactly, with bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import methodcaller

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from spark_jobs.records import RECORD_SCHEMA

#: Limits of one record batch. 10,000 records are 3 MB at a usual 250 bytes, and a batch costs little beside them; 8 MB
#: bound the memory of decoding and COPY when records are large. One record above 8 MB is a batch of its own.
MAX_RECORDS = 10_000
MAX_BYTES = 8_000_000

_headers_of = methodcaller("headers")
_HEADERS = RECORD_SCHEMA.field("headers").type

#: librdkafka numbers "no time" 0, CreateTime 1, LogAppendTime 2; Kafka's record batches and RECORD_SCHEMA one less.
_TYPE_SHIFT = pa.scalar(1, pa.int8())

#: What a record batch holds for a record without a time (``RecordBatch.NO_TIMESTAMP`` in Kafka's clients), whatever its
#: type says; read as a time it would be the last millisecond of 1969.
_NO_TIME_MS = -1


def size_bytes(messages: Sequence[Message]) -> int:
    """Gives the bytes of keys and values; headers are not counted."""
    return sum(map(len, messages)) + sum(map(len, filter(None, map(Message.key, messages))))


def bounded_batches(messages: Sequence[Message], total_bytes: int) -> Iterator[pa.RecordBatch]:
    """Gives the messages, in order, in batches within the limits.

    Args:
        messages: All of one partition.
        total_bytes: Their size, as :func:`size_bytes` counts it.
    """
    if not messages:
        return
    if len(messages) > 1 and (len(messages) > MAX_RECORDS or total_bytes > MAX_BYTES):
        middle = len(messages) // 2
        for half in (messages[:middle], messages[middle:]):
            yield from bounded_batches(half, size_bytes(half))
    else:
        yield record_batch(messages)


def record_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """Builds one batch of ``RECORD_SCHEMA`` from messages of one partition."""
    count = len(messages)
    types, times = _timestamps(messages)
    headers, readable = _headers(messages)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(messages[0].topic(), pa.string()), count),
            pa.repeat(pa.scalar(messages[0].partition(), pa.int32()), count),
            pa.array(map(Message.offset, messages), pa.int64(), size=count),
            times,
            types,
            pa.array(map(Message.key, messages), pa.large_binary(), size=count),
            pa.array(map(Message.value, messages), pa.large_binary(), size=count),
            headers,
            readable,
        ],
        schema=RECORD_SCHEMA,
    )


def _timestamps(messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
    """Gives time types and times; a time is null where there is none, and exact otherwise."""
    # Flat, so that each pair dies at once: thousands of living tuples set off the garbage collector again and again.
    flat = list(chain.from_iterable(map(Message.timestamp, messages)))
    types, times = pa.array(flat[::2], pa.int8()), pa.array(flat[1::2], pa.int64())
    has_time = pc.and_(pc.not_equal(types, TIMESTAMP_NOT_AVAILABLE), pc.not_equal(times, _NO_TIME_MS))
    types = pc.if_else(has_time, types, pa.scalar(TIMESTAMP_NOT_AVAILABLE, pa.int8()))
    return pc.subtract(types, _TYPE_SHIFT), pc.if_else(has_time, times, pa.scalar(None, pa.int64()))


def _headers(messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
    """Gives headers, and whether each message's could be read.

    ``Message.headers`` fails on a name that is not UTF-8, and then gives a result together with a pending
    ``UnicodeDecodeError`` (confluent-kafka 2.16). Called as ``message.headers()`` that error would surface some lines
    later; ``methodcaller`` checks the result and raises ``SystemError`` at once. It must not be asked a second time:
    what it left is half built.
    """
    headers: list[list[tuple[str, bytes | None]] | None] = []
    unreadable: set[int] = set()
    left = map(_headers_of, messages)
    while len(headers) < len(messages):
        try:
            headers.extend(left)
        except (UnicodeDecodeError, SystemError):
            # The list holds what came before the fault, so its length is the index of the fault.
            unreadable.add(len(headers))
            headers.append(None)
    count = len(headers)
    readable = pa.array([index not in unreadable for index in range(count)]) if unreadable else _all_true(count)
    return (pa.nulls(count, _HEADERS) if headers.count(None) == count else _header_lists(headers)), readable


def _all_true(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(True), count)


def _header_lists(headers: Sequence[list[tuple[str, bytes | None]] | None]) -> pa.Array:
    """Builds the list column from flat children, several times faster than from nested Python values."""
    ends = [0]
    flat: list[tuple[str, bytes | None]] = []
    for entries in headers:
        flat += entries or ()
        ends.append(len(flat))
    names, values = [name for name, _ in flat], [value for _, value in flat]
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], fields=list(_HEADERS.value_type)
    )
    absent = pa.array([entries is None for entries in headers], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs, type=_HEADERS, mask=absent)

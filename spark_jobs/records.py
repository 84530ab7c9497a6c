"""Records as Kafka's client gives them, cut into batches: the one place that cuts."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain
from operator import methodcaller
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from kafka_ingest.protocol.staging import Split

# What a reader gives: Arrow record batches of Kafka records, in offset order.

#: Values of ``timestamp_type``, as Kafka's record batch format numbers them, with -1 for "no time".
NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
#: What the tables call them; a record without a time has NULL.
TIME_TYPE_NAMES = {CREATE_TIME: "create", LOG_APPEND_TIME: "log_append"}

#: One Kafka record a row. ``timestamp_ms`` is null only when ``timestamp_type`` is ``NO_TIMESTAMP``. ``headers`` keeps
#: order, repeated names and null values; it is null when the record has none, or when ``headers_readable`` is false.
RECORD_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("timestamp_type", pa.int8(), nullable=False),
        pa.field("key", pa.large_binary()),
        pa.field("value", pa.large_binary()),
        pa.field("headers", pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))),
        pa.field("headers_readable", pa.bool_(), nullable=False),
    ]
)


class RangeReader(Protocol):
    """A reader of splits, one after another. One reader, one consumer, one thread."""

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Return every readable record of ``[start, end)`` once, in rising offset order, in batches of bounded size.

        No batch is empty, and none is cut again: each is decoded as a whole and staged by one COPY.

        The iterator ends only when a record or an end-of-partition event at or past ``end`` was seen.

        Raises:
            BrokerUnavailable: No record, event or moving position for the time-out.
            OffsetsExpired: The log no longer holds the start.
            LogTruncated: The leader epoch of the start is no longer part of the log.
        """

    def start_leader_epoch(self) -> int | None:
        """Return the leader epoch of the first record at or after the start of the last split read to its end.

        Where an end-of-partition event came first, it is :meth:`end_leader_epoch`.
        """

    def end_leader_epoch(self) -> int | None:
        """Return the leader epoch of what ended the last split that was read to its end."""

    def close(self) -> None:
        """Leave Kafka."""


# From librdkafka's messages to Arrow record batches: column by column, exactly, with bounded size.

#: Limits of one record batch, which is also what one COPY takes. 10,000 records are 3 MB at a usual 250 bytes, and make
#: the cost of a COPY and its savepoint small (2 µs a row, ``copy_format.py``); 8 MB, headers included, bound the memory
#: of decoding and COPY when records are large. One record above 8 MB is a batch of its own.
MAX_RECORDS = 10_000
MAX_BYTES = 8_000_000

Headers = Sequence[tuple[str, bytes | None]] | None
_ask_headers = methodcaller("headers")
_UNREADABLE: tuple[()] = ()

#: What a header takes besides its bytes, as Python's and as Arrow's objects. It counts where they are many and small.
_HEADER_BYTES = 64
_HEADERS = RECORD_SCHEMA.field("headers").type

#: librdkafka numbers "no time" 0, CreateTime 1, LogAppendTime 2; Kafka's record batches and RECORD_SCHEMA one less.
_TYPE_SHIFT = pa.scalar(1, pa.int8())

#: A record batch holds this for a record without a time (``RecordBatch.NO_TIMESTAMP`` in Kafka's clients), whatever its
#: type says; read as a time it would be the last millisecond of 1969.
_NO_TIME_MS = -1


class TakenMessages:
    """Messages of one partition with their headers, in the order in which they were added."""

    def __init__(self, messages: Sequence[Message] = (), headers: Sequence[Headers] | None = None) -> None:
        self.messages = list(messages)
        self._headers = _headers_of(self.messages) if headers is None else list(headers)
        self.size_bytes = _size_bytes(self.messages) + _size_of_headers(self._headers)

    def has_room_for(self, more: TakenMessages) -> bool:
        """Whether all of them together are within the limits of one batch."""
        records, size_bytes = len(self.messages) + len(more.messages), self.size_bytes + more.size_bytes
        return records <= MAX_RECORDS and size_bytes <= MAX_BYTES

    def add(self, more: TakenMessages) -> None:
        """Add messages at the end."""
        self.messages += more.messages
        self._headers += more._headers
        self.size_bytes += more.size_bytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield them in batches of ``RECORD_SCHEMA`` within the limits."""
        count = len(self.messages)
        if count > 1 and (count > MAX_RECORDS or self.size_bytes > MAX_BYTES):
            for half in (slice(None, count // 2), slice(count // 2, None)):
                yield from TakenMessages(self.messages[half], self._headers[half]).batches()
        elif count:
            yield _record_batch(self.messages, self._headers)


def _size_bytes(messages: Sequence[Message]) -> int:
    return sum(map(len, messages)) + sum(map(len, filter(None, map(Message.key, messages))))


def _size_of_headers(headers: Sequence[Headers]) -> int:
    """Return the bytes of names and values, plus those that each header takes as an object."""
    if headers.count(None) == len(headers):
        return 0
    pairs = list(chain.from_iterable(filter(None, headers)))
    return _HEADER_BYTES * len(pairs) + sum(map(len, filter(None, chain.from_iterable(pairs))))


def _record_batch(messages: Sequence[Message], headers_of: Sequence[Headers]) -> pa.RecordBatch:
    count = len(messages)
    types, times = _timestamps(messages)
    headers, readable = _header_arrays(headers_of)
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


def stored_records(rows: Sequence[Mapping[str, Any]], *, unreadable: Container[int] = ()) -> pa.RecordBatch:
    """Return dead letters of one partition as the reader gave their records, bytes, headers and times alike.

    Args:
        rows: Rows of the ledger's table; ``header_names`` are ``None`` where the headers could not be read.
        unreadable: Which rows, by index, have header names that are not stored as they were.
    """
    headers, readable = _header_arrays(
        [_UNREADABLE if index in unreadable else _stored_headers(row) for index, row in enumerate(rows)]
    )
    numbers = {name: number for number, name in TIME_TYPE_NAMES.items()}
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in ("topic", "partition", "offset")}
    columns["timestamp_ms"] = [row["record_time_ms"] for row in rows]
    columns["timestamp_type"] = [numbers.get(row["record_time_type"], NO_TIMESTAMP) for row in rows]
    columns |= {name: [_stored_bytes(row[name]) for row in rows] for name in ("key", "value")}
    arrays = [pa.array(columns[field.name], field.type) for field in list(RECORD_SCHEMA)[:-2]]
    return pa.RecordBatch.from_arrays([*arrays, headers, readable], schema=RECORD_SCHEMA)


def _stored_headers(row: Mapping[str, Any]) -> Headers:
    names, values = row["header_names"], row["header_values"]
    if names is None:
        return _UNREADABLE
    return list(zip(names, map(_stored_bytes, values), strict=True)) or None


def _stored_bytes(value: Any) -> bytes | None:
    """Return the bytes of a buffer of the database's driver."""
    return None if value is None else bytes(value)


def _timestamps(messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
    """Return time types and times; a time is null where there is none, and exact otherwise."""
    # Flat, so that each pair dies at once: thousands of living tuples trigger the garbage collector again and again.
    flat = list(chain.from_iterable(map(Message.timestamp, messages)))
    types, times = pa.array(flat[::2], pa.int8()), pa.array(flat[1::2], pa.int64())
    has_time = pc.and_(pc.not_equal(types, TIMESTAMP_NOT_AVAILABLE), pc.not_equal(times, _NO_TIME_MS))
    types = pc.if_else(has_time, types, pa.scalar(TIMESTAMP_NOT_AVAILABLE, pa.int8()))
    return pc.subtract(types, _TYPE_SHIFT), pc.if_else(has_time, times, pa.scalar(None, pa.int64()))


def _headers_of(messages: Sequence[Message]) -> list[Headers]:
    """Return each message's headers; where there are none, this costs next to nothing.

    ``Message.headers`` fails on a name that is not UTF-8, and then gives a result together with a pending
    ``UnicodeDecodeError`` (confluent-kafka 2.16). Called as ``message.headers()`` that error would surface some lines
    later; ``methodcaller`` checks the result and raises ``SystemError`` at once. A second call is not allowed: the
    first one left a half built result.
    """
    headers: list[Headers] = []
    left = map(_ask_headers, messages)
    while len(headers) < len(messages):
        try:
            headers.extend(left)
        except (UnicodeDecodeError, SystemError):
            # The list holds what came before the fault.
            headers.append(_UNREADABLE)
    return headers


def _header_arrays(headers: Sequence[Headers]) -> tuple[pa.Array, pa.Array]:
    """Return the headers, null where there are none, and for each message whether they could be read."""
    count = len(headers)
    all_read = pa.repeat(pa.scalar(True), count)
    if headers.count(None) == count:
        return pa.nulls(count, _HEADERS), all_read
    readable = pa.array([entries is not _UNREADABLE for entries in headers]) if _UNREADABLE in headers else all_read
    return _header_lists([None if entries is _UNREADABLE else entries for entries in headers]), readable


def _header_lists(headers: Sequence[Headers]) -> pa.Array:
    """Build the list column from flat children, several times faster than from nested Python values."""
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

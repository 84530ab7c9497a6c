"""The shape of what a reader gives: Arrow record batches of Kafka records, in offset order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from kafka_ingest.core.staging import Subrange

#: Values of ``timestamp_type``, as Kafka's record batch format numbers them, with -1 for "no time".
NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1

#: One Kafka record a row. ``timestamp_ms`` is null just when ``timestamp_type`` is ``NO_TIMESTAMP``. ``headers`` keeps
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
    """Reads subranges one after another. One reader, one consumer, one thread."""

    def read(self, subrange: Subrange) -> Iterator[pa.RecordBatch]:
        """Gives every readable record of ``[start, end)`` once, in rising offset order, in batches of bounded size.

        The iterator ends only when a record or an end-of-partition event at or past ``end`` was seen.

        Raises:
            BrokerUnavailable: No record, event or moving position for the time-out.
            OffsetsExpired: The log no longer holds the start.
            LogTruncated: The leader epoch of the start is no longer part of the log.
        """

    def start_leader_epoch(self) -> int | None:
        """Gives the leader epoch of the first record at or after the start of the last subrange read to its end.

        Where an end-of-partition event came first, it is :meth:`end_leader_epoch`.
        """

    def end_leader_epoch(self) -> int | None:
        """Gives the leader epoch of what ended the last subrange that was read to its end."""

    def close(self) -> None:
        """Leaves Kafka."""

"""Kafka records for tests, in the shape in which readers give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.records import CREATE_TIME, RECORD_SCHEMA

NOON_MS = 1_767_355_200_000  # 2026-01-02 12:00:00 UTC


@dataclass(frozen=True)
class Record:
    """One record; its time is noon plus its offset in milliseconds unless it is given."""

    offset: int
    value: bytes | None = b"{}"
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] | None = None
    headers_readable: bool = True
    timestamp_ms: int | None = -1
    timestamp_type: int = CREATE_TIME
    topic: str = "orders"
    partition: int = 0

    def row(self) -> dict[str, object]:
        headers = None if self.headers is None else [{"name": name, "value": value} for name, value in self.headers]
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp_ms": NOON_MS + self.offset if self.timestamp_ms == -1 else self.timestamp_ms,
            "timestamp_type": self.timestamp_type,
            "key": self.key,
            "value": self.value,
            "headers": headers,
            "headers_readable": self.headers_readable,
        }


def record_batch(records: Sequence[Record]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([record.row() for record in records], schema=RECORD_SCHEMA)

"""The port ``RangeReader`` over the log in memory: for tests of everything that reads, without a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kafka_ingest.errors import LogTruncated, OffsetsExpired, PartitionMissing, TopicMissing
from kafka_ingest.protocol.staging import Split
from kafka_ingest.settings import IsolationLevel
from tests.fakes.log import FakeLog, FakePartition
from tests.kafka_records import Record, record_batch


class FakeRangeReader:
    """Read a :class:`FakeLog`; a range whose end the readable log does not reach is ``LogTruncated``."""

    def __init__(
        self, log: FakeLog, isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED, *, batch_records: int = 2
    ) -> None:
        self._log = log
        self._isolation_level = isolation_level
        self._batch_records = batch_records
        self._start_leader_epoch: int | None = None
        self._end_leader_epoch: int | None = None

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        self._start_leader_epoch = self._end_leader_epoch = None
        partition = self._partition(split)
        require_start(partition, split)
        records = [
            Record(
                offset=offset,
                value=entry.value,
                key=entry.key,
                headers=entry.headers,
                timestamp_ms=entry.timestamp_ms,
                topic=split.topic,
                partition=split.partition,
            )
            for offset, entry in sorted(partition.entries.items())
            if split.start <= offset < split.end and entry.is_readable(self._isolation_level)
        ]
        for first in range(0, len(records), self._batch_records):
            yield record_batch(records[first : first + self._batch_records])
        require_end(partition, split, self._isolation_level)
        self._start_leader_epoch = epoch_from(partition, split.start, self._isolation_level)
        self._end_leader_epoch = epoch_from(partition, split.end, self._isolation_level)

    def start_leader_epoch(self) -> int | None:
        return self._start_leader_epoch

    def end_leader_epoch(self) -> int | None:
        return self._end_leader_epoch

    def close(self) -> None:
        """Nothing to leave."""

    def _partition(self, split: Split) -> FakePartition:
        if self._log.failure is not None:
            raise self._log.failure
        topic = self._log.topics.get(split.topic)
        if topic is None:
            raise TopicMissing(f"no topic {split.topic}")
        if split.partition not in topic.partitions:
            raise PartitionMissing(f"no partition {split.topic_partition}")
        return topic.partitions[split.partition]


def epoch_from(partition: FakePartition, offset: int, isolation_level: IsolationLevel) -> int | None:
    """Return the leader epoch of the first readable record from an offset on; if there is none, of the last entry."""
    end = partition.end_offset(isolation_level)
    stable = [(at, entry) for at, entry in sorted(partition.entries.items()) if at < end]
    from_there = [e.leader_epoch for at, e in stable if at >= offset and e.is_readable(isolation_level)]
    return from_there[0] if from_there else stable[-1][1].leader_epoch if stable else None


def require_start(partition: FakePartition, split: Split) -> None:
    """Refuse a start that the log no longer holds, or whose history is not the one that was read."""
    if split.start < partition.log_start:
        raise OffsetsExpired(f"{split.topic_partition} starts at {partition.log_start}")
    epoch = split.leader_epoch
    if split.start > partition.high_watermark or (epoch is not None and partition.end_of_epoch(epoch) < split.start):
        raise LogTruncated(f"{split.topic_partition} does not hold {split.start} after epoch {epoch}")


def require_end(partition: FakePartition, split: Split, isolation_level: IsolationLevel) -> None:
    """Refuse an end that a consumer cannot reach."""
    if (readable := partition.end_offset(isolation_level)) < split.end:
        raise LogTruncated(f"{split.topic_partition} is readable up to {readable} only")

"""A reader of records that a test lists, in place of Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.staging import Split
from tests.kafka_records import Record, record_batch


class ListedReader:
    """Port ``RangeReader`` over lists of records, one a partition.

    Args:
        records: All records; those of a split are given in the order of the list.
        batch_records: Records a batch.
        end_leader_epoch: What begins and ends every split.
        trust: Gives exactly the listed records, even those outside the split, as a broken reader would.
    """

    def __init__(
        self,
        records: Sequence[Record],
        *,
        batch_records: int = 1_000,
        end_leader_epoch: int | None = None,
        trust: bool = False,
    ) -> None:
        self._records = records
        self._batch_records = batch_records
        self._end_leader_epoch = end_leader_epoch
        self._trust = trust
        self.is_closed = False

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        chosen = [r for r in self._records if self._trust or _lies_in(r, split)]
        for first in range(0, len(chosen), self._batch_records):
            yield record_batch(chosen[first : first + self._batch_records])

    def start_leader_epoch(self) -> int | None:
        return self._end_leader_epoch

    def end_leader_epoch(self) -> int | None:
        return self._end_leader_epoch

    def close(self) -> None:
        self.is_closed = True


def _lies_in(record: Record, split: Split) -> bool:
    place = TopicPartition(record.topic, record.partition)
    return place == split.topic_partition and split.start <= record.offset < split.end

"""The reader: subranges of Kafka partitions as Arrow record batches, with librdkafka.

What it must never do is end early: an empty poll, a time-out or a count says nothing about the end of a range whose
tail can consist of transaction markers, aborted or compacted records. It ends when something at or past the end was
seen, and only then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import NoReturn

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_ingest.adapters.kafka_config import librdkafka_settings
from kafka_ingest.adapters.kafka_faults import LIBRDKAFKA_LOG, ClientEvents, client_fault
from kafka_ingest.core.staging import Subrange
from spark_jobs.fetch_position import FetchPosition
from spark_jobs.range_end import PartitionFailure, RangeEnd
from spark_jobs.read_faults import failed_read, refused_calls, stalled_read
from spark_jobs.record_batches import MAX_BYTES, MAX_RECORDS, TakenMessages

_POLL_SECONDS = 0.5

#: Messages taken before their headers are looked at, which librdkafka does not count in what it fetches ahead. 250 of
#: 300 KB are 75 MB, and more at once saves nothing that can be measured.
_MOST_AT_ONCE = 250


class KafkaRangeReader:
    """The port ``RangeReader`` on a real cluster: one consumer, one partition at a time. Not safe for several threads.

    It joins no group and stores no offset anywhere; reading the same subrange again gives the same records.

    Args:
        config: librdkafka configuration, as ``kafka_config.client_config`` gives it.
        no_progress_timeout_seconds: After this long without a record, an end-of-partition event or a moving fetch
            position the broker counts as unavailable. Time that the caller spends between batches does not count.
    """

    def __init__(self, config: Mapping[str, str], *, no_progress_timeout_seconds: float = 120) -> None:
        self._timeout_seconds = no_progress_timeout_seconds
        self._events = ClientEvents(config)
        self._fetch_position = FetchPosition()
        callbacks = {"error_cb": self._events, "stats_cb": self._fetch_position}
        try:
            self._consumer = Consumer({**librdkafka_settings(config), **callbacks}, logger=LIBRDKAFKA_LOG)
        except KafkaException as error:
            raise client_fault(error, config) from None
        self._start_leader_epoch: int | None = None
        self._end_leader_epoch: int | None = None

    def __enter__(self) -> KafkaRangeReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, subrange: Subrange) -> Iterator[pa.RecordBatch]:
        """Gives every readable record of ``[start, end)`` once, in rising offset order; see the port.

        A batch has at most 10,000 records and about 8 MB. Beside the errors of the port:

        Raises:
            ConfigError: The broker refuses this client, or this client may not read the topic.
            TopicMissing: The topic was still missing after the time-out.
            PartitionMissing: The partition was still missing after the time-out.
        """
        self._start_leader_epoch = self._end_leader_epoch = None
        end = RangeEnd(subrange)
        with refused_calls(end):
            try:
                self._assign(subrange)
                yield from self._batches(end)
                self._end_leader_epoch = self._epoch_after(end)
                self._start_leader_epoch = end.first_epoch if end.has_record else self._end_leader_epoch
            except PartitionFailure as failure:
                raise failed_read(self._consumer, end, failure) from None
            finally:
                self._leave_partition()

    def start_leader_epoch(self) -> int | None:
        """Gives the leader epoch of the first record of the last subrange that was read to its end; see the port."""
        return self._start_leader_epoch

    def end_leader_epoch(self) -> int | None:
        """Gives the leader epoch to go on with after the last subrange that was read to its end; see the port."""
        return self._end_leader_epoch

    def close(self) -> None:
        """Leaves Kafka and ends the client's threads; idempotent."""
        self._consumer.close()

    def _batches(self, end: RangeEnd) -> Iterator[pa.RecordBatch]:
        pending = TakenMessages()
        while not end.ended:
            pending.add(end.take(self._wait_for_messages(end)))
            if end.ended or pending.are_enough:
                yield from pending.batches()
                pending = TakenMessages()

    def _wait_for_messages(self, end: RangeEnd) -> list[Message]:
        """Waits until there is a message, and takes along what is there already.

        ``consume`` alone would wait for a full batch or its whole time-out at the end of every range.
        """
        deadline = time.monotonic() + self._timeout_seconds
        self._fetch_position.follow(end.subrange)
        while (first := self._consumer.poll(_POLL_SECONDS)) is None:
            if self._fetch_position.has_moved():
                deadline = time.monotonic() + self._timeout_seconds
            if self._events.refused_for_good or time.monotonic() > deadline:
                self._give_up(end)
        self._events.forget()
        # What librdkafka holds of large records is many times what a batch takes.
        many = min(_MOST_AT_ONCE, MAX_BYTES // max(1, len(first)) + 1)
        return [first, *self._consumer.consume(many, 0)]

    def _give_up(self, end: RangeEnd) -> NoReturn:
        tried = f"reading {end.subrange.topic_partition} at offset {end.next_offset}"
        if not self._events.last_words and end.last_words:
            self._events.last_words = end.last_words
        silence = self._events.unavailable(tried=tried, seconds=self._timeout_seconds)
        raise stalled_read(self._consumer, end, silence)

    def _assign(self, subrange: Subrange) -> None:
        """Starts fetching at the start of a subrange, and has its leader epoch checked.

        ``assign`` alone checks the epoch only when the topic is new to this consumer (librdkafka 2.16 validates on a
        metadata change, rdkafka_topic.c, and on ``seek``, rdkafka_partition.c), so a ``seek`` with the epoch follows.
        """
        start = TopicPartition(subrange.topic, subrange.partition, subrange.start)
        if subrange.leader_epoch is None:
            self._consumer.assign([start])
            return
        start = TopicPartition(subrange.topic, subrange.partition, subrange.start, leader_epoch=subrange.leader_epoch)
        self._consumer.assign([start])
        self._seek(start)

    def _seek(self, start: TopicPartition) -> None:
        """Seeks as soon as the assignment has started, which librdkafka does on a thread of its own."""
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                self._consumer.seek(start)
                return
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE or time.monotonic() > deadline:
                    raise
            time.sleep(0.002)

    def _epoch_after(self, end: RangeEnd) -> int | None:
        """Gives the epoch of the record past the end, or else the consumer's position after the event.

        librdkafka leaves the epoch of the event itself at zero. A position below the end means that offsets without
        any record or marker came last (compacted ones): their epoch is unknown, and an older one would look like a
        truncated log to the next read.
        """
        if end.record_epoch is not None:
            return end.record_epoch
        subrange = end.subrange
        (position,) = self._consumer.position([TopicPartition(subrange.topic, subrange.partition)])
        return position.leader_epoch if position.offset >= subrange.end else None

    def _leave_partition(self) -> None:
        """Stops fetching and throws away what was fetched ahead, so that nothing of it reaches the next subrange."""
        self._consumer.unassign()
        while self._consumer.consume(MAX_RECORDS, 0):
            pass

"""The reader of one range of one partition, to its exact end."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import lt
from types import TracebackType
from typing import NoReturn

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_ingest.errors import BrokerUnavailable, ConfigError, IngestError, RetryLater
from kafka_ingest.kafka import client
from kafka_ingest.protocol.log import PartitionState
from kafka_ingest.protocol.log_faults import Difference, LogFault, Purpose, grant_read, lost_offsets, missing_topic
from kafka_ingest.protocol.staging import Split
from spark_jobs.records import MAX_BYTES, MAX_RECORDS, TakenMessages

# ----------
# Where a split ends, and what a message on the way there means.

#: Errors that librdkafka settles by itself, or that do not matter here: they are noted, and the time-out decides.
#: Every other error ends the read at once, because librdkafka goes on after it: after a damaged record batch
#: (_BAD_MSG) it continues with the next one, and the records between would be lost silently.
PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.FETCH_SESSION_ID_NOT_FOUND,
        KafkaError.GROUP_AUTHORIZATION_FAILED,  # the group is not used
        KafkaError.INVALID_FETCH_SESSION_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


class PartitionFailure(Exception):
    """An error of a partition that ends the read; carries librdkafka's error to where it becomes one of ours."""

    def __init__(self, error: KafkaError, offset: int | None) -> None:
        super().__init__(error.str())
        self.error = error
        self.offset = offset


class RangeEnd:
    """The messages of one split, followed until one at or past its end.

    Attributes:
        split: What is read.
        next_offset: One past the last record that was taken; the split's start before the first record.
        ended: Whether a record or an end-of-partition event at or past the end was seen.
        has_record: Whether a record was seen, inside or past the end.
        first_epoch: Leader epoch of the first such record; ``None`` before it, or when the broker told none.
        record_epoch: Leader epoch of the record that ended the split; ``None`` when an event did, or the broker told
            none.
        last_event_end: Offset of the latest end-of-partition event; ``None`` before the first.
        output_tail: The latest passing error.
    """

    def __init__(self, split: Split) -> None:
        self.split = split
        self.next_offset = split.start
        self.ended = False
        self.has_record = False
        self.first_epoch: int | None = None
        self.record_epoch: int | None = None
        self.last_event_end: int | None = None
        self.output_tail = ""

    def take(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return those messages that are records of the split.

        Raises:
            PartitionFailure: One of them is an error that does not pass.
            RetryLater: Offsets do not rise: the read cannot be trusted.
        """
        errors = list(map(Message.error, messages))
        if not any(errors):  # not errors.count(None): comparing a KafkaError with None breaks the interpreter's state
            return self._records(messages)
        taken: list[Message] = []
        for message, error in zip(messages, errors, strict=True):
            if self.ended:
                break
            if error is None:
                taken += self._records([message])
            else:
                self._event(message, error)
        return taken

    def _records(self, messages: Sequence[Message]) -> Sequence[Message]:
        own = self._own(messages)
        offsets = list(map(Message.offset, own))
        if offsets and not (offsets[0] >= self.next_offset and all(map(lt, offsets, offsets[1:]))):
            raise RetryLater(
                f"Kafka gave records of {self.split.topic_partition} out of order",
                expected=f"rising offsets from {self.next_offset} on",
                found=f"offsets {offsets[0]} to {offsets[-1]}",
                next_command="none: the task reads again from the start of its range",
            )
        if own and not self.has_record:
            self.has_record = True
            self.first_epoch = own[0].leader_epoch()
        inside = bisect_left(offsets, self.split.end)
        if inside < len(own):
            self.ended = True
            self.record_epoch = own[inside].leader_epoch()
        if inside:
            self.next_offset = offsets[inside - 1] + 1
        return own[:inside]

    def _own(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Leave out messages that an earlier assignment may have left behind."""
        topics, partitions = set(map(Message.topic, messages)), set(map(Message.partition, messages))
        if topics == {self.split.topic} and partitions == {self.split.partition}:
            return messages
        return [message for message in messages if self._is_own(message)]

    def _is_own(self, message: Message) -> bool:
        return bool(message.topic() == self.split.topic and message.partition() == self.split.partition)

    def _event(self, message: Message, error: KafkaError) -> None:
        if message.topic() is not None and not self._is_own(message):
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self.last_event_end = message.offset()
            self.ended = message.offset() >= self.split.end
        elif (error.code() in PASSING or message.topic() is None) and not error.fatal():
            # Without a topic it is about the group, which is not used: a login that is renewed ends its requests, too.
            self.output_tail = error.str()
        else:
            raise PartitionFailure(error, message.offset())


# ----------
# Why a read failed. Kafka is asked once more, so that the error names the cause and not the symptom.

_ASK_SECONDS = 5.0


def failed_read(consumer: Consumer, end: RangeEnd, failure: PartitionFailure, connection: str) -> IngestError:
    """Turn a partition's error into one of ours, which names the Airflow connection where its user lacks a right."""
    code = failure.error.code()
    if client.is_truncation(failure.error):
        return _truncated(end, failure.error.str()).error(Purpose.READ)
    if code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
        return _out_of_range(consumer, end, failure)
    if code in client.REFUSALS or failure.error.fatal():
        return _refused(end, failure.error, connection)
    return RetryLater(
        f"{end.split.topic_partition} cannot be read at offset {end.next_offset}",
        expected="a readable record batch",
        found=failure.error.str(),
        next_command="none: the task tries again; when it fails there again, check the broker's log directories",
    )


def _refused(end: RangeEnd, error: KafkaError, connection: str) -> ConfigError:
    return ConfigError(
        f"Kafka refuses to let this client read {end.split.topic_partition}",
        expected="the right to READ the topic",
        found=error.str(),
        next_command=f"correct the connection, or: {grant_read(end.split.topic, connection)}",
    )


def unseen_topic(consumer: Consumer, end: RangeEnd, connection: str) -> ConfigError | None:
    """Ask whether this client may see the topic, and return the error where not.

    librdkafka (2.16) gives a consumer no message and no event about it: it waits.
    """
    try:
        error = consumer.list_topics(end.split.topic, timeout=_ASK_SECONDS).topics[end.split.topic].error
    except KafkaException:
        return None
    is_refused = error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    return _refused(end, error, connection) if is_refused else None


@contextmanager
def refused_calls(end: RangeEnd) -> Iterator[None]:
    """Turn what a call of the client raises (``assign``, ``seek``, ``poll``, ``position``) into one of our errors."""
    try:
        yield
    except KafkaException as error:
        raise BrokerUnavailable(
            f"{end.split.topic_partition} cannot be read at offset {end.next_offset}: the client refused a call",
            expected="a client that goes on",
            found=error.args[0].str() if isinstance(error.args[0], KafkaError) else str(error),
            next_command="none: the task tries again with a new client",
        ) from error


def stalled_read(consumer: Consumer, end: RangeEnd, silence: IngestError) -> IngestError:
    """Return the error for a read without progress: what is missing, or ``silence`` when Kafka does not tell."""
    if isinstance(silence, ConfigError):
        return silence
    try:
        found = _ask_again(consumer, end)
    except KafkaException:
        return silence
    return found.error(Purpose.READ) if found else silence


_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_ID})


def _ask_again(consumer: Consumer, end: RangeEnd) -> Difference | None:
    """Compare what is left to read with the topic as Kafka describes it now."""
    topic, place = end.split.topic, end.split.topic_partition
    found = consumer.list_topics(topic, timeout=_ASK_SECONDS).topics[topic]
    words = found.error.str() if found.error is not None else "not in the topic's metadata"
    if found.error is not None and found.error.code() in _UNKNOWN:
        return missing_topic(topic, there=words)
    if place.partition not in found.partitions:
        return Difference(LogFault.PARTITION_MISSING, str(place), {"there": words})
    if found.partitions[place.partition].leader < 0:
        return Difference(LogFault.LEADER_MISSING, str(place), {"first": end.next_offset, "there": "no leader"})
    return _lost_offsets(end, end.next_offset, _log_bounds(consumer, end))


def _out_of_range(consumer: Consumer, end: RangeEnd, failure: PartitionFailure) -> IngestError:
    """Tell expired offsets, which lie below the log start, from those past the end of the log."""
    wanted = failure.offset if failure.offset is not None and failure.offset >= 0 else end.next_offset
    try:
        bounds = _log_bounds(consumer, end)
    except KafkaException as error:
        return RetryLater(
            f"{end.split.topic_partition} does not hold offset {wanted}, and does not tell what it holds",
            expected=f"offsets {end.next_offset} to {end.split.end}",
            found=error.args[0].str(),
            next_command="none: the task tries again",
        )
    found = _lost_offsets(end, wanted, bounds)
    return (found or _truncated(end, f"offset {wanted} is out of range; {_readable(bounds)}")).error(Purpose.READ)


def _log_bounds(consumer: Consumer, end: RangeEnd) -> tuple[int, int]:
    """Ask the leader for log start and end; the end is the last stable offset under ``read_committed``."""
    partition = TopicPartition(end.split.topic, end.split.partition)
    log_start, log_end = consumer.get_watermark_offsets(partition, timeout=_ASK_SECONDS, cached=False)
    return log_start, log_end


def _lost_offsets(end: RangeEnd, first: int, bounds: tuple[int, int]) -> Difference | None:
    """Compare the offsets from ``first`` on with the log.

    Planned ends were readable once, and neither high watermark nor last stable offset ever moves backwards in an intact
    log (KIP-98).
    """
    log_start, log_end = bounds
    state = PartitionState(end.split.partition, True, log_start, log_end, log_end)
    found = lost_offsets(end.split.topic_partition, state, first, end.split.end)
    return _truncated(end, _readable(bounds)) if found and found.kind is LogFault.LOG_TRUNCATED else found


def _readable(bounds: tuple[int, int]) -> str:
    return f"the readable log holds {bounds[0]} to {bounds[1]}"


def _truncated(end: RangeEnd, there: str) -> Difference:
    epoch = "" if end.split.leader_epoch is None else f" after epoch {end.split.leader_epoch}"
    values = {"held": f"offsets {end.next_offset} to {end.split.end}{epoch}", "there": there}
    return Difference(LogFault.LOG_TRUNCATED, str(end.split.topic_partition), values)


# ----------
# The reader: splits of Kafka partitions as Arrow record batches, with librdkafka.
#
# It must never end early: an empty poll, a time-out or a count says nothing about the end of a range whose tail can
# consist of transaction markers, aborted or compacted records. It ends only when a record or event at or past the end
# was seen.

_POLL_SECONDS = 0.5

#: Messages taken before their headers are measured, which librdkafka does not count in what it fetches ahead. 250 of
#: 300 KB are 75 MB, and more at once saves no measurable time.
_MOST_AT_ONCE = 250


class KafkaRangeReader:
    """The port ``RangeReader`` on a real cluster: one consumer, one partition at a time. Not safe for several threads.

    It joins no group and stores no offset anywhere; reading the same split again gives the same records.

    Args:
        config: librdkafka configuration from :func:`kafka_ingest.kafka.client.client_config`.
        no_progress_timeout_seconds: After this long without a record, an end-of-partition event or a moving fetch
            position the broker counts as unavailable. Time that the caller spends between batches does not count.
    """

    def __init__(self, config: Mapping[str, str], *, no_progress_timeout_seconds: float = 120) -> None:
        self._timeout_seconds = no_progress_timeout_seconds
        self._connection = config.get(client.CONNECTION, "")
        self._events = client.ClientEvents(config)
        self._fetch_position = client.FetchPosition()
        callbacks = {"error_cb": self._events, "stats_cb": self._fetch_position}
        try:
            self._consumer = Consumer({**client.librdkafka_settings(config), **callbacks}, logger=client.LIBRDKAFKA_LOG)
        except KafkaException as error:
            raise client.client_fault(error, config) from None
        self._start_leader_epoch: int | None = None
        self._end_leader_epoch: int | None = None

    def __enter__(self) -> KafkaRangeReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield every readable record of ``[start, end)`` once, in rising offset order; see the port.

        A batch has at most 10,000 records and about 8 MB. Besides the errors of the port:

        Raises:
            ConfigError: The broker refuses this client, or this client may not read the topic.
            TopicMissing: The topic was still missing after the time-out.
            PartitionMissing: The partition was still missing after the time-out.
        """
        self._start_leader_epoch = self._end_leader_epoch = None
        end = RangeEnd(split)
        with refused_calls(end):
            try:
                self._assign(split)
                yield from self._batches(end)
                self._end_leader_epoch = self._epoch_after(end)
                self._start_leader_epoch = end.first_epoch if end.has_record else self._end_leader_epoch
            except PartitionFailure as failure:
                raise failed_read(self._consumer, end, failure, self._connection) from None
            finally:
                self._leave_partition()

    def start_leader_epoch(self) -> int | None:
        """Return the leader epoch of the first record of the last split that was read to its end; see the port."""
        return self._start_leader_epoch

    def end_leader_epoch(self) -> int | None:
        """Return the leader epoch of the end of the last split that was read to its end; see the port."""
        return self._end_leader_epoch

    def close(self) -> None:
        """Leave Kafka and end the client's threads; idempotent."""
        self._consumer.close()

    def _batches(self, end: RangeEnd) -> Iterator[pa.RecordBatch]:
        pending = TakenMessages()
        while not end.ended:
            more = TakenMessages(end.take(self._wait_for_messages(end)))
            if pending.has_room_for(more):
                pending.add(more)
            else:
                yield from pending.batches()
                pending = more
        yield from pending.batches()

    def _wait_for_messages(self, end: RangeEnd) -> list[Message]:
        """Wait until there is a message, and take the others that are there already.

        ``consume`` alone would wait for a full batch or its whole time-out at the end of every range.
        """
        deadline = time.monotonic() + self._timeout_seconds
        ask_at = min(deadline, time.monotonic() + client.SILENCE_SECONDS)
        self._fetch_position.follow(end.split.topic, end.split.partition)
        while (first := self._next_message(end)) is None:
            if self._fetch_position.has_moved():
                deadline = time.monotonic() + self._timeout_seconds
            if time.monotonic() > ask_at and not self._events.output_tail:
                ask_at = math.inf
                self._require_visible(end)
            if self._events.refused_for_good or time.monotonic() > deadline:
                self._give_up(end)
        self._events.forget()
        # librdkafka holds many times as much of large records as a batch takes.
        many = min(_MOST_AT_ONCE, MAX_BYTES // max(1, len(first)) + 1)
        return [first, *self._consumer.consume(many, 0)]

    def _next_message(self, end: RangeEnd) -> Message | None:
        """Wait for a message; one of the group is noted and is none, so that it never counts as an answer."""
        message = self._consumer.poll(_POLL_SECONDS)
        if message is None or message.topic() is not None:
            return message
        end.take([message])
        return None

    def _require_visible(self, end: RangeEnd) -> None:
        if refused := unseen_topic(self._consumer, end, self._connection):
            raise refused

    def _give_up(self, end: RangeEnd) -> NoReturn:
        tried = f"reading {end.split.topic_partition} at offset {end.next_offset}"
        if not self._events.output_tail and end.output_tail:
            self._events.output_tail = end.output_tail
        silence = self._events.unavailable(tried=tried, seconds=self._timeout_seconds)
        raise stalled_read(self._consumer, end, silence)

    def _assign(self, split: Split) -> None:
        """Start fetching at the start of a split, and have its leader epoch checked.

        ``assign`` alone checks the epoch only when the topic is new to this consumer (librdkafka 2.16 validates on a
        metadata change, rdkafka_topic.c, and on ``seek``, rdkafka_partition.c), so a ``seek`` with the epoch follows.
        """
        start = TopicPartition(split.topic, split.partition, split.start)
        if split.leader_epoch is None:
            self._consumer.assign([start])
            return
        start = TopicPartition(split.topic, split.partition, split.start, leader_epoch=split.leader_epoch)
        self._consumer.assign([start])
        self._seek(start)

    def _seek(self, start: TopicPartition) -> None:
        """Seek as soon as the assignment has started, which librdkafka does on a thread of its own."""
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
        """Return the epoch of the record past the end, or else that of the consumer's position after the event.

        librdkafka leaves the epoch of the event itself at zero. A position below the end means that offsets without
        any record or marker came last (compacted ones): their epoch is unknown, and an older one would look like a
        truncated log to the next read.
        """
        if end.record_epoch is not None:
            return end.record_epoch
        split = end.split
        (position,) = self._consumer.position([TopicPartition(split.topic, split.partition)])
        return position.leader_epoch if position.offset >= split.end else None

    def _leave_partition(self) -> None:
        """Stop fetching, and throw away what was fetched ahead, so that none of it reaches the next split."""
        self._consumer.unassign()
        while self._consumer.consume(MAX_RECORDS, 0):
            pass

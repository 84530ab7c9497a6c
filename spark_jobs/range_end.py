"""Where a subrange ends, and what a message on the way there means."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import lt

from confluent_kafka import KafkaError, Message

from kafka_ingest.core.errors import RetryLater
from kafka_ingest.core.staging import Subrange

#: Errors that librdkafka settles by itself, or that do not matter here: they are noted, and the time-out decides.
#: Every other error ends the read at once, because librdkafka goes on behind it: after a damaged record batch
#: (_BAD_MSG) it continues with the next one, and the records between would be lost without a word.
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
    """A partition's error that ends the read; carries librdkafka's error to where it becomes one of ours."""

    def __init__(self, error: KafkaError, offset: int | None) -> None:
        super().__init__(error.str())
        self.error = error
        self.offset = offset


class RangeEnd:
    """Follows one subrange through the messages until one at or past its end.

    Attributes:
        subrange: What is read.
        next_offset: One past the last record that was taken; the start before there is one.
        ended: Whether a record or an end-of-partition event at or past the end was seen.
        has_record: Whether a record was seen, inside or past the end.
        first_epoch: Leader epoch of the first of them; ``None`` before it, or when the broker told none.
        record_epoch: Leader epoch of the record that ended it; ``None`` when an event did, or the broker told none.
        last_event_end: Offset of the latest end-of-partition event; ``None`` before the first.
        last_words: The latest passing error.
    """

    def __init__(self, subrange: Subrange) -> None:
        self.subrange = subrange
        self.next_offset = subrange.start
        self.ended = False
        self.has_record = False
        self.first_epoch: int | None = None
        self.record_epoch: int | None = None
        self.last_event_end: int | None = None
        self.last_words = ""

    def take(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Gives those of the messages that are records of the subrange.

        Raises:
            PartitionFailure: One of them is an error that does not pass.
            RetryLater: Offsets do not rise: what was read cannot be trusted.
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
                f"Kafka gave records of {self.subrange.topic_partition} out of order",
                expected=f"rising offsets from {self.next_offset} on",
                found=f"offsets {offsets[0]} to {offsets[-1]}",
                next_command="none: the task reads again from the start of its range",
            )
        if own and not self.has_record:
            self.has_record = True
            self.first_epoch = own[0].leader_epoch()
        inside = bisect_left(offsets, self.subrange.end)
        if inside < len(own):
            self.ended = True
            self.record_epoch = own[inside].leader_epoch()
        if inside:
            self.next_offset = offsets[inside - 1] + 1
        return own[:inside]

    def _own(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Leaves out what an earlier assignment may have left behind."""
        topics, partitions = set(map(Message.topic, messages)), set(map(Message.partition, messages))
        if topics == {self.subrange.topic} and partitions == {self.subrange.partition}:
            return messages
        return [message for message in messages if self._is_own(message)]

    def _is_own(self, message: Message) -> bool:
        return bool(message.topic() == self.subrange.topic and message.partition() == self.subrange.partition)

    def _event(self, message: Message, error: KafkaError) -> None:
        if message.topic() is not None and not self._is_own(message):
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self.last_event_end = message.offset()
            self.ended = message.offset() >= self.subrange.end
        elif error.code() in PASSING and not error.fatal():
            self.last_words = error.str()
        else:
            raise PartitionFailure(error, message.offset())

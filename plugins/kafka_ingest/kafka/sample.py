"""A sample of a topic: records from the beginning, the middle and the end of every partition, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter, methodcaller

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_ingest.errors import ConfigError
from kafka_ingest.kafka import client
from kafka_ingest.kafka.registry import KEY_SCHEMA_HEADER, VALUE_SCHEMA_HEADER
from kafka_ingest.protocol.log_faults import grant_read

# Where to look.


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a partition's log: offsets ``[start, end)``, of which at most ``most`` records are read."""

    partition: int
    start: int
    end: int
    most: int


def windows_of(ends: Mapping[int, tuple[int, int]], most: int) -> tuple[list[Window], list[Window], list[Window]]:
    """Choose the windows at the beginning, in the middle and at the end of partitions.

    Args:
        ends: Start and end offset of each partition.
        most: Records in all, shared fairly: what a small partition does not have goes to the others.
    """
    sizes = {partition: end - start for partition, (start, end) in ends.items() if end > start}
    first: list[Window] = []
    middle: list[Window] = []
    last: list[Window] = []
    for place, partition in enumerate(sorted(sizes, key=lambda partition: (sizes[partition], partition))):
        wanted = min(sizes[partition], most // (len(sizes) - place))
        most -= wanted
        start, end = ends[partition]
        third = 0 if wanted == sizes[partition] else wanted // 3
        turn = end if not third else start + (end - start - third) // 2
        first.append(Window(partition, start, turn, wanted - 2 * third))
        middle.append(Window(partition, turn, end - third, third))
        last.append(Window(partition, end - third, end, third))
    found = [[window for window in windows if window.most] for windows in (first, middle, last)]
    return found[0], found[1], found[2]


# Reading.


@dataclass(frozen=True, slots=True)
class SampledRecord:
    """One record.

    Attributes:
        partition: Its partition.
        offset: Its offset.
        timestamp_ms: Its time, in ms since 1970; ``None`` where it has none.
        key: Its key.
        value: Its value; ``None`` for a tombstone.
        header_names: The names of its headers; ``None`` where they are not UTF-8.
        key_schema: The header that names the key's schema.
        value_schema: The header that names the value's schema.
    """

    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    header_names: tuple[str, ...] | None = ()
    key_schema: bytes | None = None
    value_schema: bytes | None = None


#: Keys and values of a sample, in all. Enough for 10,000 records of 3 kB; larger ones are alike after fewer.
MAX_BYTES = 32_000_000
#: What a record counts besides its key and value, about half of what it takes as an object: ten million tombstones are
#: not nothing.
_RECORD_BYTES = 100
#: Nothing comes for this long where a large aborted transaction is skipped, or a broker is away.
_QUIET_SECONDS = 10.0
#: A person waits for all of it.
_MOST_SECONDS = 60.0
_POLL_SECONDS = 0.2
_AT_ONCE = 500
_NO_TIME_MS = -1

#: The partition holds nothing more, or the log start has moved past the window meanwhile.
_ENDED = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_ask_headers = methodcaller("headers")


class TopicSampler:
    """Reads windows of one topic; joins no group and commits nothing.

    Args:
        config: librdkafka configuration from :func:`kafka_ingest.kafka.client.client_config`.
        topic: The topic.
        note: Told, in words, how far it is, and of windows that were not read to their end.
    """

    def __init__(self, config: Mapping[str, str], topic: str, note: Callable[[str], None]) -> None:
        self._config = config
        self._topic = topic
        self._note = note

    def read(self, passes: Sequence[Sequence[Window]]) -> list[SampledRecord]:
        """Return the records of all windows, by partition and offset.

        A window ends with its last record, the partition's end, or its share of ``MAX_BYTES``; all of them end when
        nothing has come for some seconds.

        Args:
            passes: Windows that are read at the same time, of one partition each.

        Raises:
            BrokerUnavailable: Kafka does not answer.
            ConfigError: Kafka refuses this client.
        """
        deadline = time.monotonic() + _MOST_SECONDS
        windows = sum(map(len, passes))
        records: list[SampledRecord] = []
        for some in filter(None, passes):
            records += self._read_pass(some, MAX_BYTES // windows, deadline)
            self._note(f"{len(records):,} records read")
        return sorted(records, key=attrgetter("partition", "offset"))

    def _read_pass(self, windows: Sequence[Window], most_bytes: int, deadline: float) -> Iterator[SampledRecord]:
        events = client.ClientEvents(self._config)
        settings = {**client.librdkafka_settings(self._config), "error_cb": events}
        try:
            consumer = Consumer(settings, logger=client.LIBRDKAFKA_LOG)
        except KafkaException as error:
            raise client.client_fault(error, self._config) from None
        with closing(consumer):
            consumer.assign([TopicPartition(self._topic, window.partition, window.start) for window in windows])
            left = {window.partition: _Left(window, most_bytes) for window in windows}
            for message in self._messages(consumer, left, events, deadline):
                found = left.get(message.partition())
                if found is not None and (record := self._taken(message, found)):
                    yield record
                if found is not None and found.is_done:
                    del left[found.window.partition]
                    consumer.pause([TopicPartition(self._topic, found.window.partition)])

    def _messages(
        self, consumer: Consumer, left: Mapping[int, _Left], events: client.ClientEvents, deadline: float
    ) -> Iterator[Message]:
        heard = time.monotonic()
        while left:
            if (first := consumer.poll(_POLL_SECONDS)) is not None:  # one without a value counts as false
                heard = time.monotonic()
                events.forget()
                yield first
                yield from consumer.consume(_AT_ONCE, 0)
            elif events.refused_for_good or (_is_over(heard + _QUIET_SECONDS) and events.output_tail):
                raise events.unavailable(tried=f"reading a sample of {self._topic}", seconds=_QUIET_SECONDS)
            if _is_over(heard + _QUIET_SECONDS) or _is_over(deadline):
                partitions = ", ".join(map(str, sorted(left)))
                self._note(f"no more records came in time from {self._topic}, partitions {partitions}: the sample ends")
                return

    def _taken(self, message: Message, left: _Left) -> SampledRecord | None:
        error = message.error()
        if error is None:
            return _record(message) if left.takes(message) else None
        if error.code() in _ENDED:
            left.is_done = True
        elif error.code() in client.REFUSALS or error.fatal():
            raise ConfigError(
                f"Kafka refuses to let this client read {self._topic}",
                expected="the right READ",
                found=error.str(),
                next_command=grant_read(self._topic, self._config.get(client.CONNECTION, "")),
            )
        return None


@dataclass(slots=True)
class _Left:
    """What is left of a window."""

    window: Window
    most_bytes: int
    is_done: bool = False

    def takes(self, message: Message) -> bool:
        """Count a record; tell whether it is one of the window."""
        if self.is_done or message.offset() >= self.window.end:
            self.is_done = True
            return False
        self.window = replace(self.window, most=self.window.most - 1)
        self.most_bytes -= len(message.value() or b"") + len(message.key() or b"") + _RECORD_BYTES
        is_last = message.offset() + 1 == self.window.end
        self.is_done = is_last or self.window.most <= 0 or self.most_bytes <= 0
        return True


def _is_over(deadline: float) -> bool:
    return time.monotonic() > deadline


def _record(message: Message) -> SampledRecord:
    kind, time_ms = message.timestamp()
    headers = _headers(message)
    first = dict(reversed(headers or ()))
    return SampledRecord(
        message.partition(),
        message.offset(),
        time_ms if kind and time_ms != _NO_TIME_MS else None,
        message.key(),
        message.value(),
        None if headers is None else tuple(name for name, _ in headers),
        first.get(KEY_SCHEMA_HEADER),
        first.get(VALUE_SCHEMA_HEADER),
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]] | None:
    # The call fails on a name that is not UTF-8, in a way that only a caller in C notices at once (confluent-kafka
    # 2.16); a second call is not allowed, as the first one left a half built result.
    try:
        (headers,) = map(_ask_headers, [message])
    except (UnicodeDecodeError, SystemError):
        return None
    return headers or []

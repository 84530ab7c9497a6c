"""Why a read failed: asks Kafka once more, so that the error names the cause and not the symptom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafka_ingest.adapters.kafka_faults import REFUSALS, is_truncation
from kafka_ingest.core.change_commands import change_command
from kafka_ingest.core.errors import (
    BrokerUnavailable,
    ConfigError,
    IngestError,
    LogTruncated,
    OffsetsExpired,
    PartitionMissing,
    RetryLater,
    TopicMissing,
)
from kafka_ingest.core.log_checks import grant_read
from spark_jobs.range_end import PartitionFailure, RangeEnd

_ASK_SECONDS = 5.0

_RUNBOOK = "see docs/runbook.md, section "
_LOOK = 'run "python -m kafka_ingest lag" to see what the log holds; '


def failed_read(consumer: Consumer, end: RangeEnd, failure: PartitionFailure) -> IngestError:
    """Turns a partition's error into one of ours."""
    code = failure.error.code()
    if is_truncation(failure.error):
        return _truncated(end, failure.error.str())
    if code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
        return _out_of_range(consumer, end, failure)
    if code in REFUSALS or failure.error.fatal():
        return ConfigError(
            f"Kafka refuses to let this client read {end.subrange.topic_partition}",
            expected="the right to READ the topic",
            found=failure.error.str(),
            next_command="correct the connection, or: "
            + grant_read(end.subrange.topic, "of the pipeline (kafka.connection)"),
        )
    return RetryLater(
        f"{end.subrange.topic_partition} cannot be read at offset {end.next_offset}",
        expected="a readable record batch",
        found=failure.error.str(),
        next_command="none: the task tries again; when it fails there again, check the broker's log directories",
    )


@contextmanager
def refused_calls(end: RangeEnd) -> Iterator[None]:
    """Turn what a call of the client raises (``assign``, ``seek``, ``poll``, ``position``) into one of our errors."""
    try:
        yield
    except KafkaException as error:
        raise BrokerUnavailable(
            f"{end.subrange.topic_partition} cannot be read at offset {end.next_offset}: the client refused a call",
            expected="a client that goes on",
            found=error.args[0].str() if isinstance(error.args[0], KafkaError) else str(error),
            next_command="none: the task tries again with a new client",
        ) from error


def stalled_read(consumer: Consumer, end: RangeEnd, silence: IngestError) -> IngestError:
    """Gives the error for a read without progress: what is missing, or ``silence`` when Kafka does not tell."""
    topic, partition = end.subrange.topic, end.subrange.partition
    if isinstance(silence, ConfigError):
        return silence
    try:
        found = consumer.list_topics(topic, timeout=_ASK_SECONDS).topics[topic]
        if found.error is not None and found.error.code() in _UNKNOWN:
            return _missing(TopicMissing, f"Topic {topic} does not exist any more", found.error)
        if partition not in found.partitions:
            return _missing(PartitionMissing, f"{end.subrange.topic_partition} does not exist any more", found.error)
        if found.partitions[partition].leader < 0:
            return _without_leader(end)
        log_start, log_end = _log_bounds(consumer, end)
    except KafkaException:
        return silence
    if end.next_offset < log_start:
        return _expired(end, end.next_offset, log_start)
    if log_end < end.subrange.end:
        # Planned ends were readable once, and neither high watermark nor last stable offset ever moves backwards in
        # an intact log (KIP-98).
        return _truncated(end, f"the readable log ends at {log_end}")
    return silence


_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_ID})


def _out_of_range(consumer: Consumer, end: RangeEnd, failure: PartitionFailure) -> IngestError:
    """An offset below the log start has expired; any other one out of range lies past the end of the log."""
    wanted = failure.offset if failure.offset is not None and failure.offset >= 0 else end.next_offset
    try:
        log_start, log_end = _log_bounds(consumer, end)
    except KafkaException as error:
        return RetryLater(
            f"{end.subrange.topic_partition} does not hold offset {wanted}, and does not tell what it holds",
            expected=f"offsets {end.next_offset} to {end.subrange.end}",
            found=error.args[0].str(),
            next_command="none: the task tries again",
        )
    if wanted < log_start:
        return _expired(end, wanted, log_start)
    return _truncated(end, f"offset {wanted} is out of range; the log holds {log_start} to {log_end}")


def _log_bounds(consumer: Consumer, end: RangeEnd) -> tuple[int, int]:
    """Asks the leader for log start and end; the end is the last stable offset under ``read_committed``."""
    partition = TopicPartition(end.subrange.topic, end.subrange.partition)
    log_start, log_end = consumer.get_watermark_offsets(partition, timeout=_ASK_SECONDS, cached=False)
    return log_start, log_end


def _expired(end: RangeEnd, wanted: int, log_start: int) -> OffsetsExpired:
    return OffsetsExpired(
        f"{end.subrange.topic_partition} no longer holds offset {wanted}: it was deleted while the batch was loaded",
        expected=f"offsets {wanted} to {end.subrange.end}",
        found=f"log start offset {log_start}: {log_start - wanted} offsets are gone",
        next_command=f"{_LOOK}{change_command('PIPELINE', 'accept-loss --supersede')}; {_RUNBOOK}OffsetsExpired",
    )


def _truncated(end: RangeEnd, found: str) -> LogTruncated:
    epoch = end.subrange.leader_epoch
    return LogTruncated(
        f"{end.subrange.topic_partition} is not the log that was read before",
        expected=f"offsets {end.next_offset} to {end.subrange.end}"
        + (f" after epoch {epoch}" if epoch is not None else ""),
        found=found,
        next_command=(
            f"{_LOOK}{_RUNBOOK}LogTruncated; then {change_command('PIPELINE', 'reset --to latest --supersede')}"
        ),
    )


def _without_leader(end: RangeEnd) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"{end.subrange.topic_partition} cannot be read at offset {end.next_offset}",
        expected="a partition with a leader",
        found="no leader",
        next_command="bring its brokers back; the task tries again",
    )


def _missing(cls: type[IngestError], what: str, error: KafkaError | None) -> IngestError:
    return cls(
        what,
        expected="the topic and partition that were planned",
        found=error.str() if error is not None else "not in the topic's metadata",
        next_command='run "python -m kafka_ingest plan --dry-run" to see what exists',
    )

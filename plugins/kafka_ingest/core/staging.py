"""What a task is given to stage and what it reports: plain values that travel to Spark and back."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_ingest.core.batch import RecordCounts
from kafka_ingest.core.dead_letters import RefusedRecord
from kafka_ingest.core.load_phases import TaskSeconds
from kafka_ingest.core.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Subrange:
    """Offsets ``[start, end)`` of one partition that one task reads with one pass.

    ``index`` numbers the subranges of a batch; within a partition a higher index means higher offsets.
    ``leader_epoch`` is known only for the subrange that begins at the committed position. What lies below
    ``replaced_to`` was loaded before and is replaced.
    """

    index: int
    topic: str
    partition: int
    generation: int
    start: int
    end: int
    leader_epoch: int | None = None
    replaced_to: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that is read."""
        return TopicPartition(self.topic, self.partition)

    @property
    def span_offsets(self) -> int:
        """Number of offsets in the subrange."""
        return self.end - self.start

    def holds(self, record: RefusedRecord) -> bool:
        """Whether a record of the batch lies in the subrange."""
        is_here = (record.topic, record.partition) == (self.topic, self.partition)
        return is_here and self.start <= record.offset < self.end


@dataclass(frozen=True, slots=True)
class StageTask:
    """The subranges of one Spark task, read one after another by one consumer.

    ``refused`` are records that the target is known to refuse: they become dead letters without a look at their values.
    """

    task_index: int
    subranges: tuple[Subrange, ...]
    refused: tuple[RefusedRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadLetterRun:
    """How dead letters stand one after another in a stretch of records; adds up in offset order.

    Attributes:
        records: Readable records in the stretch.
        leading: Dead letters at its beginning.
        trailing: Dead letters at its end.
        longest: The longest run anywhere in it.
        longest_start: Offset of the first record of the longest run; -1 when there is none.
        trailing_start: Offset of the first record of the trailing run; -1 when there is none.
    """

    records: int = 0
    leading: int = 0
    trailing: int = 0
    longest: int = 0
    longest_start: int = -1
    trailing_start: int = -1

    def __add__(self, other: DeadLetterRun) -> DeadLetterRun:
        if not self.records:
            return other
        if not other.records:
            return self
        joined = self.trailing + other.leading
        longest, start = max(
            (self.longest, self.longest_start),
            (joined, self.trailing_start if self.trailing else other.longest_start),
            (other.longest, other.longest_start),
            key=lambda run: run[0],
        )
        whole_other = other.leading == other.records
        return DeadLetterRun(
            records=self.records + other.records,
            leading=self.leading + (other.leading if self.leading == self.records else 0),
            trailing=joined if whole_other else other.trailing,
            longest=longest,
            longest_start=start if longest else -1,
            trailing_start=(
                (self.trailing_start if self.trailing else other.trailing_start)
                if whole_other
                else other.trailing_start
            ),
        )


@dataclass(frozen=True, slots=True)
class DeadLetterSample:
    """One dead letter for a message: where and why, never the payload."""

    topic: str
    partition: int
    offset: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class SubrangeResult:
    """What one task found in one subrange.

    Attributes:
        index: The subrange's index.
        counts: What became of its offsets; adds up to its span.
        record_time_min_ms: Smallest record time, ms since 1970 UTC; ``None`` without a record that has a time.
        record_time_max_ms: Greatest record time.
        last_record_time_ms: Time of the readable record with the highest offset; ``None`` without one.
        start_leader_epoch: Leader epoch of the first record at or after the start, or of the event that ended the
            subrange before any; ``None`` when the broker told none.
        end_leader_epoch: Leader epoch of what ended the subrange; ``None`` when the broker told none.
        dead_letter_run: Runs of consecutive dead letters.
        samples: The first dead letters, at most five.
    """

    index: int
    counts: RecordCounts
    record_time_min_ms: int | None = None
    record_time_max_ms: int | None = None
    last_record_time_ms: int | None = None
    start_leader_epoch: int | None = None
    end_leader_epoch: int | None = None
    dead_letter_run: DeadLetterRun = field(default_factory=DeadLetterRun)
    samples: tuple[DeadLetterSample, ...] = ()


@dataclass(frozen=True, slots=True)
class StageResult:
    """What the winning attempt of one task staged. Only rows tagged with ``attempt_id`` are published.

    ``seconds`` says what it spent its time on.
    """

    task_index: int
    attempt_id: int
    subranges: tuple[SubrangeResult, ...]
    seconds: TaskSeconds = field(default_factory=TaskSeconds)


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far staging is: records staged and offsets passed, summed over all tasks."""

    records: int = 0
    offsets: int = 0


def staging_name(batch_id: str, claim: int) -> str:
    """Gives the stem of the names of an attempt's staging tables: unique by batch and claim, 63 bytes at most."""
    return f"b{batch_id.replace('-', '')}_c{claim}"

"""What stops a roll-back: faults of the request, of the ledger and of the log. Values, so that all are listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kafka_ingest.core.errors import (
    BatchOutstanding,
    ClusterChanged,
    LeaderMissing,
    LogTruncated,
    OffsetsExpired,
    PartitionMissing,
    RollBackRefused,
    StopAndCall,
    TopicMissing,
    TopicRecreated,
)
from kafka_ingest.core.log_identity_check import is_of_another_log
from kafka_ingest.core.log_state import LogSnapshot, PartitionState
from kafka_ingest.core.offsets import Position
from kafka_ingest.core.outstanding import batch_to_supersede
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.retired_topics import retired_topics
from kafka_ingest.core.roll_back import LoweredPosition, RollBackRequest, RollBackView, Writer
from kafka_ingest.core.settings import TopicIdentity

_ANOTHER_LOG = "none: these batches belong to another log and can no longer be rolled back"


def request_faults(request: RollBackRequest, view: RollBackView, *, found: int) -> Iterator[PartitionFault]:
    """Yields what the request asks for and the ledger cannot give: an idle pipeline, enough batches."""
    try:
        batch_to_supersede(view.ledger, supersede=request.supersede)
    except BatchOutstanding as refused:
        where = f"pipeline {request.pipeline}, batch {refused.batch_id}"
        yield PartitionFault(BatchOutstanding, where, refused.expected, refused.found, refused.next_command)
    if found < request.batches:
        yield PartitionFault(
            RollBackRefused,
            f"pipeline {request.pipeline}",
            expected=f"{request.batches} committed batches that moved the position",
            found=f"{found}; a batch that only reloaded or was rolled back does not count",
            next_command=f"python -m kafka_ingest batches {request.pipeline}",
        )


def undone_faults(view: RollBackView, writers: Sequence[Writer]) -> Iterator[PartitionFault]:
    """Yields batches that were loaded before the target or the isolation level was changed, or a topic retired."""
    record = view.ledger.pipeline
    if record is None:
        return
    bound = (record.target_schema, record.target_table, record.isolation_level)
    retired = retired_topics(view.ledger)
    for writer in writers:
        settings = writer.batch.settings
        if (settings.target.schema, settings.target.table, settings.isolation_level) != bound:
            yield _changed_since(writer, f"target {settings.target}, isolation level {settings.isolation_level.value}")
        if topics := sorted({r.topic for r in writer.moved} & retired):
            yield _changed_since(writer, f"topics that are retired now: {', '.join(topics)}")


def log_faults(
    request: RollBackRequest,
    positions: Sequence[LoweredPosition],
    snapshot: LogSnapshot,
    policies: Mapping[str, str],
    *,
    identity: TopicIdentity,
) -> Iterator[PartitionFault]:
    """Yields what keeps the log from giving the same records again."""
    clusters = {lowered.before.cluster_id for lowered in positions} - {snapshot.cluster_id}
    for cluster_id in sorted(clusters):
        yield PartitionFault(
            ClusterChanged,
            "the Kafka connection",
            expected=f"cluster id {cluster_id}, which the offsets belong to",
            found=f"cluster id {snapshot.cluster_id}",
            next_command="point the connection at the former cluster",
        )
    if clusters:
        return  # another cluster's topics say nothing about these offsets
    for lowered in positions:
        if fault := _log_fault(lowered, snapshot, identity):
            yield fault
    if not request.allow_compacted:
        yield from _compacted(positions, policies)


def _changed_since(writer: Writer, loaded_with: str) -> PartitionFault:
    return PartitionFault(
        RollBackRefused,
        f"batch {writer.batch.batch_id}",
        expected="no position change of the pipeline since it was loaded",
        found=f"it was loaded with {loaded_with}",
        next_command="roll back fewer batches",
    )


def _log_fault(lowered: LoweredPosition, snapshot: LogSnapshot, identity: TopicIdentity) -> PartitionFault | None:
    before = lowered.before
    topic = snapshot.topics.get(before.topic)
    if topic is None:
        return _fault(TopicMissing, before, "an existing topic", "no such topic in the cluster")
    if identity is TopicIdentity.TOPIC_ID and is_of_another_log(before, topic):
        found = f"topic id {topic.topic_id}: the topic was deleted and created again"
        return _fault(TopicRecreated, before, f"topic id {before.topic_id}", found)
    state = topic.partitions.get(before.partition)
    if state is None:
        return _fault(PartitionMissing, before, "a partition of the topic", "metadata without it")
    return _offset_fault(lowered, state)


def _offset_fault(lowered: LoweredPosition, state: PartitionState) -> PartitionFault | None:
    begin, end = lowered.after.committed_offset, lowered.before.committed_offset
    if state.log_start_offset is None or state.high_watermark is None:
        found = state.fault or "no leader"
        next_command = "bring its brokers back, then roll back again"
        return _fault(LeaderMissing, lowered.before, "a leader that tells its offsets", found, next_command)
    if state.log_start_offset > begin:
        lost = state.log_start_offset - begin
        found = f"log start offset {state.log_start_offset}: {lost} offsets could not be read again"
        next_command = "roll back fewer batches; what the log has lost exists only in the table"
        return _fault(OffsetsExpired, lowered.before, f"a log that still holds offset {begin}", found, next_command)
    if state.high_watermark < end:
        found = f"high watermark {state.high_watermark}: the log lost {end - state.high_watermark} offsets"
        return _fault(LogTruncated, lowered.before, f"a high watermark at or above {end}", found)
    return None


def _fault(
    error: type[StopAndCall], position: Position, expected: str, found: str, next_command: str = _ANOTHER_LOG
) -> PartitionFault:
    return PartitionFault(error, str(position.topic_partition), expected, found, next_command)


def _compacted(positions: Sequence[LoweredPosition], policies: Mapping[str, str]) -> Iterator[PartitionFault]:
    for topic in sorted({lowered.before.topic for lowered in positions}):
        policy = policies.get(topic)
        if policy is not None and "compact" not in policy:
            continue
        yield PartitionFault(
            RollBackRefused,
            f"topic {topic}",
            expected="a topic that is not compacted: its log gives every record again that is deleted from the table",
            found="settings that this client may not read" if policy is None else f"cleanup.policy {policy}",
            next_command="allow it (--allow-compacted), if only the newest record of each key is needed",
        )

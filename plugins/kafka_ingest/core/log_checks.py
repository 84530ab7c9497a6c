"""Checks of the log against the ledger before anything is planned: every fault names expected, found and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_ingest.core.change_commands import change_command
from kafka_ingest.core.errors import (
    ClusterChanged,
    ConfigError,
    LeaderMissing,
    LogTruncated,
    OffsetsExpired,
    PartitionMissing,
    TopicMissing,
    TopicRecreated,
)
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.log_identity_check import is_of_another_log
from kafka_ingest.core.log_state import LogSnapshot, PartitionState
from kafka_ingest.core.offsets import Position, TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.retired_topics import retired_topics
from kafka_ingest.core.settings import FirstRunKind, PipelineSettings, TopicIdentity

_RUNBOOK = "see docs/runbook.md, section "


def snapshot_faults(settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot) -> Iterator[PartitionFault]:
    """Yields faults of the cluster, of whole topics, and of partitions that the log no longer lists."""
    if fault := _cluster_fault(view, snapshot):
        yield fault
        return  # offsets of another cluster say nothing about these positions
    yield from _missing_topics(settings, view, snapshot)
    yield from _forbidden_topics(settings, snapshot)
    yield from _served_elsewhere(settings, view, snapshot)
    yield from _identity_faults(settings, view, snapshot)
    yield from _missing_partitions(view, snapshot)


def partition_fault(
    tp: TopicPartition, state: PartitionState, settings: PipelineSettings, *, is_first: bool
) -> PartitionFault | None:
    """Gives the fault of a partition whose offsets cannot be had.

    On the first plan it can be left out only with ``earliest``: joining later means to start at the log start, which
    any other choice did not ask for.
    """
    if state.has_leader and state.end_offset is not None:
        return None
    return PartitionFault(
        LeaderMissing,
        str(tp),
        expected="a leader that tells its offsets",
        found=state.fault or "no leader",
        next_command="bring its brokers back, then clear the failed task; " + _RUNBOOK + "LeaderMissing",
        can_be_left_out=not is_first or settings.plan.first_run.kind is FirstRunKind.EARLIEST,
    )


def position_fault(position: Position, state: PartitionState, pipeline: str) -> PartitionFault | None:
    """Gives the fault of a position that lies outside the log."""
    committed = position.committed_offset
    log_start, high_watermark = state.log_start_offset or 0, state.high_watermark or 0
    if committed < log_start:
        return PartitionFault(
            OffsetsExpired,
            str(position.topic_partition),
            expected=f"a log that still holds the committed offset {committed}",
            found=f"log start offset {log_start}: {log_start - committed} offsets were deleted before they were read",
            next_command=f"{change_command(pipeline, 'accept-loss')}; {_RUNBOOK}OffsetsExpired",
            can_be_left_out=True,
        )
    if committed > high_watermark:
        return PartitionFault(
            LogTruncated,
            str(position.topic_partition),
            expected=f"a high watermark at or above the committed offset {committed}",
            found=f"high watermark {high_watermark}: the log lost {committed - high_watermark} offsets",
            next_command=f"first {_RUNBOOK}LogTruncated; then {change_command(pipeline, 'reset --to latest')}",
        )
    return None


def _cluster_fault(view: PlanView, snapshot: LogSnapshot) -> PartitionFault | None:
    if view.pipeline is None or view.pipeline.cluster_id == snapshot.cluster_id:
        return None
    return PartitionFault(
        ClusterChanged,
        "the Kafka connection",
        expected=f"cluster id {view.pipeline.cluster_id}, which the committed offsets belong to",
        found=f"cluster id {snapshot.cluster_id}",
        next_command=(
            "point the connection at the former cluster; or "
            f"{change_command(view.pipeline.pipeline, 'accept-cluster')}; {_RUNBOOK}ClusterChanged"
        ),
    )


def _missing_topics(settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot) -> Iterator[PartitionFault]:
    selection, retired = settings.plan.topics, retired_topics(view)
    wanted = set(selection.names) - retired
    if selection.pattern is not None:
        # A topic that once matched and was read must still be there; the selection of names can be edited by its owner.
        wanted |= {s.topic for s in view.served if s.pipeline == settings.pipeline and not s.is_retired}
    for topic in sorted(wanted - set(snapshot.topics)):
        yield PartitionFault(
            TopicMissing,
            f"topic {topic}",
            expected="an existing topic; reading never creates one",
            found="no such topic in the cluster",
            next_command=_next_for_missing(topic, view),
        )
    if selection.pattern is not None and not snapshot.topics and not wanted and not retired:
        yield PartitionFault(
            TopicMissing,
            f"pattern {selection.pattern}",
            expected="at least one topic whose whole name matches",
            found="none",
            next_command="create a topic or correct kafka.pattern in the pipeline file",
        )


def _forbidden_topics(settings: PipelineSettings, snapshot: LogSnapshot) -> Iterator[PartitionFault]:
    for topic in snapshot.topics.values():
        if topic.may_read is False:
            yield PartitionFault(
                ConfigError,
                f"topic {topic.topic}",
                expected="the right READ",
                found="a right to describe it, without READ",
                next_command=grant_read(topic.topic, settings.batch.kafka_connection),
            )


def grant_read(topic: str, connection: str) -> str:
    """Return the command that grants the one right that a read of the topic lacks."""
    return (
        "kafka-acls.sh --bootstrap-server BROKER --add --allow-principal User:NAME --operation Read "
        f"--topic {topic}, NAME being the user of the Airflow connection {connection}"
    )


def _next_for_missing(topic: str, view: PlanView) -> str:
    create = "create the topic or correct kafka.topics in the pipeline file"
    if view.pipeline is None or all(position.topic != topic for position in view.positions):
        return create
    return f"{create}; if it is gone for good: {change_command(view.pipeline.pipeline, f'retire-topic {topic}')}"


def _served_elsewhere(settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot) -> Iterator[PartitionFault]:
    for served in view.served:
        is_same_log = served.cluster_id == snapshot.cluster_id and served.topic in snapshot.topics
        if is_same_log and served.pipeline != settings.pipeline:
            renamed = change_command(settings.pipeline, f"rename --from {served.pipeline}")
            yield PartitionFault(
                ConfigError,
                f"topic {served.topic} into {settings.batch.target}",
                expected=f"one pipeline, which is {served.pipeline}",
                found=f"a second one, {settings.pipeline}: every record would be loaded twice",
                next_command=(
                    "remove the topic from one of the two pipeline files, or give it another table; "
                    f"if the pipeline was renamed: {renamed}"
                ),
            )


def _identity_faults(settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot) -> Iterator[PartitionFault]:
    if settings.batch.topic_identity is TopicIdentity.NONE:
        return
    known = [p for p in view.positions if p.topic in snapshot.topics]
    others = {p.topic: p for p in known if is_of_another_log(p, snapshot.topics[p.topic])}
    for topic, state in sorted(snapshot.topics.items()):
        if state.topic_id is None:
            yield PartitionFault(
                ConfigError,
                f"topic {topic}",
                expected="a topic id, which tells a re-created topic from the one that was read",
                found="a broker that tells none",
                next_command="upgrade the brokers (Kafka 2.8 or later), or set kafka.topic_identity: none",
                topic=topic,
            )
        elif topic in others:
            yield _recreated(others[topic], state.topic_id, view, settings.pipeline)


def _recreated(position: Position, found_id: str, view: PlanView, pipeline: str) -> PartitionFault:
    offsets = ", ".join(f"[{p.partition}] {p.committed_offset}" for p in view.positions if p.topic == position.topic)
    return PartitionFault(
        TopicRecreated,
        f"topic {position.topic}",
        expected=f"topic id {position.topic_id}, which the committed offsets {offsets} belong to",
        found=f"topic id {found_id}: the topic was deleted and created again",
        next_command=f"{change_command(pipeline, f'accept-recreation {position.topic}')}; {_RUNBOOK}TopicRecreated",
        topic=position.topic,
    )


def _missing_partitions(view: PlanView, snapshot: LogSnapshot) -> Iterator[PartitionFault]:
    for position in view.positions:
        topic = snapshot.topics.get(position.topic)
        if topic is not None and position.partition not in topic.partitions:
            yield PartitionFault(
                PartitionMissing,
                str(position.topic_partition),
                expected=f"a partition with committed offset {position.committed_offset}",
                found=f"metadata that lists {len(topic.partitions)} partitions without it",
                next_command="clear the failed task once all brokers are up; " + _RUNBOOK + "PartitionMissing",
            )

"""The comparison of a log with the positions that the ledger holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kafka_ingest.errors import (
    ClusterChanged,
    ConfigError,
    LeaderMissing,
    LogTruncated,
    OffsetsExpired,
    PartitionMissing,
    StopAndCall,
    TopicMissing,
    TopicRecreated,
    change_command,
)
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.change_requests import Selection
from kafka_ingest.protocol.ledger_view import PlanView, PositionMove, retired_topics
from kafka_ingest.protocol.log import LogIdentity, LogSnapshot, PartitionState, TopicState
from kafka_ingest.protocol.position import PartitionFault, Position, TopicPartition
from kafka_ingest.settings import FirstRunKind, PipelineSettings, TopicIdentity

# ----------
# Whether a log is the one that positions and batches belong to, by the ids of topics and cluster.
#
# The ids are compared by every plan, and once more right before publishing: a consumer that reads while its topic is
# deleted and created again notices nothing (measured on Kafka 4.2).


def is_of_another_log(position: Position, topic: TopicState) -> bool:
    """Whether a position belongs to another topic of the same name, by its id; one without an id fits any."""
    return position.topic_id not in (None, topic.topic_id)


def adopted_ids(identity: TopicIdentity, view: PlanView, snapshot: LogSnapshot) -> tuple[PositionMove, ...]:
    """Chooses the positions that take over the broker's topic id: those that were planned under ``none``.

    Without it their ranges would carry no id, and :func:`require_same_log` would refuse every batch after it was read.
    All positions of a topic get the id in one plan, so that a later re-creation is seen whichever of them is read.

    Args:
        identity: What the pipeline file says.
        view: The ledger.
        snapshot: The log, without topics whose id differs from that of a position.
    """
    if identity is TopicIdentity.NONE:
        return ()
    known = {name: topic.topic_id for name, topic in snapshot.topics.items() if topic.topic_id}
    blind = (p for p in view.positions if p.topic_id is None and p.topic in known)
    return tuple(PositionMove(p, replace(p, topic_id=known[p.topic])) for p in blind)


def require_same_log(batch: Batch, identity: LogIdentity) -> None:
    """Compare cluster id and topic ids with those frozen in the batch.

    Raises:
        ClusterChanged: Another cluster answers.
        TopicRecreated: A topic is gone or has another id; every one is listed.
    """
    if identity.cluster_id != batch.cluster_id:
        raise ClusterChanged(
            "another Kafka cluster answered than the one that was planned; nothing was published",
            expected=f"cluster id {batch.cluster_id}",
            found=f"cluster id {identity.cluster_id}",
            next_command=(
                "point the connection at the former cluster; or "
                f"{change_command(batch.pipeline, 'accept-cluster')}; see docs/runbook.md, section ClusterChanged"
            ),
            pipeline=batch.pipeline,
            batch_id=batch.batch_id,
        )
    if batch.settings.topic_identity is TopicIdentity.NONE:
        return
    planned = {r.topic: r.topic_id for r in batch.ranges}
    changed = {topic: planned[topic] for topic in planned if identity.topic_ids.get(topic) != planned[topic]}
    if changed:
        raise TopicRecreated(
            "a topic was deleted or created again while the batch was read; nothing was published",
            expected="; ".join(f"{topic}: topic id {topic_id}" for topic, topic_id in sorted(changed.items())),
            found="; ".join(f"{topic}: {_found(identity, topic)}" for topic in sorted(changed)),
            next_command=(
                f"{change_command(batch.pipeline, 'accept-recreation')}; see docs/runbook.md, section TopicRecreated"
            ),
            pipeline=batch.pipeline,
            batch_id=batch.batch_id,
        )


def _found(identity: LogIdentity, topic: str) -> str:
    if topic not in identity.topic_ids:
        return "no such topic"
    return f"topic id {identity.topic_ids[topic]}"


# ----------
# Checks of the log against the ledger before anything is planned: every fault names expected, found and what to do.

_RUNBOOK = "see docs/runbook.md, section "


def snapshot_faults(settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot) -> Iterator[PartitionFault]:
    """Yield faults of the cluster, of whole topics, and of partitions that the log no longer lists."""
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
    """Return the fault of a partition whose offsets cannot be had.

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
    """Return the fault of a position that lies outside the log."""
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


# ----------
# The partitions that a change of offsets is about: each with its position and its log, or the fault of it.


@dataclass(frozen=True, slots=True)
class Scope:
    """Partitions with known offsets, ordered by (topic, partition), and the faults of the others."""

    known: tuple[tuple[Position, PartitionState], ...]
    faults: tuple[PartitionFault, ...]


def change_scope(view: PlanView, snapshot: LogSnapshot, only: Selection, *, identity: TopicIdentity) -> Scope:
    """Find the selected positions in the log; all but those of retired topics when nothing is selected."""
    if fault := other_cluster(view, snapshot):
        return Scope((), (fault,))
    retired = retired_topics(view)
    wanted = [p for p in view.positions if p.topic not in retired and only.includes(p.topic_partition)]
    found = [(position, _state_of(position, snapshot, identity)) for position in wanted]
    return Scope(
        known=tuple((position, state) for position, state in found if isinstance(state, PartitionState)),
        faults=(
            *_unknown(only, wanted),
            *(state for _, state in found if isinstance(state, PartitionFault)),
        ),
    )


def other_cluster(view: PlanView, snapshot: LogSnapshot) -> PartitionFault | None:
    """Return the fault of a connection that leads to another cluster than the positions belong to."""
    record = view.pipeline
    if record is None or record.cluster_id == snapshot.cluster_id:
        return None
    return PartitionFault(
        ClusterChanged,
        "the Kafka connection",
        expected=f"cluster id {record.cluster_id}, which the positions belong to",
        found=f"cluster id {snapshot.cluster_id}",
        next_command=f"correct the connection, or {change_command(record.pipeline, 'accept-cluster')}",
    )


def without_offsets(place: TopicPartition, state: PartitionState) -> PartitionFault:
    """Return the fault of a partition whose offsets Kafka does not tell."""
    return PartitionFault(
        LeaderMissing,
        str(place),
        expected="a leader that tells its offsets",
        found=state.fault or "no leader",
        next_command="bring its brokers back and ask again, or leave the partition out with --only",
    )


def missing_topic(topic: str, pipeline: str) -> PartitionFault:
    """Return the fault of a topic that the ledger knows and that the pipeline's selection does not find."""
    return PartitionFault(
        TopicMissing,
        f"topic {topic}",
        expected="a topic of the cluster that kafka.topics or kafka.pattern selects",
        found="none",
        next_command=f"retire it: {change_command(pipeline, f'retire-topic {topic}')}; or leave it out with --only",
    )


def unknown_topic(topic: str, pipeline: str) -> PartitionFault:
    """Return the fault of a topic that the ledger does not know."""
    return PartitionFault(
        ConfigError,
        f"topic {topic}",
        expected="a topic that the pipeline loads",
        found="none of that name in the ledger",
        next_command=f"correct the name: python -m kafka_ingest lag {pipeline} lists the topics",
    )


def retired_topic(topic: str, pipeline: str) -> PartitionFault:
    """Return the fault of a retired topic, of which a change wants positions that are read."""
    return PartitionFault(
        ConfigError,
        f"topic {topic}",
        expected="a topic that the pipeline reads",
        found="a retired one",
        next_command=f"first {change_command(pipeline, f'read-topic-again {topic}')} --apply",
    )


def _state_of(position: Position, snapshot: LogSnapshot, identity: TopicIdentity) -> PartitionState | PartitionFault:
    place, topic = position.topic_partition, snapshot.topics.get(position.topic)
    if topic is None:
        return _fault(TopicMissing, place, "a topic that the pipeline file selects, in the cluster", "no such topic")
    if identity is TopicIdentity.TOPIC_ID and is_of_another_log(position, topic):
        return _fault(TopicRecreated, place, f"topic id {position.topic_id}", f"topic id {topic.topic_id}")
    state = topic.partitions.get(position.partition)
    if state is None:
        return _fault(PartitionMissing, place, "a partition that the ledger knows", "metadata without it")
    return without_offsets(place, state) if state.end_offset is None else state


def _fault(error: type[StopAndCall], place: TopicPartition, expected: str, found: str) -> PartitionFault:
    after = f"see docs/runbook.md, section {error.__name__}; or leave the partition out with --only"
    return PartitionFault(error, str(place), expected=expected, found=found, next_command=after)


def _unknown(only: Selection, wanted: list[Position]) -> Iterator[PartitionFault]:
    """Names what was selected and is no position: a typing error must not pass for "nothing to do"."""
    places = {position.topic_partition for position in wanted}
    topics = {place.topic for place in places}
    unknown = [f"topic {name}" for name in only.topics if name not in topics]
    unknown += [str(place) for place in only.partitions if place not in places]
    for name in unknown:
        yield PartitionFault(
            ConfigError,
            name,
            expected="a topic or partition that the pipeline has a position for, and has not retired",
            found="none",
            next_command="correct it: python -m kafka_ingest lag lists the partitions",
        )

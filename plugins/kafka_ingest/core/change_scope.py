"""The partitions that a change of offsets is about: each with its position and its log, or the fault of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_ingest.core.change_commands import change_command
from kafka_ingest.core.change_requests import Selection
from kafka_ingest.core.errors import (
    ClusterChanged,
    ConfigError,
    LeaderMissing,
    PartitionMissing,
    StopAndCall,
    TopicMissing,
    TopicRecreated,
)
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.log_identity_check import is_of_another_log
from kafka_ingest.core.log_state import LogSnapshot, PartitionState
from kafka_ingest.core.offsets import Position, TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.retired_topics import retired_topics
from kafka_ingest.core.settings import TopicIdentity


@dataclass(frozen=True, slots=True)
class Scope:
    """Partitions with known offsets, ordered by (topic, partition), and the faults of the others."""

    known: tuple[tuple[Position, PartitionState], ...]
    faults: tuple[PartitionFault, ...]


def change_scope(view: PlanView, snapshot: LogSnapshot, only: Selection, *, identity: TopicIdentity) -> Scope:
    """Finds the selected positions in the log; all but those of retired topics when nothing is selected."""
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
    """Gives the fault of a connection that leads to another cluster than the positions belong to."""
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
    """Gives the fault of a partition whose offsets Kafka does not tell."""
    return PartitionFault(
        LeaderMissing,
        str(place),
        expected="a leader that tells its offsets",
        found=state.fault or "no leader",
        next_command="bring its brokers back and ask again, or leave the partition out with --only",
    )


def missing_topic(topic: str, pipeline: str) -> PartitionFault:
    """Gives the fault of a topic that the ledger knows and that the pipeline's selection does not find."""
    return PartitionFault(
        TopicMissing,
        f"topic {topic}",
        expected="a topic of the cluster that kafka.topics or kafka.pattern selects",
        found="none",
        next_command=f"retire it: {change_command(pipeline, f'retire-topic {topic}')}; or leave it out with --only",
    )


def unknown_topic(topic: str, pipeline: str) -> PartitionFault:
    """Gives the fault of a topic that the ledger does not know."""
    return PartitionFault(
        ConfigError,
        f"topic {topic}",
        expected="a topic that the pipeline loads",
        found="none of that name in the ledger",
        next_command=f"correct the name: python -m kafka_ingest lag {pipeline} lists the topics",
    )


def retired_topic(topic: str, pipeline: str) -> PartitionFault:
    """Gives the fault of a retired topic, of which a change wants positions that are read."""
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

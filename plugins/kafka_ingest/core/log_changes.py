"""Changes that accept another log: a topic created again, another cluster, or the same log under another cluster id.

A retired topic that is read again may have become another log, too.

The positions of a topic in a new log become exactly the partitions of that log, in a new generation: it counts its
offsets from 0 again, and rows are told apart by generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kafka_ingest.core.change_requests import AcceptCluster, AcceptRecreation, LogChange, LogPlace, ReadTopicAgain
from kafka_ingest.core.change_scope import (
    missing_topic,
    other_cluster,
    retired_topic,
    unknown_topic,
    without_offsets,
)
from kafka_ingest.core.errors import ConfigError, TopicMissing, TopicRecreated
from kafka_ingest.core.ledger_view import PipelineRecord, PlanView
from kafka_ingest.core.log_identity_check import is_of_another_log
from kafka_ingest.core.log_state import LogSnapshot, PartitionState, TopicState
from kafka_ingest.core.offsets import Position, TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.position_changes import ChangePlan, PositionMove, SettingChange
from kafka_ingest.core.retired_topics import retired_topics
from kafka_ingest.core.settings import PipelineSettings, TopicIdentity


@dataclass(frozen=True, slots=True)
class _NewLog:
    """A topic's log that is accepted in place of another."""

    topic: TopicState
    cluster_id: str
    knows_topic_id: bool
    begin: LogPlace


def choose_log(
    change: LogChange, settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot, record: PipelineRecord
) -> ChangePlan:
    """Chooses the positions in the accepted log; nothing when the log is the known one.

    Args:
        change: What is asked for.
        settings: The pipeline.
        view: The ledger.
        snapshot: The log, asked after the ledger.
        record: What binds the pipeline.
    """
    if isinstance(change, AcceptRecreation):
        return _recreation(change, settings, view, snapshot, record)
    if isinstance(change, ReadTopicAgain):
        return _return(change.topic, settings, view, snapshot, record)
    if record.cluster_id == snapshot.cluster_id:
        return ChangePlan()
    topics = _topics(view)
    faults = [missing_topic(name, record.pipeline) for name in sorted(topics.keys() - snapshot.topics.keys())]
    faults += _served_by_others(view, snapshot, record)
    there = {name: positions for name, positions in topics.items() if name in snapshot.topics}
    if isinstance(change, AcceptCluster):
        found = [
            item
            for name, positions in there.items()
            for item in _new_generation(_new_log(name, settings, snapshot, change.begin), positions)
        ]
    else:
        found = [item for name, ps in there.items() for item in _same_log(ps, snapshot.topics[name], snapshot)]
    return ChangePlan(
        moves=tuple(item for item in found if isinstance(item, PositionMove)),
        binding=replace(record, cluster_id=snapshot.cluster_id),
        settings=(SettingChange("cluster id", record.cluster_id, snapshot.cluster_id),),
        faults=(*faults, *(item for item in found if isinstance(item, PartitionFault))),
    )


def _recreation(
    change: AcceptRecreation,
    settings: PipelineSettings,
    view: PlanView,
    snapshot: LogSnapshot,
    record: PipelineRecord,
) -> ChangePlan:
    if fault := other_cluster(view, snapshot):
        return ChangePlan(faults=(fault,))
    topics = _topics(view)
    wanted = change.topics or tuple(name for name in topics if name in snapshot.topics)
    retired = retired_topics(view)
    faults = [retired_topic(n, record.pipeline) for n in wanted if n in retired]
    unknown = (n for n in wanted if n not in retired and (n not in snapshot.topics or n not in topics))
    faults += [missing_topic(name, record.pipeline) for name in unknown]
    found = [
        item
        for name in sorted(set(wanted))
        if name in topics and name in snapshot.topics and _is_another(change, settings, topics[name], snapshot)
        for item in _new_generation(_new_log(name, settings, snapshot, change.begin), topics[name])
    ]
    return ChangePlan(
        moves=tuple(item for item in found if isinstance(item, PositionMove)),
        faults=(*faults, *(item for item in found if isinstance(item, PartitionFault))),
    )


def _return(
    topic: str, settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot, record: PipelineRecord
) -> ChangePlan:
    """Takes a retirement back; the positions become those of the log that is there now.

    A cluster may have been accepted meanwhile: its change left the positions of retired topics alone.
    """
    positions = [position for position in view.positions if position.topic == topic]
    fault = other_cluster(view, snapshot)
    if topic not in retired_topics(view):
        fault = fault if positions else unknown_topic(topic, record.pipeline)
        return ChangePlan(faults=(fault,) if fault else ())
    if fault or topic not in snapshot.topics:
        return ChangePlan(faults=(fault or _not_there(topic),))
    found = list(_continued(positions, settings, snapshot, topic))
    return ChangePlan(
        moves=tuple(item for item in found if isinstance(item, PositionMove)),
        topic_read_again=topic,
        settings=(SettingChange(f"topic {topic}", "retired", "read"),),
        faults=tuple(item for item in found if isinstance(item, PartitionFault)),
    )


def _continued(
    positions: list[Position], settings: PipelineSettings, snapshot: LogSnapshot, topic: str
) -> Iterator[PositionMove | PartitionFault]:
    """Yields what the positions of a topic need, to go on in the log that is there; nothing where they fit it."""
    log = snapshot.topics[topic]
    has_ids = settings.batch.topic_identity is TopicIdentity.TOPIC_ID and any(p.topic_id for p in positions)
    is_elsewhere = any(position.cluster_id != snapshot.cluster_id for position in positions)
    is_another = any(is_of_another_log(position, log) for position in positions) if has_ids else is_elsewhere
    if is_another:
        yield from _new_generation(_new_log(topic, settings, snapshot, LogPlace.EARLIEST), positions)
    elif is_elsewhere:
        yield from _same_log(positions, log, snapshot)


def _not_there(topic: str) -> PartitionFault:
    return PartitionFault(
        TopicMissing,
        f"topic {topic}",
        expected="a topic of the cluster that kafka.topics or kafka.pattern selects",
        found="none",
        next_command="create the topic, or add it to the pipeline file, then ask again",
    )


def _is_another(
    change: AcceptRecreation, settings: PipelineSettings, positions: list[Position], snapshot: LogSnapshot
) -> bool:
    """Whether the log is another than that of the positions. Where no topic id is stored only the operator can know."""
    name = positions[0].topic
    has_ids = any(position.topic_id for position in positions)
    if settings.batch.topic_identity is TopicIdentity.NONE or not has_ids:
        return name in change.topics
    return any(is_of_another_log(position, snapshot.topics[name]) for position in positions)


def _topics(view: PlanView) -> Mapping[str, list[Position]]:
    """Gives the positions by topic, without retired topics."""
    retired = retired_topics(view)
    topics: dict[str, list[Position]] = {}
    for position in view.positions:
        if position.topic not in retired:
            topics.setdefault(position.topic, []).append(position)
    return topics


def _new_log(topic: str, settings: PipelineSettings, snapshot: LogSnapshot, begin: LogPlace) -> _NewLog:
    knows_topic_id = settings.batch.topic_identity is TopicIdentity.TOPIC_ID
    return _NewLog(snapshot.topics[topic], snapshot.cluster_id, knows_topic_id, begin)


def _new_generation(log: _NewLog, positions: Iterable[Position]) -> Iterator[PositionMove | PartitionFault]:
    former = {position.partition: position for position in positions}
    generation = max(position.generation for position in former.values()) + 1
    for number in sorted(former.keys() | log.topic.partitions.keys()):
        before, state = former.get(number), log.topic.partitions.get(number)
        if state is None:
            yield PositionMove(before, None)
        elif state.end_offset is None:
            yield without_offsets(TopicPartition(log.topic.topic, number), state)
        else:
            yield _begun(log, before, state, generation)


def _begun(log: _NewLog, before: Position | None, state: PartitionState, generation: int) -> PositionMove:
    log_start = state.log_start_offset or 0
    start = log_start if log.begin is LogPlace.EARLIEST else max(log_start, state.end_offset or 0)
    after = Position(
        topic=log.topic.topic,
        partition=state.partition,
        generation=generation,
        topic_id=log.topic.topic_id if log.knows_topic_id else None,
        cluster_id=log.cluster_id,
        committed_offset=start,
        loaded_to=start,
    )
    return PositionMove(before, after, given_up=(log_start, start) if start > log_start else None)


def _same_log(
    positions: list[Position], topic: TopicState, snapshot: LogSnapshot
) -> Iterator[PositionMove | PartitionFault]:
    known_id = next((position.topic_id for position in positions if position.topic_id), None)
    if known_id is None or any(is_of_another_log(position, topic) for position in positions):
        yield PartitionFault(
            TopicRecreated,
            f"topic {topic.topic}",
            expected=f"topic id {known_id}" if known_id else "a topic id in the ledger, by which the log can be known",
            found=f"topic id {topic.topic_id}",
            next_command="it is not shown to be the same log: accept the cluster with accept-cluster",
        )
        return
    yield from (PositionMove(position, replace(position, cluster_id=snapshot.cluster_id)) for position in positions)


def _served_by_others(view: PlanView, snapshot: LogSnapshot, record: PipelineRecord) -> Iterator[PartitionFault]:
    topics = _topics(view)
    for served in view.served:
        is_same_log = served.cluster_id == snapshot.cluster_id and served.topic in topics
        if is_same_log and served.pipeline != record.pipeline:
            yield served_elsewhere(served.topic, record, served.pipeline)


def served_elsewhere(topic: str, record: PipelineRecord, other: str) -> PartitionFault:
    """Gives the fault of a topic that another pipeline loads into the same table."""
    return PartitionFault(
        ConfigError,
        f"topic {topic} into {record.target_schema}.{record.target_table}",
        expected=f"one pipeline, which is {other}",
        found=f"a second one, {record.pipeline}: every record would be loaded twice",
        next_command="remove the topic from one of the two pipeline files, or give it another table",
    )

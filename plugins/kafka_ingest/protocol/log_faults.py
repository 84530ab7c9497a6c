"""The comparison of a log with the positions that the ledger holds, and one table of what to do about a difference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from kafka_ingest.errors import (
    BrokerUnavailable,
    ClusterChanged,
    ConfigError,
    IngestError,
    LeaderMissing,
    LogTruncated,
    OffsetsExpired,
    PartitionFault,
    PartitionMissing,
    StopAndCall,
    TopicMissing,
    TopicRecreated,
    change_command,
)
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.ledger_view import PlanView, PositionMove, retired_topics
from kafka_ingest.protocol.log import LogIdentity, LogSnapshot, PartitionState, TopicState
from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.settings import PipelineSettings, TopicIdentity

# ----------
# The kinds of difference, what a log is compared for, and the texts of both.


class LogFault(Enum):
    """How a log can differ from what the ledger holds, each with its error, and what is expected and found.

    The texts are templates of the values of a :class:`Difference`, and so are those of the table below.
    """

    CLUSTER_CHANGED = ClusterChanged, "cluster id {held}, which the committed offsets belong to", "cluster id {there}"
    TOPIC_MISSING = TopicMissing, "an existing topic; reading never creates one", "no such topic in the cluster"
    TOPIC_RECREATED = TopicRecreated, "topic id {held}, which the committed offsets {offsets} belong to", "{there}"
    PARTITION_MISSING = (
        PartitionMissing,
        "a partition with committed offset {held}",
        "metadata that lists {there} partitions without it",
    )
    LEADER_MISSING = LeaderMissing, "a leader that tells its offsets", "{there}"
    OFFSETS_EXPIRED = (
        OffsetsExpired,
        "a log that still holds {held}",
        "log start offset {there}: {gone} offsets were deleted before they were read",
    )
    LOG_TRUNCATED = (
        LogTruncated,
        "a high watermark at or above the committed offset {held}",
        "high watermark {there}: the log lost {gone} offsets",
    )

    def __init__(self, error: type[StopAndCall], expected: str, found: str) -> None:
        self.error = error
        self.expected = expected
        self.found = found


class Purpose(Enum):
    """What a log is compared for; it decides what a person can do about a difference."""

    BEGIN = auto()  # a plan begins to read a topic
    PLAN = auto()  # a plan goes on where positions stand
    READ = auto()  # a task reads its split
    PUBLISH = auto()  # a batch was read and is about to be published
    CHANGE = auto()  # a person moves positions, or accepts another log
    SAME_LOG = auto()  # a person says that it is the same log under another cluster id
    READ_AGAIN = auto()  # a person lets a retired topic be read again
    ROLL_BACK = auto()  # what is deleted must come again from the log


@dataclass(frozen=True, slots=True)
class _Row:
    """What to do about a kind, and its wording where that of the kind would be wrong."""

    next_command: str
    expected: str = ""
    found: str = ""
    what: str = "{where}"
    error: type[IngestError] | None = None


_CREATE = "create the topic or correct kafka.topics in the pipeline file"
_FORMER_CLUSTER = "point the connection at the former cluster"
_ACCEPT_CLUSTER = f"{_FORMER_CLUSTER}; or {change_command('{pipeline}', 'accept-cluster')}; {{runbook}}"
_LEAVE_OUT = "{runbook}; or leave it out (--only, if it takes that)"
_RETIRE = f"if it is gone for good: {change_command('{pipeline}', 'retire-topic {topic}')}"
_SELECTED = "a topic of the cluster that kafka.topics or kafka.pattern selects"
_LOOK = 'run "python -m kafka_ingest lag" to see what the log holds'
_SEE_PLAN = 'run "python -m kafka_ingest plan --dry-run" to see what exists'
_NO_WAY_BACK = _Row("none: these batches belong to another log and can no longer be rolled back")
_NOT_THERE = _Row(_SEE_PLAN, "the topic and partition that were planned", "{there}", "{where} does not exist any more")

#: By kind and purpose; a combination that is not here cannot come about.
_TABLE: Mapping[LogFault, Mapping[Purpose, _Row]] = {
    LogFault.CLUSTER_CHANGED: {
        Purpose.PLAN: _Row(_ACCEPT_CLUSTER),
        Purpose.PUBLISH: _Row(
            _ACCEPT_CLUSTER, what="another Kafka cluster answered than the one that was planned; nothing was published"
        ),
        Purpose.CHANGE: _Row(_ACCEPT_CLUSTER),
        Purpose.ROLL_BACK: _Row(_FORMER_CLUSTER),
    },
    LogFault.TOPIC_MISSING: {
        Purpose.BEGIN: _Row(_CREATE),
        Purpose.PLAN: _Row(f"{_CREATE}; {_RETIRE}"),
        Purpose.READ: _NOT_THERE,
        Purpose.CHANGE: _Row(f"{_RETIRE}; {_LEAVE_OUT}", _SELECTED, "none"),
        Purpose.READ_AGAIN: _Row(f"{_CREATE}, then ask again", _SELECTED, "none"),
        Purpose.ROLL_BACK: _NO_WAY_BACK,
    },
    LogFault.TOPIC_RECREATED: {
        Purpose.PLAN: _Row(f"{change_command('{pipeline}', 'accept-recreation {topic}')}; {{runbook}}"),
        Purpose.PUBLISH: _Row(
            f"{change_command('{pipeline}', 'accept-recreation')}; {{runbook}}",
            "{held}",
            "{there}",
            "a topic was deleted or created again while the batch was read; nothing was published",
        ),
        Purpose.CHANGE: _Row(_LEAVE_OUT),
        Purpose.SAME_LOG: _Row(
            "it is not shown to be the same log: accept the cluster with accept-cluster", "{held}", "topic id {there}"
        ),
        Purpose.ROLL_BACK: _NO_WAY_BACK,
    },
    LogFault.PARTITION_MISSING: {
        Purpose.PLAN: _Row("clear the failed task once all brokers are up; {runbook}"),
        Purpose.READ: _NOT_THERE,
        Purpose.CHANGE: _Row(_LEAVE_OUT),
        Purpose.ROLL_BACK: _NO_WAY_BACK,
    },
    LogFault.LEADER_MISSING: {
        Purpose.PLAN: _Row("bring its brokers back, then clear the failed task; {runbook}"),
        Purpose.READ: _Row(
            "bring its brokers back; the task tries again",
            what="{where} cannot be read at offset {first}",
            error=BrokerUnavailable,
        ),
        Purpose.CHANGE: _Row("bring its brokers back and ask again, or leave it out (--only, if it takes that)"),
        Purpose.ROLL_BACK: _Row("bring its brokers back, then roll back again"),
    },
    LogFault.OFFSETS_EXPIRED: {
        Purpose.PLAN: _Row(f"{change_command('{pipeline}', 'accept-loss')}; {{runbook}}"),
        Purpose.READ: _Row(
            f"{_LOOK}; {change_command('{pipeline}', 'accept-loss --supersede')}; {{runbook}}",
            what="{where} no longer holds offset {first}: it was deleted while the batch was loaded",
        ),
        Purpose.ROLL_BACK: _Row(
            "roll back fewer batches; what the log has lost exists only in the table",
            "a log that still holds offset {first}",
            "log start offset {there}: {gone} offsets could not be read again",
        ),
    },
    LogFault.LOG_TRUNCATED: {
        Purpose.PLAN: _Row(f"first {{runbook}}; then {change_command('{pipeline}', 'reset --to latest')}"),
        Purpose.READ: _Row(
            f"{_LOOK}; {{runbook}}; then {change_command('{pipeline}', 'reset --to latest --supersede')}",
            "{held}",
            "{there}",
            "{where} is not the log that was read before",
        ),
        Purpose.ROLL_BACK: _NO_WAY_BACK,
    },
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference that matters; ``values`` are what its texts name: what the ledger ``held``, what is ``there``."""

    kind: LogFault
    where: str
    values: Mapping[str, object]

    def fault(self, purpose: Purpose, pipeline: str, *, can_be_left_out: bool = False) -> PartitionFault:
        """Return it as one of the faults that are listed together."""
        _, expected, found, then = self._texts(purpose, pipeline)
        error = self.kind.error
        return PartitionFault(error, self.where, expected, found, then, can_be_left_out=can_be_left_out)

    def error(self, purpose: Purpose, *, pipeline: str | None = None, batch_id: str | None = None) -> IngestError:
        """Return it as an error of its own."""
        what, expected, found, then = self._texts(purpose, pipeline or "PIPELINE")
        error = _TABLE[self.kind][purpose].error or self.kind.error
        return error(what, expected=expected, found=found, next_command=then, pipeline=pipeline, batch_id=batch_id)

    def _texts(self, purpose: Purpose, pipeline: str) -> Iterator[str]:
        row = _TABLE[self.kind][purpose]
        runbook = f"see docs/runbook.md, section {self.kind.error.__name__}"
        values = {**self.values, "where": self.where, "pipeline": pipeline, "runbook": runbook}
        for template in (row.what, row.expected or self.kind.expected, row.found or self.kind.found, row.next_command):
            yield template.format_map(values)


# ----------
# The comparison, from the whole to the part: cluster, topic, partition, leader, offsets.


def other_cluster(held: str, found: str) -> Difference | None:
    """Compare cluster ids: another cluster's topics say nothing about the positions."""
    if held == found:
        return None
    return Difference(LogFault.CLUSTER_CHANGED, "the Kafka connection", {"held": held, "there": found})


def missing_topic(topic: str, *, there: str = "") -> Difference:
    """Return the difference of a topic that is not there; ``there`` are the broker's own words."""
    return Difference(LogFault.TOPIC_MISSING, f"topic {topic}", {"topic": topic, "there": there})


def is_of_another_log(position: Position, topic: TopicState) -> bool:
    """Whether a position belongs to another topic of the same name, by its id; one without an id fits any."""
    return position.topic_id not in (None, topic.topic_id)


def other_topic(positions: Sequence[Position], topic: TopicState, identity: TopicIdentity) -> Difference | None:
    """Compare a topic's id with those of positions in it; any one of them is enough to see a re-creation."""
    others = [position for position in positions if is_of_another_log(position, topic)]
    if not others or identity is TopicIdentity.NONE:
        return None
    offsets = ", ".join(f"[{position.partition}] {position.committed_offset}" for position in positions)
    there = f"topic id {topic.topic_id}: the topic was deleted and created again"
    values = {"topic": topic.topic, "held": others[-1].topic_id, "offsets": offsets}
    values["there"] = there if topic.topic_id else "a broker that tells none"
    return Difference(LogFault.TOPIC_RECREATED, f"topic {topic.topic}", values)


def by_topic(positions: Iterable[Position]) -> dict[str, list[Position]]:
    """Return the positions of each topic, in their order."""
    topics: dict[str, list[Position]] = {}
    for position in positions:
        topics.setdefault(position.topic, []).append(position)
    return topics


def missing_partition(position: Position, topic: TopicState) -> Difference | None:
    """Compare a position with the partitions that metadata lists."""
    if position.partition in topic.partitions:
        return None
    values = {"held": position.committed_offset, "there": len(topic.partitions)}
    return Difference(LogFault.PARTITION_MISSING, str(position.topic_partition), values)


def missing_leader(place: TopicPartition, state: PartitionState) -> Difference | None:
    """Return the difference of a partition whose offsets Kafka does not tell."""
    if state.has_leader and state.end_offset is not None:
        return None
    return Difference(LogFault.LEADER_MISSING, str(place), {"there": state.fault or "no leader"})


def lost_offsets(place: TopicPartition, state: PartitionState, first: int, last: int) -> Difference | None:
    """Compare the offsets ``[first, last)`` with those that the log holds; of a position they are the same."""
    log_start, high_watermark = state.log_start_offset or 0, state.high_watermark or 0
    if first < log_start:
        held = f"the committed offset {first}" if first == last else f"offsets {first} to {last}"
        values = {"first": first, "held": held, "there": log_start, "gone": log_start - first}
        return Difference(LogFault.OFFSETS_EXPIRED, str(place), values)
    if last > high_watermark:
        values = {"held": last, "there": high_watermark, "gone": last - high_watermark}
        return Difference(LogFault.LOG_TRUNCATED, str(place), values)
    return None


def compare(
    position: Position, snapshot: LogSnapshot, identity: TopicIdentity, *, first: int | None = None
) -> Difference | None:
    """Compare a position with the log, from the whole to the part; the first difference hides those behind it.

    Args:
        position: Where the pipeline stands.
        snapshot: The log.
        identity: Whether topic ids must be equal.
        first: The lowest offset that the log must still hold, with all up to the position; ``None`` where the position
            is to move, wherever it stands.
    """
    if found := other_cluster(position.cluster_id, snapshot.cluster_id):
        return found
    place, topic = position.topic_partition, snapshot.topics.get(position.topic)
    if topic is None:
        return replace(missing_topic(position.topic), where=str(place))
    if found := other_topic([position], topic, identity):
        return replace(found, where=str(place))
    if found := missing_partition(position, topic):
        return found
    state = topic.partitions[position.partition]
    found = missing_leader(place, state)
    if found is None and first is not None:
        found = lost_offsets(place, state, first, position.committed_offset)
    return found


# ----------
# The log before a batch is published. Ids are compared once more, because a consumer that reads while its topic is
# deleted and created again notices nothing (measured on Kafka 4.2).


def require_same_log(batch: Batch, identity: LogIdentity) -> None:
    """Compare cluster id and topic ids with those frozen in the batch.

    Raises:
        ClusterChanged: Another cluster answers.
        TopicRecreated: A topic is gone or has another id; every one is listed.
    """
    found = other_cluster(batch.cluster_id, identity.cluster_id) or _other_topics(batch, identity)
    if found:
        raise found.error(Purpose.PUBLISH, pipeline=batch.pipeline, batch_id=batch.batch_id)


def _other_topics(batch: Batch, identity: LogIdentity) -> Difference | None:
    """Compare exactly: what was planned without a topic id fits no topic that has one."""
    if batch.settings.topic_identity is TopicIdentity.NONE:
        return None
    planned = {r.topic: r.topic_id for r in batch.ranges}
    changed = sorted(topic for topic in planned if identity.topic_ids.get(topic) != planned[topic])
    if not changed:
        return None
    ids = {topic: f"topic id {topic_id}" for topic, topic_id in identity.topic_ids.items()}
    held = "; ".join(f"{topic}: topic id {planned[topic]}" for topic in changed)
    there = "; ".join(f"{topic}: {ids.get(topic, 'no such topic')}" for topic in changed)
    return Difference(LogFault.TOPIC_RECREATED, "", {"held": held, "there": there})


# ----------
# The log before anything is planned: all faults of the positions and of what the pipeline file selects.


def snapshot_faults(settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot) -> Iterator[PartitionFault]:
    """Yield faults of the cluster, of whole topics, and of partitions that the log no longer lists."""
    if fault := cluster_fault(view, snapshot, Purpose.PLAN):
        yield fault
        return
    yield from _missing_topics(settings, view, snapshot)
    yield from _forbidden_topics(settings, snapshot)
    yield from served_elsewhere(
        view,
        snapshot.topics,
        pipeline=settings.pipeline,
        cluster_id=snapshot.cluster_id,
        target=str(settings.batch.target),
    )
    yield from shared_upsert_table(view, settings)
    yield from _identity_faults(settings, view, snapshot)
    for position in view.positions:
        topic = snapshot.topics.get(position.topic)
        if topic is not None and (found := missing_partition(position, topic)):
            yield found.fault(Purpose.PLAN, settings.pipeline)


def cluster_fault(view: PlanView, snapshot: LogSnapshot, purpose: Purpose) -> PartitionFault | None:
    """Return the fault of a connection that leads to another cluster than the pipeline is bound to."""
    record = view.pipeline
    found = other_cluster(record.cluster_id, snapshot.cluster_id) if record else None
    return found.fault(purpose, record.pipeline) if record and found else None


def adopted_ids(identity: TopicIdentity, view: PlanView, snapshot: LogSnapshot) -> tuple[PositionMove, ...]:
    """Choose the positions that take over the broker's topic id: those that were planned under ``none``.

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


def _missing_topics(settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot) -> Iterator[PartitionFault]:
    selection, retired = settings.plan.topics, retired_topics(view)
    wanted = set(selection.names) - retired
    if selection.pattern is not None:
        # A topic that once matched and was read must still be there; the selection of names can be edited by its owner.
        wanted |= {s.topic for s in view.served if s.pipeline == settings.pipeline and not s.is_retired}
    known = {position.topic for position in view.positions}
    for topic in sorted(wanted - set(snapshot.topics)):
        yield missing_topic(topic).fault(Purpose.PLAN if topic in known else Purpose.BEGIN, settings.pipeline)
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
    return grant("Read", f"--topic {topic}", connection)


def grant(operation: str, resource: str, connection: str) -> str:
    """Return the command that grants the connection's user a right, in the spelling of Kafka's own tool.

    Args:
        operation: Such as ``Read``, which brings ``Describe``, or ``DescribeConfigs``.
        resource: Option of the tool that names it: ``--topic NAME`` or ``--group NAME``.
        connection: Id of the Airflow connection.
    """
    return (
        f"kafka-acls.sh --bootstrap-server BROKER --add --allow-principal User:NAME --operation {operation} {resource}"
        f", NAME being the user of the Airflow connection {connection}"
    )


def served_elsewhere(
    view: PlanView, topics: Collection[str], *, pipeline: str, cluster_id: str, target: str
) -> Iterator[PartitionFault]:
    """Yield a fault for each of the topics that another pipeline loads from the same cluster into the same table."""
    for served in view.served:
        is_same_log = served.cluster_id == cluster_id and served.topic in topics
        if is_same_log and served.pipeline != pipeline:
            renamed = f"; if the pipeline was renamed: {change_command(pipeline, f'rename --from {served.pipeline}')}"
            yield PartitionFault(
                ConfigError,
                f"topic {served.topic} into {target}",
                expected=f"one pipeline, which is {served.pipeline}",
                found=f"a second one, {pipeline}: every record would be loaded twice",
                next_command="remove the topic from one of the two pipeline files, or give it another table"
                + ("" if view.pipeline else renamed),
            )


def shared_upsert_table(view: PlanView, settings: PipelineSettings) -> Iterator[PartitionFault]:
    """Yield a fault for each other pipeline of the table, where it or this one holds the current state in it.

    The other's rows would have no key, or versions of other topics, which nothing compares; so any topic counts.
    """
    others = {s.pipeline: s.is_upsert for s in view.served if s.pipeline != settings.pipeline and not s.is_retired}
    for other, is_upsert in sorted(others.items()):
        if not (is_upsert or settings.batch.upsert):
            continue
        renamed = f"; if the pipeline was renamed: {change_command(settings.pipeline, f'rename --from {other}')}"
        holder = other if is_upsert else settings.pipeline
        yield PartitionFault(
            ConfigError,
            f"table {settings.batch.target}",
            expected=f"one pipeline in all, which is {other}: {holder} holds the current state in it (mode: upsert)",
            found=f"a second one, {settings.pipeline}",
            next_command="name another table under target.table, or retire every topic of the other pipeline"
            + ("" if view.pipeline else renamed),
        )


def _identity_faults(settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot) -> Iterator[PartitionFault]:
    identity, positions = settings.batch.topic_identity, by_topic(view.positions)
    for name, topic in sorted(snapshot.topics.items()) if identity is TopicIdentity.TOPIC_ID else ():
        if topic.topic_id is None:
            yield PartitionFault(
                ConfigError,
                f"topic {name}",
                expected="a topic id, which tells a re-created topic from the one that was read",
                found="a broker that tells none",
                next_command="upgrade the brokers (Kafka 2.8 or later), or set kafka.topic_identity: none",
                topic=name,
            )
        elif found := other_topic(positions.get(name, ()), topic, identity):
            yield replace(found.fault(Purpose.PLAN, settings.pipeline), topic=name)

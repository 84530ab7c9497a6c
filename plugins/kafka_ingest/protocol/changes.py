"""Changes of positions: choose what each kind would do, then make it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kafka_ingest.errors import ConfigError, TargetMismatch, TopicMissing, TopicRecreated, change_command
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.change_requests import (
    AcceptCluster,
    AcceptLoss,
    AcceptRecreation,
    Change,
    ChangeIdentityColumns,
    ChangeIsolationLevel,
    ChangeRequest,
    ChangeTarget,
    ChangeView,
    LogChange,
    LogPlace,
    NewChange,
    OffsetChange,
    PipelineChange,
    ReadTopicAgain,
    ResetBy,
    ResetToOffsets,
    ResetToPlace,
    ResetToTime,
    RetireTopic,
    Selection,
    SkipLag,
    recorded_before,
)
from kafka_ingest.protocol.ledger_view import (
    ChangePlan,
    PipelineRecord,
    PlanView,
    PositionMove,
    RecordedChange,
    SettingChange,
    moved,
    retired_topics,
    until_it_stands,
)
from kafka_ingest.protocol.log import LogSnapshot, PartitionState, TimedOffset, TopicState
from kafka_ingest.protocol.log_faults import (
    change_scope,
    is_of_another_log,
    missing_topic,
    other_cluster,
    retired_topic,
    unknown_topic,
    without_offsets,
)
from kafka_ingest.protocol.plan import batch_to_supersede, require_bound_settings
from kafka_ingest.protocol.ports import Log, PositionLedger
from kafka_ingest.protocol.position import PartitionFault, Position, TopicPartition, fault_error
from kafka_ingest.protocol.staging import quoted, quoted_table, rename_column, written_columns
from kafka_ingest.settings import BatchSettings, IdentityColumns, PipelineSettings, TopicIdentity

# ----------
# Changes that move positions within their log: resets, lag skipped, loss accepted.
#
# A position that goes forwards stays in its timeline, and what it passes over is given up. One that goes backwards
# begins the next timeline: ``loaded_to`` stays, so the next run replaces what lies below it.


def selection_of(change: OffsetChange) -> Selection:
    """Return the partitions that a change of offsets is about."""
    if isinstance(change, ResetToOffsets):
        return Selection(partitions=tuple(TopicPartition(o.topic, o.partition) for o in change.offsets))
    return change.only


def choose_offsets(
    change: OffsetChange,
    view: PlanView,
    snapshot: LogSnapshot,
    offsets_at: Mapping[TopicPartition, TimedOffset],
    *,
    identity: TopicIdentity,
) -> ChangePlan:
    """Chooses where the selected positions go; those that stand there already are left out.

    A listed offset is taken at its word: where the position is there already it only forgets the leader epoch, so that
    an operator who knows that the position is right after a truncation can go on from it.

    Args:
        change: What is asked for.
        view: The ledger.
        snapshot: The log, asked after the ledger.
        offsets_at: Of a reset to a time: the first offset at or after it, by partition.
        identity: Whether topic ids must be those of the positions.
    """
    scope = change_scope(view, snapshot, selection_of(change), identity=identity)
    faults = list(scope.faults)
    moves: list[PositionMove] = []
    for position, state in scope.known:
        to = _new_offset(change, position, state, offsets_at)
        if isinstance(to, PartitionFault):
            faults.append(to)
        elif to != position.committed_offset or _forgets_epoch(change, position):
            moves.append(moved(position, to))
    return ChangePlan(moves=tuple(moves), faults=tuple(faults))


def _forgets_epoch(change: OffsetChange, position: Position) -> bool:
    return isinstance(change, ResetToOffsets) and position.leader_epoch is not None


def _new_offset(
    change: OffsetChange, position: Position, state: PartitionState, offsets_at: Mapping[TopicPartition, TimedOffset]
) -> int | PartitionFault:
    committed, log_start, latest = position.committed_offset, state.log_start_offset or 0, _latest(position, state)
    match change:
        case ResetToPlace():
            return log_start if change.to is LogPlace.EARLIEST else latest
        case ResetToTime():
            return _within(log_start, offsets_at[position.topic_partition].offset, latest)
        case ResetToOffsets():
            return _listed(change, position, state)
        case ResetBy():
            return _within(log_start, committed + change.offsets, latest)
        case SkipLag():
            return max(committed, _within(log_start, latest - change.keep_offsets, latest))
        case AcceptLoss():
            is_lost = committed < log_start
            return _within(log_start, log_start + change.margin_offsets, latest) if is_lost else committed


def _latest(position: Position, state: PartitionState) -> int:
    """Return the end offset, or the position, where an open transaction that began before it holds the end back."""
    log_start, end, high_watermark = state.log_start_offset or 0, state.end_offset or 0, state.high_watermark or 0
    is_in_log = log_start <= position.committed_offset <= high_watermark
    return max(log_start, end, position.committed_offset if is_in_log else 0)


def _within(low: int, offset: int, high: int) -> int:
    return min(max(low, offset), high)


def _listed(change: ResetToOffsets, position: Position, state: PartitionState) -> int | PartitionFault:
    place, low, high = position.topic_partition, state.log_start_offset or 0, state.high_watermark or 0
    listed = sorted({o.offset for o in change.offsets if (o.topic, o.partition) == (place.topic, place.partition)})
    if len(listed) == 1 and low <= listed[0] <= high:
        return listed[0]
    return PartitionFault(
        ConfigError,
        str(place),
        expected=f"one offset from {low} (log start) to {high} (high watermark)",
        found=", ".join(map(str, listed)),
        next_command="ask for an offset that the log holds",
    )


# ----------
# Changes that accept another log: a topic created again, another cluster, or the same log under another cluster id.
#
# A retired topic that is read again may have become another log, too.
#
# The positions of a topic in a new log become exactly the partitions of that log, in a new generation: it counts its
# offsets from 0 again, and rows are told apart by generation.


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
    """Take a retirement back; the positions become those of the log that is there now.

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
    """Yield what the positions of a topic need, to go on in the log that is there; nothing where they fit it."""
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
    """Return the positions by topic, without retired topics."""
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
    """Return the fault of a topic that another pipeline loads into the same table."""
    return PartitionFault(
        ConfigError,
        f"topic {topic} into {record.target_schema}.{record.target_table}",
        expected=f"one pipeline, which is {other}",
        found=f"a second one, {record.pipeline}: every record would be loaded twice",
        next_command="remove the topic from one of the two pipeline files, or give it another table",
    )


# ----------
# Changes of what binds a pipeline: name, topics, table, identity columns, isolation level. Positions stay.
#
# Table, columns and isolation level are what the pipeline file says: the file is changed first, and its runs stop until
# the ledger follows. So the file and the ledger never say different things. Columns are renamed in the table before
# that: rows that stand under a former name would never be found again, and a reload would write them a second time.


def choose_binding(
    change: PipelineChange, settings: PipelineSettings, view: ChangeView, record: PipelineRecord
) -> ChangePlan:
    """Chooses what binds the pipeline from now on; nothing when it is bound so already.

    Args:
        change: What is asked for.
        settings: The pipeline as its file says.
        view: The ledger.
        record: What binds the pipeline now.
    """
    if isinstance(change, RetireTopic):
        return _retirement(change, view.ledger, record)
    if isinstance(change, ChangeTarget):
        return _target(settings, view, record)
    if isinstance(change, ChangeIdentityColumns):
        return _identity_columns(settings, view, record)
    if isinstance(change, ChangeIsolationLevel):
        return _bound(record, replace(record, isolation_level=settings.batch.isolation_level))
    return _renaming(settings, view, record)


def _bound(record: PipelineRecord, after: PipelineRecord) -> ChangePlan:
    if after == record:
        return ChangePlan()
    described = {
        "pipeline": (record.pipeline, after.pipeline),
        "target": (f"{record.target_schema}.{record.target_table}", f"{after.target_schema}.{after.target_table}"),
        "isolation level": (record.isolation_level.value, after.isolation_level.value),
    }
    differing = {name: values for name, values in described.items() if values[0] != values[1]}
    differing |= {f"column of {key}": names for key, names in record.identity.differing(after.identity).items()}
    return ChangePlan(binding=after, settings=tuple(SettingChange(name, *v) for name, v in differing.items()))


def _retirement(change: RetireTopic, view: PlanView, record: PipelineRecord) -> ChangePlan:
    if change.topic in retired_topics(view):
        return ChangePlan()
    is_served = any(
        (s.pipeline, s.cluster_id, s.topic) == (record.pipeline, record.cluster_id, change.topic) for s in view.served
    )
    if is_served:
        return ChangePlan(
            retired_topic=change.topic, settings=(SettingChange(f"topic {change.topic}", "read", "retired"),)
        )
    return ChangePlan(faults=(unknown_topic(change.topic, record.pipeline),))


def _target(settings: PipelineSettings, view: ChangeView, record: PipelineRecord) -> ChangePlan:
    target = settings.batch.target
    after = replace(record, target_schema=target.schema, target_table=target.table)
    if after == record:
        return ChangePlan()
    after = replace(after, identity=settings.batch.metadata.identity)
    columns = _column_faults(record.identity, settings.batch, view.target_columns)
    return replace(_bound(record, after), faults=(*_other_pipelines(view.ledger, after), *columns))


def _identity_columns(settings: PipelineSettings, view: ChangeView, record: PipelineRecord) -> ChangePlan:
    target = settings.batch.target
    plan = _bound(record, replace(record, identity=settings.batch.metadata.identity))
    if plan.binding is None:
        return plan
    if (target.schema, target.table) == (record.target_schema, record.target_table):
        return replace(plan, faults=tuple(_column_faults(record.identity, settings.batch, view.target_columns)))
    fault = PartitionFault(
        ConfigError,
        "target.table",
        expected=f"{record.target_schema}.{record.target_table}, in which the columns were renamed",
        found=str(target),
        next_command=f"restore it, or bind both: {change_command(settings.pipeline, 'change-target')}",
    )
    return replace(plan, faults=(fault,))


def _column_faults(
    before: IdentityColumns, settings: BatchSettings, columns: Mapping[str, str] | None
) -> Iterator[PartitionFault]:
    """Yield one fault where identity columns still have their former names; a table that is not there has no rows."""
    target, renamed = settings.target, before.differing(settings.metadata.identity)
    types = {column.name: column.type for column in written_columns(settings)}
    wrong: dict[str, str] = {}
    for old, new in renamed.values() if columns is not None else ():
        found = (columns or {}).get(new)
        if old in (columns or {}):
            drop = f"drop the empty {new}: ALTER TABLE {quoted_table(target)} DROP COLUMN {quoted(new)}; then "
            wrong[f"{old} is still there"] = (drop if found else "") + rename_column(target, old, new)
        elif found is None:
            wrong[f"neither {old} nor {new}"] = f"restore {old}, then {rename_column(target, old, new)}"
        elif not _keeps(found, types[new]):
            wrong[f"{new} is {found}, not {types[new]}"] = f"name the column that was {old} in the pipeline file"
    if wrong:
        yield PartitionFault(
            TargetMismatch,
            f"table {target}",
            expected=f"columns that were renamed: {', '.join(f'{old} to {new}' for old, new in renamed.values())}",
            found="; ".join(wrong),
            next_command=" ".join(wrong.values()),
        )


def _keeps(found: str, written: str) -> bool:
    """Whether a renamed column can be the one that the pipeline writes; the plan compares all types exactly."""
    integers = ("integer", "bigint")
    if written in integers:
        return found in integers[integers.index(written) :]
    return found not in ("smallint", *integers)


def _other_pipelines(view: PlanView, after: PipelineRecord) -> Iterator[PartitionFault]:
    topics = {position.topic for position in view.positions}
    for served in view.served:
        is_same_log = served.cluster_id == after.cluster_id and served.topic in topics
        if is_same_log and served.pipeline != after.pipeline:
            yield served_elsewhere(served.topic, after, served.pipeline)


def _renaming(settings: PipelineSettings, view: ChangeView, record: PipelineRecord) -> ChangePlan:
    plan = _bound(record, replace(record, pipeline=settings.pipeline))
    if plan.binding is None or not view.name_is_taken:
        return plan
    fault = PartitionFault(
        ConfigError,
        f"the new name {settings.pipeline}",
        expected="a name that the ledger does not know",
        found="a pipeline of that name, with positions of its own",
        next_command="choose another name in the pipeline file",
    )
    return replace(plan, faults=(fault,))


# ----------
# Choosing what a position change does: a pure function of ledger, log, settings and request.


def needs_log(change: Change) -> bool:
    """Whether Kafka must be asked; the others can be made while it is away."""
    return not isinstance(change, PipelineChange)


def needs_table(change: Change) -> bool:
    """Whether the target table must be looked at."""
    return isinstance(change, ChangeTarget | ChangeIdentityColumns)


def partitions_to_time(
    settings: PipelineSettings, request: ChangeRequest, view: ChangeView, snapshot: LogSnapshot
) -> list[TopicPartition]:
    """Return the partitions whose offsets for a time must be asked for: those of a reset to a time."""
    if not isinstance(request.change, ResetToTime):
        return []
    scope = change_scope(view.ledger, snapshot, request.change.only, identity=settings.batch.topic_identity)
    return [position.topic_partition for position, _ in scope.known]


def choose_changes(
    settings: PipelineSettings,
    request: ChangeRequest,
    *,
    view: ChangeView,
    snapshot: LogSnapshot | None,
    offsets_at: Mapping[TopicPartition, TimedOffset],
) -> ChangePlan:
    """Chooses what a change does, with every fault that prevents it.

    Args:
        settings: The pipeline as its file says.
        request: Who asks for what.
        view: The ledger.
        snapshot: The log, asked after the ledger; ``None`` where :func:`needs_log` says that it is not needed.
        offsets_at: For :func:`partitions_to_time`: the first offset at or after the time.

    Raises:
        ConfigError: The pipeline file differs from what binds the pipeline, and this change is not about that.
    """
    change, record = request.change, view.ledger.pipeline
    if record is None:
        return ChangePlan(faults=(_never_planned(request),))
    if not isinstance(change, ChangeTarget | ChangeIdentityColumns | ChangeIsolationLevel):
        require_bound_settings(view.ledger, settings)
    if isinstance(change, PipelineChange):
        return choose_binding(change, settings, view, record)
    assert snapshot is not None  # noqa: S101 - needs_log
    if isinstance(change, LogChange):
        plan = choose_log(change, settings, view.ledger, snapshot, record)
    else:
        identity = settings.batch.topic_identity
        plan = choose_offsets(change, view.ledger, snapshot, offsets_at, identity=identity)
    return replace(plan, moves=tuple(sorted(plan.moves, key=lambda move: move.place)))


def _never_planned(request: ChangeRequest) -> PartitionFault:
    return PartitionFault(
        ConfigError,
        f"pipeline {request.known_name}",
        expected="a pipeline that has planned before, and so has positions",
        found="none of that name in the ledger",
        next_command="correct the name; where a new pipeline begins is said by first_run in its file",
    )


# ----------
# Step *change positions*: show what a position change would do, or record it in one transaction.
#
# Order, as in planning: read the ledger in one short transaction; ask Kafka outside any transaction; choose; record in
# one short transaction that first checks that the ledger still stands as it was read.


@dataclass(frozen=True, slots=True)
class ChangePorts:
    """What a position change needs from the world."""

    ledger: PositionLedger
    log: Log


@dataclass(frozen=True, slots=True)
class ChangePreview:
    """What a change would do now: nothing was written.

    Attributes:
        plan: Moves and settings, with the faults that prevent them as values.
        outstanding: A planned batch, which refuses the change unless it is told to supersede it.
        recorded: What the same request has recorded before; then it would do nothing.
    """

    plan: ChangePlan
    outstanding: Batch | None
    recorded: RecordedChange | None


def preview_change(settings: PipelineSettings, request: ChangeRequest, ports: ChangePorts) -> ChangePreview:
    """Return what a change would do now; write nothing.

    Raises:
        ConfigError: The pipeline file differs from what binds the pipeline.
        RequestChanged: The request id was recorded with other arguments.
        RetryLater: Kafka or PostgreSQL cannot be reached.
    """
    view = ports.ledger.change_view(request, settings.batch.target)
    if recorded := recorded_before(view, request):
        return ChangePreview(ChangePlan(), view.ledger.outstanding, recorded)
    return ChangePreview(_choose(settings, request, view, ports), view.ledger.outstanding, None)


def apply_change(settings: PipelineSettings, request: ChangeRequest, ports: ChangePorts) -> RecordedChange:
    """Make a change, or return back what the same request recorded before.

    Durable on return: positions, what binds the pipeline, and the rows of ``position_change``, all in one transaction.

    Args:
        settings: The pipeline as its file says.
        request: Who asks for what, and why.
        ports: The world.

    Raises:
        BatchOutstanding: A batch is planned, and the request does not say that it may be superseded.
        ConfigError: There is no reason, or the pipeline file differs from what binds the pipeline.
        LedgerMoved: The ledger moved again and again.
        RequestChanged: The request id was recorded with other arguments.
        StopAndCall: What else prevents the change; every fault is listed.
        RetryLater: Kafka or PostgreSQL cannot be reached.
    """
    _require_reason(request)
    return until_it_stands(lambda: _apply_once(settings, request, ports))


def _apply_once(settings: PipelineSettings, request: ChangeRequest, ports: ChangePorts) -> RecordedChange:
    view = ports.ledger.change_view(request, settings.batch.target)
    if recorded := recorded_before(view, request):
        return recorded
    supersedes = batch_to_supersede(view.ledger, supersede=request.supersede)
    plan = _choose(settings, request, view, ports)
    if plan.faults:
        raise fault_error(plan.faults, request.pipeline)
    return ports.ledger.record_change(NewChange(request, plan, supersedes), view)


def _choose(settings: PipelineSettings, request: ChangeRequest, view: ChangeView, ports: ChangePorts) -> ChangePlan:
    record, change = view.ledger.pipeline, request.change
    if record is None or not needs_log(change):
        return choose_changes(settings, request, view=view, snapshot=None, offsets_at={})
    snapshot = ports.log.snapshot(settings.plan.topics, record.isolation_level)
    places = partitions_to_time(settings, request, view, snapshot)
    offsets_at = ports.log.offsets_at(change.time_ms, places) if isinstance(change, ResetToTime) and places else {}
    return choose_changes(settings, request, view=view, snapshot=snapshot, offsets_at=offsets_at)


def _require_reason(request: ChangeRequest) -> None:
    if not request.why.strip():
        raise ConfigError(
            "a position change needs a reason: it is kept in the ledger for whoever asks later",
            expected="a reason",
            found="none",
            next_command='ask again with one: --reason "why the positions change"',
            pipeline=request.pipeline,
        )

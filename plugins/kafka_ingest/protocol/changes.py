"""Changes of positions: choose what each kind would do, then make it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kafka_ingest.errors import ConfigError, PartitionFault, TargetMismatch, change_command, fault_error, naming
from kafka_ingest.protocol import decisions
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.ledger_view import (
    ChangePlan,
    PipelineRecord,
    PlanView,
    PositionMove,
    RecordedChange,
    SettingChange,
    moved,
    require_bound_settings,
    retired_topics,
    until_it_stands,
)
from kafka_ingest.protocol.log import LogSnapshot, PartitionState, TimedOffset, TopicState
from kafka_ingest.protocol.log_faults import (
    Difference,
    LogFault,
    Purpose,
    by_topic,
    cluster_fault,
    compare,
    is_of_another_log,
    missing_leader,
    missing_topic,
    served_elsewhere,
    shared_upsert_table,
)
from kafka_ingest.protocol.ports import Log, PositionLedger
from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.protocol.target import quoted, quoted_table, rename_column, written_columns
from kafka_ingest.settings import BatchSettings, IdentityColumns, PipelineSettings, TopicIdentity

# ----------
# Changes that move positions within their log: resets, lag skipped, loss accepted.
# A position that goes forwards stays in its timeline, and what it passes over is given up. One that goes backwards
# begins the next timeline: ``loaded_to`` stays, so the next run replaces what lies below it.

#: What comes of a position: where it goes, or why it cannot.
_Found: TypeAlias = PositionMove | PartitionFault


def choose_offsets(
    change: decisions.OffsetChange,
    view: PlanView,
    snapshot: LogSnapshot,
    offsets_at: Mapping[TopicPartition, TimedOffset],
    *,
    identity: TopicIdentity,
) -> ChangePlan:
    """Choose where the selected positions go; those that stand there already are left out.

    A listed offset is taken at its word: where the position is there already it only forgets the leader epoch, so that
    an operator who knows that the position is right after a truncation can go on from it. ``offsets_at`` is for a reset
    to a time: the first offset at or after it, by partition.
    """
    if fault := cluster_fault(view, snapshot, Purpose.CHANGE):
        return ChangePlan(faults=(fault,))
    pipeline, only = view.pipeline.pipeline if view.pipeline else "", decisions.selected_by(change)
    selected, is_listed = _selected(view, only), isinstance(change, decisions.ResetToOffsets)
    found: list[_Found] = [*_not_selected(view, only, selected)]
    for position in selected:
        if difference := compare(position, snapshot, identity):
            found.append(difference.fault(Purpose.CHANGE, pipeline))
            continue
        to = _new_offset(change, position, snapshot.topics[position.topic].partitions[position.partition], offsets_at)
        if isinstance(to, PartitionFault):
            found.append(to)
        elif to != position.committed_offset or (is_listed and position.leader_epoch is not None):
            found.append(moved(position, to))
    return _plan_of(found)


def _selected(view: PlanView, only: decisions.Selection) -> list[Position]:
    """Return the selected positions; all but those of retired topics when nothing is selected."""
    retired = retired_topics(view)
    return [p for p in view.positions if p.topic not in retired and only.includes(p.topic_partition)]


def _not_selected(view: PlanView, only: decisions.Selection, selected: list[Position]) -> Iterator[PartitionFault]:
    """Name what was selected and is no position: a typing error must not pass for "nothing to do"."""
    topics = {position.topic for position in selected}
    places = {position.topic_partition for position in selected}
    for topic in only.topics:
        if topic not in topics:
            yield _unread(f"topic {topic}", topic, view)
    for place in only.partitions:
        if place not in places:
            yield _unread(str(place), place.topic, view)


def _unread(where: str, topic: str, view: PlanView) -> PartitionFault:
    """Return the fault of a topic or partition that the pipeline does not read."""
    pipeline = view.pipeline.pipeline if view.pipeline else ""
    is_retired = topic in retired_topics(view)
    again = f"first {change_command(pipeline, f'read-topic-again {topic}')} --apply"
    look = f"correct it: python -m kafka_ingest lag {pipeline} lists topics and partitions"
    return PartitionFault(
        ConfigError,
        where,
        expected="a topic or partition that the pipeline reads",
        found="a retired one" if is_retired else "none of that name in the ledger",
        next_command=again if is_retired else look,
    )


def _plan_of(found: Iterable[_Found]) -> ChangePlan:
    items = tuple(found)
    faults = tuple(item for item in items if isinstance(item, PartitionFault))
    return ChangePlan(moves=tuple(item for item in items if isinstance(item, PositionMove)), faults=faults)


def _new_offset(
    change: decisions.OffsetChange,
    position: Position,
    state: PartitionState,
    offsets_at: Mapping[TopicPartition, TimedOffset],
) -> int | PartitionFault:
    committed, log_start, latest = position.committed_offset, state.log_start_offset or 0, _latest(position, state)
    match change:
        case decisions.ResetToPlace():
            return log_start if change.to is decisions.LogPlace.EARLIEST else latest
        case decisions.ResetToTime():
            return _within(log_start, offsets_at[position.topic_partition].offset, latest)
        case decisions.ResetToOffsets():
            return _listed(change, position, state)
        case decisions.ResetBy():
            return _within(log_start, committed + change.offsets, latest)
        case decisions.SkipLag():
            return max(committed, _within(log_start, latest - change.keep_offsets, latest))
        case decisions.AcceptLoss():
            is_lost = committed < log_start
            return _within(log_start, log_start + change.margin_offsets, latest) if is_lost else committed


def _latest(position: Position, state: PartitionState) -> int:
    """Return the end offset, or the position, where an open transaction that began before it holds the end back."""
    log_start, end, high_watermark = state.log_start_offset or 0, state.end_offset or 0, state.high_watermark or 0
    is_in_log = log_start <= position.committed_offset <= high_watermark
    return max(log_start, end, position.committed_offset if is_in_log else 0)


def _within(low: int, offset: int, high: int) -> int:
    return min(max(low, offset), high)


def _listed(change: decisions.ResetToOffsets, position: Position, state: PartitionState) -> int | PartitionFault:
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
# A retired topic that is read again may have become another log, too. The positions of a topic in a new log become
# exactly the partitions of that log, in a new generation: it counts its offsets from 0 again, and rows are told apart
# by generation.


def _choose_log(
    change: decisions.LogChange,
    settings: PipelineSettings,
    view: PlanView,
    snapshot: LogSnapshot,
    record: PipelineRecord,
) -> ChangePlan:
    """Choose the positions in the accepted log; nothing when the log is the known one."""
    if isinstance(change, decisions.AcceptRecreation):
        return _recreation(change, settings, view, snapshot)
    if isinstance(change, decisions.ReadTopicAgain):
        return _return(change.topic, settings, view, snapshot)
    if record.cluster_id == snapshot.cluster_id:
        return ChangePlan()
    topics, accepted = _topics(view), replace(record, cluster_id=snapshot.cluster_id)
    missing = (missing_topic(name) for name in topics if name not in snapshot.topics)
    found: list[_Found] = [difference.fault(Purpose.CHANGE, record.pipeline) for difference in missing]
    found += _served_elsewhere(view, topics, accepted)
    for name in (name for name in topics if name in snapshot.topics):
        if isinstance(change, decisions.AcceptCluster):
            found += _new_generation(topics[name], settings, snapshot, change.begin)
        else:
            found += _same_log(topics[name], settings, snapshot)
    changed = SettingChange("cluster id", record.cluster_id, accepted.cluster_id)
    return replace(_plan_of(found), binding=accepted, settings=(changed,))


def _recreation(
    change: decisions.AcceptRecreation, settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot
) -> ChangePlan:
    if fault := cluster_fault(view, snapshot, Purpose.CHANGE):
        return ChangePlan(faults=(fault,))
    topics, retired = _topics(view), retired_topics(view)
    wanted = change.topics or tuple(name for name in topics if name in snapshot.topics)
    found: list[_Found] = [_unread(f"topic {name}", name, view) for name in wanted if name in retired]
    known = topics.keys() & snapshot.topics.keys()
    missing = (missing_topic(name) for name in wanted if name not in known | retired)
    found += [difference.fault(Purpose.CHANGE, settings.pipeline) for difference in missing]
    for name in sorted(known.intersection(wanted)):
        # Where no topic id is stored only the operator can know.
        is_named = name in change.topics
        if _is_another_log(topics[name], snapshot.topics[name], settings, without_ids=is_named):
            found += _new_generation(topics[name], settings, snapshot, change.begin)
    return _plan_of(found)


def _return(topic: str, settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot) -> ChangePlan:
    """Take a retirement back; the positions become those of the log that is there now.

    A cluster may have been accepted meanwhile: its change left the positions of retired topics alone.
    """
    positions = [position for position in view.positions if position.topic == topic]
    fault = cluster_fault(view, snapshot, Purpose.CHANGE)
    if topic not in retired_topics(view):
        fault = fault if positions else _unread(f"topic {topic}", topic, view)
        return ChangePlan(faults=(fault,) if fault else ())
    if fault is None and topic not in snapshot.topics:
        fault = missing_topic(topic).fault(Purpose.READ_AGAIN, settings.pipeline)
    if fault:
        return ChangePlan(faults=(fault,))
    changed = SettingChange(f"topic {topic}", "retired", "read")
    plan = _plan_of(_continued(positions, settings, snapshot, topic))
    return replace(plan, topic_read_again=topic, settings=(changed,))


def _continued(
    positions: list[Position], settings: PipelineSettings, snapshot: LogSnapshot, topic: str
) -> Iterator[_Found]:
    """Yield what the positions of a topic need, to go on in the log that is there; nothing where they fit it."""
    is_elsewhere = any(position.cluster_id != snapshot.cluster_id for position in positions)
    is_another = _is_another_log(positions, snapshot.topics[topic], settings, without_ids=is_elsewhere)
    if is_another:
        yield from _new_generation(positions, settings, snapshot, decisions.LogPlace.EARLIEST)
    elif is_elsewhere:
        yield from _same_log(positions, settings, snapshot)


def _is_another_log(
    positions: Iterable[Position], topic: TopicState, settings: PipelineSettings, *, without_ids: bool
) -> bool:
    """Whether the log is another than that of the positions; ``without_ids`` is the answer where none is stored."""
    ids = [position for position in positions if position.topic_id]
    if settings.batch.topic_identity is TopicIdentity.NONE or not ids:
        return without_ids
    return any(is_of_another_log(position, topic) for position in ids)


def _topics(view: PlanView) -> Mapping[str, list[Position]]:
    """Return the positions by topic, without retired topics."""
    retired = retired_topics(view)
    return by_topic(position for position in view.positions if position.topic not in retired)


def _new_generation(
    positions: Sequence[Position], settings: PipelineSettings, snapshot: LogSnapshot, begin: decisions.LogPlace
) -> Iterator[_Found]:
    former, topic = {position.partition: position for position in positions}, snapshot.topics[positions[0].topic]
    generation = max(position.generation for position in former.values()) + 1
    new = Position(
        topic=topic.topic,
        partition=0,
        generation=generation,
        topic_id=topic.topic_id if settings.batch.topic_identity is TopicIdentity.TOPIC_ID else None,
        cluster_id=snapshot.cluster_id,
        committed_offset=0,
        loaded_to=0,
    )
    for number in sorted(former.keys() | topic.partitions.keys()):
        before, state = former.get(number), topic.partitions.get(number)
        if state is None:
            yield PositionMove(before, None)
        elif difference := missing_leader(TopicPartition(topic.topic, number), state):
            yield difference.fault(Purpose.CHANGE, settings.pipeline)
        else:
            yield _begun(replace(new, partition=number), before, state, begin)


def _begun(new: Position, before: Position | None, state: PartitionState, begin: decisions.LogPlace) -> PositionMove:
    log_start = state.log_start_offset or 0
    start = log_start if begin is decisions.LogPlace.EARLIEST else max(log_start, state.end_offset or 0)
    after = replace(new, committed_offset=start, loaded_to=start)
    return PositionMove(before, after, given_up=(log_start, start) if start > log_start else None)


def _same_log(positions: list[Position], settings: PipelineSettings, snapshot: LogSnapshot) -> Iterator[_Found]:
    topic = snapshot.topics[positions[0].topic]
    known_id = next((position.topic_id for position in positions if position.topic_id), None)
    if known_id is None or any(is_of_another_log(position, topic) for position in positions):
        held = f"topic id {known_id}" if known_id else "a topic id in the ledger, by which the log can be known"
        found = Difference(LogFault.TOPIC_RECREATED, f"topic {topic.topic}", {"held": held, "there": topic.topic_id})
        yield found.fault(Purpose.SAME_LOG, settings.pipeline)
        return
    yield from (PositionMove(position, replace(position, cluster_id=snapshot.cluster_id)) for position in positions)


def _served_elsewhere(view: PlanView, topics: Collection[str], record: PipelineRecord) -> Iterator[PartitionFault]:
    target = f"{record.target_schema}.{record.target_table}"
    return served_elsewhere(view, topics, pipeline=record.pipeline, cluster_id=record.cluster_id, target=target)


# ----------
# Changes of what binds a pipeline: name, topics, table, identity columns, isolation level. Positions stay.
# Table, columns and isolation level are what the pipeline file says: the file is changed first, and its runs stop until
# the ledger follows. So the file and the ledger never say different things. Columns are renamed in the table before
# that: rows that stand under a former name would never be found again, and a reload would write them a second time.


def _choose_binding(
    change: decisions.PipelineChange, settings: PipelineSettings, view: decisions.ChangeView, record: PipelineRecord
) -> ChangePlan:
    """Choose what binds the pipeline from now on; nothing when it is bound so already."""
    match change:
        case decisions.RetireTopic():
            return _retirement(change, view.ledger, record)
        case decisions.ChangeTarget():
            return _target(settings, view, record)
        case decisions.ChangeIdentityColumns():
            return _identity_columns(settings, view, record)
        case decisions.ChangeIsolationLevel():
            return _bound(record, replace(record, isolation_level=settings.batch.isolation_level))
        case decisions.RenamePipeline():
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


def _retirement(change: decisions.RetireTopic, view: PlanView, record: PipelineRecord) -> ChangePlan:
    if change.topic in retired_topics(view):
        return ChangePlan()
    is_served = any(
        (s.pipeline, s.cluster_id, s.topic) == (record.pipeline, record.cluster_id, change.topic) for s in view.served
    )
    if is_served:
        return ChangePlan(
            retired_topic=change.topic, settings=(SettingChange(f"topic {change.topic}", "read", "retired"),)
        )
    return ChangePlan(faults=(_unread(f"topic {change.topic}", change.topic, view),))


def _target(settings: PipelineSettings, view: decisions.ChangeView, record: PipelineRecord) -> ChangePlan:
    target = settings.batch.target
    after = replace(record, target_schema=target.schema, target_table=target.table)
    if after == record:
        return ChangePlan()
    after = replace(after, identity=settings.batch.metadata.identity)
    columns = _column_faults(record.identity, settings.batch, view.target_columns)
    others = _served_elsewhere(view.ledger, by_topic(view.ledger.positions), after)
    shared = shared_upsert_table(view.ledger, settings)
    return replace(_bound(record, after), faults=(*others, *shared, *columns))


def _identity_columns(settings: PipelineSettings, view: decisions.ChangeView, record: PipelineRecord) -> ChangePlan:
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


def _renaming(settings: PipelineSettings, view: decisions.ChangeView, record: PipelineRecord) -> ChangePlan:
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


def partitions_to_time(
    settings: PipelineSettings, request: decisions.ChangeRequest, view: decisions.ChangeView, snapshot: LogSnapshot
) -> list[TopicPartition]:
    """Return the partitions whose offsets for a time must be asked for: those of a reset to a time."""
    if not isinstance(request.change, decisions.ResetToTime):
        return []
    selected, identity = _selected(view.ledger, request.change.only), settings.batch.topic_identity
    return [p.topic_partition for p in selected if compare(p, snapshot, identity) is None]


def choose_changes(
    settings: PipelineSettings,
    request: decisions.ChangeRequest,
    *,
    view: decisions.ChangeView,
    snapshot: LogSnapshot | None,
    offsets_at: Mapping[TopicPartition, TimedOffset],
) -> ChangePlan:
    """Choose what a change does, with every fault that prevents it.

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
    if not isinstance(
        change, decisions.ChangeTarget | decisions.ChangeIdentityColumns | decisions.ChangeIsolationLevel
    ):
        require_bound_settings(view.ledger, settings)
    if isinstance(change, decisions.PipelineChange):
        return _choose_binding(change, settings, view, record)
    assert snapshot is not None  # noqa: S101 - needs_log
    if isinstance(change, decisions.LogChange):
        plan = _choose_log(change, settings, view.ledger, snapshot, record)
    else:
        identity = settings.batch.topic_identity
        plan = choose_offsets(change, view.ledger, snapshot, offsets_at, identity=identity)
    return replace(plan, moves=tuple(sorted(plan.moves, key=lambda move: move.place)))


def _never_planned(request: decisions.ChangeRequest) -> PartitionFault:
    return PartitionFault(
        ConfigError,
        f"pipeline {request.known_name}",
        expected="a pipeline that has planned before, and so has positions",
        found="none of that name in the ledger",
        next_command="correct the name; where a new pipeline begins is said by first_run in its file",
    )


# ----------
# Step *change positions*: show what a position change would do, or record it in one transaction.
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


def preview_change(settings: PipelineSettings, request: decisions.ChangeRequest, ports: ChangePorts) -> ChangePreview:
    """Return what a change would do now; write nothing.

    Raises:
        ConfigError: The pipeline file differs from what binds the pipeline.
        RequestChanged: The request id was recorded with other arguments.
        RetryLater: Kafka or PostgreSQL cannot be reached.
    """
    with naming(request.pipeline):
        view = ports.ledger.change_view(request, settings.batch.target)
        if recorded := decisions.recorded_before(view, request):
            return ChangePreview(ChangePlan(), view.ledger.outstanding, recorded)
        return ChangePreview(_choose(settings, request, view, ports), view.ledger.outstanding, None)


def apply_change(settings: PipelineSettings, request: decisions.ChangeRequest, ports: ChangePorts) -> RecordedChange:
    """Make a change, or return what the same request recorded before.

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
    with naming(request.pipeline):
        _require_reason(request)
        return until_it_stands(lambda: _apply_once(settings, request, ports))


def _apply_once(settings: PipelineSettings, request: decisions.ChangeRequest, ports: ChangePorts) -> RecordedChange:
    view = ports.ledger.change_view(request, settings.batch.target)
    if recorded := decisions.recorded_before(view, request):
        return recorded
    supersedes = decisions.batch_to_supersede(view.ledger, supersede=request.supersede)
    plan = _choose(settings, request, view, ports)
    if plan.faults:
        raise fault_error(plan.faults, request.pipeline)
    return ports.ledger.record_change(decisions.NewChange(request, plan, supersedes), view)


def _choose(
    settings: PipelineSettings, request: decisions.ChangeRequest, view: decisions.ChangeView, ports: ChangePorts
) -> ChangePlan:
    record, change = view.ledger.pipeline, request.change
    if record is None or not decisions.needs_log(change):
        return choose_changes(settings, request, view=view, snapshot=None, offsets_at={})
    snapshot = ports.log.snapshot(settings.plan.topics, record.isolation_level)
    places = partitions_to_time(settings, request, view, snapshot)
    offsets_at = (
        ports.log.offsets_at(change.time_ms, places) if isinstance(change, decisions.ResetToTime) and places else {}
    )
    return choose_changes(settings, request, view=view, snapshot=snapshot, offsets_at=offsets_at)


def _require_reason(request: decisions.ChangeRequest) -> None:
    if not request.why.strip():
        raise ConfigError(
            "a position change needs a reason: it is kept in the ledger for whoever asks later",
            expected="a reason",
            found="none",
            next_command='ask again with one: --reason "why the positions change"',
        )

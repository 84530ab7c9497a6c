"""Undo the newest batches: choose them, check the log, take them back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from kafka_ingest.errors import (
    AccountingMismatch,
    BatchOutstanding,
    ClusterChanged,
    ConfigError,
    PartitionFault,
    RequestChanged,
    RollBackRefused,
    fault_error,
    naming,
)
from kafka_ingest.protocol.batch import Batch, BatchState
from kafka_ingest.protocol.decisions import batch_to_supersede
from kafka_ingest.protocol.ledger_view import LedgerWrite, PlanView, PositionMove, retired_topics, until_it_stands
from kafka_ingest.protocol.log import LogSnapshot
from kafka_ingest.protocol.log_faults import Purpose, compare
from kafka_ingest.protocol.position import OffsetRange, Position, TopicPartition
from kafka_ingest.settings import IsolationLevel, TopicIdentity, TopicSelection

# ----------
# What was published and what undoing it means, as values; and the ports that a roll-back needs.
# A roll-back undoes batches that moved the position, newest first. Rows and dead letters are found by identity in
# ``[committed_before, committed_after)``, whatever batch wrote them last.


@dataclass(frozen=True, slots=True)
class RollBackRequest:
    """Who wants what undone, and why. The same request id is done once, however often it comes.

    Attributes:
        request_id: Identity of the request.
        pipeline: Pipeline name.
        batches: How many batches to undo: the newest ones that moved the position.
        who: Airflow user or user of the operating system.
        why: The reason, for people; never empty.
        supersede: Take a planned batch out of the way, instead of being refused.
        allow_compacted: Go on where compaction may have taken records that the table still holds.
    """

    request_id: str
    pipeline: str
    batches: int
    who: str
    why: str
    supersede: bool = False
    allow_compacted: bool = False


@dataclass(frozen=True, slots=True)
class WrittenCounts:
    """Rows of the target and dead letters, in a range of offsets."""

    rows: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class WrittenRange:
    """A published range and what its batch counted in it."""

    range: OffsetRange
    counts: WrittenCounts


@dataclass(frozen=True, slots=True)
class Writer:
    """A batch that published, whether it still stands or was rolled back."""

    batch: Batch
    ranges: tuple[WrittenRange, ...]

    @property
    def moved(self) -> tuple[OffsetRange, ...]:
        """The ranges that moved a position; none in a batch that only reloaded."""
        return tuple(w.range for w in self.ranges if w.range.committed_after > w.range.committed_before)

    @property
    def can_be_undone(self) -> bool:
        """Whether it is committed and moved a position."""
        return self.batch.state is BatchState.COMMITTED and bool(self.moved)


@dataclass(frozen=True, slots=True)
class UndoneSpan:
    """What a roll-back did to one partition: offsets ``[to_offset, from_offset)`` are no longer loaded."""

    topic: str
    partition: int
    generation: int
    from_offset: int
    to_offset: int
    from_timeline: int
    to_timeline: int
    counts: WrittenCounts

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RollBackRecord:
    """A roll-back as the ledger holds it, in its ``position_change`` rows.

    Attributes:
        request_id: Identity of the request.
        batches: How many batches the request named.
        batch_ids: The batches that were undone, the newest first.
        superseded: The planned batch that was taken out of the way.
        spans: One for each partition whose position was lowered, ordered by (topic, partition).
    """

    request_id: str
    batches: int
    batch_ids: tuple[str, ...]
    superseded: str | None
    spans: tuple[UndoneSpan, ...]


@dataclass(frozen=True, slots=True)
class RollBackView:
    """What a roll-back sees.

    Attributes:
        ledger: What a plan would see: pipeline, positions, served topics, outstanding batch.
        bound_timelines: For each partition the newest timeline of a position change other than a roll-back: what
            lies on an older timeline was loaded before that change.
        writers: Batches that published, the newest first, back to the oldest that the request may undo.
        used_for: The kind of position change that the request id already stands for.
        recorded: The roll-back that it stands for.
    """

    ledger: PlanView
    bound_timelines: Mapping[TopicPartition, int]
    writers: tuple[Writer, ...]
    used_for: str | None = None
    recorded: RollBackRecord | None = None

    def decisive(self) -> RollBackView:
        """Return the view without what moves and decides nothing."""
        return replace(self, ledger=self.ledger.decisive())


@dataclass(frozen=True, slots=True)
class LoweredPosition:
    """A position before and after: identities in ``[after.committed_offset, before.committed_offset)`` are deleted."""

    before: Position
    after: Position

    @property
    def span_offsets(self) -> int:
        """Number of offsets that are no longer loaded."""
        return self.before.committed_offset - self.after.committed_offset


@dataclass(frozen=True, slots=True)
class RollBackPlan:
    """What a roll-back would do.

    Attributes:
        request: Who asks for what.
        batches: Batches to undo, the newest first.
        positions: Positions to lower, ordered by (topic, partition).
        counted: Ranges that must hold as many rows and dead letters as were counted, before anything is deleted: those
            of the latest writers that no later one wrote into.
        supersedes: The planned batch that is taken out of the way.
        faults: What stops it.
    """

    request: RollBackRequest
    batches: tuple[Batch, ...]
    positions: tuple[LoweredPosition, ...]
    counted: tuple[WrittenRange, ...]
    supersedes: str | None
    faults: tuple[PartitionFault, ...]

    @property
    def moves(self) -> tuple[PositionMove, ...]:
        """The positions as other changes of the ledger have them."""
        return tuple(PositionMove(lowered.before, lowered.after) for lowered in self.positions)

    def write_from(self, seen: RollBackView) -> LedgerWrite:
        """Return what must still be true when it is done."""
        return LedgerWrite(self.request.pipeline, seen, self.supersedes)

    def record(self, deleted: Mapping[TopicPartition, WrittenCounts]) -> RollBackRecord:
        """Return what the ledger is to hold, given what was deleted in each partition; nothing where it is missing."""
        return RollBackRecord(
            request_id=self.request.request_id,
            batches=self.request.batches,
            batch_ids=tuple(batch.batch_id for batch in self.batches),
            superseded=self.supersedes,
            spans=tuple(
                UndoneSpan(
                    topic=lowered.before.topic,
                    partition=lowered.before.partition,
                    generation=lowered.before.generation,
                    from_offset=lowered.before.committed_offset,
                    to_offset=lowered.after.committed_offset,
                    from_timeline=lowered.before.timeline,
                    to_timeline=lowered.after.timeline,
                    counts=deleted.get(lowered.before.topic_partition, WrittenCounts(0, 0)),
                )
                for lowered in self.positions
            ),
        )


class RollBackTransaction(Protocol):
    """The one transaction of a roll-back. Statements in the order of the methods."""

    def lock(self, seen: RollBackView) -> None:
        """Lock pipeline, batches and positions, supersede the outstanding batch where the plan says so.

        Raises:
            LedgerMoved: The ledger no longer stands as it was ``seen``.
        """

    def count(self, ranges: Sequence[WrittenRange]) -> Sequence[WrittenCounts]:
        """Count what the target and the ledger hold in each range now, by identity.

        Raises:
            TargetMismatch: The target or one of its metadata columns is gone.
        """

    def delete(self) -> Mapping[TopicPartition, WrittenCounts]:
        """Delete rows and dead letters by identity; return their numbers by partition.

        Raises:
            TargetMismatch: A constraint or trigger of the target refused it.
        """

    def record(self, record: RollBackRecord) -> None:
        """Lower the positions, set the batches' state, and store the position changes.

        Raises:
            LedgerMoved: A position or a batch no longer stands as it was seen.
        """

    def commit(self) -> None:
        """Commit; durable on return.

        Raises:
            CommitStateUnknown: The connection broke before the answer; the same request again decides.
        """


class RollBackLedger(Protocol):
    """The ledger and the target, as far as a roll-back goes."""

    def roll_back_view(self, request: RollBackRequest) -> RollBackView:
        """Read what a roll-back needs, at one moment."""

    def begin_roll_back(self, plan: RollBackPlan) -> AbstractContextManager[RollBackTransaction]:
        """Open a transaction for a plan without faults; leaving the context without commit rolls it back."""


class RollBackLog(Protocol):
    """Kafka as a roll-back asks it."""

    def snapshot(self, topics: TopicSelection, isolation_level: IsolationLevel) -> LogSnapshot:
        """Describe the topics and the offsets of all their partitions (``ports.Log``)."""

    def cleanup_policies(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Return ``cleanup.policy`` of topics as they apply; a topic whose settings cannot be read is missing.

        Raises:
            BrokerUnavailable: No answer within the time-out.
        """


# ----------
# What stops a roll-back: faults of the request, of the ledger and of the log. Values, so that all are listed.


_OF_STATE = (
    "a pipeline that appends: what a batch of another has written over is gone",
    "one whose table holds the current state",
    "reset the position backwards, or reload the span (docs/current-state.md, Reading again)",
)


def _request_faults(request: RollBackRequest, view: RollBackView, *, found: int) -> Iterator[PartitionFault]:
    """Yield what the request asks for and the ledger cannot give: an idle pipeline, enough batches."""
    try:
        batch_to_supersede(view.ledger, supersede=request.supersede)
    except BatchOutstanding as refused:
        where = f"pipeline {request.pipeline}, batch {refused.batch_id}"
        yield PartitionFault(BatchOutstanding, where, refused.expected, refused.found, refused.next_command)
    of_few = (
        f"{request.batches} committed batches that moved the position",
        f"{found}; a batch that only reloaded or was rolled back does not count",
        f"python -m kafka_ingest batches {request.pipeline}",
    )
    is_state = view.ledger.pipeline is not None and view.ledger.pipeline.upsert is not None
    if is_state or found < request.batches:
        yield PartitionFault(RollBackRefused, f"pipeline {request.pipeline}", *(_OF_STATE if is_state else of_few))


def _undone_faults(view: RollBackView, writers: Sequence[Writer]) -> Iterator[PartitionFault]:
    """Yield batches that were loaded before the target or the isolation level was changed, or a topic retired."""
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


def _log_faults(
    request: RollBackRequest,
    positions: Sequence[LoweredPosition],
    snapshot: LogSnapshot,
    policies: Mapping[str, str],
    *,
    identity: TopicIdentity,
) -> Iterator[PartitionFault]:
    """Yield what keeps the log from giving the same records again."""
    found = [compare(lowered.before, snapshot, identity, first=lowered.after.committed_offset) for lowered in positions]
    faults = dict.fromkeys(item.fault(Purpose.ROLL_BACK, request.pipeline) for item in found if item)
    yield from faults
    if any(fault.error is ClusterChanged for fault in faults):
        return  # another cluster's topics say nothing about these offsets
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


# ----------
# Choosing what a roll-back undoes: a pure function of request, ledger and log; every fault is listed at once.


def undone_writers(request: RollBackRequest, view: RollBackView) -> tuple[Writer, ...]:
    """Return the newest batches that moved the position, the newest first: as many as the request names, or fewer.

    Batches that only reloaded are passed over: they moved nothing that could be moved back.
    """
    return tuple(writer for writer in view.writers if writer.can_be_undone)[: request.batches]


def undone_topics(request: RollBackRequest, view: RollBackView) -> tuple[str, ...]:
    """Return the topics that a roll-back would lower positions of: those that Kafka must be asked about."""
    return tuple(sorted({r.topic for writer in undone_writers(request, view) for r in writer.moved}))


def choose_roll_back(
    request: RollBackRequest, view: RollBackView, snapshot: LogSnapshot, policies: Mapping[str, str]
) -> RollBackPlan:
    """Choose batches, positions and what must be counted first.

    The log was asked after the ledger, for :func:`undone_topics`; a policy that cannot be read is missing.
    """
    writers = undone_writers(request, view)
    positions, passed = _lowered(view, writers)
    faults = [
        *_request_faults(request, view, found=len(writers)),
        *_undone_faults(view, writers),
        *passed,
        *_log_faults(request, positions, snapshot, policies, identity=_identity(writers)),
    ]
    return RollBackPlan(
        request=request,
        batches=tuple(writer.batch for writer in writers),
        positions=positions,
        counted=tuple(_counted(view, positions)),
        supersedes=view.ledger.outstanding.batch_id if view.ledger.outstanding else None,
        faults=tuple(faults),
    )


def _identity(writers: tuple[Writer, ...]) -> TopicIdentity:
    """Return what the newest batch was loaded under: with ``none`` its topic may have no id that could be compared."""
    return writers[0].batch.settings.topic_identity if writers else TopicIdentity.TOPIC_ID


def _lowered(
    view: RollBackView, writers: tuple[Writer, ...]
) -> tuple[tuple[LoweredPosition, ...], list[PartitionFault]]:
    """Walk back along the chain of each partition: a range must end where the one after it began."""
    stored = {position.topic_partition: position for position in view.ledger.positions}
    lowest: dict[TopicPartition, OffsetRange] = {}
    faults: dict[TopicPartition, PartitionFault] = {}
    for writer in writers:
        for r in writer.moved:
            place = r.topic_partition
            position = stored.get(place)
            if position is not None and place in lowest:
                position = replace(position, committed_offset=lowest[place].committed_before)
            if position is None or not _continues(r, writer, position, view.bound_timelines.get(place, 0)):
                faults.setdefault(place, _passed(r, writer, position))
            else:
                lowest[place] = r
    lowered = [LoweredPosition(stored[place], _after(stored[place], r)) for place, r in sorted(lowest.items())]
    return tuple(lowered), list(faults.values())


def _continues(r: OffsetRange, writer: Writer, position: Position, bound_timeline: int) -> bool:
    """Whether nothing but batches and roll-backs lies between the range and the position, as far as it is undone.

    A change forwards moves the position away from where the range ended; one backwards, and every new log, begins a
    timeline or a generation. Timelines that a roll-back began are no obstacle: it led back along the same batches.
    """
    log = (r.generation, r.topic_id, writer.batch.cluster_id)
    is_same_log = log == (position.generation, position.topic_id, position.cluster_id)
    return is_same_log and r.committed_after == position.committed_offset and r.timeline >= bound_timeline


def _after(position: Position, oldest: OffsetRange) -> Position:
    """Return the position at the begin of the oldest range that is undone.

    Nothing above it is left, except what an older reset had left above the position: then ``loaded_to`` stays. Up to
    what time the partition is complete now is not known before it is read again.
    """
    begin = oldest.committed_before
    is_top = position.loaded_to == position.committed_offset
    return replace(
        position,
        committed_offset=begin,
        loaded_to=begin if is_top else position.loaded_to,
        timeline=position.timeline + 1,
        leader_epoch=oldest.leader_epoch,
        valid_through=None,
    )


def _passed(r: OffsetRange, writer: Writer, position: Position | None) -> PartitionFault:
    stands = f"offset {position.committed_offset}, line {position.timeline}" if position else "no position"
    return PartitionFault(
        RollBackRefused,
        str(r.topic_partition),
        expected=f"nothing but batches since batch {writer.batch.batch_id}, which ended at offset {r.committed_after}",
        found=f"{stands}: the position was changed since; a roll-back never passes a position change",
        next_command="roll back fewer batches, or reset the position and let a run replace what lies above it",
    )


def _counted(view: RollBackView, positions: tuple[LoweredPosition, ...]) -> Iterator[WrittenRange]:
    """Yield the ranges that reach into what is deleted and were written last by their batch, as a whole.

    A range into which a later batch wrote, or whose end an earlier roll-back took, no longer has its counts.
    """
    undone = {lowered.before.topic_partition: lowered for lowered in positions}
    later: list[OffsetRange] = []
    for writer in view.writers:
        for written in writer.ranges:
            lowered = undone.get(written.range.topic_partition)
            if (
                lowered is not None
                and writer.batch.state is BatchState.COMMITTED
                and written.range.generation == lowered.before.generation
                and lowered.after.committed_offset < written.range.end <= lowered.before.committed_offset
                and not any(_overlap(written.range, other) for other in later)
            ):
                yield written
        later += [written.range for written in writer.ranges]


def _overlap(one: OffsetRange, other: OffsetRange) -> bool:
    is_same = (one.topic, one.generation, one.partition) == (other.topic, other.generation, other.partition)
    return is_same and one.start < other.end and other.start < one.end


# ----------
# Step *roll back*: undo the newest batches that moved the position: rows, dead letters and positions together.
# Order: read the ledger in one short transaction; ask Kafka outside any transaction; choose; undo in ONE transaction
# that first checks that the ledger still stands as it was read, and counts before it deletes. The same request id again
# finds what was recorded.


@dataclass(frozen=True, slots=True)
class RollBackPorts:
    """What a roll-back needs from the world."""

    ledger: RollBackLedger
    log: RollBackLog


def preview_roll_back(request: RollBackRequest, ports: RollBackPorts) -> RollBackPlan:
    """Return what a roll-back would do now, with its faults as values; write nothing.

    Raises:
        BrokerUnavailable: Kafka cannot be reached.
        DatabaseUnavailable: PostgreSQL cannot be reached.
    """
    with naming(request.pipeline):
        return _choose(request, ports.ledger.roll_back_view(request), ports)


def roll_back(request: RollBackRequest, ports: RollBackPorts) -> RollBackRecord:
    """Undo the newest batches that moved the position.

    Durable on return: rows and dead letters are gone, positions lowered, batches ``rolled_back``, all in one
    transaction, and recorded as position changes. The same request again gives what was recorded.

    Raises:
        ConfigError: There is no reason, or no batch is asked for.
        RequestChanged: The request id stands for something else.
        StopAndCall: It is refused; every fault is listed, and nothing was changed.
        AccountingMismatch: Target or dead letters are not as the batches counted them; nothing was changed.
        LedgerMoved: The ledger moved again and again.
        CommitStateUnknown: The answer to COMMIT was lost; the same request again decides.
        RetryLater: Kafka or PostgreSQL cannot be reached.
    """
    with naming(request.pipeline):
        _require_complete(request)
        return until_it_stands(lambda: _roll_back_once(request, ports))


def _roll_back_once(request: RollBackRequest, ports: RollBackPorts) -> RollBackRecord:
    view = ports.ledger.roll_back_view(request)
    if recorded := _recorded(request, view):
        return recorded
    plan = _choose(request, view, ports)
    if plan.faults:
        raise fault_error(plan.faults, request.pipeline)
    with ports.ledger.begin_roll_back(plan) as transaction:
        transaction.lock(view)
        record = _undo(plan, transaction)
        transaction.commit()
    return record


def _undo(plan: RollBackPlan, transaction: RollBackTransaction) -> RollBackRecord:
    _require_counts(plan, transaction.count(plan.counted))
    record = plan.record(transaction.delete())
    transaction.record(record)
    return record


def _choose(request: RollBackRequest, view: RollBackView, ports: RollBackPorts) -> RollBackPlan:
    topics = undone_topics(request, view)
    # Log start and high watermark are looked at, and no end offset: the level decides nothing and costs least.
    snapshot = ports.log.snapshot(TopicSelection(names=topics), IsolationLevel.READ_UNCOMMITTED)
    return choose_roll_back(request, view, snapshot, ports.log.cleanup_policies(topics))


def _require_complete(request: RollBackRequest) -> None:
    missing = {
        "no reason": not request.why.strip(),
        "nobody who asks": not request.who.strip(),
        f"{request.batches} batches": request.batches < 1,
    }
    if faults := [fault for fault, is_missing in missing.items() if is_missing]:
        raise ConfigError(
            "a roll-back needs somebody who asks, a reason, and a number of batches; nothing was changed",
            expected="a reason that tells others why, and 1 batch or more",
            found="\n".join(faults),
            next_command="ask again with a reason (--reason) and a number of batches (--batches)",
        )


def _recorded(request: RollBackRequest, view: RollBackView) -> RollBackRecord | None:
    """Return what the request id stands for, or ``None`` when it is new."""
    if view.used_for is None:
        return None
    if view.recorded is not None and view.recorded.batches == request.batches:
        return view.recorded
    raise RequestChanged(
        f"the request id {request.request_id} stands for something else; nothing was changed",
        expected=f"{view.recorded.batches} batches" if view.recorded else f"a position change, {view.used_for}",
        found=f"{request.batches} batches to roll back",
        next_command="ask with a new request id",
    )


def _require_counts(plan: RollBackPlan, found: Sequence[WrittenCounts]) -> None:
    if differing := list(_differing(plan.counted, found)):
        raise AccountingMismatch(
            "the target is not as the batches left it; nothing was rolled back",
            expected="as many rows and dead letters in each range as its batch counted",
            found="\n".join(differing),
        )


def _differing(counted: Sequence[WrittenRange], found: Sequence[WrittenCounts]) -> Iterator[str]:
    for written, now in zip(counted, found, strict=True):
        if written.counts != now:
            yield (
                f"{written.range}: rows {written.counts.rows}, found {now.rows};"
                f" dead letters {written.counts.dead_letters}, found {now.dead_letters}"
            )

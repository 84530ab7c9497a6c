"""What the ledger says of a pipeline, what a change of it is, and when one may be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from kafka_ingest.errors import ConfigError, LedgerMoved, PartitionFault, change_command
from kafka_ingest.protocol.batch import Batch, Hold
from kafka_ingest.protocol.log import LogObservation, LogSnapshot
from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.protocol.target import AddedColumn, rename_column
from kafka_ingest.settings import (
    FirstRun,
    IdentityColumns,
    IsolationLevel,
    PipelineSettings,
    UpsertSettings,
    json_path_text,
)

# ----------
# What a plan reads from the ledger.

_ANY_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """What binds a pipeline since its first plan; only a position change alters it."""

    pipeline: str
    target_schema: str
    target_table: str
    cluster_id: str
    isolation_level: IsolationLevel
    first_run: FirstRun
    identity: IdentityColumns
    upsert: UpsertSettings | None = None


@dataclass(frozen=True, slots=True)
class ServedTopic:
    """A topic that some pipeline loads into the target table. One pipeline per (target, cluster, topic).

    ``is_upsert``: the pipeline holds the current state in the table, and so must be its only one.
    """

    pipeline: str
    cluster_id: str
    topic: str
    is_retired: bool = False
    is_upsert: bool = False


class View(Protocol):
    """The ledger as one short transaction saw it: what a plan, a change or a roll-back is decided from."""

    @property
    def ledger(self) -> PlanView:
        """What every decision looks at: pipeline, positions, topics, batches."""

    def decisive(self) -> View:
        """Return the view without what moves and decides nothing."""


def still_stands(seen: View, later: View) -> bool:
    """Whether what was decided from a view may be written when the ledger looks like ``later``."""
    return seen.decisive() == later.decisive()


@dataclass(frozen=True, slots=True)
class PlanView:
    """What a plan sees.

    Attributes:
        now: The database's clock, UTC.
        pipeline: ``None`` before the first plan.
        positions: Positions of the pipeline, ordered by (topic, partition).
        served: Topics served into the pipeline's target table, by this pipeline or by others.
        outstanding: The pipeline's planned batch, if there is one.
        hold: The hold of ``outstanding``.
        own: The newest batch of the asking run, whatever its number and state.
        observations: What earlier plans saw of the log, ordered by (topic, partition).
        added_columns: Columns that loads of the pipeline have added to the target.
        needs_rebuild: Why the table of an upsert pipeline may miss deletes or rows; empty while nothing says so.
    """

    now: datetime
    pipeline: PipelineRecord | None
    positions: tuple[Position, ...]
    served: tuple[ServedTopic, ...]
    outstanding: Batch | None
    hold: Hold | None
    own: Batch | None
    observations: tuple[LogObservation, ...] = ()
    added_columns: tuple[AddedColumn, ...] = ()
    needs_rebuild: str = ""

    @property
    def ledger(self) -> PlanView:
        """The view itself."""
        return self

    def decisive(self) -> PlanView:
        """Return the view without clock, hold, observations, added columns, warnings and the claims of batches.

        They move without changing what may be done: superseding is safe at any moment because publishing is fenced.
        """
        outstanding = replace(self.outstanding, claim=0) if self.outstanding else None
        own = replace(self.own, claim=0) if self.own else None
        decisive = replace(self, now=_ANY_TIME, hold=None, outstanding=outstanding, own=own)
        return replace(decisive, observations=(), added_columns=(), needs_rebuild="")


# ----------
# One optimistic write: read the ledger, decide outside any transaction, write if the ledger still stands.

#: How often something is decided again when the ledger moves under it. Each time somebody else got something recorded,
#: so a handful is enough unless dozens of runs of one pipeline start at the same moment; a retry covers those.
_ATTEMPTS = 5

_Written = TypeVar("_Written")


def until_it_stands(decide_and_write: Callable[[], _Written]) -> _Written:
    """Read, decide and write again while the ledger moves in between, five times at most.

    Raises:
        LedgerMoved: It moved each time.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return decide_and_write()
        except LedgerMoved:
            continue
    return decide_and_write()


@dataclass(frozen=True, slots=True)
class LedgerWrite:
    """What must be true for a plan, a change or a roll-back to be written: a requirement as data.

    Attributes:
        pipeline: The name that the ledger knows the pipeline by.
        seen: What it was decided from.
        supersedes: The outstanding batch that it takes out of the way; ``None`` when there is none.
    """

    pipeline: str
    seen: View
    supersedes: str | None

    def require(self, later: View) -> None:
        """Compare what was seen with the ledger as it stands with the pipeline locked.

        Raises:
            LedgerMoved: Something decisive has changed, or the outstanding batch is not the one to supersede.
        """
        if not still_stands(self.seen, later):
            raise self.moved("positions, batches or served topics have changed, or what else was looked at")
        outstanding = later.ledger.outstanding.batch_id if later.ledger.outstanding else None
        if outstanding != self.supersedes:
            raise self.moved(f"the outstanding batch is {outstanding}, the one to supersede is {self.supersedes}")

    def moved(self, found: str) -> LedgerMoved:
        """Return the error of a ledger that is not as it was seen."""
        return LedgerMoved(
            "the ledger moved since it was read; nothing was recorded",
            expected="the ledger as it was read at the beginning",
            found=found,
            next_command="none: it is read again, and decided anew",
        )


# ----------
# Position changes as values: what one would do, and what the ledger recorded.
#
# A change is everything that moves positions, or what binds a pipeline, without a batch. Spans are half-open,
# ``[start, end)``.


@dataclass(frozen=True, slots=True)
class PositionPoint:
    """Where a position stands: the part of it that a change records."""

    offset: int
    generation: int
    timeline: int
    topic_id: str | None
    cluster_id: str


@dataclass(frozen=True, slots=True)
class PositionChange:
    """What a change does to the position of one partition.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        before: Where the position stood; ``None`` when there was none.
        after: Where it stands; ``None`` when there is none any more, as in a new log with fewer partitions.
        given_up: Offsets ``(start, end)`` that will not be read because of the change, in the log of ``after``.
    """

    topic: str
    partition: int
    before: PositionPoint | None
    after: PositionPoint | None
    given_up: tuple[int, int] | None = None

    @property
    def read_again(self) -> tuple[int, int] | None:
        """Offsets ``(start, end)`` that were committed and are to be read again."""
        if self.before is None or self.after is None or self.before.generation != self.after.generation:
            return None
        start, end = self.after.offset, self.before.offset
        return (start, end) if start < end else None


@dataclass(frozen=True, slots=True)
class SettingChange:
    """What a change does to one of the things that bind a pipeline."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class PositionMove:
    """A position before and after a change, as a plan of the change has it."""

    before: Position | None
    after: Position | None
    given_up: tuple[int, int] | None = None

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        position = self.before or self.after
        assert position is not None  # noqa: S101 - a move without both is never made
        return position.topic_partition

    @property
    def change(self) -> PositionChange:
        """The part of it that is recorded."""
        place = self.place
        return PositionChange(place.topic, place.partition, _point(self.before), _point(self.after), self.given_up)


def _point(position: Position | None) -> PositionPoint | None:
    if position is None:
        return None
    return PositionPoint(
        position.committed_offset, position.generation, position.timeline, position.topic_id, position.cluster_id
    )


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What a change would do; nothing at all when everything is there already.

    Attributes:
        moves: Positions that change, ordered by (topic, partition).
        binding: What binds the pipeline after the change; ``None`` when that stays.
        retired_topic: Topic that is retired.
        topic_read_again: Topic that is retired no more.
        settings: ``binding`` and the topics for people: what they change.
        faults: What prevents the change, all at once.
    """

    moves: tuple[PositionMove, ...] = ()
    binding: PipelineRecord | None = None
    retired_topic: str | None = None
    topic_read_again: str | None = None
    settings: tuple[SettingChange, ...] = ()
    faults: tuple[PartitionFault, ...] = ()

    @property
    def positions(self) -> tuple[PositionChange, ...]:
        """The part of the moves that is recorded."""
        return tuple(move.change for move in self.moves)


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A change as the ledger holds it.

    ``superseded`` is the batch that it took out of the way; ``arguments`` are the request's.
    """

    pipeline: str
    request_id: str
    kind: str
    arguments: str
    who: str
    why: str
    at: datetime
    positions: tuple[PositionChange, ...] = ()
    settings: tuple[SettingChange, ...] = ()
    superseded: str | None = None


def moved(position: Position, to: int) -> PositionMove:
    """Move a position to another offset of the same log.

    The leader epoch belongs to the offset that was read last, so a new offset has none: with an old one Kafka would
    take the log for truncated (KIP-320).
    """
    before = position.committed_offset
    if to == before:
        return PositionMove(position, replace(position, leader_epoch=None))
    if to > before:
        forwards = replace(position, committed_offset=to, loaded_to=max(position.loaded_to, to), leader_epoch=None)
        return PositionMove(position, forwards, given_up=(before, to))
    return PositionMove(
        position, replace(position, committed_offset=to, timeline=position.timeline + 1, leader_epoch=None)
    )


# ----------
# Retired topics: not read, not missed, and no bound of the time up to which the pipeline is complete.
#
# One that exists all the same is told by every plan: it may be retired by mistake, or created anew under a pattern.


def retired_topics(view: PlanView) -> frozenset[str]:
    """Return the topics that the pipeline has retired.

    Topics that it served on a former cluster or into a former table are marked in the same way, so that nobody loads
    them there again; they are retired only there.
    """
    record = view.pipeline
    if record is None:
        return frozenset()
    return frozenset(
        s.topic
        for s in view.served
        if s.is_retired and s.pipeline == record.pipeline and s.cluster_id == record.cluster_id
    )


def without_retired(view: PlanView, snapshot: LogSnapshot) -> LogSnapshot:
    """Leave retired topics out, whether the pipeline file still selects them or not."""
    retired = retired_topics(view)
    return replace(snapshot, topics={name: state for name, state in snapshot.topics.items() if name not in retired})


def unread_topics(view: PlanView, snapshot: LogSnapshot) -> Iterator[str]:
    """Yield a text for each retired topic that the pipeline file selects and that has partitions.

    Args:
        view: The ledger.
        snapshot: The log, with retired topics.
    """
    for topic in sorted(retired_topics(view)):
        if topic in snapshot.topics and snapshot.topics[topic].partitions:
            again = change_command(view.pipeline.pipeline if view.pipeline else "", f"read-topic-again {topic}")
            yield (
                f"topic {topic} exists and is not read, because it is retired: take it out of the pipeline file's "
                f"selection, or let it be read again: {again}"
            )


# ----------
# What the first plan has bound, and the pipeline file must not change on its own.


def require_bound_settings(view: PlanView, settings: PipelineSettings) -> None:
    """Refuse a pipeline file that changes what the first plan has bound: table, identity columns, isolation level.

    It must come before anything looks at the table: a column that the table lacks could just be added, and what was
    loaded before would never be found again.

    Raises:
        ConfigError: Lists what differs.
    """
    record, batch = view.pipeline, settings.batch
    if record is None:
        return
    bound = {
        "target.table": (f"{record.target_schema}.{record.target_table}", str(batch.target), "change-target"),
        "kafka.isolation_level": (record.isolation_level.value, batch.isolation_level.value, "change-isolation-level"),
    }
    differing = {key: values for key, values in bound.items() if values[0] != values[1]}
    commands = [change_command(settings.pipeline, kind) for _, _, kind in differing.values()]
    if renamed := record.identity.differing(batch.metadata.identity):
        differing |= {f"metadata_columns.{key}": (*names, "") for key, names in renamed.items()}
        if "target.table" not in differing:  # change-target binds the names, too
            renames = [rename_column(batch.target, *names) for names in renamed.values()]
            command = change_command(settings.pipeline, "change-identity-columns")
            commands.append(
                f"first {' '.join(renames)} (never ADD COLUMN: loaded rows are found by it), then {command}"
            )
    if differing:
        raise ConfigError(
            "the pipeline file changes settings that its first plan has bound",
            expected="; ".join(f"{key}: {stored}" for key, (stored, _, _) in differing.items()),
            found="; ".join(f"{key}: {given}" for key, (_, given, _) in differing.items()),
            next_command=f"restore these keys, or let the ledger follow the file: {'; '.join(commands)}",
        )
    _require_bound_state(record, settings)


def _require_bound_state(record: PipelineRecord, settings: PipelineSettings) -> None:
    """Refuse another way to hold the current state: rows that stand, and rows that went, followed the former one."""
    bound, given = _told_of_state(record.upsert), _told_of_state(settings.batch.upsert)
    differing = [key for key in bound if bound[key] != given[key]]
    if differing:
        raise ConfigError(
            "the pipeline file changes how the table holds the current state, which its first plan has bound",
            expected="; ".join(f"{key}: {bound[key]}" for key in differing),
            found="; ".join(f"{key}: {given[key]}" for key in differing),
            next_command="restore these keys; to change them, load everything into a new table under another pipeline "
            "name (docs/operating.md, Changing how the state is held)",
        )


def _told_of_state(upsert: UpsertSettings | None) -> dict[str, str]:
    if upsert is None:
        others = ("target.key", "target.order", "target.deletes", "target.delete_when", "target.deleted_at")
        return {"target.mode": "append", **dict.fromkeys((*others, "value.envelope"), "nothing")}
    when = upsert.delete_when
    return {
        "target.mode": "upsert",
        "target.key": ", ".join(upsert.key),
        "target.order": f"column {upsert.order_column}" if upsert.order_column else upsert.order.value,
        "target.deletes": upsert.deletes.value,
        "target.delete_when": f"{json_path_text(when.path)} equals {when.equals}" if when else "nothing",
        "target.deleted_at": upsert.deleted_at or "nothing",
        "value.envelope": upsert.envelope.kind.value if upsert.envelope else "nothing",
    }


# ----------
# Invariants: what must hold of a pipeline at every moment (``sql/invariants``).

#: The invariants that look into the target itself, by the names of their files: rows of the newest batch, which of an
#: upsert pipeline are counted in another way; of the newest replay; and all rows of an upsert pipeline.
TARGET_INVARIANT = "target_rows"
STATE_INVARIANT = "state_rows"
REPLAY_INVARIANT = "replayed_dead_letters_are_rows"
WHOLE_STATE_INVARIANT = "state_is_of_read_records"


@dataclass(frozen=True, slots=True)
class Violation:
    """One row that an invariant query returned."""

    invariant: str
    row: str

"""The state of the model: table, ledger, log and attempts; and what happens to the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from model.current_state.records import Kind, Log, Row, Version

#: Ticks of the clock that a tombstone is kept after the first cleaning that met it (``delete.retention.ms``).
RETENTION = 1


class Run(Enum):
    """Why a range is read."""

    LIVE = "live run"
    RELOAD = "reload"
    REBUILD = "rebuild"
    REPLAY = "replay"


class BatchState(Enum):
    """The state of a batch."""

    PLANNED = "planned"
    COMMITTED = "committed"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets from ``start`` to before ``end`` of the partition at a place of the log."""

    place: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch reads, frozen: its spans, its settings, the time of the plan, and what reached the end then."""

    run: Run
    spans: tuple[Span, ...]
    settings: int
    planned_at: int
    reached_end: frozenset[int] = frozenset()

    def named(self, log: Log) -> str:
        """Return the plan for a reader."""
        return f"{self.run.value} of " + " and ".join(
            f"p{log.partitions[one.place].number} {one}" for one in self.spans
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch in the ledger; ``effects`` counts the publishes that wrote something."""

    plan: Plan
    state: BatchState = BatchState.PLANNED
    claim: int = 0
    effects: int = 0


class Phase(Enum):
    """How far an attempt has come. One that takes no further step is dead."""

    STAGING = "staging"
    STAGED = "staged"
    HALF = "has written rows, no positions"
    PUBLISHED = "published"
    REPEATED = "published again"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to load a batch: what it has staged so far."""

    batch: int
    claim: int
    phase: Phase = Phase.STAGING
    next_offset: int = 0
    staged: tuple[Version, ...] = ()


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a step may change.

    Attributes:
        table: Rows by key.
        removed: Versions of removed rows by key.
        dead: Open dead letters.
        closed: Dead letters that were discarded, or closed by a rebuild.
        seen: The records that were read, each with the newest settings that decoded it.
        committed: The next offset of each partition.
        loaded_to: The greatest committed offset that each partition ever had.
        ends: The end offset of each partition.
        kept: Offsets that compaction has left.
        horizons: When a tombstone may be dropped.
        caught_up: Time of the last plan that reached the end of a partition, and was published.
        now: The clock.
        settings: The settings in force.
        generation: The generation of the topic that exists.
        batches: The batches, in the order of their plans.
        attempts: The attempts, in the order of their claims.
        old_claim_wrote: An attempt has written although there was a newer claim.
    """

    ends: tuple[int, ...]
    kept: tuple[frozenset[int], ...]
    committed: tuple[int, ...]
    loaded_to: tuple[int, ...]
    caught_up: tuple[int | None, ...]
    table: tuple[tuple[str, Row], ...] = ()
    removed: tuple[tuple[str, Version], ...] = ()
    dead: frozenset[Version] = frozenset()
    closed: frozenset[Version] = frozenset()
    seen: tuple[tuple[Version, int], ...] = ()
    horizons: tuple[tuple[Version, int], ...] = ()
    now: int = 0
    settings: int = 0
    generation: int = 0
    batches: tuple[Batch, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    old_claim_wrote: bool = False

    @property
    def is_planned(self) -> bool:
        """Return whether a batch is outstanding."""
        return any(batch.state is BatchState.PLANNED for batch in self.batches)


def first_world(log: Log, *, arrived: int | None = None) -> World:
    """Return the world before the first plan; ``arrived`` records of each partition are there, or all."""
    ends = tuple(len(part.records) if arrived is None else arrived for part in log.partitions)
    none = (0,) * len(ends)
    kept = tuple(frozenset(range(len(part.records))) for part in log.partitions)
    return World(ends, kept, committed=none, loaded_to=none, caught_up=(None,) * len(ends))


def changed(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    """Return the values with another one at a place."""
    return (*values[:place], value, *values[place + 1 :])


def readable(world: World, log: Log, span: Span) -> tuple[Version, ...]:
    """Return the records of a span that the log holds now."""
    part = log.partitions[span.place]
    last = min(span.end, world.ends[span.place])
    return tuple(part.version(offset) for offset in range(span.start, last) if offset in world.kept[span.place])


def is_kept(world: World, log: Log, version: Version) -> bool:
    """Return whether the topic exists as the record's generation, and its log holds the record."""
    place = log.places[version.generation, version.partition]
    return version.generation == world.generation and version.offset in world.kept[place]


def compacted(world: World, log: Log, place: int, end: int) -> World:
    """Return the world after a cleaning of the offsets below ``end``.

    The newest record of each Kafka key stays. The first cleaning that meets a tombstone says when it may go; a later
    one, after that time, drops it (KIP-534).
    """
    part = log.partitions[place]
    below = sorted(offset for offset in world.kept[place] if offset < end)
    newest = {part.records[offset].first.key: offset for offset in below}
    horizons = dict(world.horizons)
    kept = set(world.kept[place])
    for offset in below:
        record, version = part.records[offset].first, part.version(offset)
        if newest[record.key] != offset or world.now > horizons.get(version, world.now):
            kept.discard(offset)
            horizons.pop(version, None)
        elif record.kind is Kind.TOMBSTONE:
            horizons.setdefault(version, world.now + RETENTION)
    left = (*world.kept[:place], frozenset(kept), *world.kept[place + 1 :])
    return replace(world, kept=left, horizons=tuple(sorted(horizons.items())))

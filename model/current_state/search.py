"""Breadth-first search for the shortest trace after which the table is not the fold."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from model.current_state.publication import Stopped
from model.current_state.records import (
    NOT_SENT,
    Folded,
    Kind,
    Log,
    Partition,
    Record,
    Version,
    fold,
    is_change,
    is_dead_letter,
)
from model.current_state.rules import Order, Pipeline, Rule
from model.current_state.steps import May, Setting, steps
from model.current_state.world import World, first_world


class Checked(IntEnum):
    """What is looked at in every state: the table alone, or also what the ledger must keep."""

    PROMISE = 1
    RULES = 2


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is searched.

    Attributes:
        name: What it is about.
        logs: Makes the logs, each of which is searched from its first world.
        may: What may happen.
        depth: The most steps.
        pipeline: The pipeline, with every rule on.
        batches: The most batches that attempts load step by step.
        arrived: Records of each partition that are there at first; all where None.
        loads_all: Some trace loads each log whole; otherwise the rules stop or refuse it.
        checked: What is looked at.
    """

    name: str
    logs: Callable[[], Iterable[Log]]
    may: frozenset[May]
    depth: int
    pipeline: Pipeline = field(default_factory=Pipeline)
    batches: int = 1
    arrived: int | None = None
    loads_all: bool = True
    checked: Checked = Checked.RULES


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found; ``broken`` is empty when everything holds in every state.

    Attributes:
        states: States that were looked at.
        seconds: Time that the search took.
        stuck: A log that no trace loaded whole, although one should.
        log: The log of the counterexample.
        trace: Its steps.
        broken: What does not hold after them.
    """

    states: int = 0
    seconds: float = 0.0
    stuck: str = ""
    log: str = ""
    trace: tuple[str, ...] = ()
    broken: str = ""

    @property
    def story(self) -> tuple[str, ...]:
        """Return the counterexample, a line a step."""
        return self.trace


@dataclass(slots=True)
class _Searched:
    """The search of one log."""

    states: int = 0
    is_loaded: bool = False
    trace: tuple[str, ...] = ()
    broken: str = ""


def search(scenario: Scenario, without: frozenset[Rule] = frozenset(), checked: Checked | None = None) -> Found:
    """Search a scenario without some rules: every state in its bounds, or up to the shortest counterexample."""
    began, states, depth = time.monotonic(), 0, scenario.depth
    pipeline = replace(scenario.pipeline, without=without)
    best, stuck = Found(), ""
    for log in scenario.logs():
        setting = Setting(log, pipeline, scenario.may, scenario.batches)
        one = _search_log(first_world(log, arrived=scenario.arrived), setting, depth, checked or scenario.checked)
        states += one.states
        if one.broken:
            best = Found(log=str(log), trace=one.trace, broken=one.broken)
            depth = len(one.trace) - 1  # of the next log, only a shorter one counts
        elif not one.is_loaded and scenario.loads_all:
            stuck = str(log)
    return replace(best, states=states, stuck=stuck, seconds=time.monotonic() - began)


def _search_log(first: World, setting: Setting, depth: int, checked: Checked) -> _Searched:
    result = _Searched()
    ends = tuple(len(part.records) for part in setting.log.partitions)
    todo: deque[tuple[World, tuple[str, ...]]] = deque([(first, ())])
    known = {first}
    while todo:
        world, trace = todo.popleft()
        result.is_loaded |= world.loaded_to == ends
        if len(trace) == depth:
            continue
        for name, step in steps(world, setting):
            try:
                after = step()
            except Stopped:
                continue
            if after in known:
                continue
            known.add(after)
            result.states += 1
            if broken := what_is_broken(after, setting, checked):
                result.trace, result.broken = (*trace, name), broken
                return result
            todo.append((after, (*trace, name)))
    return result


def what_is_broken(world: World, setting: Setting, checked: Checked) -> str:
    """Return what does not hold in a state; empty when all does."""
    folded = fold_of(world, setting)
    table = dict(world.table)
    if table != folded.rows:
        return f"the table is {_shown(table)}, the fold {_shown(folded.rows)}"
    if key := _key_in_two_partitions(world, setting):
        return f"key {key} was read in two partitions, which Kafka does not order, and nothing stopped"
    return _broken_rule(world, setting, folded) if checked is Checked.RULES else ""


def fold_of(world: World, setting: Setting) -> Folded:
    """Return the fold of what lies below ``loaded_to``, each record as it was decoded when it was last read."""
    by_the_rules = replace(setting.pipeline, without=setting.pipeline.without - {Rule.GENERATION_FIRST})
    counted = sorted(_counted(world, setting), key=lambda one: setting.log.rank(one[0], by_the_rules))
    return fold(counted, setting.pipeline)


def _counted(world: World, setting: Setting) -> Iterator[tuple[Version, Record]]:
    """Yield the records that the fold counts.

    A record that compaction took before it was read does not count, for a newer one of its key does; but what it said
    is not known any more. A tombstone that expired counts.
    """
    seen = dict(world.seen)
    for place, part in enumerate(setting.log.partitions):
        for offset in range(world.loaded_to[place]):
            version = part.version(offset)
            record = part.records[offset].under(seen.get(version, 0))
            if version in world.closed:
                continue
            if version in seen or _has_expired(world, place, part, offset):
                yield version, record
            else:
                yield version, Record(Kind.TAKEN, record.key)


def _has_expired(world: World, place: int, part: Partition, offset: int) -> bool:
    """Return whether a record that was not read is a tombstone, and no newer record of its key took it away."""
    record = part.records[offset].first
    newer = part.records[offset + 1 : world.ends[place]]
    return record.kind is Kind.TOMBSTONE and all(one.first.key != record.key for one in newer)


def _key_in_two_partitions(world: World, setting: Setting) -> str:
    """Return a key that the order by offset cannot order; empty if there is none."""
    if setting.pipeline.order is Order.TIME:
        return ""
    homes: dict[tuple[int, str], int] = {}
    for version, record in _counted(world, setting):
        if is_change(record, setting.pipeline):
            home = homes.setdefault((version.generation, record.key), version.partition)
            if home != version.partition:
                return record.key
    return ""


def _broken_rule(world: World, setting: Setting, folded: Folded) -> str:
    """Return what the ledger does not keep; empty when it keeps all."""
    removed = dict(world.removed)
    if both := removed.keys() & dict(world.table).keys():
        return f"in the table and among the removed: {', '.join(sorted(both))}"
    if any(folded.removed.get(key) != version for key, version in removed.items()):
        return f"the removed keys are {_shown(removed)}, by the fold {_shown(folded.removed)}"
    if lost := folded.dead - world.dead:
        return f"dead letters are missing: {', '.join(map(str, sorted(lost)))}"
    settings = dict(world.seen)
    records = {version: setting.log.records[version].under(settings.get(version, 0)) for version in world.dead}
    fine = {one for one in world.dead - folded.dead if not _may_be_dead(records[one], setting.pipeline)}
    if fine:
        return f"these are no dead letters any more: {', '.join(map(str, sorted(fine)))}"
    if any(batch.effects > 1 for batch in world.batches):
        return "a batch has taken effect twice"
    return "an attempt has written although there was a newer claim" if world.old_claim_wrote else ""


def _may_be_dead(record: Record, pipeline: Pipeline) -> bool:
    """Return whether the record is a dead letter, perhaps only where no older record of the key was at hand."""
    return record.text == NOT_SENT or is_dead_letter(record, pipeline)


def _shown(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(values.items())) or "empty"

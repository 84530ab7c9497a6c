"""What can happen next: runs, operators, the log, and the attempts of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from itertools import product
from typing import TypeVar

from model.current_state.publication import Stopped, publish
from model.current_state.records import Log, Version
from model.current_state.rules import Order, Pipeline, Rule
from model.current_state.world import (
    Attempt,
    Batch,
    BatchState,
    Phase,
    Plan,
    Run,
    Span,
    World,
    changed,
    compacted,
    is_kept,
    readable,
)

T = TypeVar("T")
Step = tuple[str, Callable[[], World]]
_LAST_TICK = 3


class May(Enum):
    """What may happen in a scenario."""

    LIVE = auto()  # a live run, with any cut
    RELOAD = auto()
    RESET = auto()  # of a position, backwards
    COMPACT = auto()
    TICK = auto()  # of the clock
    ARRIVE = auto()  # one more record in the log
    REPLAY = auto()  # of a dead letter
    DISCARD = auto()  # of a dead letter
    SETTINGS = auto()  # are changed, once
    REBUILD = auto()
    RECREATE = auto()  # the topic, and accept the new one
    ATTEMPT = auto()  # a batch step by step, by two attempts
    ATTEMPT_RELOAD = auto()  # the same for a reload
    ATTEMPT_REBUILD = auto()  # the same for a rebuild
    SUPERSEDE = auto()  # a planned batch
    LOSE_ANSWER = auto()  # to the COMMIT of a publish, which is asked for again


@dataclass(frozen=True, slots=True)
class Setting:
    """What stays as it is in a search."""

    log: Log
    pipeline: Pipeline
    may: frozenset[May]
    batches: int = 1


def steps(world: World, setting: Setting) -> Iterator[Step]:
    """Yield every step that can follow, with its name; a step may raise ``Stopped`` and then changes nothing."""
    if _is_refused(setting):
        return
    if not world.is_planned or May.SUPERSEDE in setting.may:
        yield from _whole_batches(world, setting)
        yield from _plans(world, setting)
    yield from _operator(world, setting)
    yield from _log(world, setting)
    for number in range(len(world.batches)):
        yield from _claims(world, number)
    for number in range(len(world.attempts)):
        yield from _attempt(world, setting, number)


def _is_refused(setting: Setting) -> bool:
    """Return whether the pipeline is refused, when its file is read or when it is planned."""
    pipeline = setting.pipeline
    if not pipeline.may_not_travel:
        return False
    if pipeline.order is Order.TIME and pipeline.keeps(Rule.TRAVEL_NEEDS_OFFSET_ORDER):
        return True
    return May.COMPACT in setting.may and pipeline.keeps(Rule.TRAVEL_NEEDS_WHOLE_LOG)


def _places(world: World, log: Log) -> list[int]:
    """Return the places of the partitions that exist."""
    return [place for place, part in enumerate(log.partitions) if part.generation == world.generation]


def _plan(world: World, run: Run, spans: tuple[Span, ...]) -> Plan:
    at_end = frozenset(span.place for span in spans if span.end >= world.ends[span.place])
    return Plan(run, spans, world.settings, world.now, at_end)


def _at_once(world: World, setting: Setting, plan: Plan) -> Step:
    """Return the step that plans, reads and publishes a batch while nothing else happens."""

    def step() -> World:
        read = [version for span in plan.spans for version in readable(world, setting.log, span)]
        return publish(_superseded(world), setting.log, setting.pipeline, plan, read)

    return plan.named(setting.log), step


def _superseded(world: World) -> World:
    """Return the world without an outstanding batch."""
    return replace(
        world,
        batches=tuple(
            replace(batch, state=BatchState.SUPERSEDED) if batch.state is BatchState.PLANNED else batch
            for batch in world.batches
        ),
    )


def _whole_batches(world: World, setting: Setting) -> Iterator[Step]:
    if May.LIVE in setting.may:
        yield from (_at_once(world, setting, plan) for plan in _live(world, setting))
    if May.RELOAD in setting.may:
        yield from (_at_once(world, setting, plan) for plan in _reloads(world, setting))
    if May.REBUILD in setting.may:
        yield _at_once(world, setting, _rebuild(world, setting))
    if May.RESET in setting.may:
        for place in _places(world, setting.log):
            for offset in range(world.committed[place]):
                committed = changed(world.committed, place, offset)
                name = f"reset of p{setting.log.partitions[place].number} to {offset}"
                yield name, partial(replace, _superseded(world), committed=committed)


def _live(world: World, setting: Setting) -> Iterator[Plan]:
    """Yield every plan of a live run; below ``loaded_to`` it may have to read up to it."""
    choices = []
    for place in _places(world, setting.log):
        start = world.committed[place]
        least = world.loaded_to[place] if setting.pipeline.reads_to_loaded_to else 0
        choices.append([Span(place, start, end) for end in range(max(start + 1, least), world.ends[place] + 1)])
    for spans in product(*([None, *some] for some in choices)):
        if chosen := tuple(span for span in spans if span is not None):
            yield _plan(world, Run.LIVE, chosen)


def _reloads(world: World, setting: Setting) -> Iterator[Plan]:
    for place in _places(world, setting.log):
        least = world.loaded_to[place] if setting.pipeline.reads_to_loaded_to else 0
        for start in range(world.committed[place]):
            for end in range(max(start + 1, least), world.ends[place] + 1):
                yield _plan(world, Run.RELOAD, (Span(place, start, end),))


def _rebuild(world: World, setting: Setting) -> Plan:
    spans = tuple(Span(place, 0, world.ends[place]) for place in _places(world, setting.log))
    return _plan(world, Run.REBUILD, spans)


def _operator(world: World, setting: Setting) -> Iterator[Step]:
    if May.SETTINGS in setting.may and world.settings == 0:
        yield "new settings", partial(replace, world, settings=1)
    waits = setting.pipeline.keeps(Rule.REPLAY_WAITS) and world.is_planned
    if May.REPLAY in setting.may and world.settings == 1 and not waits:
        for version in sorted(world.dead):
            yield from _replay(world, setting, version)
    if May.DISCARD in setting.may:
        for version in sorted(world.dead):
            name = f"dead letter {version} is discarded"
            yield name, partial(replace, world, dead=world.dead - {version}, closed=world.closed | {version})


def _replay(world: World, setting: Setting, version: Version) -> Iterator[Step]:
    """Yield the replay of a dead letter: of its stored bytes, or by a reload where rows need older records."""
    pipeline, log = setting.pipeline, setting.log
    if not pipeline.rows_need_older_records or not pipeline.keeps(Rule.REPLAY_IS_RELOAD):
        plan = _plan(world, Run.REPLAY, ())
        yield f"replay of {version}", partial(publish, world, log, pipeline, plan, [version])
    elif is_kept(world, log, version) and not world.is_planned:
        place = log.places[version.generation, version.partition]
        yield _at_once(world, setting, _plan(world, Run.REPLAY, (Span(place, version.offset, world.loaded_to[place]),)))


def _log(world: World, setting: Setting) -> Iterator[Step]:
    if May.TICK in setting.may and world.now < _LAST_TICK:
        yield "time passes", partial(replace, world, now=world.now + 1)
    if May.RECREATE in setting.may and world.generation < max(part.generation for part in setting.log.partitions):
        name = "the topic is created again, and accepted"
        yield name, partial(replace, _superseded(world), generation=world.generation + 1)
    for place in _places(world, setting.log):
        end, part = world.ends[place], setting.log.partitions[place]
        if May.TICK in setting.may and world.committed[place] == end:
            caught_up = (*world.caught_up[:place], world.now, *world.caught_up[place + 1 :])
            yield f"a plan finds nothing to read in p{part.number}", partial(replace, world, caught_up=caught_up)
        if May.ARRIVE in setting.may and end < len(part.records):
            yield f"{part.version(end)} arrives", partial(replace, world, ends=changed(world.ends, place, end + 1))
        if May.COMPACT in setting.may:
            for below in range(1, end + 1):
                name = f"compaction of p{part.number} below {below}"
                yield name, partial(compacted, world, setting.log, place, below)


def _plans(world: World, setting: Setting) -> Iterator[Step]:
    """Yield the plans of batches that attempts load step by step."""
    if len(world.batches) == setting.batches:
        return
    plans: list[Plan] = []
    if May.ATTEMPT in setting.may:
        plans += _live(world, setting)
    if May.ATTEMPT_RELOAD in setting.may:
        plans += _reloads(world, setting)
    if May.ATTEMPT_REBUILD in setting.may:
        plans.append(_rebuild(world, setting))
    before = _superseded(world)
    for plan in plans:
        name = f"batch {len(world.batches) + 1} is planned: {plan.named(setting.log)}"
        yield name, partial(replace, before, batches=(*before.batches, Batch(plan)))


def _claims(world: World, number: int) -> Iterator[Step]:
    """Yield the claim of a batch by its next attempt, at most two of them."""
    batch = world.batches[number]
    if batch.state is not BatchState.PLANNED or batch.claim == 2:
        return
    attempt = Attempt(number, batch.claim + 1, next_offset=batch.plan.spans[0].start)
    batches = _with(world.batches, number, replace(batch, claim=attempt.claim))
    name = f"attempt {attempt.claim} claims batch {number + 1}"
    yield name, partial(replace, world, batches=batches, attempts=(*world.attempts, attempt))


def _attempt(world: World, setting: Setting, number: int) -> Iterator[Step]:
    """Yield the next step of an attempt. It stages one offset after the other; its batch has one span."""
    attempt = world.attempts[number]
    who = f"attempt {attempt.claim} of batch {attempt.batch + 1}"
    span = world.batches[attempt.batch].plan.spans[0]
    publishes = partial(_published, world, setting, number)
    if attempt.phase is Phase.STAGING:
        yield f"{who} stages {attempt.next_offset}", partial(_staged, world, setting, number, span)
    elif attempt.phase is Phase.STAGED:
        yield f"{who} publishes", partial(publishes, Phase.PUBLISHED)
    elif attempt.phase is Phase.HALF:
        yield f"{who} writes the positions", partial(publishes, Phase.PUBLISHED)
    elif attempt.phase is Phase.PUBLISHED and May.LOSE_ANSWER in setting.may:
        yield f"{who} publishes again, as it had no answer", partial(publishes, Phase.REPEATED)


def _staged(world: World, setting: Setting, number: int, span: Span) -> World:
    """Return the world after an attempt has read what the log holds now at its next offset."""
    attempt = world.attempts[number]
    offset = attempt.next_offset
    read = readable(world, setting.log, Span(span.place, offset, offset + 1))
    attempt = replace(attempt, next_offset=offset + 1, staged=attempt.staged + read)
    if attempt.next_offset == span.end:
        attempt = replace(attempt, phase=Phase.STAGED)
    return replace(world, attempts=_with(world.attempts, number, attempt))


def _published(world: World, setting: Setting, number: int, phase: Phase) -> World:
    """Return the world after the publish of an attempt, in one transaction.

    Raises:
        Stopped: A newer attempt has claimed the batch, or it is superseded.
    """
    attempt, pipeline = world.attempts[number], setting.pipeline
    batch = world.batches[attempt.batch]
    done = replace(world, attempts=_with(world.attempts, number, replace(attempt, phase=phase)))
    if pipeline.keeps(Rule.STATE_CHECK) and batch.state is BatchState.COMMITTED:
        return done
    if pipeline.keeps(Rule.STATE_CHECK) and batch.state is BatchState.SUPERSEDED:
        raise Stopped("superseded")
    is_newest = attempt.claim == batch.claim
    if pipeline.keeps(Rule.CLAIM_CHECK) and not is_newest:
        raise Stopped("fenced")
    after = publish(done, setting.log, pipeline, batch.plan, attempt.staged)
    if not pipeline.keeps(Rule.ONE_TRANSACTION) and attempt.phase is Phase.STAGED:
        half = _with(world.attempts, number, replace(attempt, phase=Phase.HALF))
        return replace(after, committed=world.committed, loaded_to=world.loaded_to, attempts=half)
    batch = replace(batch, state=BatchState.COMMITTED, effects=batch.effects + 1)
    old = world.old_claim_wrote or not is_newest
    return replace(after, batches=_with(world.batches, attempt.batch, batch), old_claim_wrote=old)


def _with(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])

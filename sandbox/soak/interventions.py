"""What an operator does in a soak, decided by its seed: reloads, rebuilds, resets both ways, lag skips, roll-backs.

Like faults they are chosen before anything starts. The place of a span is chosen as a share of what exists when the
operator asks for it, because nobody knows that amount before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sandbox.soak.pipeline import PIPELINE, TOPIC, SoakMode
from sandbox.soak.traffic import PARTITIONS


class InterventionKind(StrEnum):
    """Kinds of intervention."""

    RELOAD = "reload"  #: a span by offsets or times, in a run of its own
    REBUILD = "rebuild"  #: the whole log, in a run of its own; of a table that holds the current state
    NEW_TABLE = "new_table"  #: the same, into a new table that takes the name of the old one
    RESET_BACKWARDS = "reset_backwards"  #: rows stay, and the next run replaces them
    RESET_FORWARDS = "reset_forwards"  #: the offsets that are passed over are given up
    SKIP_LAG = "skip_lag"  #: all but the last offsets are given up
    ROLL_BACK = "roll_back"  #: of the last one or two batches; of a table that is appended to

    @property
    def is_run(self) -> bool:
        """Whether it is a run of the pipeline, and no change of positions."""
        return self in (InterventionKind.RELOAD, InterventionKind.REBUILD, InterventionKind.NEW_TABLE)


@dataclass(frozen=True, slots=True)
class Span:
    """The span that a reload reads again.

    Attributes:
        by_times: By times, which is all partitions; else by offsets of ``partition``.
        partition: The partition.
        begin: Start of the span, as a share [0, 1) of the soak's time, or of the offsets below the committed one.
        end: End of the span, as the same share; 1 is the end of the log.
    """

    by_times: bool
    partition: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Intervention:
    """One intervention, asked for again and again until it is done.

    Attributes:
        kind: Kind of the intervention.
        span: Of a reload.
        offsets: How far a reset goes, and how many offsets a skip keeps.
        partition: The partition of a reset or skip; ``None``: all.
        batches: How many are rolled back.
        moment: When it is asked for, as a share [0, 0.7] of a run's progress; ``None``: before the run.
        kill_at: When the first command is killed, as a share of the time that it takes; ``None``: never.
        supersede: Supersede an open batch instead of waiting until there is none.
    """

    kind: InterventionKind
    span: Span | None = None
    offsets: int = 0
    partition: int | None = None
    batches: int = 0
    moment: float | None = None
    kill_at: float | None = None
    supersede: bool = True

    def __str__(self) -> str:
        when = "before" if self.moment is None else f"{self.moment:.2f}"
        return f"{self.kind}@{when}" + ("" if self.kill_at is None else " killed")


#: Kinds come in shuffled rounds, so that even a short soak meets each of them.
_OF_BOTH = (
    InterventionKind.RELOAD,
    InterventionKind.RELOAD,
    InterventionKind.RESET_BACKWARDS,
    InterventionKind.RESET_FORWARDS,
    InterventionKind.SKIP_LAG,
)
#: What a batch has overwritten is gone: such a table is not rolled back, but made anew.
_ROUNDS = {
    SoakMode.APPEND: (*_OF_BOTH, InterventionKind.ROLL_BACK, InterventionKind.ROLL_BACK),
    SoakMode.UPSERT: (*_OF_BOTH, InterventionKind.REBUILD, InterventionKind.NEW_TABLE),
}
_PER_CYCLE = {0: 2, 1: 5, 2: 2}  # weights
_BESIDE, _KILLED, _WAITS, _ALL_PARTITIONS = 0.6, 0.5, 0.3, 0.4
#: A command takes as long to start as a short run takes in all: one that starts later would meet only the run's end.
_LATEST_MOMENT = 0.7
#: A few runs' worth of offsets of one partition at the default rate, so that resets go back beyond earlier batches.
_MOST_BACKWARDS = 3000
#: Less than waits for a run, so that something is left to read.
_MOST_FORWARDS, _MOST_KEPT = 300, 200


def interventions(chance: random.Random, mode: SoakMode = SoakMode.APPEND) -> Iterator[tuple[Intervention, ...]]:
    """Yield the interventions of one cycle after another, without end, in the order of their moments."""
    kinds = _kinds(chance, _ROUNDS[mode])
    while True:
        [count] = chance.choices(list(_PER_CYCLE), weights=list(_PER_CYCLE.values()))
        chosen = [_intervention(next(kinds), chance) for _ in range(count)]
        yield tuple(sorted(chosen, key=lambda one: -1.0 if one.moment is None else one.moment))


def choose_span(chance: random.Random) -> Span:
    """Choose what a reload reads; a fifth of the spans reach to the end of the log."""
    begin = chance.random()
    end = 1.0 if chance.random() < 0.2 else begin + (1 - begin) * chance.random() / 2
    return Span(chance.random() < 0.4, chance.randrange(PARTITIONS), round(begin, 3), round(end, 3))


def reload_form(
    span: Span, committed: Mapping[int, int], since: datetime, now: datetime, *, reason: str = "soak"
) -> dict[str, str]:
    """Return the form of a run that reloads a span, with Airflow's names.

    Args:
        span: What is reloaded.
        committed: The committed offset of each partition.
        since: When the soak began.
        now: The time.
        reason: Why.
    """
    form = {"mode": "reload", "reason": reason}
    if span.by_times:
        begin, end = (since + timedelta(seconds=share * (now - since).total_seconds()) for share in _shares(span))
        times = {"from": begin.isoformat(timespec="milliseconds")} | (
            {} if span.end == 1 else {"to": end.isoformat(timespec="milliseconds")}
        )
        return form | times
    begin_offset, end_offset = (int(share * committed.get(span.partition, 0)) for share in _shares(span))
    end_text = "" if span.end == 1 or end_offset <= begin_offset else f" {end_offset}"
    return form | {"offsets": f"{TOPIC} {span.partition} {begin_offset}{end_text}"}


def rebuild_form(kind: InterventionKind, *, reason: str = "soak") -> dict[str, str]:
    """Return the form of a run that rebuilds. It gives up nothing: the log of a soak holds every record."""
    anew = {"into_new_table": ""} if kind is InterventionKind.NEW_TABLE else {}
    return {"mode": "rebuild", "reason": reason, **anew}


def reload_arguments(form: Mapping[str, str]) -> list[str]:
    """Return the arguments of ``run`` for a form; a key without a value is a flag."""
    names = {"from": "--from-time", "to": "--to-time", "into_new_table": "--into-new-table"}
    return [part for key, value in form.items() for part in (names.get(key, f"--{key}"), value) if part]


def change_arguments(wanted: Intervention, request_id: str, *, supersede: bool) -> list[str]:
    """Return the command that makes a position change or a roll-back."""
    ending = ["--reason", "soak", "--request-id", request_id, "--apply", "--json"]
    ending += ["--supersede"] if supersede else []
    if wanted.kind is InterventionKind.ROLL_BACK:
        return ["roll-back", PIPELINE, "--batches", str(wanted.batches), *ending]
    only = [] if wanted.partition is None else ["--only", TOPIC, str(wanted.partition)]
    change = {
        InterventionKind.RESET_BACKWARDS: ["reset", "--by", str(-wanted.offsets)],
        InterventionKind.RESET_FORWARDS: ["reset", "--by", str(wanted.offsets)],
        InterventionKind.SKIP_LAG: ["skip-lag", "--keep", str(wanted.offsets)],
    }[wanted.kind]
    return ["change", PIPELINE, *change, *only, *ending]


def _shares(span: Span) -> tuple[float, float]:
    return span.begin, span.end


def _kinds(chance: random.Random, kinds: Sequence[InterventionKind]) -> Iterator[InterventionKind]:
    while True:
        yield from chance.sample(kinds, k=len(kinds))


def _intervention(kind: InterventionKind, chance: random.Random) -> Intervention:
    most = {
        InterventionKind.RESET_BACKWARDS: _MOST_BACKWARDS,
        InterventionKind.RESET_FORWARDS: _MOST_FORWARDS,
        InterventionKind.SKIP_LAG: _MOST_KEPT,
    }.get(kind)
    is_beside = chance.random() < _BESIDE
    moves = most is not None
    return Intervention(
        kind,
        span=choose_span(chance) if kind is InterventionKind.RELOAD else None,
        offsets=chance.randint(1, most) if most else 0,
        partition=chance.randrange(PARTITIONS) if moves and chance.random() > _ALL_PARTITIONS else None,
        batches=chance.randint(1, 2) if kind is InterventionKind.ROLL_BACK else 0,
        moment=round(chance.random() * _LATEST_MOMENT, 3) if is_beside else None,
        kill_at=round(chance.random(), 3) if chance.random() < _KILLED else None,
        supersede=not is_beside or chance.random() > _WAITS,
    )

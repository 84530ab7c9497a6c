"""Faults of one attempt, each at its own point, for tests that try every one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.protocol_model.attempts import Attempt, CommitAnswer
from tests.protocol_model.world import World


@dataclass(frozen=True)
class Crash:
    """SIGKILL at the ``place``-th point of a run, counted from 0; a run that ends before is not hit."""

    place: int
    point: str

    def __str__(self) -> str:
        return f"{self.place:02} {self.point}"

    def strike(self, world: World, attempt: Attempt) -> None:
        for _ in range(self.place):
            if not attempt.is_over:
                world.resume(attempt)
        if not attempt.is_over:
            world.kill(attempt)


@dataclass(frozen=True)
class LostAnswer:
    """The answer to COMMIT is lost; one that is under way ends after the next attempt."""

    answer: CommitAnswer
    took_effect: bool = False

    def __str__(self) -> str:
        late = f", ends late {'committed' if self.took_effect else 'rolled back'}"
        return f"COMMIT: {self.answer.value}{late if self.answer is CommitAnswer.UNDER_WAY else ''}"

    def strike(self, world: World, attempt: Attempt) -> None:
        attempt.commit_answer = self.answer
        world.finish(attempt)


Fault = Crash | LostAnswer

LOST_ANSWERS = (
    LostAnswer(CommitAnswer.LOST_BEFORE),
    LostAnswer(CommitAnswer.LOST_AFTER),
    LostAnswer(CommitAnswer.UNDER_WAY, took_effect=False),
    LostAnswer(CommitAnswer.UNDER_WAY, took_effect=True),
)


def every_fault(passed: Attempt) -> list[Fault]:
    """Return a crash at each point that an attempt has passed, and every fate of the answer to its COMMIT."""
    return [*(Crash(place, str(point)) for place, point in enumerate(passed.passed)), *LOST_ANSWERS]


def run_into(first: Fault, second: Fault, *, world: World, start: Callable[[], Attempt]) -> Attempt:
    """Run one attempt into each fault, then a third one to its end; return that one.

    A COMMIT of the first that is still under way keeps the second out, and ends before the third.
    """
    for fault in (first, second):
        fault.strike(world, start())
    late = [f for f in (first, second) if isinstance(f, LostAnswer) and f.answer is CommitAnswer.UNDER_WAY]
    world.transactions.end_commits(took_effect=bool(late) and late[0].took_effect)
    last = start()
    world.finish(last)
    return last

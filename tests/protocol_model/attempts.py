"""Attempts: a process that runs the real steps, one port call at a time.

An attempt stands still before and after every call of a port, and goes on when the schedule says so. It can be killed
wherever it stands, which is how a crash at every point, a zombie and any interleaving of attempts are made without a
second thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeVar

from greenlet import getcurrent, greenlet

from kafka_ingest.errors import BrokerUnavailable, CommitStateUnknown, DatabaseUnavailable, IngestError
from tests.fakes.loading import FakeClock

T = TypeVar("T")
Work = Callable[["Attempt"], object]


class Killed(BaseException):
    """SIGKILL. No ``except`` of the steps sees it; what ``finally`` does is what the server does for a dead client."""


@dataclass(frozen=True)
class Point:
    """Where an attempt stands."""

    call: str
    moment: Literal["before", "after"]

    def __str__(self) -> str:
        return f"{self.moment} {self.call}"


START = Point("start", "before")
CLUSTER = "fake-cluster"
COMMIT = "publication.commit"


class LostConnection(Enum):
    """When the connection of a call breaks: before it took effect, or after."""

    BEFORE = "before"
    AFTER = "after"


class CommitAnswer(Enum):
    """What becomes of a COMMIT and of the answer to it."""

    RECEIVED = "received"
    LOST_BEFORE = "the server never got it"
    LOST_AFTER = "the server had committed"
    UNDER_WAY = "the server is still at it"


def _unwatched(_: str) -> AbstractContextManager[None]:
    return nullcontext()


class Attempt:
    """One process.

    Args:
        name: For messages.
        work: What it does, whatever that gives back; port calls go through :meth:`call`.
        watch: Gives a context in which the named call is made.
        cluster_id: The cluster that its connection leads to.

    Attributes:
        clock: Its own clock, which moves by sleeping.
        point: Where it stands.
        passed: Every point that it has passed.
        is_over: It ended, with ``error`` or without, or was killed.
        error: The error that it ended with.
        has_committed: A COMMIT of its own took effect.
        connection: Breaks at the next call.
        commit_answer: What becomes of its COMMIT.
        beat: Lets its heartbeat beat once; ``None`` while it has none.
    """

    def __init__(
        self,
        name: str,
        work: Work,
        watch: Callable[[str], AbstractContextManager[None]] = _unwatched,
        *,
        cluster_id: str = CLUSTER,
    ) -> None:
        self.name = name
        self.cluster_id = cluster_id
        self.clock = FakeClock(on_sleep=lambda: self._pause(Point("clock.sleep", "after")))
        self.point = START
        self.passed: list[Point] = []
        self.is_over = False
        self.error: IngestError | None = None
        self.has_committed = False
        self.connection: LostConnection | None = None
        self.commit_answer = CommitAnswer.RECEIVED
        self.beat: Callable[[], None] | None = None
        self._work = work
        self._watch = watch
        self._greenlet = greenlet(self._run)
        self._greenlet.attempt = self
        self.resume()

    def __str__(self) -> str:
        return f"{self.name} ({'over' if self.is_over else self.point})"

    @staticmethod
    def current() -> Attempt:
        """Return the attempt whose code is running."""
        attempt: Attempt = getcurrent().attempt
        return attempt

    def resume(self) -> None:
        """Let it go on to the next point, or to its end. An error that is no ``IngestError`` comes out here."""
        if not self.is_over:
            self._greenlet.switch()

    def kill(self) -> None:
        """End it where it stands."""
        if not self.is_over:
            self._greenlet.throw(Killed)

    def finish(self) -> None:
        """Let it go on to its end."""
        while not self.is_over:
            self.resume()

    def call(self, name: str, action: Callable[[], T]) -> T:
        """Make a port call, standing still before and after it. A call of the heartbeat goes straight through."""
        if getcurrent() is not self._greenlet:
            return action()
        self._pause(Point(name, "before"))
        if self._breaks(LostConnection.BEFORE):
            raise lost_connection(name)
        with self._watch(name):
            result = action()
        if self._breaks(LostConnection.AFTER):
            raise lost_connection(name)
        self._pause(Point(name, "after"))
        return result

    def _breaks(self, when: LostConnection) -> bool:
        if self.connection is not when:
            return False
        self.connection = None
        return True

    def _pause(self, point: Point) -> None:
        self.point = point
        self._greenlet.parent.switch()
        self.passed.append(point)

    def _run(self, *_: Any) -> None:
        try:
            self._pause(START)
            self._work(self)
        except IngestError as error:
            self.error = error
        except Killed:
            pass
        finally:
            self.is_over = True
            self.beat = None


def lost_connection(call: str) -> IngestError:
    """Return the error of a port whose peer is gone."""
    if call in (COMMIT, "roll_back.commit"):
        return CommitStateUnknown("the connection broke during COMMIT")
    kind = BrokerUnavailable if call.startswith(("log.", "task.read")) else DatabaseUnavailable
    return kind(f"the connection broke: {call}")

"""Answers of slow sources: in few threads, asked once for many readers, kept for seconds.

Airflow's API server answers everybody from one event loop and one pool of threads. The page takes none of these
threads: what blocks runs in threads of its own, two for each source (a *lane*), so that a database that hangs holds up
nobody but those who ask for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import inf
from threading import Lock
from typing import Any, TypeVar

from kafka_ingest.errors import TooBusy

_T = TypeVar("_T")

#: A pipeline's page asks its database once, so two threads answer two different questions at a time.
LANE_THREADS = 2
#: Questions that wait for a thread of a lane: of as many readers, since each asks one at a time, and none waits for
#: longer than it has patience.
LANE_QUEUE = 32
#: Long enough for ten people who look at one fault, short enough that nobody is misled.
FRESH_SECONDS = 5.0
#: Answers that are kept while they are fresh; the oldest goes first. One holds at most a pipeline's partitions.
_MOST_KEPT = 64


@dataclass(slots=True)
class _Kept:
    future: Future[Any]
    #: Without end while it is being answered.
    fresh_until: float = inf


class Answers:
    """Asks each question once at a time and keeps its answer, or its error, for a few seconds.

    Keys name questions, never readers: what a reader may see is decided afterwards.

    Args:
        fresh_seconds: How long an answer is kept.
        patience_seconds: How long a reader waits for one.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        *,
        fresh_seconds: float = FRESH_SECONDS,
        patience_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fresh_seconds = fresh_seconds
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._lock = Lock()
        self._kept: dict[Hashable, _Kept] = {}
        self._lanes: dict[str, _Lane] = {}

    async def ask(self, lane: str, key: Hashable, question: Callable[[], _T]) -> _T:
        """Return the answer to a question, which somebody else may have asked just now.

        Raises:
            TooBusy: The lane has no room, or the answer did not come in time; the question goes on.
            Exception: What the question raised, also for others who ask within a few seconds.
        """
        with self._lock:
            kept = self._kept.get((lane, key))
            if kept is None or kept.fresh_until < self._clock():
                kept = _Kept(self._lane(lane).submit(question))
                kept.future.add_done_callback(partial(self._answered, kept))
                self._keep((lane, key), kept)
        return await self._wait(lane, kept.future)

    async def run(self, lane: str, work: Callable[[], _T]) -> _T:
        """Return what work returns, which is of one reader alone.

        Raises:
            TooBusy: As :meth:`ask`.
            Exception: What the work raised.
        """
        with self._lock:
            future = self._lane(lane).submit(work)
        return await self._wait(lane, future)

    async def _wait(self, lane: str, future: Future[_T]) -> _T:
        try:
            # Shielded: a reader who leaves does not take the answer from the others.
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self._patience_seconds)
        except TimeoutError:
            raise TooBusy(
                f"{lane} has not answered", expected=f"an answer within {self._patience_seconds:.0f} seconds"
            ) from None

    def _answered(self, kept: _Kept, _: Future[Any]) -> None:
        kept.fresh_until = self._clock() + self._fresh_seconds

    def _keep(self, key: Hashable, kept: _Kept) -> None:
        now = self._clock()
        self._kept = {other: one for other, one in self._kept.items() if one.fresh_until >= now and other != key}
        self._kept[key] = kept
        while len(self._kept) > _MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))

    def _lane(self, name: str) -> _Lane:
        return self._lanes.setdefault(name, _Lane(name))


class _Lane:
    """The threads of one source, and a short queue before them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads = ThreadPoolExecutor(LANE_THREADS, thread_name_prefix=f"kafka-ingest-page-{name}")
        self._open: set[Future[Any]] = set()

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        self._open = {future for future in self._open if not future.done()}
        if len(self._open) >= LANE_THREADS + LANE_QUEUE:
            raise TooBusy(
                f"too many questions wait for {self._name}",
                expected=f"at most {LANE_THREADS + LANE_QUEUE} at a time",
                found=f"{len(self._open)}",
            )
        future = self._threads.submit(work)
        self._open.add(future)
        return future

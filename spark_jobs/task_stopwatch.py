"""Tells what a staging task spends its time on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from kafka_ingest.core.load_phases import TaskSeconds

T = TypeVar("T")


class TaskStopwatch:
    """Adds up seconds by the names of :class:`TaskSeconds`. A task looks at the clock a few times a chunk, no more."""

    def __init__(self) -> None:
        self._seconds = {"read": 0.0, "decode": 0.0, "copy": 0.0}

    @property
    def seconds(self) -> TaskSeconds:
        """What was measured so far."""
        return TaskSeconds(**self._seconds)

    @contextmanager
    def measuring(self, part: str) -> Iterator[None]:
        """Adds the time that the block takes, also when it fails."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - began

    def each(self, part: str, items: Iterable[T]) -> Iterator[T]:
        """Gives the items, adding the time that each is waited for."""
        iterator = iter(items)
        while True:
            with self.measuring(part):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

"""How the time of work grows with its size: a claim that holds on a slow and on a busy machine, as no time does.

Linear work takes eight times as long at eight times the size, and quadratic work 64 times. The limit lies between.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Material = TypeVar("Material")

#: Bytes. Whatever is quadratic in 64 KB takes long enough to stand out from what every call costs.
SMALL, LARGE = 8_192, 65_536
MOST_GROWTH = 24.0
#: Below this a ratio says more about the clock than about growth; quadratic work of any weight is far above.
SHORTEST_SECONDS = 0.005
#: No busy machine makes so much of 64 KB: there is no use in trying again.
HOPELESS_SECONDS = 4.0
_TRIES = 6
#: Linear work, and what a clock adds to it; quadratic work looks so when its small size takes eight times too long.
_LINEAR = 1.1 * LARGE / SMALL


def growth(
    work: Callable[[Material], object],
    material: Callable[[int], Material],
    *,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Return how many times longer work takes on LARGE bytes of material than on SMALL ones; 0 if that is too short.

    Tries end as soon as the work is linear beyond doubt. Until then each time is the least of several tries in turn,
    because other programs make work slower and never quicker. The large one comes first: what only a first call costs
    must not make the small one look long, and so hide growth.
    """
    large, small = material(LARGE), material(SMALL)
    found = least_small = least_large = float("inf")
    with _collector_off():
        for _ in range(_TRIES):
            least_large = min(least_large, _seconds(work, large, clock))
            if least_large < SHORTEST_SECONDS:
                return 0.0
            least_small = min(least_small, _seconds(work, small, clock))
            found = least_large / least_small
            if found < _LINEAR or (least_large > HOPELESS_SECONDS and found > MOST_GROWTH):
                break
    return found


def _seconds(work: Callable[[Material], object], material: Material, clock: Callable[[], float]) -> float:
    began = clock()
    work(material)
    return clock() - began


@contextmanager
def _collector_off() -> Iterator[None]:
    """Keep Python's collector from walking all that the test process holds, which has nothing to do with the work."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

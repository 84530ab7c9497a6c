"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_SECONDS = 0.05


def until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Returns as soon as the condition holds.

    Raises:
        TimeoutError: It did not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:g} s it was not true that {what}")
        time.sleep(POLL_SECONDS)

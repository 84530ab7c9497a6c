"""Python's garbage collector, in work that makes many objects and hardly any cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: The collector runs after so many new objects (Python: 700). A chunk of a task is up to 10,000 messages and as many
#: decoded records, a plan some dozen objects for each of its partitions; all of them die when their count falls to
#: zero, so looking through them finds nothing. Ten chunks bound what cycles may hold until then.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Has the collector run rarely in this process meanwhile, then as often as before."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)

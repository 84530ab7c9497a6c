"""The one seam between operators and the world: what a world makes, replaced by fakes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_ingest.world import World


def replace_world(monkeypatch: pytest.MonkeyPatch, **made: Callable[..., object]) -> None:
    """Replaces methods of every world, by name; each is called with the arguments of the method, without the world."""
    for name, make in made.items():
        monkeypatch.setattr(World, name, lambda _, *arguments, make=make: make(*arguments))

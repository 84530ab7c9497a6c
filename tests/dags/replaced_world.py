"""The seams between operators and the world: what a world makes, replaced by fakes, and what spark-submit gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from kafka_ingest.world import World


def replace_world(monkeypatch: pytest.MonkeyPatch, **made: Callable[..., object]) -> None:
    """Replaces methods of every world, by name; each is called with the arguments of the method, without the world."""
    for name, make in made.items():
        monkeypatch.setattr(World, name, lambda _, *arguments, make=make: make(*arguments))


def variables_of(hook: SparkSubmitHook) -> dict[str, Any]:
    """Return the variables that the process of spark-submit gets from the task."""
    assert hook._env is not None
    return hook._env

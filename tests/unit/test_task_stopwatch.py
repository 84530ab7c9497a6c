from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_ingest.protocol.batch import TaskSeconds
from spark_jobs.stage import TaskStopwatch


@pytest.fixture
def time_passes(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the stopwatch: its only element, which tests move on."""
    now = [100.0]
    monkeypatch.setattr("spark_jobs.stage.time.perf_counter", lambda: now[0])
    return now


def test_parts_are_told_apart_and_add_up(time_passes: list[float]) -> None:
    stopwatch = TaskStopwatch()
    for seconds in (2.0, 3.0):
        with stopwatch.measuring("decode"):
            time_passes[0] += seconds
        time_passes[0] += 50.0
        with stopwatch.measuring("copy"):
            time_passes[0] += 1.0
    assert stopwatch.seconds == TaskSeconds(read=0.0, decode=5.0, copy=2.0)


def test_waiting_for_items_counts_and_using_them_does_not(time_passes: list[float]) -> None:
    def reader() -> Iterator[str]:
        for item in "ab":
            time_passes[0] += 4.0
            yield item
        time_passes[0] += 1.0  # until it knows that this was the last one

    stopwatch = TaskStopwatch()
    seen = []
    for item in stopwatch.each("read", reader()):
        seen.append(item)
        time_passes[0] += 50.0
    assert seen == ["a", "b"]
    assert stopwatch.seconds == TaskSeconds(read=9.0)


def test_a_fault_passes_through_and_its_time_counts(time_passes: list[float]) -> None:
    def read(_: int) -> str:
        time_passes[0] += 4.0
        raise ValueError("broken")

    stopwatch = TaskStopwatch()
    with pytest.raises(ValueError, match="broken"):
        list(stopwatch.each("read", map(read, range(9))))
    assert stopwatch.seconds == TaskSeconds(read=4.0)

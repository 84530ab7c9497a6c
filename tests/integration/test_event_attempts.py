"""Attempts of a batch with values that did not travel, beside each other: what one staged is the other's nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_ingest.errors import Fenced
from kafka_ingest.protocol.batch import Batch, RunOptions
from kafka_ingest.settings import Deletes
from tests.event_bench import PLACEHOLDER, Event, EventBench
from tests.integration.test_state_attempts import Attempt, everything
from tests.state_bench import TOPIC

EVENTS = [
    Event("u", "1", 2, PLACEHOLDER, "doc"),
    Event("u", "2", 3, PLACEHOLDER, "unknown"),
    Event("d", "3"),
    Event("u", "3", 4, PLACEHOLDER, "after its delete"),
    Event("u", "4", 5, PLACEHOLDER, "doc"),
    Event("d", "4"),
]


@pytest.fixture(params=[Deletes.REMOVE, Deletes.MARK])
def bench(database: Mapping[str, Any], request: pytest.FixtureRequest) -> EventBench:
    bench = EventBench(database, request.param)
    for key in "134":
        bench.event(Event("c", key, 1, f"big {key}", "doc"))
    bench.live()
    for event in EVENTS:
        bench.event(event)
    return bench


def require_expected(bench: EventBench, *loaded: Batch) -> None:
    for r in (r for batch in loaded for r in batch.ranges):
        entries = bench.log.topics[TOPIC].partitions[r.partition].entries
        bench.seen |= {(r.partition, offset): 0 for offset in range(r.start, r.end) if offset in entries}
    assert bench.rows() == bench.expected()
    assert (bench.violations(), bench.state_violations()) == ([], [])


def test_of_two_attempts_that_staged_only_the_newer_publishes(bench: EventBench) -> None:
    batch = bench.plan(RunOptions())
    older, newer = Attempt(bench, batch).stage(), Attempt(bench, batch).stage()
    before = everything(bench)
    with pytest.raises(Fenced):
        older.publish()
    assert everything(bench) == before
    newer.publish()
    require_expected(bench, batch)
    published = everything(bench)
    older.publish()  # finds it committed
    newer.publish()
    assert everything(bench) == published


def test_a_publish_that_ended_before_its_commit_can_be_made_again(bench: EventBench) -> None:
    """It had made dead letters of staged rows: that is taken back with everything else."""
    batch = bench.plan(RunOptions())
    attempt = Attempt(bench, batch).stage()
    for _ in range(2):
        with attempt.publishing():
            require_expected(bench)
    attempt.publish()
    require_expected(bench, batch)
    assert sorted(bench.open_dead_letters()) == [(0, 4), (0, 6)]


def test_what_losing_attempts_of_a_task_staged_is_no_source(bench: EventBench) -> None:
    """A doubled task has staged the same records under another number, before or after the one that counts."""
    batch = bench.plan(RunOptions())
    attempt = Attempt(bench, batch).stage()
    assert attempt.outcome is not None
    # Only the second run of the tasks counts.
    attempt.stage()
    attempt.publish()
    require_expected(bench, batch)

"""One run that meets two faults: the world that it runs in, the faults there are, and what must come of it."""

from __future__ import annotations

from functools import cache, partial

import pytest

from kafka_ingest.protocol.batch import BatchState, Request, RunOptions, TimeSpan
from kafka_ingest.protocol.position import TopicPartition
from tests.fakes.log import Fate
from tests.protocol_model.crash_points import Fault, every_fault, run_into
from tests.protocol_model.driven_steps import drive_steps
from tests.protocol_model.pipeline import model_settings
from tests.protocol_model.situations import Happened
from tests.protocol_model.stores import FakeStore, Store
from tests.protocol_model.world import FIRST_MS, World

LIVE = Request("scheduled", "run-2")
#: Reads values with fields that no column reads, in two partitions.
EVOLVING = Request("scheduled", "run with new fields")
#: Reads everything from the first record on: what is loaded is replaced, the backlog moves the positions.
RELOAD = Request("backfill", "run-2", parameters=RunOptions(times=TimeSpan(FIRST_MS)).to_parameters())

#: Partition and offset of what is stored in the end: offset 2 of partition 1 is a tombstone that becomes a row, 0 there
#: was aborted, 1 is its marker.
_STORED = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 2)]


def world_with_backlog(store: Store, request: Request) -> World:
    """One batch is loaded; rows, a dead letter and an aborted record wait in two partitions for a request."""
    world = World(store, model_settings())
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    world.log.create_topic("orders", 2)
    world.log.append(first, b"loaded")
    world.finish(world.start_run(Request("scheduled", "run-1")))
    fields = (b"field:note", b"field:total") if request is EVOLVING else (b"b", b"c")
    world.log.append(first, b"a", b"bad", *fields)
    world.log.begin(second)
    world.log.append(second, b"aborted", transaction=world.log.transactions[0])
    world.log.end(world.log.transactions[0], Fate.ABORTED)
    world.log.append(second, None)
    world.happened.add(Happened.COMMIT_ANSWER_LOST)
    return world


@cache
def faults_of_a_run(request: Request) -> list[Fault]:
    """Return every fault that a run with this request can meet in that world."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        drive_steps(monkeypatch)
        world = world_with_backlog(FakeStore(), request)
        attempt = world.start_run(request)
        world.finish(attempt)
        return every_fault(attempt)


def require_one_copy(store: Store, first: Fault, second: Fault, request: Request) -> None:
    """Run into both faults, then to the end, and check what is stored."""
    world = world_with_backlog(store, request)
    last = run_into(first, second, world=world, start=partial(world.start_run, request))
    assert last.error is None, f"after {first}, {second}: {last.error}"
    world.check()
    stored = [*store.rows(), *store.dead_letters()]
    assert sorted((r.partition, r.offset) for r in stored) == _STORED, f"after {first}, {second}"
    assert [p.committed_offset for p in store.positions()] == [5, 3]
    assert [(b.state, b.is_announced) for b in store.batches()] == [(BatchState.COMMITTED, True)] * 2

"""Two faults in one run: every ordered pair of points. Whatever the first two attempts came to, the third ends well."""

from __future__ import annotations

from functools import partial

import pytest

from kafka_ingest.core.batch import BatchState, Request
from kafka_ingest.core.offsets import TopicPartition
from tests.fakes.log import Fate
from tests.protocol_model.crash_points import Fault, every_fault, run_into
from tests.protocol_model.driven_steps import drive_steps
from tests.protocol_model.situations import Happened
from tests.protocol_model.stores import FakeStore
from tests.protocol_model.world import World, model_settings

REQUEST = Request("scheduled", "run-2")

#: Partition and offset of what is stored in the end: offset 2 of partition 1 is a tombstone that becomes a row, 0 there
#: was aborted, 1 is its marker.
STORED = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 2)]


def world_with_backlog() -> World:
    """One batch is loaded; rows, a dead letter and an aborted record wait in two partitions."""
    world = World(FakeStore(), model_settings())
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    world.log.create_topic("orders", 2)
    world.log.append(first, b"loaded")
    world.finish(world.start_run(Request("scheduled", "run-1")))
    world.log.append(first, b"a", b"bad", b"b", b"c")
    world.log.begin(second)
    world.log.append(second, b"aborted", transaction=world.log.transactions[0])
    world.log.end(world.log.transactions[0], Fate.ABORTED)
    world.log.append(second, None)
    world.happened.add(Happened.COMMIT_ANSWER_LOST)
    return world


def faults_of_a_run() -> list[Fault]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        drive_steps(monkeypatch)
        world = world_with_backlog()
        attempt = world.start_run(REQUEST)
        world.finish(attempt)
        return every_fault(attempt)


FAULTS = faults_of_a_run()


def test_the_points_of_a_run_are_before_and_after_each_of_its_port_calls() -> None:
    """Worked out from the steps: 4 calls of plan; claim, create, parallelism, run, read and stage of 2 tasks, Kafka's
    ids, 7 of publish, drop and read of load; 4 of audit. Each twice, the start, and 4 fates of the answer to COMMIT.
    """
    assert len(FAULTS) == 2 * (4 + 4 + 2 * 2 + 1 + 7 + 2 + 4) + 1 + 4


@pytest.mark.parametrize("first", FAULTS, ids=str)
def test_after_any_two_faults_a_third_attempt_loads_everything_once(
    first: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive_steps(monkeypatch)
    for second in FAULTS:
        world = world_with_backlog()
        last = run_into(first, second, world=world, start=partial(world.start_run, REQUEST))
        assert last.error is None, f"after {first}, {second}: {last.error}"
        world.check()
        stored = [*world.store.rows(), *world.store.dead_letters()]
        assert sorted((r.partition, r.offset) for r in stored) == STORED, f"after {first}, {second}"
        assert [p.committed_offset for p in world.store.positions()] == [5, 3]
        assert [(b.state, b.is_announced) for b in world.store.batches()] == [(BatchState.COMMITTED, True)] * 2

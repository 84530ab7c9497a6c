"""One event at every point of a run: log, database or another attempt changes, the run goes on, a last one ends well.

The random schedules find such things by chance; here each is tried everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest

from kafka_ingest.protocol.batch import Request
from kafka_ingest.protocol.position import TopicPartition
from tests.fakes.log import Fate
from tests.protocol_model.driven_steps import drive_steps
from tests.protocol_model.finale import end_well
from tests.protocol_model.pipeline import model_settings
from tests.protocol_model.situations import Happened
from tests.protocol_model.stores import FakeStore
from tests.protocol_model.world import HOLD, World

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
RUN, OTHER = Request("scheduled", "run-2"), Request("scheduled", "run-3")
Event = Callable[[World], None]


def world_with(*waiting: bytes | None) -> World:
    """One record is loaded; the 8 that wait in partition 0 are read by two tasks, which meet at offset 5."""
    world = World(FakeStore(), model_settings())
    world.log.create_topic("orders", 2)
    world.log.append(FIRST, b"loaded")
    world.finish(world.start_run(Request("scheduled", "run-1")))
    world.log.append(FIRST, *waiting)
    world.log.append(SECOND, b"a", b"bad")
    return world


SPLIT = (b"1", b"bad", b"3", None, b"5", b"6", b"bad", b"8")
NEW_FIELDS = (b"1", b"bad", b"field:note", None, b"5", b"6", b"field:total", b"8")


def truncates(to: int, then: int) -> Event:
    def event(world: World) -> None:
        world.happened.add(Happened.TRUNCATED)
        world.log.truncate(FIRST, to)
        world.log.append(FIRST, *[b"new"] * then)

    return event


def recreates(partitions: int, records: int) -> Event:
    def event(world: World) -> None:
        world.happened.add(Happened.TOPIC_DELETED)
        world.log.delete_topic("orders")
        if partitions:
            world.log.create_topic("orders", partitions)
        for number in range(partitions):
            world.log.append(TopicPartition("orders", number), *[b"new"] * records)

    return event


def deletes_records(before: int) -> Event:
    def event(world: World) -> None:
        world.happened.add(Happened.RECORDS_DELETED)
        world.log.delete_records(FIRST, before)

    return event


def compacts(*offsets: int) -> Event:
    def event(world: World) -> None:
        for offset in offsets:
            world.log.compact(FIRST, offset)

    return event


def appends(world: World) -> None:
    world.log.append(FIRST, b"late")
    world.log.begin(SECOND)
    world.log.append(SECOND, b"aborted", transaction=world.log.transactions[-1])
    world.log.end(world.log.transactions[-1], Fate.ABORTED)


def adds_partitions(world: World) -> None:
    world.log.log.add_partitions("orders", 3)
    world.log.append(TopicPartition("orders", 2), b"new", b"bad")


def crashes_database(world: World) -> None:
    world.crash_database(commits_took_effect=False)


def restores_database(world: World) -> None:
    world.restore()


def loads_again(world: World) -> None:
    world.finish(world.start_run(RUN))


def claims_again(world: World) -> None:
    """And never comes back."""
    attempt = world.start_run(RUN)
    world.go_on(attempt, "staging.create")
    if not attempt.is_over:
        world.kill(attempt)


def takes_over(world: World) -> None:
    """Another run comes when the hold has passed."""
    world.store.advance(HOLD.start_timeout_seconds + 1)
    world.finish(world.start_run(OTHER))


def plans_for_another(world: World) -> None:
    """And never loads."""
    world.store.advance(HOLD.start_timeout_seconds + 1)
    attempt = world.start_run(OTHER)
    world.go_on(attempt, "ledger.claim")
    if not attempt.is_over:
        world.kill(attempt)


EVENTS: dict[str, Event] = {
    **{f"truncated to {to}, {then} more": truncates(to, then) for to in (0, 1, 3, 5, 7) for then in (0, 2, 12)},
    **{f"created again with {n}, {records} each": recreates(n, records) for n in (1, 2, 3) for records in (0, 2, 12)},
    "topic deleted": recreates(0, 0),
    **{f"records before {before} deleted": deletes_records(before) for before in (1, 3, 9)},
    "one record compacted": compacts(3),
    "records on both sides of the seam compacted": compacts(4, 5),
    "records arrive": appends,
    "a partition joins": adds_partitions,
    "the database crashes": crashes_database,
    "the database is restored": restores_database,
    "the same run loads": loads_again,
    "the same run claims": claims_again,
    "another run loads": takes_over,
    "another run plans": plans_for_another,
}


#: What meets the steps more than the log.
OF_OTHERS = list(EVENTS)[-8:]


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_whatever_happens_at_whichever_point_nothing_is_lost_or_doubled(
    event: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive_steps(monkeypatch)
    try_everywhere(event, SPLIT)


@pytest.mark.parametrize("event", OF_OTHERS)
def test_whatever_others_do_while_columns_are_added_no_value_is_lost(
    event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive_steps(monkeypatch)
    try_everywhere(EVENTS[event], NEW_FIELDS)


def try_everywhere(event: Event, waiting: Sequence[bytes | None]) -> None:
    for place in count():
        world = world_with(*waiting)
        attempt = world.start_run(RUN)
        world.go_on(attempt, place)
        is_last = attempt.is_over
        event(world)
        world.check()
        world.finish(attempt)
        world.check()
        end_well(world)
        if is_last:
            break

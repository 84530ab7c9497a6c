"""Runs of a pipeline that holds the current state are killed, sleep, or lose an answer: its table ends as the fold.

The fold is the one that a plain consumer computes over the whole topic. Points inside of the publish transaction are
one state to PostgreSQL: each change takes one in the middle of the fold and the last of them, in live runs, reloads and
rebuilds. The others are slow, as are points that every pipeline has.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from sandbox.kafka import KafkaBroker
from sandbox.state_verification import Newest
from tests.crash.crash_points import (
    OF_NEW_TABLE,
    REBUILD,
    REBUILD_INTO_NEW_TABLE,
    REBUILD_POINTS,
    RELOAD_EVERYTHING,
    STATE_POINTS,
    STATE_RELOAD_POINTS,
    CrashPoint,
)
from tests.crash.cut_runs import proxy_for, start_through
from tests.crash.cutting_proxy import Session, lose_answer, lose_request
from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import SECTIONS
from tests.crash.state_at_risk import ENDS, StateAtRisk, read_all_the_time, state_at_risk
from tests.crash.state_topic import LOG_START, PARTITIONS, StateTopic, produce_changes, read_changes
from tests.crash.stopped_runs import has_open_transactions, stopped
from tests.deadlines import until
from tests.integration.pipeline_under_test import PipelineUnderTest
from tests.services import ProducerFactory, TopicFactory

RETRY_LATER = 75
#: The quick ones of live runs, and of runs that read again.
ON_THE_WAY = {
    "plan.ledger.record_plan:after",
    "load.staging.create:after",
    "load.task.copy:middle",
    "load.log.delete_retentions:after",
    "load.fold.fold_insert_rows:after",
    "load.publication.commit:before",
    "load.ledger.settle:before",
    "load.publication.commit:after",
}
READ_AGAIN = {
    "load.fold.let_go_rows:after",
    "load.fold.sweep_rows:after",
    "load.publication.commit:before",
    "load.publication.commit:after",
}


def killed_at(state: StateAtRisk, point: CrashPoint, run_id: str, parameters: str) -> None:
    driver = state.start(
        Instructions(state.name, run_id, parameters, stop_at=point.event, nth=point.nth, situation=point.situation)
    )
    assert driver.end() == -signal.SIGKILL, f"{point.name} was not reached\n{driver.output}"


def params(points: Sequence[CrashPoint], is_quick: Callable[[CrashPoint], bool]) -> list[Any]:
    return [
        pytest.param(point, id=f"{point.kind} {point.name}", marks=() if is_quick(point) else pytest.mark.slow)
        for point in points
    ]


def test_the_topic_holds_what_the_tests_say(state_topic: StateTopic) -> None:
    """Of each partition: a, b and d stand, c was removed by ``gone``, old and never were met once."""
    found = state_topic.folded(ENDS)
    for n in range(PARTITIONS):
        rows = {key: one for key, one in found.rows.items() if one.partition == n}
        # Offsets 0 to 8; three aborted changes and a marker up to 12, three committed ones and a marker up to 16; six
        # more up to 22, three up to 25, and one aborted delete with its marker.
        assert rows == {
            f"old{n}": Newest(n, 0, 1),
            f"a{n}": Newest(n, 8, 7),
            f"b{n}": Newest(n, 17, 13),
            f"d{n}": Newest(n, 25, 19),
        }
        assert {key: one for key, one in found.removed.items() if one.partition == n} == {
            f"never{n}": Newest(n, 1, None),
            f"c{n}": Newest(n, 22, None),
        }
        assert {offset for partition, offset in found.dead_letters if partition == n} == {7, 19, 23}


LIVE = params(STATE_POINTS, lambda point: point.name in ON_THE_WAY)


@pytest.mark.parametrize("point", LIVE)
def test_killed_at_a_point_then_run_again_the_table_is_the_fold(state: StateAtRisk, point: CrashPoint) -> None:
    if point.step != "plan":
        state.run("before")
    with read_all_the_time(state):
        killed_at(state, point, "killed", point.parameters)
        state.require_all_or_nothing()
        state.run("killed", point.parameters)
        state.run_until_nothing_is_left()
    state.require_every_record_once()

    before = state.contents()
    assert state.run("killed", point.parameters).state.value == "committed"
    assert state.run("nothing new").ranges == ()
    assert state.contents() == before


NEXT = params(
    [point for point in STATE_POINTS if point.leaves_a_planned_batch],
    lambda point: point.name == "load.publication.commit:before",
)


@pytest.mark.parametrize("point", NEXT)
def test_killed_at_a_point_and_superseded_by_the_next_run_the_table_is_the_fold(
    state: StateAtRisk, point: CrashPoint
) -> None:
    state.run("before")
    with read_all_the_time(state):
        killed_at(state, point, "killed", point.parameters)
        state.require_all_or_nothing()
        state.run("next")
        state.run_until_nothing_is_left()
    state.require_every_record_once()


TWICE = [
    pytest.param("load.task.copy:middle", "load.publication.write_newest:after", marks=pytest.mark.slow),
    ("load.publication.write_newest:after", "load.publication.commit:after"),
]


@pytest.mark.parametrize(("first", "second"), TWICE)
def test_killed_twice_then_run_again_the_table_is_the_fold(state: StateAtRisk, first: str, second: str) -> None:
    state.run("before")
    with read_all_the_time(state):
        for event in (first, second):
            killed = state.start(Instructions(state.name, "killed", stop_at=event))
            assert killed.end() == -signal.SIGKILL, killed.output
            state.require_all_or_nothing()
        state.run("killed")
        state.run_until_nothing_is_left()
    state.require_every_record_once()


RELOAD = params(STATE_RELOAD_POINTS, lambda point: point.name in READ_AGAIN)


@pytest.mark.parametrize("point", RELOAD)
def test_a_reload_that_is_killed_leaves_the_old_fold_or_the_new_one(state: StateAtRisk, point: CrashPoint) -> None:
    """The file reads notes from another member by then: each row is another one, and a dead letter becomes one."""
    state.load_everything()
    state.write("second")
    old, new = state.log.folded(ENDS), state.log.folded(ENDS, "second")
    with read_all_the_time(state, new):
        killed_at(state, point, "reload", RELOAD_EVERYTHING)
        assert state.seen() == (old if point.leaves_a_planned_batch else new, ENDS)
        state.require_invariants()
        state.run("reload", RELOAD_EVERYTHING)
    state.note = "second"
    state.require_every_record_once()
    assert state.run("nothing new").ranges == ()


@pytest.fixture
def expired(
    raw_pipeline: PipelineUnderTest, topic: TopicFactory, producer: ProducerFactory, kafka_broker: KafkaBroker
) -> Iterator[tuple[StateAtRisk, StateTopic]]:
    """A pipeline that has loaded a topic, and what the topic holds since retention took its first records."""
    name = topic(PARTITIONS)
    produce_changes(kafka_broker.bootstrap, producer, name)
    state = state_at_risk(raw_pipeline, read_changes(kafka_broker.bootstrap, name))
    try:
        state.load_everything()
        yield state, state.log.without_the_first_records(kafka_broker.bootstrap)
    finally:
        state.end_all()


@pytest.mark.parametrize("point", params(REBUILD_POINTS, lambda point: point.name in READ_AGAIN))
def test_a_rebuild_that_is_killed_leaves_the_old_fold_or_the_new_one(
    expired: tuple[StateAtRisk, StateTopic], point: CrashPoint
) -> None:
    """Every note is another one in the new fold, and the keys of expired records are gone."""
    state, log = expired
    state.write("second")
    old, new = state.log.folded(ENDS), log.folded(ENDS, "second")
    assert old.rows.keys() - new.rows.keys() == {f"old{number}" for number in range(PARTITIONS)}
    assert min(one.offset for one in (*new.rows.values(), *new.removed.values())) >= LOG_START
    with read_all_the_time(state, new):
        killed_at(state, point, "rebuild", REBUILD)
        assert state.seen() == (old if point.leaves_a_planned_batch else new, ENDS)
        state.require_invariants()
        state.run("rebuild", REBUILD)
    state.log, state.note = log, "second"
    state.require_every_record_once()
    assert state.run("nothing new").ranges == ()


COMMITS = ("load.publication.commit:before", "load.publication.commit:after")
INTO_NEW_TABLE = [*OF_NEW_TABLE, *(point for point in REBUILD_POINTS if point.event in COMMITS)]


@pytest.mark.parametrize("point", params(INTO_NEW_TABLE, lambda point: point.event != "load.publication.commit:before"))
def test_a_rebuild_into_a_new_table_that_is_killed_leaves_the_old_table_or_the_new_one(
    expired: tuple[StateAtRisk, StateTopic], point: CrashPoint
) -> None:
    """Whoever reads sees the one or the other; nothing is left of tables that never took the name."""
    state, log = expired
    state.write("second")
    old, new = state.log.folded(ENDS), log.folded(ENDS, "second")
    with read_all_the_time(state, new):
        killed_at(state, point, "rebuild", REBUILD_INTO_NEW_TABLE)
        assert state.seen() == (new if point.event == COMMITS[1] else old, ENDS)
        state.require_invariants()
        state.run("rebuild", REBUILD_INTO_NEW_TABLE)
    state.log, state.note = log, "second"
    state.require_every_record_once()
    schema, table = state.files.table.split(".")
    tables = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = %s::regnamespace AND relname ~ %s"
    found = state.files.query(tables, schema, f"^({table}_before_.*|kafka_ingest_rebuilt_.*)$")
    assert [name[: len(table) + 8] for (name,) in found] == [f"{table}_before_"]


SLEEPING = [
    pytest.param("load.staging.create:after", marks=pytest.mark.slow),
    pytest.param("load.task.copy:middle", marks=pytest.mark.slow),
    "load.publisher.begin:before",
]


@pytest.mark.parametrize("event", SLEEPING)
def test_a_zombie_that_wakes_after_newer_versions_were_published_changes_nothing(
    state: StateAtRisk, event: str
) -> None:
    state.write(hold={**SECTIONS["hold"], "heartbeat_timeout_seconds": 2})
    state.run("before")
    with read_all_the_time(state):
        zombie = stopped(state, event)
        # Another claim of the same batch, and every later change of its keys.
        state.run("zombie")
        state.run_until_nothing_is_left()
        before = state.everything()
        zombie.wake()
        assert zombie.end() in (0, RETRY_LATER), zombie.output
        assert state.everything() == before
    state.require_every_record_once()


def test_a_zombie_in_the_middle_of_its_fold_is_ended_by_the_server_and_changes_nothing(state: StateAtRisk) -> None:
    state.run("before")
    with read_all_the_time(state):
        zombie = stopped(state, "load.publication.write_newest:after", idle_timeout_seconds=1)
        until(lambda: not has_open_transactions(state), "the server has ended the zombie's transactions")
        state.run("zombie")
        state.run_until_nothing_is_left()
        before = state.everything()
        zombie.wake()
        assert zombie.end() == RETRY_LATER, zombie.output
        assert state.everything() == before
    state.require_every_record_once()


@pytest.mark.parametrize(
    ("on_commit", "code", "standing"),
    [(lose_request, RETRY_LATER, "planned"), (lose_answer, 0, "committed")],
    ids=["COMMIT was lost", "its answer was lost"],
)
def test_a_commit_in_doubt_is_settled_by_the_ledger_and_the_table_is_the_fold(
    state: StateAtRisk, on_commit: Callable[[Session, bytes], None], code: int, standing: str
) -> None:
    state.run("before")
    with read_all_the_time(state), proxy_for(state, on_commit) as proxy:
        driver = start_through(proxy, state)
        assert driver.end() == code, driver.output
        assert proxy.saw_commit.is_set()
        assert state.files.query("SELECT state FROM kafka_ingest.batch WHERE run_id = 'cut'") == [(standing,)]
        state.require_all_or_nothing()
        state.run("cut")
        state.run_until_nothing_is_left()
    state.require_every_record_once()

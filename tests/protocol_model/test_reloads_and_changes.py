"""Schedules worked out by hand: reloads, changes of positions and roll-backs where each of their guards decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import BatchOutstanding, LogTruncated, ReloadWouldLose, RollBackRefused
from kafka_ingest.protocol.batch import OffsetSpan, Request, RunOptions
from kafka_ingest.protocol.dead_letters import DeadLetterAction, DeadLetterChoice, DeadLetterRequest
from kafka_ingest.protocol.decisions import (
    AcceptLoss,
    AcceptRecreation,
    Change,
    ChangeRequest,
    LogPlace,
    ResetBy,
    ResetToPlace,
    SkipLag,
)
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.roll_back import RollBackRequest
from kafka_ingest.settings import Tombstones
from tests.protocol_model.attempts import Attempt
from tests.protocol_model.driven_steps import drive_steps
from tests.protocol_model.finale import due_error, end_well
from tests.protocol_model.pipeline import model_settings
from tests.protocol_model.situations import Happened
from tests.protocol_model.stores import FakeStore
from tests.protocol_model.world import World

PLACE = TopicPartition("orders", 0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Offsets 0 to 4 and 5 to 9 are loaded, by one batch each."""
    drive_steps(monkeypatch)
    found = World(FakeStore(), model_settings())
    found.log.create_topic("orders", 1)
    for _ in range(2):
        found.log.append(PLACE, b"good", b"bad", b"good", None, b"good")
        run(found, found.new_request("scheduled"))
    found.happened |= {Happened.RELOADED, Happened.COMPACTED, Happened.TRUNCATED}
    return found


def run(world: World, request: Request) -> Attempt:
    attempt = world.start_run(request)
    world.finish(attempt)
    world.check()
    return attempt


def reload(world: World, start: int, end: int | None, *, what_is_left: bool = False) -> Request:
    options = RunOptions(offsets=(OffsetSpan("orders", 0, start, end),), reload_what_is_left=what_is_left)
    return replace(world.new_request("manual"), parameters=options.to_parameters())


def change(world: World, change: Change, *, supersede: bool = False) -> Attempt:
    request_id = f"change-{len(world.asked) + 1}"
    attempt = world.start_asked(ChangeRequest("orders", request_id, change, "somebody", "to test", supersede))
    world.finish(attempt)
    world.check()
    return attempt


def roll_back(world: World, batches: int) -> Attempt:
    request_id = f"roll-back-{len(world.asked) + 1}"
    attempt = world.start_asked(RollBackRequest(request_id, "orders", batches, "somebody", "to test"))
    world.finish(attempt)
    world.check()
    return attempt


def resolve(world: World, action: DeadLetterAction, limit: int | None = None) -> Attempt:
    request_id, choice = f"{action.value}-{len(world.asked) + 1}", DeadLetterChoice(limit=limit)
    request = DeadLetterRequest(request_id, "orders", action, choice, "somebody", "to test")
    attempt = world.start_asked(request)
    world.finish(attempt)
    world.check()
    return attempt


def dead(world: World) -> list[tuple[int, str | None]]:
    return sorted((letter.offset, letter.reason) for letter in world.store.standing_dead_letters())


def owners(world: World) -> list[int]:
    """Return for each stored offset the number of the batch that wrote it."""
    numbers = {batch.batch_id: number for number, batch in enumerate(world.store.batches(), start=1)}
    stored = sorted((*world.store.rows(), *world.store.dead_letters()), key=lambda record: record.offset)
    return [numbers[record.batch_id] for record in stored]


def committed_offset(world: World) -> int:
    [position] = world.store.positions()
    return position.committed_offset


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (2, 6, [1, 1, 3, 3, 3, 3, 2, 2, 2, 2]),
        (8, None, [1] * 5 + [2] * 3 + [3] * 4),
        (12, None, [1] * 5 + [2] * 5 + [3] * 2),
    ],
    ids=["below the position", "across it", "above it"],
)
def test_a_reload_replaces_what_was_loaded_and_leaves_no_gap(
    world: World, start: int, end: int | None, expected: list[int]
) -> None:
    world.log.append(PLACE, b"good", b"good")
    assert run(world, reload(world, start, end)).error is None
    assert owners(world) == expected
    end_well(world)


def test_a_reload_of_the_end_alone_does_not_hide_that_the_log_was_truncated_before_it(world: World) -> None:
    """Offsets 5 and 6 of the old history would stay for ever, and nobody would hear of it."""
    world.log.truncate(PLACE, 5)
    world.log.append(PLACE, *[b"good"] * 7)
    assert run(world, reload(world, 7, 10)).error is None
    assert due_error(world) is LogTruncated
    end_well(world)


def test_a_reload_across_the_position_notices_that_the_log_was_truncated_below_it(world: World) -> None:
    world.log.truncate(PLACE, 5)
    world.log.append(PLACE, *[b"good"] * 7)
    assert isinstance(run(world, reload(world, 7, None)).error, LogTruncated)
    end_well(world)


def test_a_compacted_record_stops_a_reload_until_it_is_given_up(world: World) -> None:
    world.log.compact(PLACE, 2)
    assert isinstance(run(world, reload(world, 0, 5)).error, ReloadWouldLose)
    assert owners(world) == [1] * 5 + [2] * 5
    world.runs.finished |= set(world.requests)
    assert run(world, reload(world, 0, 5, what_is_left=True)).error is None
    assert owners(world) == [4] * 4 + [2] * 5


def test_tombstones_that_are_only_counted_now_are_no_loss(world: World) -> None:
    world.settings = replace(world.settings, batch=replace(world.settings.batch, tombstones=Tombstones.COUNT))
    assert run(world, reload(world, 0, 10)).error is None
    assert owners(world) == [3] * 8
    end_well(world)


def test_after_a_reset_backwards_the_next_run_replaces(world: World) -> None:
    world.log.append(PLACE, b"good")
    assert change(world, ResetBy(-7)).error is None
    assert owners(world) == [1] * 5 + [2] * 5
    assert run(world, world.new_request("scheduled")).error is None
    assert owners(world) == [1] * 3 + [3] * 8
    end_well(world)


def test_a_reset_is_refused_while_a_batch_is_outstanding_or_takes_it_away(world: World) -> None:
    world.log.append(PLACE, b"good")
    attempt = world.start_run(world.new_request("scheduled"))
    world.go_on(attempt, "publication.insert_rows")
    world.kill(attempt)
    again = world.start_run(world.requests[-1])
    world.go_on(again, "publisher.begin")
    assert isinstance(change(world, ResetBy(-3)).error, BatchOutstanding)
    assert change(world, ResetBy(-3), supersede=True).error is None
    world.finish(again)
    assert committed_offset(world) == 7
    end_well(world)


def test_a_change_that_a_run_comes_before_is_chosen_again(world: World) -> None:
    world.log.append(PLACE, b"good")
    attempt = world.start_asked(ChangeRequest("orders", "change-1", ResetBy(-3), "somebody", "to test"))
    world.go_on(attempt, "changes.record_change")
    assert run(world, world.new_request("scheduled")).error is None
    world.finish(attempt)
    assert (attempt.error, committed_offset(world)) == (None, 8)
    end_well(world)


def test_what_a_change_passes_over_is_given_up_and_nothing_else(world: World) -> None:
    world.log.append(PLACE, *[b"good"] * 6)
    assert change(world, SkipLag(2)).error is None
    assert committed_offset(world) == 14
    end_well(world)
    assert owners(world) == [1] * 5 + [2] * 5 + [3] * 2


def test_loss_after_retention_is_accepted_at_the_log_start(world: World) -> None:
    world.log.append(PLACE, *[b"good"] * 6)
    world.happened.add(Happened.RECORDS_DELETED)
    world.log.delete_records(PLACE, 12)
    assert change(world, AcceptLoss()).error is None
    end_well(world)
    assert owners(world) == [1] * 5 + [2] * 5 + [3] * 4


def test_a_topic_that_was_created_again_is_read_from_its_begin_in_the_next_generation(world: World) -> None:
    world.happened.add(Happened.TOPIC_DELETED)
    world.log.delete_topic("orders")
    world.log.create_topic("orders", 2)
    world.log.append(PLACE, b"good", b"good")
    assert change(world, AcceptRecreation()).error is None
    end_well(world)
    assert sorted(r.offset for r in world.store.rows() if r.generation == 1) == [0, 1]
    assert len([r for r in (*world.store.rows(), *world.store.dead_letters()) if r.generation == 0]) == 10


def test_a_roll_back_takes_the_newest_batch_with_what_was_reloaded_in_its_span(world: World) -> None:
    run(world, reload(world, 3, 8))
    assert roll_back(world, 1).error is None
    assert owners(world) == [1] * 3 + [3] * 2
    assert committed_offset(world) == 5
    end_well(world)


def test_a_roll_back_never_passes_a_change(world: World) -> None:
    change(world, ResetBy(-2))
    assert isinstance(roll_back(world, 1).error, RollBackRefused)
    assert run(world, world.new_request("scheduled")).error is None
    assert isinstance(roll_back(world, 2).error, RollBackRefused)
    assert roll_back(world, 1).error is None
    assert committed_offset(world) == 8
    end_well(world)


def test_a_roll_back_passes_no_changes_that_led_back_to_where_its_batch_ended(world: World) -> None:
    for offsets in (-7, 7):
        change(world, ResetBy(offsets))
    assert committed_offset(world) == 10
    assert isinstance(roll_back(world, 1).error, RollBackRefused)
    end_well(world)


def test_a_reset_to_the_log_start_and_a_roll_back_of_all_that_followed_end_with_everything_once(world: World) -> None:
    change(world, ResetToPlace(LogPlace.EARLIEST))
    assert run(world, reload(world, 4, 6)).error is None
    assert committed_offset(world) == 6
    assert roll_back(world, 1).error is None
    assert owners(world) == [2] * 4
    end_well(world)
    assert owners(world) == [4] * 10


def test_what_fits_is_replayed_once_and_a_reload_reads_it_like_any_other(world: World) -> None:
    """Offsets 1 and 6 are bad; of these the first fits by now."""
    assert resolve(world, DeadLetterAction.REPLAY).error is None
    assert [offset for offset, _ in dead(world)] == [6]
    assert resolve(world, DeadLetterAction.REPLAY).error is None
    assert run(world, reload(world, 0, 10)).error is None
    assert [offset for offset, _ in dead(world)] == [1, 6]
    end_well(world)


def test_what_was_discarded_stays_whatever_a_reload_reads(world: World) -> None:
    assert resolve(world, DeadLetterAction.DISCARD, limit=1).error is None
    before = dead(world)
    world.log.compact(PLACE, 1)
    assert run(world, reload(world, 0, 10)).error is None
    assert dead(world) == before
    end_well(world)


def test_a_replay_is_refused_while_a_batch_is_planned_and_waits_for_nobody(world: World) -> None:
    world.log.append(PLACE, b"bad")
    planned = world.start_run(world.new_request("scheduled"))
    world.go_on(planned, "ledger.claim")
    assert isinstance(resolve(world, DeadLetterAction.REPLAY).error, BatchOutstanding)
    world.finish(planned)
    assert resolve(world, DeadLetterAction.REPLAY).error is None
    end_well(world)


def test_a_replay_that_is_killed_anywhere_is_made_once_when_it_is_asked_for_again(world: World) -> None:
    request = DeadLetterRequest("r1", "orders", DeadLetterAction.REPLAY, DeadLetterChoice(), "somebody", "to test")
    for points in range(1, 40):
        attempt = world.start_asked(request)
        world.go_on(attempt, points)
        if attempt.is_over:
            break
        world.kill(attempt)
        world.check()
    assert [offset for offset, _ in dead(world)] == [6]
    end_well(world)

"""What resolving dead letters promises, in memory and in PostgreSQL: the step on both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import (
    BatchOutstanding,
    Busy,
    ConfigError,
    IngestError,
    LockTimeout,
    RequestChanged,
    TargetMismatch,
    TopicRecreated,
)
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.dead_letters import (
    DeadLetterAction,
    DeadLetterChoice,
    DeadLetterOutcome,
    DeadLetterPlace,
    DeadLetterReport,
    DeadLetterRequest,
    resolve_dead_letters,
)
from tests.builders import offset_range, pipeline_settings
from tests.contracts.ledger_values import all_rows, claimed, first_plan, load, next_plan, outcome_of, publish, view
from tests.contracts.ledger_worlds import LedgerWorld
from tests.contracts.roll_back_values import undo

EVERYTHING = DeadLetterChoice()
DISCARD = DeadLetterAction.DISCARD


@pytest.fixture
def world(world: LedgerWorld) -> LedgerWorld:
    """Offsets 0 to 5 of partition 0: 1, 3 and 4 are dead letters, malformed; the others are rows."""
    load(world, first_plan(world, offset_range(0, 0, 6)), 1, 3, 4)
    return world


def asked(
    choice: DeadLetterChoice = EVERYTHING,
    action: DeadLetterAction = DeadLetterAction.REPLAY,
    request_id: str = "r1",
    why: str = "mended",
) -> DeadLetterRequest:
    return DeadLetterRequest(request_id, "orders", action, choice, "ada", why)


def done(world: LedgerWorld, request: DeadLetterRequest | None = None, *, apply: bool = True) -> DeadLetterReport:
    return resolve_dead_letters(pipeline_settings(), request or asked(), world.letters, apply=apply)


def rows(world: LedgerWorld) -> list[int]:
    return [row.offset for row in world.rows()]


def reasons(world: LedgerWorld) -> list[tuple[int, str | None]]:
    return [(letter.offset, letter.reason) for letter in world.dead_letters()]


def unresolved(world: LedgerWorld) -> int:
    """Return how many dead letters a request could choose."""
    return done(world, asked(action=DISCARD, request_id="nobody"), apply=False).outcome.discarded


def again(world: LedgerWorld) -> Batch:
    """Plan the whole span once more, as a reload does."""
    whole = replace(offset_range(0, 0, 6), committed_before=6, loaded_to=6)
    return claimed(world, next_plan(world, whole))


def test_what_fits_becomes_a_row_once_and_what_does_not_stays_with_its_new_reason(world: LedgerWorld) -> None:
    world.decide(rows=[1, 4])
    told = done(world)
    assert (told.outcome.replayed, told.outcome.counted, told.outcome.discarded) == (2, 0, 0)
    assert [(s.reason, s.records, s.offset) for s in told.outcome.stayed] == [("wrong_type", 1, 3)]
    assert [(g.reason, g.records, g.first_offset, g.end_offset) for g in told.chosen] == [("malformed", 3, 1, 5)]
    assert rows(world) == [0, 1, 2, 4, 5]
    assert reasons(world) == [(1, "malformed"), (3, "wrong_type"), (4, "malformed")]
    assert unresolved(world) == 1
    assert world.ledger.violations("orders") == []


def test_a_tombstone_that_is_only_counted_by_now_is_resolved_without_a_row(world: LedgerWorld) -> None:
    world.decide(rows=[1], counted=[3, 4])
    assert done(world).outcome == DeadLetterOutcome(replayed=1, counted=2)
    assert (rows(world), unresolved(world)) == ([0, 1, 2, 5], 0)
    assert world.ledger.violations("orders") == []


def test_a_preview_says_the_same_and_writes_nothing(world: LedgerWorld) -> None:
    world.decide(rows=[1, 3])
    told = done(world, asked(why=""), apply=False)
    assert (told.outcome.replayed, told.recorded) == (2, None)
    assert (rows(world), unresolved(world)) == ([0, 2, 5], 3)
    assert reasons(world) == [(1, "malformed"), (3, "malformed"), (4, "malformed")]
    assert done(world).outcome == told.outcome


def test_the_same_request_again_does_nothing_and_gives_what_was_recorded(world: LedgerWorld) -> None:
    world.decide(rows=[1])
    first = done(world)
    assert first.recorded is not None
    assert (first.recorded.who, first.recorded.why, first.was_done_before) == ("ada", "mended", False)
    world.decide(rows=[1, 3, 4])
    again = done(world)
    assert (again.was_done_before, again.recorded, again.outcome) == (True, first.recorded, first.outcome)
    assert rows(world) == [0, 1, 2, 5]
    for other in (asked(action=DISCARD), asked(DeadLetterChoice(limit=1))):
        with pytest.raises(RequestChanged):
            done(world, other)


def test_dead_letters_whose_key_has_a_newer_version_are_recorded_as_superseded(world: LedgerWorld) -> None:
    outcome = DeadLetterOutcome(replayed=1, superseded=2)
    with world.letters.begin_dead_letters(asked()) as transaction:
        transaction.lock()
        transaction.choose()
        assert transaction.record(outcome).outcome == outcome
        transaction.commit()
    assert done(world).outcome == outcome


def test_another_request_takes_only_what_is_left(world: LedgerWorld) -> None:
    world.decide(rows=[1, 3, 4])
    assert done(world, asked(DeadLetterChoice(limit=1), request_id="one")).outcome.replayed == 1
    assert done(world, asked(request_id="all")).outcome.replayed == 2
    assert done(world, asked(request_id="nothing is left")).outcome == DeadLetterOutcome()
    assert rows(world) == [0, 1, 2, 3, 4, 5]
    assert world.ledger.violations("orders") == []


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (DeadLetterChoice(reasons=("malformed", "too_long")), 3),
        (DeadLetterChoice(reasons=("too_long",)), 0),
        (DeadLetterChoice(places=(DeadLetterPlace("orders"),)), 3),
        (DeadLetterChoice(places=(DeadLetterPlace("orders", 1),)), 0),
        (DeadLetterChoice(places=(DeadLetterPlace("orders", 0, 3, 4), DeadLetterPlace("orders", 0, 4, 9))), 2),
        (DeadLetterChoice(generation=1), 0),
        (DeadLetterChoice(batch_id="00000000-0000-4000-8000-000000000000"), 0),
        (DeadLetterChoice(limit=2), 2),
    ],
)
def test_dead_letters_are_chosen_by_what_the_request_says(
    world: LedgerWorld, choice: DeadLetterChoice, chosen: int
) -> None:
    assert done(world, asked(choice, DISCARD)).outcome.discarded == chosen
    assert unresolved(world) == 3 - chosen


def test_beside_a_planned_batch_nothing_is_resolved(world: LedgerWorld) -> None:
    world.decide(rows=[1, 3, 4])
    planned = next_plan(world, offset_range(0, 6, 9))
    for action in DeadLetterAction:
        with pytest.raises(BatchOutstanding, match=planned.batch_id):
            done(world, asked(action=action))
    assert (rows(world), len(world.dead_letters())) == ([0, 2, 5], 3)


def test_nobody_plans_or_replays_while_a_request_is_under_way(world: LedgerWorld) -> None:
    with world.letters.begin_dead_letters(asked()) as transaction:
        transaction.lock()
        with pytest.raises(Busy):
            next_plan(world, offset_range(0, 6, 9))
        with pytest.raises(LockTimeout):
            done(world, asked(request_id="another"))
    world.decide(rows=[1])
    assert done(world).outcome.replayed == 1


def test_leaving_without_commit_changes_nothing(world: LedgerWorld) -> None:
    world.decide(rows=[1, 3, 4])
    with world.letters.begin_dead_letters(asked()) as transaction:
        transaction.lock()
        transaction.stage(transaction.choose())
        assert transaction.insert_rows() == 3
        transaction.record(transaction.resolve())
    assert (rows(world), unresolved(world)) == ([0, 2, 5], 3)
    assert done(world).was_done_before is False


def test_records_of_another_log_are_not_replayed_but_can_be_discarded(world: LedgerWorld) -> None:
    world.decide(rows=[1, 3, 4])
    stands = view(world).positions[0]
    for other in (replace(stands, generation=1), replace(stands, topic_id="another")):
        world.put(other)
        with pytest.raises(TopicRecreated, match=r"3 of generation 0"):
            done(world)
    assert rows(world) == [0, 2, 5]
    assert done(world, asked(DeadLetterChoice(generation=0), DISCARD)).outcome.discarded == 3


def test_what_only_the_target_refuses_stays_and_the_others_become_rows(world: LedgerWorld) -> None:
    world.decide(rows=[1, 3, 4])
    world.refuse("never_three", 3)
    told = done(world).outcome
    assert (told.replayed, [(s.reason, s.offset) for s in told.stayed]) == (2, [("check_violation", 3)])
    assert (rows(world), unresolved(world)) == ([0, 1, 2, 4, 5], 1)


def test_a_trigger_that_drops_rows_stops_the_replay(world: LedgerWorld) -> None:
    world.decide(rows=[1, 3])
    world.swallow("drops_three", 3)
    with pytest.raises(TargetMismatch, match="drops_three"):
        done(world)
    assert (rows(world), unresolved(world)) == ([0, 2, 5], 3)


def test_a_trigger_that_leaves_rows_alone_is_no_obstacle(world: LedgerWorld) -> None:
    world.decide(rows=[1, 3])
    world.swallow("drops_others", 99)
    assert done(world).outcome.replayed == 2
    assert rows(world) == [0, 1, 2, 3, 5]


def test_a_discarded_dead_letter_stays_and_keeps_its_record_out_of_a_reload(world: LedgerWorld) -> None:
    assert done(world, asked(action=DISCARD)).outcome == DeadLetterOutcome(discarded=3)
    batch = again(world)
    world.stage(batch, all_rows(batch))
    publish(world, batch, outcome_of(batch))
    assert rows(world) == [0, 2, 5]
    assert reasons(world) == [(1, "malformed"), (3, "malformed"), (4, "malformed")]
    assert world.ledger.violations("orders") == []


def test_a_replayed_record_is_a_record_like_any_other_under_a_reload(world: LedgerWorld) -> None:
    world.decide(rows=[1, 3], counted=[4])
    done(world)
    batch = again(world)
    world.stage(batch, all_rows(batch, 3))
    publish(world, batch, outcome_of(batch, dead_letters=1))
    assert rows(world) == [0, 1, 2, 4, 5]
    assert {row.batch_id for row in world.rows()} == {batch.batch_id}
    assert (reasons(world), unresolved(world)) == ([(3, "malformed")], 1)
    assert world.ledger.violations("orders") == []


def test_a_roll_back_takes_replayed_rows_and_their_dead_letters_along(world: LedgerWorld) -> None:
    world.decide(rows=[1, 3])
    done(world)
    undo(world)
    assert (rows(world), world.dead_letters()) == ([], [])
    assert world.ledger.violations("orders") == []


def test_without_a_reason_nothing_is_done(world: LedgerWorld) -> None:
    for action in DeadLetterAction:
        with pytest.raises(ConfigError, match="needs a reason"):
            done(world, asked(action=action, why=" "))


def test_a_file_that_names_another_table_is_refused(world: LedgerWorld) -> None:
    settings = pipeline_settings()
    other = replace(settings, batch=replace(settings.batch, target=replace(settings.batch.target, table="others")))
    with pytest.raises(ConfigError, match="change-target"):
        resolve_dead_letters(other, asked(), world.letters, apply=True)
    assert unresolved(world) == 3


def test_an_unknown_pipeline_has_nothing_to_resolve(world: LedgerWorld) -> None:
    with pytest.raises(IngestError, match="none of that name in the ledger"):
        done(world, replace(asked(), pipeline="unheard_of"))

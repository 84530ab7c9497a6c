"""What rolling back promises, in memory and in PostgreSQL: the step on both, and the port where the step hides it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import (
    AccountingMismatch,
    BatchNotCommitted,
    BatchOutstanding,
    Busy,
    Fenced,
    LedgerMoved,
    LockTimeout,
    RequestChanged,
    RollBackRefused,
)
from kafka_ingest.protocol.audit import audit_batch
from kafka_ingest.protocol.batch import BatchOutcome, PartitionOutcome, RecordCounts, Request
from kafka_ingest.protocol.decisions import ChangeRequest, ResetBy
from kafka_ingest.protocol.plan import standing_batch
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.roll_back import RollBackRecord, UndoneSpan, WrittenCounts
from tests.builders import REQUEST
from tests.contracts.ledger_values import (
    LATER,
    TARGET,
    claimed,
    first_plan,
    load,
    next_plan,
    outcome_of,
    position_after,
    publish,
    staged,
    view,
)
from tests.contracts.ledger_worlds import LedgerWorld
from tests.contracts.roll_back_values import (
    asked,
    loaded,
    offsets,
    orders_log,
    previewed,
    range_at,
    states,
    two_batches,
    undo,
)

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_rows_dead_letters_position_and_state_go_together(world: LedgerWorld) -> None:
    first, second = two_batches(world)
    span = UndoneSpan("orders", 0, 0, 6, 3, 0, 1, WrittenCounts(rows=2, dead_letters=1))
    assert undo(world) == RollBackRecord("undo", 1, (second.batch_id,), None, (span,))

    assert offsets(world) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert world.dead_letters() == []
    assert view(world).positions == (
        replace(position_after(3, partition=0), timeline=1),
        position_after(2, partition=1),
    )
    assert states(world, first, second) == ["committed", "rolled_back"]
    assert world.ledger.violations("orders") == []


def test_a_preview_says_the_same_and_writes_nothing(world: LedgerWorld) -> None:
    first, second = two_batches(world)
    before = view(world).positions
    plan = previewed(world)
    assert [batch.batch_id for batch in plan.batches] == [second.batch_id]
    assert [(p.before.committed_offset, p.after.committed_offset, p.after.timeline) for p in plan.positions] == [
        (6, 3, 1)
    ]
    assert (plan.faults, plan.supersedes) == ((), None)
    assert (view(world).positions, states(world, first, second)) == (before, ["committed", "committed"])
    assert len(world.rows()) == 7


def test_the_same_request_again_gives_what_was_recorded_and_undoes_nothing_more(world: LedgerWorld) -> None:
    first, second = two_batches(world)
    once = undo(world)
    before = view(world).positions
    assert undo(world) == once
    assert (view(world).positions, states(world, first, second)) == (before, ["committed", "rolled_back"])


def test_the_same_request_id_with_another_number_of_batches_is_refused(world: LedgerWorld) -> None:
    first, second = two_batches(world)
    undo(world)
    with pytest.raises(RequestChanged, match="undo"):
        undo(world, 2)
    assert states(world, first, second) == ["committed", "rolled_back"]


def test_two_batches_lower_each_partition_to_where_the_older_one_began(world: LedgerWorld) -> None:
    first, second = two_batches(world)
    record = undo(world, 2)
    assert record.batch_ids == (second.batch_id, first.batch_id)
    assert [(s.topic_partition, s.from_offset, s.to_offset, s.counts) for s in record.spans] == [
        (P0, 6, 0, WrittenCounts(5, 1)),
        (P1, 2, 0, WrittenCounts(2, 0)),
    ]
    assert view(world).positions == (
        replace(position_after(0, partition=0, epoch=None), timeline=1),
        replace(position_after(0, partition=1, epoch=None), timeline=1),
    )
    assert (world.rows(), world.dead_letters(), states(world, first, second)) == ([], [], ["rolled_back"] * 2)
    assert world.ledger.violations("orders") == []


def test_one_after_the_other_ends_as_both_at_once_but_on_a_later_line(world: LedgerWorld) -> None:
    two_batches(world)
    undo(world, request_id="one")
    assert [(s.topic_partition, s.to_offset, s.to_timeline) for s in undo(world, request_id="two").spans] == [
        (P0, 0, 2),
        (P1, 0, 1),
    ]
    assert world.rows() == []
    assert world.ledger.violations("orders") == []


def test_what_was_rolled_back_is_loaded_again_once(world: LedgerWorld) -> None:
    two_batches(world)
    undo(world)
    loaded(world, range_at(3, 8, timeline=1), run="again")
    assert offsets(world) == [(0, o) for o in range(8)] + [(1, 0), (1, 1)]
    assert world.ledger.violations("orders") == []
    undo(world, request_id="undo the new one")
    assert offsets(world) == [(0, o) for o in range(3)] + [(1, 0), (1, 1)]
    assert world.ledger.violations("orders") == []


def test_after_a_roll_back_a_row_that_somebody_deletes_is_still_found(world: LedgerWorld) -> None:
    two_batches(world)
    undo(world)
    world.delete_row(2)
    assert [violation.invariant for violation in world.ledger.violations("orders")] == ["target_rows"]


def test_the_run_of_a_batch_that_was_rolled_back_plans_anew_and_its_audit_names_the_state(world: LedgerWorld) -> None:
    _, second = two_batches(world)
    undo(world)
    assert standing_batch(view(world, LATER), LATER, "hash-1") is None
    anew = next_plan(world, range_at(3, 6, timeline=1), request=LATER)
    assert (anew.batch_id != second.batch_id, anew.request) == (True, LATER)
    assert second.batch_id not in {batch.batch_id for batch in world.ledger.unannounced("orders", REQUEST)}
    with pytest.raises(BatchNotCommitted) as refused:
        audit_batch(second.batch_id, LATER, world.ledger)
    assert refused.value.found == "state rolled_back"


def test_an_attempt_of_a_batch_that_was_rolled_back_is_fenced(world: LedgerWorld) -> None:
    _, second = two_batches(world)
    undo(world)
    with pytest.raises(Fenced):
        claimed(world, second)


def test_a_planned_batch_refuses_a_roll_back_and_is_superseded_where_the_request_says_so(world: LedgerWorld) -> None:
    _, second = two_batches(world)
    planned = next_plan(world, range_at(6, 9), request=Request("orders", "planned"))
    attempt = staged(world, planned)
    with pytest.raises(BatchOutstanding, match=planned.batch_id):
        undo(world)
    assert states(world, second, planned) == ["committed", "planned"]

    assert undo(world, supersede=True).superseded == planned.batch_id
    assert states(world, second, planned) == ["rolled_back", "superseded"]
    with pytest.raises(Fenced):
        publish(world, attempt, outcome_of(attempt))
    assert world.ledger.violations("orders") == []


def test_a_roll_back_waits_for_a_publish_and_gives_up(world: LedgerWorld) -> None:
    two_batches(world)
    planned = claimed(world, next_plan(world, range_at(6, 9), request=Request("orders", "planned")))
    with world.publisher.begin(planned) as publication:
        publication.lock_batch()
        with pytest.raises(LockTimeout):
            undo(world, supersede=True)
    assert states(world, planned) == ["planned"]


def test_nobody_plans_while_a_batch_is_rolled_back(world: LedgerWorld) -> None:
    _, second = two_batches(world)
    with world.roll_backs.begin_roll_back(previewed(world)) as transaction:
        transaction.lock(world.roll_backs.roll_back_view(asked()))
        with pytest.raises(Busy):
            next_plan(world, range_at(6, 9), request=Request("orders", "planned"))
    next_plan(world, range_at(6, 9), request=Request("orders", "planned"))
    assert states(world, second) == ["committed"]


def test_a_change_under_the_request_id_of_a_roll_back_sees_that_it_is_used(world: LedgerWorld) -> None:
    two_batches(world)
    undo(world, request_id="r1")
    seen = world.changes.change_view(ChangeRequest("orders", "r1", ResetBy(-1), "ada", "because"), TARGET)
    assert seen.recorded is not None
    assert (seen.recorded.kind, seen.recorded.arguments, seen.recorded.who) == ("rolled_back", "", "operator")


def test_a_ledger_that_moved_since_it_was_read_changes_nothing(world: LedgerWorld) -> None:
    two_batches(world)
    seen = world.roll_backs.roll_back_view(asked())
    plan = previewed(world)
    third = loaded(world, range_at(6, 7), run="third")
    with world.roll_backs.begin_roll_back(plan) as transaction, pytest.raises(LedgerMoved):
        transaction.lock(seen)
    assert states(world, third) == ["committed"]


def test_a_roll_back_that_does_not_supersede_the_outstanding_batch_is_refused(world: LedgerWorld) -> None:
    two_batches(world)
    planned = next_plan(world, range_at(6, 9), request=Request("orders", "planned"))
    plan = replace(previewed(world), supersedes=None)
    with world.roll_backs.begin_roll_back(plan) as transaction, pytest.raises(LedgerMoved, match=planned.batch_id):
        transaction.lock(world.roll_backs.roll_back_view(asked()))
    assert states(world, planned) == ["planned"]


def test_leaving_without_commit_changes_nothing(world: LedgerWorld) -> None:
    first, second = two_batches(world)
    before = view(world).positions
    plan = previewed(world)
    with world.roll_backs.begin_roll_back(plan) as transaction:
        transaction.lock(world.roll_backs.roll_back_view(asked()))
        deleted = transaction.delete()
        transaction.record(plan.record(deleted))
    assert deleted == {P0: WrittenCounts(2, 1)}
    assert (view(world).positions, states(world, first, second)) == (before, ["committed", "committed"])
    assert (len(world.rows()), len(world.dead_letters())) == (7, 1)


def test_a_target_that_is_not_as_the_batch_left_it_stops_the_roll_back(world: LedgerWorld) -> None:
    _, second = two_batches(world)
    world.delete_row(4)
    with pytest.raises(AccountingMismatch) as refused:
        undo(world)
    assert refused.value.found == "orders[0] [3, 6): rows 2, found 1; dead letters 1, found 1"
    assert states(world, second) == ["committed"]
    assert (0, 5) in offsets(world)


def test_a_resolved_dead_letter_goes_with_the_row_that_it_was_turned_into(world: LedgerWorld) -> None:
    two_batches(world)
    world.resolve(3)
    assert (0, 3) in offsets(world)
    assert [s.counts for s in undo(world).spans] == [WrittenCounts(rows=3, dead_letters=1)]
    assert (offsets(world), world.dead_letters()) == ([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)], [])


def test_a_batch_of_counted_records_only_lowers_the_position(world: LedgerWorld) -> None:
    load(world, first_plan(world))
    planned = range_at(3, 9)
    batch = claimed(world, next_plan(world, planned))
    world.staging.create(batch)
    part = PartitionOutcome(planned, RecordCounts(invisible=6), None, None, end_leader_epoch=5, valid_through=None)
    publish(world, batch, BatchOutcome((part,), {}))
    assert [(s.from_offset, s.to_offset, s.counts) for s in undo(world).spans] == [(9, 3, WrittenCounts(0, 0))]
    assert world.ledger.violations("orders") == []


def test_every_fault_is_listed_at_once_and_nothing_is_changed(world: LedgerWorld) -> None:
    _, second = two_batches(world)
    next_plan(world, range_at(6, 9), request=Request("orders", "planned"))
    log = orders_log()
    log.delete_records("orders", 0, before=4)
    log.topics["orders"].cleanup_policy = "compact"
    with pytest.raises(Exception, match="4 faults") as refused:
        undo(world, 3, log=log)
    faults = ("BatchOutstanding", "3 committed batches", "log that still holds offset 0", "cleanup.policy compact")
    assert all(fault in str(refused.value) for fault in faults)
    assert states(world, second) == ["committed"]


def test_a_pipeline_without_a_plan_has_nothing_to_roll_back(world: LedgerWorld) -> None:
    with pytest.raises(RollBackRefused, match="0; a batch that only reloaded"):
        undo(world)

"""What every publisher promises: the fake one and the one in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kafka_ingest.errors import (
    AccountingMismatch,
    Busy,
    CommitStateUnknown,
    DeadLetterReason,
    Fenced,
    RecordsRefused,
    RefusedRecord,
    StagingLost,
    TargetMismatch,
)
from kafka_ingest.protocol.batch import BatchOutcome, BatchStanding, BatchState, PartitionOutcome, RecordCounts
from tests.builders import NOON, offset_range, position
from tests.contracts.ledger_values import (
    all_rows,
    choosing,
    claimed,
    first_plan,
    load,
    new_plan,
    next_plan,
    outcome_of,
    position_after,
    publish,
    staged,
    stored,
    view,
)
from tests.contracts.ledger_worlds import LedgerWorld
from tests.fakes.database import StoredRecord


def test_a_publish_makes_rows_dead_letters_counts_and_positions_visible(world: LedgerWorld) -> None:
    batch = staged(world, first_plan(world), 1)
    assert publish(world, batch, outcome_of(batch, dead_letters=1)) == (2, 4, 1)

    assert [(r.partition, r.offset, r.batch_id) for r in world.rows()] == [
        (0, 0, batch.batch_id),
        (0, 2, batch.batch_id),
        (1, 0, batch.batch_id),
        (1, 1, batch.batch_id),
    ]
    assert world.dead_letters() == [StoredRecord("orders", 0, 0, 1, batch.batch_id, "malformed")]
    assert view(world).positions == (position_after(3, partition=0), position_after(2, partition=1))
    committed = stored(world, batch)
    assert (committed.state, committed.counts) == (BatchState.COMMITTED, RecordCounts(rows=4, dead_letters=1))
    assert (committed.record_time_min, committed.record_time_max) == (NOON, NOON)
    assert world.ledger.hold(batch.batch_id) is None
    assert world.ledger.violations("orders") == []


def test_deletes_and_superseded_records_are_stored_and_count_as_offsets(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world, offset_range(0, 0, 6)))
    world.stage(batch, [record for record in all_rows(batch) if record[2].offset in (1, 5)])
    counts = RecordCounts(rows=2, deletes=1, superseded=3)
    planned = outcome_of(batch)
    publish(world, batch, replace(planned, partitions=(replace(planned.partitions[0], counts=counts),)))
    assert stored(world, batch).counts == counts
    assert world.ledger.violations("orders") == []


def test_warnings_of_the_load_follow_those_of_the_plan(world: LedgerWorld) -> None:
    plan = new_plan(offset_range(0, 0, 3), begins=(position(0, 0),))
    plan = choosing(plan, unread_topics=("orders[0]: short",))
    batch = claimed(world, world.ledger.record_plan(plan, view(world)))
    world.stage(batch, all_rows(batch))
    publish(world, batch, replace(outcome_of(batch), warnings=("new: $.a, $['\\x00']",)))
    assert stored(world, batch).warnings == ("orders[0]: short", "new: $.a, $['\\x00']")


def test_only_rows_of_the_winning_attempt_are_published(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world, offset_range(0, 0, 3)))
    world.stage(batch, [*all_rows(batch, attempt=7), *all_rows(batch, attempt=8), *all_rows(batch, task=1, attempt=8)])
    assert publish(world, batch, outcome_of(batch, winners={0: 8})) == (1, 3, 0)
    assert [r.offset for r in world.rows()] == [0, 1, 2]


def test_leaving_without_commit_changes_nothing(world: LedgerWorld) -> None:
    batch = staged(world, first_plan(world))
    outcome = outcome_of(batch)
    with world.publisher.begin(batch) as publication:
        publication.lock_batch()
        publication.advance_positions(outcome)
        publication.insert_rows(outcome)
        publication.record_outcome(outcome)
    assert world.rows() == []
    assert [p.committed_offset for p in view(world).positions] == [0, 0]
    assert world.ledger.batch(batch.batch_id) == batch
    assert publish(world, batch, outcome) == (2, 5, 0)


def test_the_standing_shows_a_newer_claim(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    claimed(world, batch)
    with world.publisher.begin(batch) as publication:
        assert publication.lock_batch() == BatchStanding(BatchState.PLANNED, 2)


def test_an_outcome_of_an_older_claim_is_fenced_even_if_nobody_looked_at_the_standing(world: LedgerWorld) -> None:
    batch = staged(world, first_plan(world))
    claimed(world, batch)
    with pytest.raises(Fenced):
        publish(world, batch, outcome_of(batch))
    assert world.rows() == []


def test_the_standing_shows_a_superseded_and_a_committed_batch(world: LedgerWorld) -> None:
    old = claimed(world, first_plan(world))
    new = next_plan(world, offset_range(0, 0, 3), supersedes=old.batch_id)
    with world.publisher.begin(old) as publication:
        assert publication.lock_batch().state is BatchState.SUPERSEDED
    committed = load(world, new)
    with world.publisher.begin(committed) as publication:
        assert publication.lock_batch().state is BatchState.COMMITTED


def test_positions_that_no_longer_stand_as_planned_are_not_counted(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    planned = outcome_of(batch)
    first = planned.partitions[0]
    for changed in (
        replace(first.range, start=1, committed_before=1, loaded_to=1),
        replace(first.range, timeline=1),
        replace(first.range, generation=1),
        replace(first.range, topic_id="another"),
        replace(first.range, topic_id=None),
    ):
        outcome = replace(planned, partitions=(replace(first, range=changed), planned.partitions[1]))
        with world.publisher.begin(batch) as publication:
            publication.lock_batch()
            assert publication.advance_positions(outcome) == 1


@pytest.mark.parametrize("end", [5, 10], ids=["below it", "at it"])
def test_a_range_that_ends_at_the_position_or_below_leaves_offset_and_epoch(world: LedgerWorld, end: int) -> None:
    load(world, first_plan(world, offset_range(0, 0, 10)))
    below = replace(offset_range(0, 2, end), committed_before=10, loaded_to=10)
    batch = claimed(world, next_plan(world, below))
    world.staging.create(batch)
    part = PartitionOutcome(below, RecordCounts(tombstones=end - 2), None, None, end_leader_epoch=1, valid_through=None)
    assert publish(world, batch, BatchOutcome((part,), {})) == (1, 0, 0)
    assert view(world).positions[0] == position_after(10, partition=0, epoch=5)


def test_an_epoch_that_is_not_known_does_not_keep_the_one_before(world: LedgerWorld) -> None:
    load(world, first_plan(world, offset_range(0, 0, 3)))
    planned = offset_range(0, 3, 4)
    batch = claimed(world, next_plan(world, planned))
    world.staging.create(batch)
    part = PartitionOutcome(planned, RecordCounts(invisible=1), None, None, end_leader_epoch=None, valid_through=None)
    publish(world, batch, BatchOutcome((part,), {}))
    assert view(world).positions[0] == position_after(4, partition=0, epoch=None)
    committed = stored(world, batch)
    assert (committed.record_time_min, committed.record_time_max) == (None, None)


def test_valid_through_is_the_minimum_over_all_partitions_of_the_pipeline(world: LedgerWorld) -> None:
    early = NOON - timedelta(hours=1)
    first = load(world, first_plan(world, offset_range(0, 0, 3)), valid_through=NOON)
    assert first.valid_through is None  # partition 1 is unknown
    second = load(world, next_plan(world, offset_range(1, 0, 2)), valid_through=early)
    assert second.valid_through == early
    assert [p.valid_through for p in view(world).positions] == [NOON, early]


def test_a_second_publication_of_a_locked_batch_is_busy(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    with world.publisher.begin(batch) as first, world.publisher.begin(batch) as second:
        first.lock_batch()
        with pytest.raises(Busy):
            second.lock_batch()


def test_nobody_claims_settles_or_supersedes_a_batch_while_it_is_published(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    with world.publisher.begin(batch) as publication:
        publication.lock_batch()
        with pytest.raises(Busy):
            claimed(world, batch)
        with pytest.raises(CommitStateUnknown):
            world.ledger.settle(batch.batch_id)
        with pytest.raises(Busy):
            next_plan(world, offset_range(0, 0, 3), supersedes=batch.batch_id)
    assert claimed(world, batch).claim == 2


def test_missing_staging_is_lost_staging(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    outcome = outcome_of(batch)
    with world.publisher.begin(batch) as publication:
        publication.lock_batch()
        with pytest.raises(StagingLost):
            publication.insert_rows(outcome)
    with world.publisher.begin(batch) as publication:
        publication.lock_batch()
        with pytest.raises(StagingLost):
            publication.insert_dead_letters(outcome)


def test_a_constraint_of_the_target_that_refuses_the_batch_is_named(world: LedgerWorld) -> None:
    batch = staged(world, first_plan(world, offset_range(0, 0, 3)))
    world.add_unique_offset("one_row_per_offset")
    with pytest.raises(TargetMismatch, match="one_row_per_offset"):
        publish(world, batch, outcome_of(batch))
    assert [p.committed_offset for p in view(world).positions] == [0, 0]


def test_every_record_that_the_target_refuses_is_named_with_its_reason(world: LedgerWorld) -> None:
    batch = staged(world, first_plan(world, offset_range(0, 0, 9)))
    world.refuse("not_these", 0, 4, 5, 8)
    with pytest.raises(RecordsRefused) as refusal:
        publish(world, batch, outcome_of(batch))
    detail = "CHECK not_these of the target is false"
    assert list(refusal.value.records) == [
        RefusedRecord("orders", 0, offset, DeadLetterReason.CHECK_VIOLATION, detail) for offset in (0, 4, 5, 8)
    ]
    assert world.rows() == []
    assert [p.committed_offset for p in view(world).positions] == [0, 0]


def test_rows_of_attempts_that_did_not_win_are_not_looked_at_for_refused_records(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world, offset_range(0, 0, 3)))
    record = all_rows(batch)[0][2]
    world.stage(batch, [(0, 6, replace(record, offset=77)), *all_rows(batch)])
    world.refuse("not_these", 1, 77)
    with pytest.raises(RecordsRefused) as refusal:
        publish(world, batch, outcome_of(batch))
    assert [refused.offset for refused in refusal.value.records] == [1]


def test_rows_that_a_trigger_drops_are_no_lost_staging_and_the_trigger_is_named(world: LedgerWorld) -> None:
    batch = staged(world, first_plan(world, offset_range(0, 0, 3)))
    world.swallow("dropper", 1)
    with pytest.raises(TargetMismatch, match="trigger dropper"):
        publish(world, batch, outcome_of(batch))
    assert world.rows() == []


def test_a_dead_letter_cannot_be_stored_twice(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world, offset_range(0, 0, 1)))
    world.stage(batch, 2 * all_rows(batch, 0))
    with pytest.raises(AccountingMismatch, match="one_dead_letter_per_record"):
        publish(world, batch, outcome_of(batch, dead_letters=1))
    assert world.dead_letters() == []


def test_counts_that_do_not_add_up_are_refused(world: LedgerWorld) -> None:
    batch = staged(world, first_plan(world, offset_range(0, 0, 3)))
    (part,) = outcome_of(batch).partitions
    short = BatchOutcome((replace(part, counts=RecordCounts(rows=2)),), {0: 7})
    with pytest.raises(AccountingMismatch, match="offsets_are_accounted_for"):
        publish(world, batch, short)
    assert world.rows() == []


def test_an_outcome_that_does_not_cover_all_ranges_is_refused(world: LedgerWorld) -> None:
    batch = staged(world, first_plan(world))
    outcome = outcome_of(batch)
    with pytest.raises(AccountingMismatch, match="does not cover"):
        publish(world, batch, replace(outcome, partitions=outcome.partitions[:1]))


def test_a_batch_that_the_ledger_does_not_know_is_fenced(world: LedgerWorld) -> None:
    batch = replace(first_plan(world), batch_id="00000000-0000-4000-8000-000000000000")
    with world.publisher.begin(batch) as publication, pytest.raises(Fenced):
        publication.lock_batch()

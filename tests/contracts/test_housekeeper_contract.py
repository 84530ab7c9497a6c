"""What every housekeeper and every staging promises: the fake ones and those in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest.protocol.batch import BatchState, Request
from tests.builders import offset_range
from tests.contracts.ledger_values import claimed, first_plan, next_plan, outcome_of, publish, staged, stored
from tests.contracts.ledger_worlds import LedgerWorld

THIRD = Request("orders", "manual__third")


def leftovers(world: LedgerWorld) -> set[tuple[str, int]]:
    return {(t.batch_id, t.claim) for t in world.housekeeper.staging_tables() if t.is_leftover}


def kept(world: LedgerWorld) -> set[tuple[str, int]]:
    return {(t.batch_id, t.claim) for t in world.housekeeper.staging_tables() if not t.is_leftover}


def test_a_staging_table_is_told_with_the_standing_of_its_batch(world: LedgerWorld) -> None:
    batch = staged(world, first_plan(world))
    claimed(world, batch)
    table = world.housekeeper.staging_tables()[0]
    standing = (table.batch_id, table.claim, table.batch_state, table.batch_claim)
    assert standing == (batch.batch_id, 1, BatchState.PLANNED, 2)


def test_only_the_newest_claim_of_a_planned_batch_is_no_leftover(world: LedgerWorld) -> None:
    older = staged(world, first_plan(world))
    assert (kept(world), leftovers(world)) == ({(older.batch_id, 1)}, set())
    newer = staged(world, older)
    assert (kept(world), leftovers(world)) == ({(newer.batch_id, 2)}, set())
    # As an attempt does that began before and was slow.
    world.staging.create(older)
    assert (kept(world), leftovers(world)) == ({(newer.batch_id, 2)}, {(older.batch_id, 1)})


def test_an_attempt_drops_its_staging_and_that_of_older_claims(world: LedgerWorld) -> None:
    older = staged(world, first_plan(world))
    newer = staged(world, older)
    world.staging.create(older)
    world.staging.drop(newer)
    assert world.housekeeper.staging_tables() == []


def test_staging_that_is_created_again_keeps_its_records(world: LedgerWorld) -> None:
    batch = staged(world, first_plan(world))
    world.staging.create(batch)
    assert publish(world, batch, outcome_of(batch)) == (2, 5, 0)


def test_tables_of_committed_and_superseded_batches_are_leftovers(world: LedgerWorld) -> None:
    committed = staged(world, first_plan(world))
    publish(world, committed, outcome_of(committed))
    superseded = staged(world, next_plan(world, offset_range(0, 3, 5)))
    newest = next_plan(world, offset_range(0, 3, 5), request=THIRD, supersedes=superseded.batch_id)
    staged(world, newest)
    assert leftovers(world) == {(committed.batch_id, 1), (superseded.batch_id, 1)}
    assert kept(world) == {(newest.batch_id, 1)}


def test_a_table_of_a_batch_that_the_ledger_does_not_know_is_a_leftover(world: LedgerWorld) -> None:
    unknown = replace(first_plan(world), batch_id="0b9b52ab-0c10-4be5-8f0e-9a3f0a4e4f00", claim=3)
    world.staging.create(unknown)
    assert leftovers(world) == {(unknown.batch_id, 3)}


def test_dropping_is_harmless_to_repeat(world: LedgerWorld) -> None:
    staged(world, first_plan(world))
    names = [table.name for table in world.housekeeper.staging_tables()]
    assert [world.housekeeper.drop_staging_table(name) for name in (*names, *names)] == [""] * 2 * len(names)
    assert world.housekeeper.staging_tables() == []


def test_only_ranges_of_old_superseded_batches_are_deleted(world: LedgerWorld) -> None:
    superseded = first_plan(world)
    newest = next_plan(world, *superseded.ranges, supersedes=superseded.batch_id)
    assert world.housekeeper.delete_superseded_ranges(1, is_dry_run=False) == 0
    assert world.housekeeper.delete_superseded_ranges(0, is_dry_run=True) == 2
    assert stored(world, superseded) == replace(superseded, state=BatchState.SUPERSEDED)
    assert world.housekeeper.delete_superseded_ranges(0, is_dry_run=False) == 2
    assert world.housekeeper.delete_superseded_ranges(0, is_dry_run=False) == 0
    assert (stored(world, superseded).ranges, len(stored(world, newest).ranges)) == ((), 2)


def test_no_other_request_is_answered_otherwise_after_ranges_were_deleted(world: LedgerWorld) -> None:
    superseded = first_plan(world)
    newest = next_plan(world, *superseded.ranges, supersedes=superseded.batch_id)
    publish(world, staged(world, newest), outcome_of(newest))
    world.housekeeper.delete_superseded_ranges(0, is_dry_run=False)
    assert world.ledger.violations("orders") == []
    found = stored(world, superseded)
    assert (found.state, found.request) == (BatchState.SUPERSEDED, superseded.request)

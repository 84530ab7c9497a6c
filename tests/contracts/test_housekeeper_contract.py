"""What every housekeeper promises: the fake one and the one in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.postgres.staging_tables import PostgresHousekeeper
from kafka_ingest.protocol.batch import Batch, BatchState, Request
from kafka_ingest.protocol.housekeeping import Housekeeper
from tests.builders import offset_range
from tests.contracts.ledger_values import all_rows, claimed, first_plan, next_plan, outcome_of, publish
from tests.contracts.ledger_worlds import IMPATIENT, FakeWorld, LedgerWorld, PostgresWorld
from tests.fakes.housekeeper import FakeHousekeeper

THIRD = Request("orders", "manual__third")


@pytest.fixture
def housekeeper(world: LedgerWorld) -> Housekeeper:
    if isinstance(world, FakeWorld):
        return FakeHousekeeper(world.database)
    assert isinstance(world, PostgresWorld)
    return PostgresHousekeeper(world.params, IMPATIENT)


def staged(world: LedgerWorld, batch: Batch) -> Batch:
    attempt = claimed(world, batch)
    world.stage(attempt, all_rows(attempt))
    return attempt


def leftovers(housekeeper: Housekeeper) -> set[tuple[str, int]]:
    return {(t.batch_id, t.claim) for t in housekeeper.staging_tables() if t.is_leftover}


def kept(housekeeper: Housekeeper) -> set[tuple[str, int]]:
    return {(t.batch_id, t.claim) for t in housekeeper.staging_tables() if not t.is_leftover}


def test_a_staging_table_is_told_with_the_standing_of_its_batch(world: LedgerWorld, housekeeper: Housekeeper) -> None:
    batch = staged(world, first_plan(world))
    claimed(world, batch)
    table = housekeeper.staging_tables()[0]
    assert (table.batch_id, table.claim, table.batch_state, table.batch_claim) == (
        batch.batch_id,
        1,
        BatchState.PLANNED,
        2,
    )


def test_only_the_newest_claim_of_a_planned_batch_is_no_leftover(world: LedgerWorld, housekeeper: Housekeeper) -> None:
    batch = staged(world, first_plan(world))
    assert (kept(housekeeper), leftovers(housekeeper)) == ({(batch.batch_id, 1)}, set())
    staged(world, batch)
    assert (kept(housekeeper), leftovers(housekeeper)) == ({(batch.batch_id, 2)}, {(batch.batch_id, 1)})


def test_tables_of_committed_and_superseded_batches_are_leftovers(world: LedgerWorld, housekeeper: Housekeeper) -> None:
    committed = staged(world, first_plan(world))
    publish(world, committed, outcome_of(committed))
    superseded = staged(world, next_plan(world, offset_range(0, 3, 5)))
    newest = next_plan(world, offset_range(0, 3, 5), request=THIRD, supersedes=superseded.batch_id)
    staged(world, newest)
    assert leftovers(housekeeper) == {(committed.batch_id, 1), (superseded.batch_id, 1)}
    assert kept(housekeeper) == {(newest.batch_id, 1)}


def test_a_table_of_a_batch_that_the_ledger_does_not_know_is_a_leftover(
    world: LedgerWorld, housekeeper: Housekeeper
) -> None:
    unknown = replace(first_plan(world), batch_id="0b9b52ab-0c10-4be5-8f0e-9a3f0a4e4f00", claim=3)
    world.stage(unknown, [])
    assert leftovers(housekeeper) == {(unknown.batch_id, 3)}


def test_dropping_is_harmless_to_repeat(world: LedgerWorld, housekeeper: Housekeeper) -> None:
    staged(world, first_plan(world))
    names = [table.name for table in housekeeper.staging_tables()]
    assert [housekeeper.drop_staging_table(name) for name in (*names, *names)] == [""] * 2 * len(names)
    assert housekeeper.staging_tables() == []


def test_only_ranges_of_old_superseded_batches_are_deleted(world: LedgerWorld, housekeeper: Housekeeper) -> None:
    superseded = first_plan(world)
    newest = next_plan(world, *superseded.ranges, supersedes=superseded.batch_id)
    assert housekeeper.delete_superseded_ranges(1, is_dry_run=False) == 0
    assert housekeeper.delete_superseded_ranges(0, is_dry_run=True) == 2
    assert _ranges(world, superseded) == 2
    assert housekeeper.delete_superseded_ranges(0, is_dry_run=False) == 2
    assert housekeeper.delete_superseded_ranges(0, is_dry_run=False) == 0
    assert (_ranges(world, superseded), _ranges(world, newest)) == (0, 2)


def test_no_other_request_is_answered_otherwise_after_ranges_were_deleted(
    world: LedgerWorld, housekeeper: Housekeeper
) -> None:
    superseded = first_plan(world)
    newest = next_plan(world, *superseded.ranges, supersedes=superseded.batch_id)
    publish(world, staged(world, newest), outcome_of(newest))
    housekeeper.delete_superseded_ranges(0, is_dry_run=False)
    assert world.ledger.violations("orders") == []
    found = world.ledger.batch(superseded.batch_id)
    assert found is not None
    assert (found.state, found.request) == (BatchState.SUPERSEDED, superseded.request)


def _ranges(world: LedgerWorld, batch: Batch) -> int:
    found = world.ledger.batch(batch.batch_id)
    assert found is not None
    return len(found.ranges)

"""Rolling back next to reloads and resets: rows are found by identity, and no position change is ever passed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import AccountingMismatch, RollBackRefused
from kafka_ingest.protocol.roll_back import WrittenCounts
from tests.builders import offset_range
from tests.contracts.ledger_values import first_plan, load, position_after, view
from tests.contracts.ledger_worlds import LedgerWorld
from tests.contracts.roll_back_values import loaded, offsets, range_at, states, two_batches, undo


def test_a_reset_since_refuses_the_roll_back_even_where_the_position_stands_as_the_batch_left_it(
    world: LedgerWorld,
) -> None:
    _, second = two_batches(world)
    world.reset(replace(position_after(6, partition=0), timeline=1))
    with pytest.raises(RollBackRefused, match="never passes a position change"):
        undo(world)
    assert states(world, second) == ["committed"]


def test_a_roll_back_stops_at_a_reset_and_keeps_what_an_older_batch_loaded_above(world: LedgerWorld) -> None:
    """Loaded to 6, set back to 2, and 2 to 3 replaced: undoing that leaves 4 and 5, which the next run replaces."""
    two_batches(world)
    world.reset(replace(position_after(2, partition=0), timeline=1, loaded_to=6))
    again = replace(range_at(2, 4, timeline=1), loaded_to=6)
    loaded(world, again, run="again")
    undo(world)
    assert [(p.committed_offset, p.loaded_to, p.timeline) for p in view(world).positions] == [(2, 6, 2), (2, 2, 0)]
    assert offsets(world) == [(0, 0), (0, 1), (0, 4), (0, 5), (1, 0), (1, 1)]
    assert world.ledger.violations("orders") == []
    with pytest.raises(RollBackRefused, match="never passes a position change"):
        undo(world, request_id="past the reset")
    loaded(world, replace(range_at(2, 7, timeline=2), loaded_to=6), run="rest")
    assert offsets(world) == [(0, o) for o in range(7)] + [(1, 0), (1, 1)]
    assert world.ledger.violations("orders") == []


def test_rows_are_found_by_identity_whatever_batch_wrote_them_last(world: LedgerWorld) -> None:
    """A reload of 1 to 4 comes after the batch of 3 to 5: what it wrote from 3 on goes, it stays committed."""
    _, second = two_batches(world)
    reloaded = loaded(world, replace(offset_range(0, 1, 5), committed_before=6, loaded_to=6), run="reload")
    assert world.dead_letters() == []
    record = undo(world)
    assert (record.batch_ids, record.spans[0].counts) == ((second.batch_id,), WrittenCounts(3, 0))
    assert offsets(world) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert states(world, second, reloaded) == ["rolled_back", "committed"]
    assert world.ledger.violations("orders") == []


def test_the_latest_writer_is_counted_where_a_reload_replaced_rows(world: LedgerWorld) -> None:
    two_batches(world)
    loaded(world, replace(offset_range(0, 1, 5), committed_before=6, loaded_to=6), run="reload")
    world.delete_row(2)
    with pytest.raises(AccountingMismatch) as refused:
        undo(world)
    assert refused.value.found == "orders[0] [1, 5): rows 4, found 3; dead letters 0, found 0"


def test_of_a_batch_that_reloaded_and_moved_only_what_it_moved_is_undone(world: LedgerWorld) -> None:
    """It read 1 to 7 from position 6: what it replaced below 6 stays, as it counted it and not as the batch before."""
    first, second = two_batches(world)
    mixed = loaded(world, replace(offset_range(0, 1, 8), committed_before=6, loaded_to=6), run="mixed")
    undo(world)
    assert offsets(world) == [(0, o) for o in range(6)] + [(1, 0), (1, 1)]
    assert view(world).positions[0].committed_offset == 6
    assert world.ledger.violations("orders") == []
    undo(world, 2, request_id="the rest")
    assert (world.rows(), states(world, first, second, mixed)) == ([], ["rolled_back"] * 3)


def test_a_batch_that_only_reloaded_is_passed_over(world: LedgerWorld) -> None:
    first = load(world, first_plan(world, offset_range(0, 0, 3)))
    reloaded = loaded(world, replace(offset_range(0, 0, 2), committed_before=3, loaded_to=3), run="reload")
    with pytest.raises(RollBackRefused) as refused:
        undo(world, 2)
    assert refused.value.found == "1; a batch that only reloaded or was rolled back does not count"
    assert undo(world).batch_ids == (first.batch_id,)
    assert states(world, first, reloaded) == ["rolled_back", "committed"]
    assert world.ledger.violations("orders") == []

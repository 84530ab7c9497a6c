"""What every publisher promises about replacing: offsets that were loaded before are deleted by identity, or kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.protocol.accounting import KeptDeadLetters, ReplacedPartition, Replacement
from kafka_ingest.protocol.batch import Batch, BatchOutcome, PartitionOutcome, RecordCounts
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from tests.builders import NOON, offset_range
from tests.contracts.ledger_values import (
    all_rows,
    claimed,
    first_plan,
    load,
    next_plan,
    outcome_of,
    publish,
    staged,
    stored,
)
from tests.contracts.ledger_worlds import LedgerWorld

P0 = TopicPartition("orders", 0)


def again(start: int, end: int, *, position: int = 6) -> OffsetRange:
    """Offsets of partition 0 to read again; all below 6 was loaded."""
    return replace(offset_range(0, start, end), committed_before=position, loaded_to=6)


def loaded(world: LedgerWorld, *dead_letters: int) -> Batch:
    """Load offsets 0 to 5 of partition 0, some of them as dead letters, and 0 to 1 of partition 1."""
    return load(world, first_plan(world, offset_range(0, 0, 6), offset_range(1, 0, 2)), *dead_letters)


def replaced(world: LedgerWorld, batch: Batch, outcome: BatchOutcome, *, with_resolved: bool = False) -> Replacement:
    """Ask what a publish would replace, and rolls it back."""
    with world.publisher.begin(batch) as publication:
        publication.lock_batch()
        publication.advance_positions(outcome)
        return publication.replace(outcome, with_resolved=with_resolved)


def outcome_with(batch: Batch, counts: RecordCounts) -> BatchOutcome:
    return BatchOutcome((PartitionOutcome(batch.ranges[0], counts, NOON, NOON, 5, None),), {0: 7})


def owners(world: LedgerWorld, partition: int = 0) -> list[str]:
    """Return the batch that wrote each row of a partition, by offset; every offset from 0 on has one row."""
    rows = [row for row in world.rows() if row.partition == partition]
    assert [row.offset for row in rows] == list(range(len(rows)))
    return [row.batch_id for row in rows]


def test_a_range_that_was_loaded_is_replaced_and_nothing_beside_it(world: LedgerWorld) -> None:
    old = loaded(world, 1).batch_id
    new = staged(world, next_plan(world, again(1, 4)))
    assert publish(world, new, outcome_of(new)) == (1, 3, 0)
    assert owners(world) == [old, *[new.batch_id] * 3, old, old]
    assert owners(world, partition=1) == [old, old]
    assert world.dead_letters() == []
    assert world.ledger.violations("orders") == []


def test_a_range_across_the_position_replaces_below_it_and_adds_above(world: LedgerWorld) -> None:
    old = loaded(world).batch_id
    new = staged(world, next_plan(world, again(4, 8)))
    assert replaced(world, new, outcome_of(new)).replaced == (ReplacedPartition(P0, rows=2, dead_letters=0),)
    publish(world, new, outcome_of(new))
    assert owners(world) == [old] * 4 + [new.batch_id] * 4


def test_a_range_that_begins_at_what_was_loaded_replaces_nothing(world: LedgerWorld) -> None:
    loaded(world)
    new = staged(world, next_plan(world, again(6, 8)))
    assert replaced(world, new, outcome_of(new)) == Replacement()


def test_what_is_replaced_and_not_staged_again_is_missing(world: LedgerWorld) -> None:
    loaded(world, 1)
    new = claimed(world, next_plan(world, again(0, 6)))
    world.stage(new, [item for item in all_rows(new) if item[2].offset in (0, 3)])
    found = replaced(world, new, outcome_with(new, RecordCounts(rows=2, invisible=4)))
    assert found.replaced == (ReplacedPartition(P0, rows=5, dead_letters=1, missing=4, first_missing=(1, 2, 4, 5)),)


def test_a_record_that_is_counted_now_or_staged_as_a_dead_letter_is_not_missing(world: LedgerWorld) -> None:
    loaded(world)
    new = claimed(world, next_plan(world, again(0, 3)))
    first, second, third = all_rows(new, 1)
    world.stage(new, [first, second], counted=[(0, 7, third[2].identity)])
    counts = RecordCounts(rows=1, dead_letters=1, tombstones=1)
    found = replaced(world, new, outcome_with(new, counts))
    assert found.replaced == (ReplacedPartition(P0, rows=3, dead_letters=0),)
    publish(world, new, outcome_with(new, counts))
    assert [row.offset for row in world.rows() if row.partition == 0] == [0, 3, 4, 5]
    assert [letter.offset for letter in world.dead_letters()] == [1]
    assert world.ledger.violations("orders") == []


@pytest.mark.parametrize("staged_as", ["row", "dead letter", "counted"])
def test_what_an_attempt_that_did_not_win_has_staged_is_no_substitute(world: LedgerWorld, staged_as: str) -> None:
    loaded(world)
    new = claimed(world, next_plan(world, again(0, 2)))
    first, second = all_rows(new, attempt=7)[0], all_rows(new, *[1] * (staged_as == "dead letter"), attempt=8)[1]
    if staged_as == "counted":
        world.stage(new, [first], counted=[(0, 8, second[2].identity)])
    else:
        world.stage(new, [first, second])
    found = replaced(world, new, outcome_with(new, RecordCounts(rows=1, invisible=1)))
    assert found.replaced == (ReplacedPartition(P0, rows=2, dead_letters=0, missing=1, first_missing=(1,)),)


def test_a_resolved_dead_letter_and_its_row_stay_and_the_staged_record_is_not_published(world: LedgerWorld) -> None:
    old = loaded(world, 0, 1, 2, 3)
    world.resolve(0, 1, 2, 3)
    new = claimed(world, next_plan(world, again(0, 6)))
    rows = all_rows(new, 1)
    # Offset 2 is only counted now, and offset 3 is no longer in the log.
    world.stage(new, [*rows[:2], *rows[4:]], counted=[(0, 7, rows[2][2].identity)])
    counts = RecordCounts(rows=3, dead_letters=1, tombstones=1, invisible=1)
    found = replaced(world, new, outcome_with(new, counts))
    assert found.replaced == (ReplacedPartition(P0, rows=2, dead_letters=0),)
    assert found.kept == (KeptDeadLetters(P0, rows=1, dead_letters=1, tombstones=1, invisible=1),)
    assert publish(world, new, outcome_with(new, counts)) == (1, 2, 0)
    assert owners(world) == [old.batch_id] * 4 + [new.batch_id] * 2
    assert [letter.offset for letter in world.dead_letters()] == [0, 1, 2, 3]
    assert stored(world, new).counts == RecordCounts(rows=2, dead_letters=4)
    assert world.ledger.violations("orders") == []


def test_resolved_dead_letters_are_replaced_with_their_rows_when_told(world: LedgerWorld) -> None:
    loaded(world, 1)
    world.resolve(1)
    new = staged(world, next_plan(world, again(0, 6)))
    found = replaced(world, new, outcome_of(new), with_resolved=True)
    assert found == Replacement((ReplacedPartition(P0, rows=6, dead_letters=1),))


def test_what_a_later_reload_replaced_can_be_replaced_again(world: LedgerWorld) -> None:
    loaded(world)
    second = load(world, next_plan(world, again(0, 4)))
    third = staged(world, next_plan(world, again(2, 6), request=replace(second.request, run_id="third")))
    publish(world, third, outcome_of(third))
    assert owners(world) == [second.batch_id] * 2 + [third.batch_id] * 4

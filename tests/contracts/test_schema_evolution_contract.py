"""What everything that gives a target columns promises: the fake one and the one in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafka_ingest.errors import Busy, Fenced, SchemaChangeRefused, TargetMismatch
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.staging import NewField
from kafka_ingest.protocol.target import AddedColumn
from kafka_ingest.settings import ColumnSettings, NewFields, ValueFormat, ValueSettings
from tests.builders import batch_settings, offset_range, position
from tests.contracts.ledger_values import LATER, claimed, load, new_plan, stored, view
from tests.contracts.ledger_worlds import LedgerWorld

PAYLOAD = ColumnSettings("payload", "bytea", ("payload",))
#: As batch_settings, but the value is read by path.
SETTINGS = replace(
    batch_settings(),
    value=ValueSettings(ValueFormat.JSON_COLUMNS, (PAYLOAD,), new_fields=NewFields.ADD_COLUMN),
)
NOTE, TOTAL = NewField(("note",), "jsonb"), NewField(("order", "total"), "numeric(10,2)")
NOTE_COLUMN, TOTAL_COLUMN = (
    AddedColumn("note", "jsonb", ("note",)),
    AddedColumn("order_total", "numeric(10,2)", ("order", "total")),
)


def first_plan(world: LedgerWorld) -> Batch:
    plan = new_plan(offset_range(0, 0, 3), begins=(position(0, 0),))
    return world.ledger.record_plan(replace(plan, settings=SETTINGS), view(world))


def next_plan(world: LedgerWorld, supersedes: str | None = None) -> Batch:
    plan = new_plan(offset_range(0, 0 if supersedes else 3, 6), request=LATER, supersedes=supersedes)
    return world.ledger.record_plan(replace(plan, settings=SETTINGS), view(world, LATER))


def columns_of(batch: Batch) -> Sequence[str]:
    return [column.name for column in batch.settings.value.columns]


def test_fields_become_columns_that_the_next_claim_reads(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    assert columns_of(batch) == ["payload"]
    assert list(world.evolution.add_columns(batch, [NOTE, TOTAL])) == [NOTE_COLUMN, TOTAL_COLUMN]
    again = claimed(world, batch)
    assert again.claim == 2
    assert again.settings.value.columns == (
        PAYLOAD,
        ColumnSettings("note", "jsonb", ("note",)),
        ColumnSettings("order_total", "numeric(10,2)", ("order", "total")),
    )
    assert again.settings_hash == batch.settings_hash
    assert view(world).added_columns == (NOTE_COLUMN, TOTAL_COLUMN)


def test_the_ledger_keeps_the_settings_that_were_planned(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    world.evolution.add_columns(batch, [NOTE])
    assert stored(world, batch).settings == SETTINGS


def test_later_batches_read_the_columns_and_are_published_with_them(world: LedgerWorld) -> None:
    first = first_plan(world)
    world.evolution.add_columns(claimed(world, first), [NOTE])
    load(world, first)
    later = next_plan(world)
    assert columns_of(claimed(world, later)) == ["payload", "note"]
    assert load(world, later).counts is not None
    assert [row.offset for row in world.rows()] == [0, 1, 2, 3, 4, 5]
    assert world.ledger.violations("orders") == []


def test_a_second_pass_of_a_batch_adds_to_what_the_first_one_added(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    world.evolution.add_columns(batch, [NOTE])
    world.evolution.add_columns(claimed(world, batch), [TOTAL])
    assert columns_of(claimed(world, batch)) == ["payload", "note", "order_total"]


def test_an_older_claim_alters_nothing(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    newer = claimed(world, batch)
    with pytest.raises(Fenced):
        world.evolution.add_columns(batch, [NOTE])
    assert columns_of(claimed(world, newer)) == ["payload"]
    assert view(world).added_columns == ()


def test_a_superseded_and_a_committed_batch_alter_nothing(world: LedgerWorld) -> None:
    superseded = claimed(world, first_plan(world))
    newer = next_plan(world, superseded.batch_id)
    with pytest.raises(Fenced):
        world.evolution.add_columns(superseded, [NOTE])
    attempt = claimed(world, newer)
    load(world, newer)
    with pytest.raises(Fenced):
        world.evolution.add_columns(replace(attempt, claim=2), [NOTE])
    assert view(world).added_columns == ()


def test_a_batch_that_another_session_has_locked_is_busy(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    with world.publisher.begin(batch) as publication:
        publication.lock_batch()
        with pytest.raises(Busy):
            world.evolution.add_columns(batch, [NOTE])
    assert view(world).added_columns == ()
    assert list(world.evolution.add_columns(batch, [NOTE])) == [NOTE_COLUMN]


def test_a_column_that_is_there_is_taken_where_it_can_hold_the_values(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    world.add_column("note", "bigint")
    taken = world.evolution.add_columns(batch, [NewField(("note",), "integer"), TOTAL])
    assert list(taken) == [AddedColumn("note", "integer", ("note",)), TOTAL_COLUMN]
    assert view(world).added_columns == tuple(taken)


def test_a_column_that_is_there_and_cannot_hold_the_values_stops_and_nothing_is_added(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    world.add_column("note", "integer")
    with pytest.raises(TargetMismatch):
        world.evolution.add_columns(batch, [TOTAL, NOTE])
    assert view(world).added_columns == ()


def test_a_name_that_is_not_free_stops_and_nothing_is_added(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    world.add_column("Order_Total", "jsonb")
    with pytest.raises(SchemaChangeRefused, match="the case of its letters"):
        world.evolution.add_columns(batch, [NOTE, TOTAL])
    assert view(world).added_columns == ()


def test_a_batch_adds_ten_columns_over_all_its_passes(world: LedgerWorld) -> None:
    batch = first_plan(world)
    fields = [NewField((f"f{number}",), "jsonb") for number in range(11)]
    world.evolution.add_columns(claimed(world, batch), fields[:9])
    attempt = claimed(world, batch)
    with pytest.raises(SchemaChangeRefused, match="2 new columns beside 9, at most 10"):
        world.evolution.add_columns(attempt, fields[9:])
    assert len(world.evolution.add_columns(attempt, fields[9:10])) == 1


def test_a_pipeline_adds_a_hundred_columns_over_all_its_batches(world: LedgerWorld) -> None:
    superseded: str | None = None
    for batch_number in range(10):
        batch = first_plan(world) if superseded is None else next_plan(world, superseded)
        superseded = batch.batch_id
        fields = [NewField((f"f{batch_number}_{number}",), "jsonb") for number in range(10)]
        world.evolution.add_columns(claimed(world, batch), fields)
    attempt = claimed(world, next_plan(world, superseded))
    assert len(columns_of(attempt)) == 101
    with pytest.raises(SchemaChangeRefused, match="1 new columns beside 100, at most 100"):
        world.evolution.add_columns(attempt, [NOTE])

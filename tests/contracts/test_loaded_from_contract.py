"""What every ledger promises about what it holds from a time on: the fake one and the one in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from kafka_ingest.protocol.batch import Batch, Request
from kafka_ingest.protocol.decisions import AcceptRecreation, ChangeRequest, NewChange
from kafka_ingest.protocol.ledger_view import ChangePlan, PositionMove
from kafka_ingest.protocol.position import TopicPartition
from tests.builders import NOON, offset_range
from tests.contracts.ledger_values import TARGET, first_plan, next_plan, outcome_of, publish, staged, view
from tests.contracts.ledger_worlds import LedgerWorld

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
HOUR = timedelta(hours=1)


@pytest.fixture
def world(world: LedgerWorld) -> LedgerWorld:
    """Offsets 0 to 2 and 0 to 1 of two partitions with records up to noon; then 3 to 4 of one, up to an hour later."""
    load_up_to(world, first_plan(world), NOON)
    load_up_to(world, next_plan(world, offset_range(0, 3, 5)), NOON + HOUR)
    return world


def load_up_to(world: LedgerWorld, batch: Batch, latest: datetime) -> None:
    """Load a batch whose latest record is of this time."""
    attempt = staged(world, batch)
    outcome = outcome_of(attempt)
    parts = tuple(replace(part, record_time_min=NOON - HOUR, record_time_max=latest) for part in outcome.partitions)
    publish(world, attempt, replace(outcome, partitions=parts))


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000)


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (NOON - 9 * HOUR, {P0: 0, P1: 0}),
        (NOON, {P0: 0, P1: 0}),  # a record of the very moment counts
        (NOON + timedelta(milliseconds=1), {P0: 3}),
        (NOON + HOUR, {P0: 3}),
        (NOON + HOUR + timedelta(milliseconds=1), {}),
    ],
)
def test_it_is_the_lowest_offset_of_any_range_with_a_record_at_or_after_the_time(
    world: LedgerWorld, since: datetime, expected: dict[TopicPartition, int]
) -> None:
    assert world.ledger.loaded_from("orders", milliseconds(since)) == expected


def test_a_batch_that_is_only_planned_holds_nothing(world: LedgerWorld) -> None:
    next_plan(world, offset_range(1, 2, 9), request=Request("orders", "third"))
    assert world.ledger.loaded_from("orders", milliseconds(NOON)) == {P0: 0, P1: 0}


def test_another_pipeline_has_loaded_nothing(world: LedgerWorld) -> None:
    assert world.ledger.loaded_from("other", milliseconds(NOON)) == {}


def test_offsets_of_an_earlier_generation_belong_to_another_log(world: LedgerWorld) -> None:
    old, other = view(world).positions
    new = replace(old, generation=1, topic_id="topic-id-2", committed_offset=0, loaded_to=0)
    request = ChangeRequest("orders", "r1", AcceptRecreation(), "ada", "because")
    plan = ChangePlan((PositionMove(old, new), PositionMove(other, None)))
    world.changes.record_change(NewChange(request, plan), world.changes.change_view(request, TARGET))
    assert world.ledger.loaded_from("orders", milliseconds(NOON)) == {}

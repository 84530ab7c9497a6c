"""Housekeeping: what counts as a leftover, and what the step reports, does, and leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.protocol.batch import BatchState
from kafka_ingest.protocol.housekeeping import Chore, ChoreReport, Outcome, StagingTable, keep_house
from kafka_ingest.protocol.staging import staging_name
from tests.builders import offset_range, planned_batch
from tests.fakes.database import FakeDatabase
from tests.fakes.housekeeper import FakeHousekeeper

BATCH = planned_batch(offset_range(0, 0, 3), offset_range(1, 0, 2))
SUPERSEDED = replace(BATCH, batch_id="0b9b52ab-0c10-4be5-8f0e-9a3f0a4e4f00", state=BatchState.SUPERSEDED)
INDEX = "shop.orders_kafka_partition_kafka_offset_idx"


@pytest.fixture
def house() -> FakeHousekeeper:
    """A live claim, a table of a superseded batch with two ranges, recorded now, and an index with 4 page ranges."""
    database = FakeDatabase()
    database.batches = {batch.batch_id: batch for batch in (SUPERSEDED, BATCH)}
    database.staged = {(BATCH.batch_id, 1): [], (SUPERSEDED.batch_id, 1): []}
    housekeeper = FakeHousekeeper(database)
    housekeeper.unsummarized = {INDEX: 4}
    return housekeeper


def table_of(batch_id: str) -> str:
    return f"{staging_name(batch_id, 1)}_rows"


@pytest.mark.parametrize(
    ("state", "claim", "batch_claim", "is_leftover"),
    [
        (BatchState.PLANNED, 2, 2, False),
        (BatchState.PLANNED, 1, 2, True),
        # A ledger that was restored behind a running attempt: who owns the table is for fencing to decide.
        (BatchState.PLANNED, 3, 2, False),
        (BatchState.COMMITTED, 2, 2, True),
        (BatchState.SUPERSEDED, 2, 2, True),
        (BatchState.ROLLED_BACK, 2, 2, True),
        (None, 1, 0, True),
    ],
)
def test_only_what_no_attempt_can_publish_is_a_leftover(
    state: BatchState | None, claim: int, batch_claim: int, is_leftover: bool
) -> None:
    assert StagingTable("t", "b", claim, state, batch_claim).is_leftover is is_leftover


def test_leftovers_go_and_a_live_claim_stays(house: FakeHousekeeper) -> None:
    reports = keep_house(house, older_than_days=0)
    assert reports == (
        ChoreReport(Chore.DROP_STAGING_TABLE, table_of(SUPERSEDED.batch_id), Outcome.DONE),
        ChoreReport(Chore.DELETE_SUPERSEDED_RANGES, "kafka_ingest.batch_partition", Outcome.DONE, 2),
        ChoreReport(Chore.SUMMARIZE_INDEX, INDEX, Outcome.DONE, 4),
    )
    assert list(house.database.staged) == [(BATCH.batch_id, 1)]


def test_a_second_time_there_is_nothing_left_to_do(house: FakeHousekeeper) -> None:
    keep_house(house, older_than_days=0)
    assert keep_house(house, older_than_days=0) == (ChoreReport(Chore.SUMMARIZE_INDEX, INDEX, Outcome.DONE, 0),)


def test_a_dry_run_says_the_same_and_changes_nothing(house: FakeHousekeeper) -> None:
    reports = keep_house(house, older_than_days=0, is_dry_run=True)
    assert [(r.thing, r.outcome, r.count) for r in reports] == [
        (table_of(SUPERSEDED.batch_id), Outcome.WOULD_BE_DONE, None),
        ("kafka_ingest.batch_partition", Outcome.WOULD_BE_DONE, 2),
        (INDEX, Outcome.WOULD_BE_DONE, None),
    ]
    assert len(house.database.staged) == 2
    assert house.database.batches[SUPERSEDED.batch_id].ranges == SUPERSEDED.ranges
    assert house.unsummarized == {INDEX: 4}


def test_younger_details_stay(house: FakeHousekeeper) -> None:
    reports = keep_house(house, older_than_days=90)
    assert Chore.DELETE_SUPERSEDED_RANGES not in {r.chore for r in reports}
    house.database.advance(90 * 86_400)
    assert keep_house(house, older_than_days=90)[0].count == 2


def test_what_is_in_use_is_left_and_named_and_the_rest_is_done(house: FakeHousekeeper) -> None:
    house.in_use = {table_of(SUPERSEDED.batch_id), INDEX}
    reports = keep_house(house, older_than_days=0)
    assert [(r.thing, r.outcome, r.reason) for r in reports] == [
        (table_of(SUPERSEDED.batch_id), Outcome.LEFT, "canceling statement due to lock timeout"),
        ("kafka_ingest.batch_partition", Outcome.DONE, ""),
        (INDEX, Outcome.LEFT, "canceling statement due to lock timeout"),
    ]

"""A position change beside a publish, a plan, or another change: only a real PostgreSQL can show these."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka_ingest.errors import Fenced, IngestError, LedgerMoved
from kafka_ingest.postgres.changes import PostgresPositionLedger
from kafka_ingest.postgres.database import TransactionLimits
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.decisions import ChangeRequest, ChangeView, NewChange, ResetBy
from kafka_ingest.protocol.ledger_view import ChangePlan, RecordedChange, moved
from tests.builders import offset_range
from tests.contracts.ledger_values import (
    TARGET,
    all_rows,
    claimed,
    first_plan,
    load,
    next_plan,
    outcome_of,
    publish,
    view,
)
from tests.contracts.ledger_worlds import PostgresWorld
from tests.deadlines import until

REQUEST = ChangeRequest("orders", "r1", ResetBy(-1), "ada", "because", supersede=True)


@pytest.fixture
def world(database: dict[str, Any]) -> PostgresWorld:
    """A ledger with the positions 3 and 2 of partitions 0 and 1."""
    world = PostgresWorld(database)
    load(world, first_plan(world))
    return world


@pytest.fixture
def patient(world: PostgresWorld) -> PostgresPositionLedger:
    """A ledger that waits for locks as long as a test may take."""
    return PostgresPositionLedger(world.params, TransactionLimits(lock_timeout_seconds=20))


def staged(world: PostgresWorld) -> Batch:
    batch = claimed(world, next_plan(world, offset_range(0, 3, 6)))
    world.stage(batch, all_rows(batch))
    return batch


def change_of(seen: ChangeView, supersedes: str | None = None) -> NewChange:
    first = seen.ledger.positions[0]
    return NewChange(REQUEST, ChangePlan((moved(first, first.committed_offset - 1),)), supersedes)


def somebody_waits_for_a_lock(world: PostgresWorld) -> bool:
    activity = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return len(world.run(activity)) > 0


def test_a_change_that_supersedes_waits_for_a_publish_and_loses_to_it(
    world: PostgresWorld, patient: PostgresPositionLedger
) -> None:
    batch = staged(world)
    seen = patient.change_view(REQUEST, TARGET)
    outcome = outcome_of(batch)
    with world.publisher.begin(batch) as publication, ThreadPoolExecutor(1) as pool:
        publication.lock_batch()
        publication.advance_positions(outcome)
        changing = pool.submit(lambda: patient.record_change(change_of(seen, batch.batch_id), seen))
        until(lambda: somebody_waits_for_a_lock(world), "the change waits")
        publication.insert_rows(outcome)
        publication.record_outcome(outcome)
        publication.commit()
        with pytest.raises(LedgerMoved):
            changing.result(20)
    assert [p.committed_offset for p in view(world).positions] == [6, 2]
    assert world.ledger.violations("orders") == []


def test_an_attempt_whose_batch_was_superseded_by_a_change_publishes_nothing(
    world: PostgresWorld, patient: PostgresPositionLedger
) -> None:
    batch = staged(world)
    seen = patient.change_view(REQUEST, TARGET)
    patient.record_change(change_of(seen, batch.batch_id), seen)
    with pytest.raises(Fenced):
        publish(world, batch, outcome_of(batch))
    assert len(world.rows()) == 5
    assert [(p.committed_offset, p.timeline) for p in view(world).positions] == [(2, 1), (2, 0)]
    assert world.ledger.violations("orders") == []


def test_the_same_request_at_the_same_moment_moves_positions_once(
    world: PostgresWorld, patient: PostgresPositionLedger
) -> None:
    seen = patient.change_view(REQUEST, TARGET)

    def attempt(_: int) -> RecordedChange | IngestError:
        try:
            return patient.record_change(change_of(seen), seen)
        except LedgerMoved as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(attempt, range(4)))
    assert sum(isinstance(result, RecordedChange) for result in results) == 1
    assert [(p.committed_offset, p.timeline) for p in view(world).positions] == [(2, 1), (2, 0)]


def test_a_position_that_moved_without_the_pipeline_being_locked_is_not_overwritten(world: PostgresWorld) -> None:
    # Nothing else moves positions; compare-and-set decides even if something did.
    sneak = (
        "CREATE FUNCTION sneak() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " UPDATE kafka_ingest.committed_offset SET committed_offset = 1 WHERE partition = 0; RETURN NULL; END $$"
    )
    world.run(sneak)
    batch = next_plan(world, offset_range(0, 3, 6))
    seen = world.changes.change_view(REQUEST, TARGET)
    world.run("CREATE TRIGGER sneak AFTER UPDATE ON kafka_ingest.batch FOR EACH STATEMENT EXECUTE FUNCTION sneak()")
    with pytest.raises(LedgerMoved) as refused:
        world.changes.record_change(change_of(seen, batch.batch_id), seen)
    assert "0 of 1 positions" in refused.value.found
    assert [p.committed_offset for p in view(world).positions] == [3, 2]

"""Several processes at once, and connections that break: only a real PostgreSQL can show these."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from kafka_ingest.errors import (
    AccountingMismatch,
    CommitStateUnknown,
    ConfigError,
    DatabaseUnavailable,
    Fenced,
    IngestError,
    LedgerMoved,
    TargetMismatch,
)
from kafka_ingest.postgres import publisher
from kafka_ingest.postgres.database import TransactionLimits
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.protocol.batch import Batch, BatchStanding, BatchState, Request
from kafka_ingest.protocol.ports import Publication
from kafka_ingest.protocol.staging import StageProgress
from tests.builders import offset_range, position
from tests.contracts.ledger_values import (
    LATER,
    all_rows,
    claimed,
    first_plan,
    new_plan,
    next_plan,
    outcome_of,
    publish,
    view,
)
from tests.contracts.ledger_worlds import PostgresWorld

PATIENT = TransactionLimits(lock_timeout_seconds=20)
DEADLINE_SECONDS = 20


@pytest.fixture
def world(database: dict[str, Any]) -> PostgresWorld:
    return PostgresWorld(database)


@pytest.fixture
def patient(world: PostgresWorld) -> PostgresLedger:
    """The same ledger, which waits for locks as long as a test may take."""
    return PostgresLedger(world.params, PATIENT)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"


def somebody_waits_for_a_lock(world: PostgresWorld) -> bool:
    activity = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return len(world.run(activity)) > 0


@contextmanager
def waiting(world: PostgresWorld, call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Run a call in a thread that must come to wait for a lock before the block begins."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        wait_until(lambda: future.done() or somebody_waits_for_a_lock(world), "waiting for a lock")
        assert not future.done(), "the call did not wait"
        yield future


def staged_batch(world: PostgresWorld) -> Batch:
    batch = claimed(world, first_plan(world))
    world.stage(batch, all_rows(batch))
    return batch


def write_all(publication: Publication, batch: Batch) -> None:
    outcome = outcome_of(batch)
    publication.lock_batch()
    publication.advance_positions(outcome)
    publication.insert_rows(outcome)
    publication.insert_dead_letters(outcome)
    publication.record_outcome(outcome)


def test_of_first_plans_at_the_same_moment_one_is_recorded(world: PostgresWorld, patient: PostgresLedger) -> None:
    requests = [Request("orders", f"run_{number}") for number in range(6)]
    seen = [view(world, request) for request in requests]

    def plan(number: int) -> Batch | IngestError:
        begins = (position(0, 0), position(1, 0))
        try:
            return patient.record_plan(
                new_plan(offset_range(0, 0, 3), request=requests[number], begins=begins), seen[number]
            )
        except LedgerMoved as error:
            return error

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(plan, range(6)))
    assert sorted(type(result).__name__ for result in results) == ["Batch", *["LedgerMoved"] * 5]
    assert world.run("SELECT count(*) FROM kafka_ingest.batch") == [(1,)]
    assert world.run("SELECT count(*) FROM kafka_ingest.position_change") == [(2,)]


def test_of_further_plans_at_the_same_moment_one_is_recorded(world: PostgresWorld, patient: PostgresLedger) -> None:
    old = first_plan(world)
    requests = [Request("orders", f"run_{number}") for number in range(6)]
    seen = [view(world, request) for request in requests]

    def plan(number: int) -> Batch | IngestError:
        try:
            return patient.record_plan(
                new_plan(offset_range(0, 0, 4), request=requests[number], supersedes=old.batch_id), seen[number]
            )
        except LedgerMoved as error:
            return error

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(plan, range(6)))
    assert sorted(type(result).__name__ for result in results) == ["Batch", *["LedgerMoved"] * 5]


def test_two_pipelines_cannot_begin_to_serve_a_topic_at_the_same_moment(
    world: PostgresWorld, patient: PostgresLedger
) -> None:
    plan = new_plan(offset_range(0, 0, 3), begins=(position(0, 0),))
    plans = [replace(plan, pipeline=name) for name in ("orders", "orders_copy")]
    seen = [view(world, pipeline=plan.pipeline) for plan in plans]

    def record(number: int) -> Batch | IngestError:
        try:
            return patient.record_plan(plans[number], seen[number])
        except (LedgerMoved, ConfigError) as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(record, range(2)))
    assert sorted(type(result).__name__ for result in results) in (["Batch", "ConfigError"], ["Batch", "LedgerMoved"])
    assert world.run("SELECT count(*) FROM kafka_ingest.pipeline") == [(1,)]


def test_a_plan_that_supersedes_waits_for_a_publish_and_loses_to_it(
    world: PostgresWorld, patient: PostgresLedger
) -> None:
    batch = staged_batch(world)
    seen = view(world, LATER)
    plan = new_plan(offset_range(0, 0, 3), request=LATER, supersedes=batch.batch_id)
    with world.publisher.begin(batch) as publication:
        write_all(publication, batch)
        with waiting(world, lambda: patient.record_plan(plan, seen)) as planning:
            publication.commit()
            with pytest.raises(LedgerMoved):
                planning.result(DEADLINE_SECONDS)
    assert [p.committed_offset for p in view(world).positions] == [3, 2]
    assert world.ledger.violations("orders") == []


def test_a_plan_that_supersedes_wins_when_the_publish_fails(world: PostgresWorld, patient: PostgresLedger) -> None:
    batch = staged_batch(world)
    seen = view(world, LATER)
    plan = new_plan(offset_range(0, 0, 3), request=LATER, supersedes=batch.batch_id)
    with world.publisher.begin(batch) as publication:
        write_all(publication, batch)
        with ThreadPoolExecutor(1) as pool:
            planning = pool.submit(lambda: patient.record_plan(plan, seen))
            wait_until(lambda: somebody_waits_for_a_lock(world), "waiting for a lock")
            publication._cursor.connection.close()  # type: ignore[attr-defined]
            newer = planning.result(DEADLINE_SECONDS)
    assert newer.state is BatchState.PLANNED
    assert world.rows() == []
    with pytest.raises(Fenced):
        publish(world, batch, outcome_of(batch))


def test_a_claim_waits_for_a_publish_and_finds_the_batch_committed(
    world: PostgresWorld, patient: PostgresLedger
) -> None:
    batch = staged_batch(world)
    with world.publisher.begin(batch) as publication:
        write_all(publication, batch)
        with waiting(world, lambda: patient.claim(batch.batch_id, 60)) as claiming:
            publication.commit()
            committed = claiming.result(DEADLINE_SECONDS)
    assert (committed.state, committed.claim) == (BatchState.COMMITTED, 1)


def test_settling_waits_for_a_commit_under_way(world: PostgresWorld, patient: PostgresLedger) -> None:
    batch = staged_batch(world)
    with world.publisher.begin(batch) as publication:
        write_all(publication, batch)
        assert world.ledger.batch(batch.batch_id) == batch  # a plain read still sees a planned batch
        with waiting(world, lambda: patient.settle(batch.batch_id)) as settling:
            publication.commit()
            assert settling.result(DEADLINE_SECONDS) == BatchStanding(BatchState.COMMITTED, 1)


def test_a_heartbeat_never_waits_for_a_publish(world: PostgresWorld) -> None:
    batch = staged_batch(world)
    with world.publisher.begin(batch) as publication:
        write_all(publication, batch)
        standing = world.ledger.heartbeat(
            batch.batch_id, 1, step="publish", progress=StageProgress(1, 1), hold_seconds=60
        )
        assert standing == BatchStanding(BatchState.PLANNED, 1)


def test_heartbeats_do_not_make_the_hold_grow(world: PostgresWorld) -> None:
    batch = claimed(world, first_plan(world))
    for beat in range(50):
        world.ledger.heartbeat(batch.batch_id, 1, step="stage", progress=StageProgress(beat, beat), hold_seconds=60)
    # Statistics of a finished backend are there when its connection has ended.
    statistics = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'batch_hold'"
    wait_until(lambda: world.run(statistics)[0][0] >= 51, "statistics of 50 heartbeats and a claim")
    updated, heap_only = world.run(statistics)[0]
    assert updated == heap_only


def test_a_newer_attempt_gets_the_batch_row_that_an_older_one_gives_back(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "_BATCH_WAIT_SECONDS", DEADLINE_SECONDS)
    older = staged_batch(world)
    publishing = PostgresPublisher(world.params, PATIENT)
    newer = claimed(world, older)

    def lock() -> BatchStanding:
        with publishing.begin(newer) as publication:
            return publication.lock_batch()

    with ExitStack() as older_attempt:
        # It finds that its claim is no longer the newest, and leaves.
        publication = older_attempt.enter_context(publishing.begin(older))
        assert publication.lock_batch() == BatchStanding(BatchState.PLANNED, newer.claim)
        with waiting(world, lock) as waits:
            older_attempt.close()
            assert waits.result(DEADLINE_SECONDS) == BatchStanding(BatchState.PLANNED, newer.claim)


def test_a_publish_waits_for_the_other_locks_as_long_as_its_transaction_says(world: PostgresWorld) -> None:
    batch = staged_batch(world)
    with PostgresPublisher(world.params, PATIENT).begin(batch) as publication:
        publication.lock_batch()
        publication._cursor.execute("SELECT extract(epoch FROM current_setting('lock_timeout')::interval)")
        assert publication._cursor.fetchall() == [(PATIENT.lock_timeout_seconds,)]


def test_publishes_of_two_attempts_end_in_one_copy(world: PostgresWorld) -> None:
    batch = staged_batch(world)

    def attempt(_: int) -> str:
        try:
            with PostgresPublisher(world.params).begin(batch) as publication:
                if publication.lock_batch().state is BatchState.COMMITTED:
                    return "committed before"
                outcome = outcome_of(batch)
                publication.advance_positions(outcome)
                publication.insert_rows(outcome)
                publication.record_outcome(outcome)
                publication.commit()
        except IngestError as error:
            return type(error).__name__
        return "published"

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(attempt, range(4)))
    assert results.count("published") == 1
    assert set(results) <= {"published", "Busy", "committed before"}
    assert len(world.rows()) == 5


def terminate_publishers(world: PostgresWorld) -> None:
    world.run(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'kafka_ingest publish'"
        " AND datname = current_database()"
    )


def test_a_connection_that_breaks_at_commit_leaves_the_outcome_to_the_ledger(world: PostgresWorld) -> None:
    batch = staged_batch(world)
    with world.publisher.begin(batch) as publication:
        write_all(publication, batch)
        terminate_publishers(world)
        with pytest.raises(CommitStateUnknown):
            publication.commit()
    assert world.ledger.settle(batch.batch_id) == BatchStanding(BatchState.PLANNED, 1)
    assert world.rows() == []


def test_a_connection_that_breaks_before_commit_is_an_unavailable_database(world: PostgresWorld) -> None:
    batch = staged_batch(world)
    with world.publisher.begin(batch) as publication:
        publication.lock_batch()
        terminate_publishers(world)
        with pytest.raises(DatabaseUnavailable):
            publication.advance_positions(outcome_of(batch))


def test_a_deferred_constraint_that_refuses_at_commit_is_named_and_nothing_is_committed(world: PostgresWorld) -> None:
    world.run("CREATE TABLE shop.known (payload bytea PRIMARY KEY)")
    world.run(
        "ALTER TABLE shop.orders ADD CONSTRAINT payload_is_known FOREIGN KEY (payload) REFERENCES shop.known"
        " DEFERRABLE INITIALLY DEFERRED"
    )
    batch = staged_batch(world)
    with world.publisher.begin(batch) as publication:
        write_all(publication, batch)
        with pytest.raises(TargetMismatch, match="payload_is_known"):
            publication.commit()
    assert world.ledger.settle(batch.batch_id) == BatchStanding(BatchState.PLANNED, 1)


def test_a_trigger_of_the_target_that_raises_is_a_target_mismatch(world: PostgresWorld) -> None:
    world.run(
        "CREATE FUNCTION shop.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'closed for stocktaking'; END $$"
    )
    world.run("CREATE TRIGGER refuse BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.refuse()")
    batch = staged_batch(world)
    with pytest.raises(TargetMismatch, match=r"orders\[0\] offset 0: function shop\.refuse\(\) raised SQLSTATE P0001"):
        publish(world, batch, outcome_of(batch))


def test_an_altered_target_is_a_target_mismatch(world: PostgresWorld) -> None:
    batch = staged_batch(world)
    world.run("ALTER TABLE shop.orders DROP COLUMN payload")
    with pytest.raises(TargetMismatch, match="payload"):
        publish(world, batch, outcome_of(batch))


def test_a_refused_row_is_not_quoted_in_the_error(world: PostgresWorld) -> None:
    batch = staged_batch(world)
    world.run("ALTER TABLE shop.orders ADD CONSTRAINT no_payload CHECK (payload IS NULL)")
    with pytest.raises(TargetMismatch, match="no_payload") as refused:
        publish(world, batch, outcome_of(batch))
    assert b"payload".hex() not in str(refused.value)
    assert refused.value.__suppress_context__


def test_a_range_that_does_not_continue_its_chain_is_refused_even_without_compare_and_set(
    world: PostgresWorld,
) -> None:
    first = staged_batch(world)
    publish(world, first, outcome_of(first))
    again = claimed(world, next_plan(world, offset_range(0, 0, 4)))
    world.stage(again, all_rows(again))
    outcome = outcome_of(again)
    with world.publisher.begin(again) as publication:
        publication.lock_batch()
        assert publication.advance_positions(outcome) == 0
        with pytest.raises(AccountingMismatch, match="ranges_form_a_chain"):
            publication.record_outcome(outcome)


def test_a_server_that_is_read_only_is_not_used(world: PostgresWorld) -> None:
    (name,) = world.run("SELECT current_database()")[0]
    world.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(DatabaseUnavailable):
        view(world)


def test_holding_the_pipeline_row_keeps_plans_waiting(world: PostgresWorld, patient: PostgresLedger) -> None:
    batch = first_plan(world)
    seen = view(world, LATER)
    plan = new_plan(offset_range(0, 0, 3), request=LATER, supersedes=batch.batch_id)
    with closing(psycopg2.connect(**world.params)) as other:
        other.cursor().execute("SELECT FROM kafka_ingest.pipeline WHERE pipeline = 'orders' FOR UPDATE")
        with waiting(world, lambda: patient.record_plan(plan, seen)) as planning:
            other.rollback()
            assert planning.result(DEADLINE_SECONDS).state is BatchState.PLANNED

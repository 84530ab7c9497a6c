"""No command believes in a COMMIT that the server did not answer with COMMIT, and none guesses a lost answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg2
import pytest

from kafka_ingest.errors import CommitDidNotHappen, CommitStateUnknown
from kafka_ingest.postgres.changes import PostgresPositionLedger, PostgresRollBackLedger
from kafka_ingest.postgres.database import commit, connect, transaction
from kafka_ingest.postgres.faults import CommitRefused, database_faults
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.migrations import migrate
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.postgres.staging_tables import PostgresHousekeeper, PostgresStaging
from kafka_ingest.protocol.decisions import ChangeRequest, NewChange, ResetBy
from kafka_ingest.protocol.ledger_view import ChangePlan, moved
from kafka_ingest.protocol.roll_back import choose_roll_back
from kafka_ingest.protocol.staging import StageProgress
from kafka_ingest.settings import IsolationLevel, TopicSelection
from tests.builders import REQUEST, offset_range
from tests.contracts.ledger_values import TARGET, all_rows, claimed, first_plan, load, new_plan, view
from tests.contracts.ledger_worlds import IMPATIENT, PostgresWorld
from tests.contracts.roll_back_values import asked, orders_log, two_batches
from tests.crash.cutting_proxy import CuttingProxy, Session, answer_with_rollback, lose_answer
from tests.integration.test_ledger_concurrency import write_all


@dataclass(frozen=True)
class Effect:
    """Something durable: how it is prepared, done through a connection, and seen afterwards."""

    application: str
    prepare: Callable[[PostgresWorld], Callable[[dict[str, Any]], object]]
    seen: str


def plan(world: PostgresWorld) -> Callable[[dict[str, Any]], object]:
    seen = view(world)
    return lambda params: PostgresLedger(params).record_plan(new_plan(offset_range(0, 0, 3)), seen)


def claim(world: PostgresWorld) -> Callable[[dict[str, Any]], object]:
    batch = first_plan(world)
    return lambda params: PostgresLedger(params).claim(batch.batch_id, 60)


def heartbeat(world: PostgresWorld) -> Callable[[dict[str, Any]], object]:
    batch = claimed(world, first_plan(world))
    return lambda params: PostgresLedger(params).heartbeat(
        batch.batch_id, batch.claim, step="publish", progress=StageProgress(), hold_seconds=60
    )


def announce(world: PostgresWorld) -> Callable[[dict[str, Any]], object]:
    batch = load(world, first_plan(world))
    return lambda params: PostgresLedger(params).mark_announced([batch.batch_id], REQUEST)


def change(world: PostgresWorld) -> Callable[[dict[str, Any]], object]:
    load(world, first_plan(world))
    request = ChangeRequest("orders", "r1", ResetBy(-2), "ada", "because")
    seen = world.changes.change_view(request, TARGET)
    new = NewChange(request, ChangePlan((moved(seen.ledger.positions[0], 1),)))
    return lambda params: PostgresPositionLedger(params).record_change(new, seen)


def roll_back(world: PostgresWorld) -> Callable[[dict[str, Any]], object]:
    two_batches(world)
    request, log = asked(), orders_log()
    seen = world.roll_backs.roll_back_view(request)
    snapshot = log.snapshot(TopicSelection(names=("orders",)), IsolationLevel.READ_UNCOMMITTED)
    chosen = choose_roll_back(request, seen, snapshot, log.cleanup_policies(("orders",)))
    assert not chosen.faults

    def undo(params: dict[str, Any]) -> None:
        with PostgresRollBackLedger(params).begin_roll_back(chosen) as undoing:
            undoing.lock(seen)
            undoing.record(chosen.record(undoing.delete()))
            undoing.commit()

    return undo


def publish(world: PostgresWorld) -> Callable[[dict[str, Any]], object]:
    batch = claimed(world, first_plan(world))
    world.stage(batch, all_rows(batch))

    def write(params: dict[str, Any]) -> None:
        with PostgresPublisher(params, IMPATIENT).begin(batch) as publication:
            write_all(publication, batch)
            publication.commit()

    return write


def create_staging(world: PostgresWorld) -> Callable[[dict[str, Any]], object]:
    batch = claimed(world, first_plan(world))
    return lambda params: PostgresStaging(params).create(batch)


def migration(world: PostgresWorld) -> Callable[[dict[str, Any]], object]:
    world.run("DROP SCHEMA kafka_ingest CASCADE")
    world.run("DROP SCHEMA kafka_ingest_staging CASCADE")
    return migrate


def forget_superseded(world: PostgresWorld) -> Callable[[dict[str, Any]], object]:
    batch = first_plan(world)
    world.run("UPDATE kafka_ingest.batch SET state = 'superseded', recorded_at = recorded_at - interval '9 days'")
    world.run("DELETE FROM kafka_ingest.batch_hold WHERE batch_id = %s", [batch.batch_id])
    return lambda params: PostgresHousekeeper(params).delete_superseded_ranges(1, is_dry_run=False)


EFFECTS = {
    "plan": Effect("kafka_ingest ledger", plan, "SELECT count(*) FROM kafka_ingest.batch"),
    "claim": Effect("kafka_ingest ledger", claim, "SELECT sum(claim) FROM kafka_ingest.batch"),
    "heartbeat": Effect(
        "kafka_ingest ledger", heartbeat, "SELECT count(*) FROM kafka_ingest.batch_hold WHERE step = 'publish'"
    ),
    "announcement": Effect(
        "kafka_ingest ledger", announce, "SELECT count(*) FROM kafka_ingest.batch WHERE announced_at IS NOT NULL"
    ),
    "change": Effect(
        "kafka_ingest change", change, "SELECT count(*) FROM kafka_ingest.position_change WHERE kind = 'reset'"
    ),
    "roll-back": Effect(
        "kafka_ingest roll-back", roll_back, "SELECT count(*) FROM kafka_ingest.batch WHERE state = 'rolled_back'"
    ),
    "publish": Effect("kafka_ingest publish", publish, "SELECT count(*) / 5 FROM shop.orders"),
    "staging": Effect(
        "kafka_ingest staging",
        create_staging,
        "SELECT count(*) / 3 FROM pg_tables WHERE schemaname = 'kafka_ingest_staging'",
    ),
    "migration": Effect(
        "kafka_ingest migrate", migration, "SELECT count(*) FROM pg_namespace WHERE nspname = 'kafka_ingest'"
    ),
    "housekeeping": Effect(
        "kafka_ingest housekeeping",
        forget_superseded,
        "SELECT 1 - count(*) / 2 FROM kafka_ingest.batch_partition",
    ),
}


@pytest.fixture
def world(database: dict[str, Any]) -> PostgresWorld:
    return PostgresWorld(database)


def through(
    world: PostgresWorld, effect: Effect, on_commit: Callable[[Session, bytes], None]
) -> tuple[CuttingProxy, dict[str, Any]]:
    proxy = CuttingProxy((world.params["host"], world.params["port"]), effect.application, on_commit)
    way = {"host": "127.0.0.1", "port": proxy.port, "sslmode": "disable", "gssencmode": "disable"}
    return proxy, {**world.params, **way}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_commit_that_is_answered_with_rollback_is_no_success(world: PostgresWorld, name: str) -> None:
    effect = EFFECTS[name]
    do = effect.prepare(world)
    proxy, params = through(world, effect, answer_with_rollback)
    with proxy, pytest.raises(CommitDidNotHappen, match="the server answered ROLLBACK to COMMIT"):
        do(params)
    assert world.run(effect.seen) == [(0,)]
    do(world.params)
    assert world.run(effect.seen) == [(1,)]


@pytest.mark.parametrize("name", sorted(set(EFFECTS) - {"staging"}))
def test_a_lost_answer_to_commit_leaves_the_outcome_unknown(world: PostgresWorld, name: str) -> None:
    effect = EFFECTS[name]
    do = effect.prepare(world)
    proxy, params = through(world, effect, lose_answer)
    with proxy, pytest.raises(CommitStateUnknown) as unknown:
        do(params)
    assert world.run(effect.seen) == [(1,)]
    if name in ("change", "roll-back"):
        assert "ask again with the request id" in unknown.value.next_command


def swallow_a_fault(cursor: Any) -> None:
    cursor.execute("INSERT INTO shop.orders (kafka_offset) VALUES (1)")
    with pytest.raises(psycopg2.DataError):
        cursor.execute("SELECT 1 / 0")


def test_a_transaction_whose_fault_was_swallowed_did_not_happen(world: PostgresWorld) -> None:
    with closing(connect(world.params, application_name="test")) as connection:
        with (
            pytest.raises(CommitDidNotHappen, match="could not count"),
            database_faults("count"),
            transaction(connection) as cursor,
        ):
            swallow_a_fault(cursor)
        assert world.rows() == []
        # The connection is good for the next transaction.
        with transaction(connection) as cursor:
            cursor.execute("SELECT 1")


def test_a_commit_outside_of_a_transaction_did_not_happen(world: PostgresWorld) -> None:
    with closing(connect(world.params, application_name="test")) as connection:
        with pytest.raises(CommitRefused), transaction(connection) as cursor:
            cursor.execute("ROLLBACK")
        with pytest.raises(CommitRefused):
            commit(connection.cursor())

"""Every invariant finds what it is for: the ledger is broken by hand, behind the back of its constraints."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_ingest.errors import TargetMismatch
from kafka_ingest.postgres.database import sql_names, sql_text
from kafka_ingest.protocol.batch import Request
from tests.builders import offset_range
from tests.contracts.ledger_values import first_plan, load, next_plan
from tests.contracts.ledger_worlds import PostgresWorld
from tests.integration.test_state_invariants import STATE_BREAKS


@pytest.fixture
def world(database: dict[str, Any]) -> PostgresWorld:
    """Two committed batches of partition 0, [0, 3) and [3, 5), a dead letter at offset 3, and a planned batch."""
    world = PostgresWorld(database)
    load(world, first_plan(world, offset_range(0, 0, 3)))
    load(world, next_plan(world, offset_range(0, 3, 5)), 3)
    next_plan(world, offset_range(0, 5, 9), request=Request("orders", "planned"))
    assert world.ledger.violations("orders") == []
    return world


def without_triggers_and_rules(table: str) -> str:
    """Statements that let a test break a table as a bug or a hand might."""
    return f"ALTER TABLE kafka_ingest.{table} DISABLE TRIGGER ALL;"


SECOND = "(SELECT batch_id FROM kafka_ingest.batch WHERE run_id = 'scheduled__2026-01-02T13:00:00+00:00')"
PLANNED = "(SELECT batch_id FROM kafka_ingest.batch WHERE run_id = 'planned')"
INSERT_DEAD_LETTER = (
    'INSERT INTO kafka_ingest.dead_letter (pipeline, topic, generation, partition, "offset", reason, detail, batch_id)'
    " VALUES ('orders', 'orders', 0, 0, {offset}, 'malformed', '', {batch})"
)

REPLAY = (
    "INSERT INTO kafka_ingest.dead_letter_request (pipeline, request_id, action, arguments, who, why, replay_id,"
    " target_schema, target_table, replayed, counted, discarded, stayed)"
    " VALUES ('orders', 'r1', 'replay', '{}', 'ada', 'a test', gen_random_uuid(), 'shop', 'orders', 1, 0, 0, '[]');"
    "UPDATE kafka_ingest.dead_letter SET resolved_at = now(), resolution = 'replayed', request_id = 'r1'"
)
INSERT_ROW = (
    "INSERT INTO shop.orders SELECT payload, kafka_topic, kafka_generation, kafka_partition, 3, kafka_timestamp,"
    " batch_id FROM shop.orders WHERE kafka_offset = 4"
)

BREAKS = {
    "replayed_dead_letters_are_rows": (REPLAY, {"replayed_dead_letters_are_rows"}),
    "replayed_dead_letters_are_rows: twice": (
        f"{REPLAY};{INSERT_ROW};{INSERT_ROW}",
        {"replayed_dead_letters_are_rows"},
    ),
    "ranges_have_predecessors": (
        "UPDATE kafka_ingest.batch_partition SET line = 1 WHERE range_start = 0",
        {"ranges_have_predecessors"},
    ),
    "positions_end_their_chain": (
        "UPDATE kafka_ingest.committed_offset SET committed_offset = 4 WHERE partition = 0",
        {"positions_end_their_chain"},
    ),
    "positions_end_their_chain: no begin": (
        "DELETE FROM kafka_ingest.position_change WHERE partition = 1",
        {"positions_end_their_chain"},
    ),
    "ranges_are_accounted_for": (
        (
            "ALTER TABLE kafka_ingest.batch_partition DROP CONSTRAINT offsets_are_accounted_for;"
            f"UPDATE kafka_ingest.batch_partition SET invisible = 7 WHERE batch_id = {SECOND};"
            f"UPDATE kafka_ingest.batch SET invisible = 7 WHERE batch_id = {SECOND}"
        ),
        {"ranges_are_accounted_for"},
    ),
    **{
        f"ranges_are_accounted_for: {count}": (
            (
                "ALTER TABLE kafka_ingest.batch_partition DROP CONSTRAINT offsets_are_accounted_for;"
                f"UPDATE kafka_ingest.batch_partition SET {count} = 1 WHERE batch_id = {SECOND};"
                f"UPDATE kafka_ingest.batch SET {count} = 1 WHERE batch_id = {SECOND}"
            ),
            {"ranges_are_accounted_for"},
        )
        for count in ("deletes", "superseded")
    },
    **{
        f"batch_counts_are_sums: {count}": (
            f"UPDATE kafka_ingest.batch SET {count} = 2 WHERE batch_id = {SECOND}",
            {"batch_counts_are_sums"},
        )
        for count in ("tombstones", "deletes", "superseded")
    },
    "one_outstanding_batch": (
        "DROP INDEX kafka_ingest.one_outstanding_batch_per_pipeline;"
        + without_triggers_and_rules("batch")
        + "UPDATE kafka_ingest.batch SET state = 'planned', committed_at = NULL, rows = NULL, deletes = NULL,"
        " superseded = NULL, dead_letters = NULL, tombstones = NULL, filtered = NULL, invisible = NULL"
        " WHERE run_id LIKE '%12:00%';"
        "INSERT INTO kafka_ingest.batch_hold (batch_id, claim, hold_until, step, total_offsets)"
        " SELECT batch_id, claim, now(), 'plan', 3 FROM kafka_ingest.batch WHERE run_id LIKE '%12:00%'",
        {"one_outstanding_batch"},
    ),
    "planned_batches_are_held": ("DELETE FROM kafka_ingest.batch_hold", {"planned_batches_are_held"}),
    "planned_batches_are_held: another claim": (
        "UPDATE kafka_ingest.batch_hold SET claim = 4",
        {"planned_batches_are_held"},
    ),
    "dead_letters_lie_in_ranges": (
        INSERT_DEAD_LETTER.format(offset=1, batch=SECOND),
        {"dead_letters_lie_in_ranges"},
    ),
    "dead_letters_lie_in_ranges: not published": (
        f"UPDATE kafka_ingest.dead_letter SET batch_id = {PLANNED}",
        {"dead_letters_lie_in_ranges"},
    ),
    "dead_letters_lie_below_positions": (
        INSERT_DEAD_LETTER.format(offset=5, batch=PLANNED),
        {"dead_letters_lie_below_positions", "dead_letters_lie_in_ranges"},
    ),
    "dead_letters_are_counted": ("DELETE FROM kafka_ingest.dead_letter", {"dead_letters_are_counted"}),
    "target_rows": ("DELETE FROM shop.orders WHERE kafka_offset = 4", {"target_rows"}),
    "target_rows: twice": (
        "INSERT INTO shop.orders SELECT * FROM shop.orders WHERE kafka_offset = 4",
        {"target_rows"},
    ),
    "target_rows: another identity": (
        (
            "INSERT INTO shop.orders SELECT * FROM shop.orders WHERE kafka_offset = 4;"
            "UPDATE shop.orders SET kafka_generation = 1 WHERE ctid = (SELECT max(ctid) FROM shop.orders)"
        ),
        set(),
    ),
}


@pytest.mark.parametrize("what", BREAKS)
def test_an_invariant_finds(what: str, world: PostgresWorld) -> None:
    statements, expected = BREAKS[what]
    world.run(statements)
    assert {violation.invariant for violation in world.ledger.violations("orders")} == expected
    assert world.ledger.violations("another pipeline") == []


def test_every_invariant_has_a_break_that_it_finds() -> None:
    broken = {what.split(":")[0] for what in (*BREAKS, *STATE_BREAKS)}
    assert broken == set(sql_names("invariants"))


def test_a_position_change_continues_the_chain(world: PostgresWorld) -> None:
    """Lag was skipped from 5 to 50, and the next range begins there."""
    world.run(
        "UPDATE kafka_ingest.committed_offset SET committed_offset = 50, loaded_to = 50 WHERE partition = 0;"
        "INSERT INTO kafka_ingest.position_change (request_id, kind, pipeline, topic, partition, who, why,"
        " from_offset, from_generation, from_line, to_offset, to_generation, to_line)"
        " VALUES ('skip', 'lag_skipped', 'orders', 'orders', 0, 'operator', 'too late', 5, 0, 0, 50, 0, 0)"
    )
    assert world.ledger.violations("orders") == []
    planned = world.run(f"SELECT batch_id::text FROM ({PLANNED[1:-1]}) AS planned")[0][0]
    load(world, next_plan(world, offset_range(0, 50, 52), request=LATER_STILL, supersedes=planned))
    assert world.ledger.violations("orders") == []


LATER_STILL = Request("orders", "scheduled__2026-01-02T14:00:00+00:00")


def test_a_resolved_dead_letter_may_have_become_a_row(world: PostgresWorld) -> None:
    world.run(f"{REPLAY};{INSERT_ROW}")
    assert world.ledger.violations("orders") == []


def test_a_target_that_is_gone_is_named(world: PostgresWorld) -> None:
    world.run("ALTER TABLE shop.orders RENAME TO renamed")
    with pytest.raises(TargetMismatch, match=r"shop\.orders"):
        world.ledger.violations("orders")


def test_a_violation_says_where(world: PostgresWorld) -> None:
    world.run("DELETE FROM shop.orders WHERE kafka_offset = 4")
    (violation,) = world.ledger.violations("orders")
    assert "topic orders, generation 0, partition 0, range_start 3, range_end 5, rows 1, rows_found 0" in violation.row


def test_every_invariant_says_what_holds_and_what_it_returns() -> None:
    for name in sql_names("invariants"):
        head = "\n".join(line for line in sql_text(f"invariants/{name}").splitlines() if line.startswith("--"))
        assert "Parameters: pipeline" in head
        assert "Returns the" in head or "Returns all" in head

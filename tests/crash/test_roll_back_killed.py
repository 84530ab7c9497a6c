"""A roll-back is killed after each of its statements, with a real SIGKILL: all of it happened, or nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from kafka_ingest.postgres.changes import PostgresRollBackLedger
from kafka_ingest.protocol.roll_back import RollBackPorts, WrittenCounts, roll_back
from sandbox.paths import CHECKOUT
from tests.contracts.ledger_values import view
from tests.contracts.ledger_worlds import PostgresWorld
from tests.contracts.roll_back_values import asked, offsets, orders_log, states, two_batches
from tests.crash.killed_roll_back import STATEMENTS


@pytest.mark.parametrize("statement", STATEMENTS)
def test_killed_after_a_statement_then_asked_again_it_is_done_once(statement: str, database: dict[str, Any]) -> None:
    world = PostgresWorld(database)
    first, second = two_batches(world)
    before = view(world).positions

    roll_back_killed_after(statement, database)

    if statement != "commit":
        assert (view(world).positions, len(world.rows()), len(world.dead_letters())) == (before, 7, 1)
        assert states(world, first, second) == ["committed", "committed"]
    # Patient: the server may need a moment to notice that its client is dead.
    again = roll_back(asked(), RollBackPorts(PostgresRollBackLedger(database), orders_log()))
    assert [span.counts for span in again.spans] == [WrittenCounts(rows=2, dead_letters=1)]
    assert (offsets(world), world.dead_letters()) == ([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)], [])
    assert [p.committed_offset for p in view(world).positions] == [3, 2]
    assert states(world, first, second) == ["committed", "rolled_back"]
    assert world.ledger.violations("orders") == []


def roll_back_killed_after(statement: str, database: dict[str, Any]) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{CHECKOUT / 'plugins'}{os.pathsep}{CHECKOUT}"}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.crash.killed_roll_back", statement],
        input=json.dumps(database),
        env=environment,
        cwd=CHECKOUT,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr

"""A change, a roll-back or a replay, asked for on the command line, that signals itself at a named moment.

``tests.crash.started`` starts it with ``EVENT ARGUMENT...``. Events are the statements of a change that move something
(``change.<statement>:after``), and the calls of the transaction of a roll-back (``roll_back.<method>:after``) or of a
request about dead letters (``dead_letters.<method>:after``). It kills itself; after ``stop:``, it stops itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka_ingest import __main__ as cli
from kafka_ingest import full_world
from kafka_ingest.postgres import ledger_write
from kafka_ingest.postgres.changes import PostgresPositionLedger, PostgresRollBackLedger
from kafka_ingest.postgres.database import run_query
from kafka_ingest.postgres.dead_letters import PostgresDeadLetterLedger
from kafka_ingest.protocol.dead_letters import DeadLetterRequest, DeadLetterTransaction
from kafka_ingest.protocol.roll_back import (
    RollBackLedger,
    RollBackPlan,
    RollBackRequest,
    RollBackTransaction,
    RollBackView,
)
from spark_jobs import replay_job
from tests.crash.killed_driver import replace_in
from tests.crash.watched_ports import Reached, watched


def main(event: str, arguments: list[str]) -> int:
    """Runs the command; signals itself when the event comes."""
    wanted, how = event.removeprefix("stop:"), signal.SIGSTOP if event.startswith("stop:") else signal.SIGKILL

    def reached(found: str) -> None:
        if found == wanted:
            os.kill(os.getpid(), how)

    def watched_query(cursor: Any, name: str, **parameters: Any) -> int:
        answer = run_query(cursor, name, **parameters)
        reached(f"change.{name}:after")
        return answer

    replace_in(ledger_write, "run_query", watched_query)
    replace_in(
        full_world, "PostgresPositionLedger", lambda params: watched(PostgresPositionLedger(params), "change", reached)
    )
    replace_in(
        full_world, "PostgresRollBackLedger", lambda params: _WatchedRollBacks(PostgresRollBackLedger(params), reached)
    )
    # The job's own code in this process: what dies with it dies in the middle of the transaction.
    replace_in(full_world, "run_replay", lambda order, _tell: replay_job.replay(order))
    replace_in(replay_job, "PostgresDeadLetterLedger", lambda *given: _WatchedDeadLetters(given, reached))
    return cli.main(arguments)


class _WatchedDeadLetters:
    """Port ``DeadLetterLedger``."""

    def __init__(self, given: tuple[Any, ...], reached: Reached) -> None:
        self._ledger = PostgresDeadLetterLedger(*given)
        self._reached = reached

    @contextmanager
    def begin_dead_letters(self, request: DeadLetterRequest) -> Iterator[DeadLetterTransaction]:
        with self._ledger.begin_dead_letters(request) as transaction:
            yield watched(transaction, "dead_letters", self._reached)


class _WatchedRollBacks:
    """Port ``RollBackLedger``."""

    def __init__(self, ledger: RollBackLedger, reached: Reached) -> None:
        self._ledger = ledger
        self._reached = reached

    def roll_back_view(self, request: RollBackRequest) -> RollBackView:
        return self._ledger.roll_back_view(request)

    @contextmanager
    def begin_roll_back(self, plan: RollBackPlan) -> Iterator[RollBackTransaction]:
        with self._ledger.begin_roll_back(plan) as transaction:
            yield watched(transaction, "roll_back", self._reached)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

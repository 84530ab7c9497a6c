"""A position change or a roll-back, asked for on the command line, that kills itself at a named moment.

Started as ``python -m tests.crash.killed_command EVENT ARGUMENT...``. Events are the statements of a change that move
something (``change.<statement>:after``), and the calls of a roll-back's transaction (``roll_back.<method>:after``).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka_ingest import __main__ as cli
from kafka_ingest import world
from kafka_ingest.postgres import ledger_write
from kafka_ingest.postgres.changes import PostgresPositionLedger, PostgresRollBackLedger
from kafka_ingest.postgres.database import run_query
from kafka_ingest.protocol.roll_back import (
    RollBackLedger,
    RollBackPlan,
    RollBackRequest,
    RollBackTransaction,
    RollBackView,
)
from tests.crash.killed_driver import replace_in
from tests.crash.watched_ports import Reached, watched


def main(event: str, arguments: list[str]) -> int:
    """Runs the command; ends by SIGKILL when the event comes."""

    def reached(found: str) -> None:
        if found == event:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched_query(cursor: Any, name: str, **parameters: Any) -> int:
        answer = run_query(cursor, name, **parameters)
        reached(f"change.{name}:after")
        return answer

    replace_in(ledger_write, "run_query", watched_query)
    replace_in(
        world, "PostgresPositionLedger", lambda params: watched(PostgresPositionLedger(params), "change", reached)
    )
    replace_in(
        world, "PostgresRollBackLedger", lambda params: _WatchedRollBacks(PostgresRollBackLedger(params), reached)
    )
    return cli.main(arguments)


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

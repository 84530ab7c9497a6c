"""A process of its own that rolls the last batch back, and is killed after the statement that its argument names.

Run as ``python -m tests.crash.killed_roll_back STATEMENT``, with the database's parameters as JSON on standard input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka_ingest.postgres.changes import PostgresRollBack, PostgresRollBackLedger
from kafka_ingest.protocol.roll_back import RollBackPlan, RollBackPorts, RollBackRequest, RollBackView, roll_back
from tests.contracts.roll_back_values import asked, orders_log

STATEMENTS = ("lock", "count", "delete", "record", "commit")


class KilledLedger:
    """Port ``RollBackLedger`` whose transactions end the process after one of their statements."""

    def __init__(self, params: Mapping[str, Any], statement: str) -> None:
        self._ledger = PostgresRollBackLedger(params)
        self._statement = statement

    def roll_back_view(self, request: RollBackRequest) -> RollBackView:
        return self._ledger.roll_back_view(request)

    @contextmanager
    def begin_roll_back(self, plan: RollBackPlan) -> Iterator[PostgresRollBack]:
        with self._ledger.begin_roll_back(plan) as transaction:
            setattr(transaction, self._statement, deadly(getattr(transaction, self._statement)))
            yield transaction


def deadly(statement: Callable[..., Any]) -> Callable[..., None]:
    def run(*arguments: Any) -> None:
        statement(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    return run


if __name__ == "__main__":
    roll_back(asked(), RollBackPorts(KilledLedger(json.load(sys.stdin), sys.argv[1]), orders_log()))

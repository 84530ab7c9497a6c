"""Fixtures that several contracts share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_ingest.protocol.roll_back import RollBackPorts, RollBackRecord, roll_back
from tests.contracts.ledger_worlds import LedgerWorld, world_of
from tests.contracts.roll_back_values import asked, orders_log
from tests.fakes.log import FakeLog


@pytest.fixture(params=["fake", "postgresql"])
def world(request: pytest.FixtureRequest) -> LedgerWorld:
    """A ledger with publisher, staging and target, empty, in memory and in PostgreSQL."""
    return world_of(request)


@pytest.fixture
def log() -> FakeLog:
    """The log that roll-backs look at."""
    return orders_log()


@pytest.fixture
def undo(world: LedgerWorld, log: FakeLog) -> Callable[..., RollBackRecord]:
    """Rolls back: ``undo(batches=1, request_id="undo", **flags)``."""
    return lambda batches=1, request_id="undo", **flags: roll_back(
        asked(batches, request_id, **flags), RollBackPorts(world.roll_backs, log)
    )

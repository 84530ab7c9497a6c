"""The one way to build a world; a suite whose tests begin with the same batches loads them in a fixture on top."""

from __future__ import annotations

import pytest

from tests.contracts.ledger_worlds import FakeWorld, LedgerWorld, PostgresWorld


@pytest.fixture(params=["fake", "postgresql"])
def world(request: pytest.FixtureRequest) -> LedgerWorld:
    """A ledger with publisher, staging and target, empty, in memory and in PostgreSQL."""
    return FakeWorld() if request.param == "fake" else PostgresWorld(request.getfixturevalue("database"))

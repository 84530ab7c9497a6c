"""The step *roll back* where its ledger plays a part that a real one rarely does."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from kafka_ingest.errors import ConfigError, LedgerMoved, RequestChanged
from kafka_ingest.protocol.roll_back import (
    RollBackPlan,
    RollBackPorts,
    RollBackRequest,
    RollBackTransaction,
    RollBackView,
    roll_back,
)
from tests.builders import view_of
from tests.fakes.log import FakeLog


class OneView:
    """Port ``RollBackLedger`` that shows one view; ``moves`` times the ledger moves before it shows it."""

    def __init__(self, view: RollBackView, moves: int = 0) -> None:
        self.view = view
        self.moves = moves
        self.asked = 0

    def roll_back_view(self, request: RollBackRequest) -> RollBackView:
        self.asked += 1
        if self.asked <= self.moves:
            raise LedgerMoved("the ledger moved")
        return self.view

    def begin_roll_back(self, plan: RollBackPlan) -> AbstractContextManager[RollBackTransaction]:
        raise AssertionError("nothing is to be undone")


USED = RollBackView(view_of(), {}, (), used_for="reset")


def request(batches: int = 1, *, who: str = "operator", why: str = "wrong data") -> RollBackRequest:
    return RollBackRequest("r-1", "orders", batches, who, why)


def test_everything_that_a_request_lacks_is_listed_before_anything_is_asked() -> None:
    ledger = OneView(USED)
    with pytest.raises(ConfigError) as refused:
        roll_back(request(0, who="", why=" "), RollBackPorts(ledger, FakeLog()))
    assert (refused.value.found, ledger.asked) == ("no reason\nnobody who asks\n0 batches", 0)


def test_a_request_id_of_another_kind_of_change_is_refused() -> None:
    with pytest.raises(RequestChanged, match="r-1") as refused:
        roll_back(request(), RollBackPorts(OneView(USED), FakeLog()))
    assert (refused.value.expected, refused.value.found) == ("a position change, reset", "1 batches to roll back")


def test_a_ledger_that_moves_is_read_again_five_times_in_all() -> None:
    with pytest.raises(RequestChanged):
        roll_back(request(), RollBackPorts(OneView(USED, moves=4), FakeLog()))
    ledger = OneView(USED, moves=5)
    with pytest.raises(LedgerMoved):
        roll_back(request(), RollBackPorts(ledger, FakeLog()))
    assert ledger.asked == 5

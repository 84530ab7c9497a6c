"""Every step names its pipeline in a fault that a port raised without a name."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Never, cast

import pytest

from kafka_ingest.errors import ClusterChanged, DatabaseUnavailable, naming
from kafka_ingest.protocol.changes import apply_change, preview_change
from kafka_ingest.protocol.decisions import AcceptLoss, ChangeRequest
from kafka_ingest.protocol.plan import plan_batch, preview_plan
from kafka_ingest.protocol.roll_back import RollBackRequest, preview_roll_back, roll_back
from kafka_ingest.report import LagPorts, report_lag
from kafka_ingest.settings import HoldSettings
from kafka_ingest.times import SystemClock
from spark_jobs import load_job
from tests.builders import REQUEST, pipeline_settings

SETTINGS = pipeline_settings()
CHANGE = ChangeRequest(pipeline="orders", request_id="r1", change=AcceptLoss(), who="Ada", why="retention")
ROLL_BACK = RollBackRequest("r1", "orders", batches=1, who="Ada", why="mapped wrongly")


def no_database(*_: object) -> Never:
    raise DatabaseUnavailable("the database does not answer")


def ports(view: str) -> Any:
    """Ports whose ledger cannot be read."""
    return cast(Any, SimpleNamespace(ledger=SimpleNamespace(**{view: no_database}), log=None, target=None, runs=None))


@pytest.mark.parametrize(
    "step",
    [
        lambda: plan_batch(SETTINGS, REQUEST, ports("plan_view"), settings_hash="h"),
        lambda: preview_plan(SETTINGS, REQUEST, ports("plan_view")),
        lambda: apply_change(SETTINGS, CHANGE, ports("change_view")),
        lambda: preview_change(SETTINGS, CHANGE, ports("change_view")),
        lambda: roll_back(ROLL_BACK, ports("roll_back_view")),
        lambda: preview_roll_back(ROLL_BACK, ports("roll_back_view")),
        lambda: report_lag(SETTINGS, LagPorts(ports("plan_view").ledger, cast(Any, None), SystemClock())),
    ],
    ids=["plan", "preview of a plan", "change", "preview of a change", "roll-back", "preview of a roll-back", "lag"],
)
def test_a_step_names_its_pipeline_in_a_fault_without_a_name(step: Callable[[], object]) -> None:
    with pytest.raises(DatabaseUnavailable) as fault:
        step()
    assert fault.value.pipeline == "orders"


def test_a_job_names_its_batch_when_it_cannot_claim_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_job, "_runner", lambda *_: None)
    monkeypatch.setattr(load_job, "load_ports", lambda *_: ports("claim"))
    with pytest.raises(DatabaseUnavailable) as fault:
        load_job._load("orders", "batch-1", cast(Any, SimpleNamespace(hold=HoldSettings())), "in-process")
    assert (fault.value.pipeline, fault.value.batch_id) == ("orders", "batch-1")


def test_a_fault_keeps_the_names_that_it_has() -> None:
    with pytest.raises(ClusterChanged) as fault, naming("orders", "batch-1"):
        raise ClusterChanged("another cluster", pipeline="payments")
    assert (fault.value.pipeline, fault.value.batch_id) == ("payments", "batch-1")

"""What a task of Airflow asks beside its steps names the pipeline in a fault, too."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Never, cast

import pytest

from kafka_ingest.errors import DatabaseUnavailable
from kafka_ingest.operators import runs
from kafka_ingest.protocol.audit import AuditReport
from kafka_ingest.settings import PipelineSettings
from tests.builders import REQUEST, pipeline_settings, planned_batch

SETTINGS = pipeline_settings()
BATCH = planned_batch()


class NoLedger:
    """A world whose ledger cannot be reached."""

    def __init__(self, pipeline: PipelineSettings, *_: object) -> None:
        self.pipeline = pipeline

    def ledger(self) -> Any:
        return cast(Any, SimpleNamespace(batch_of=self.no_database, mark_announced=self.no_database))

    def no_database(self, *_: object) -> Never:
        raise DatabaseUnavailable("the database does not answer")


def timed(*_: object) -> None:
    with runs.timed_step("orders", "audit"):
        raise DatabaseUnavailable("the database does not answer")


@pytest.mark.parametrize(
    "ask",
    [
        timed,
        lambda: runs.own_batch(cast(Any, NoLedger(SETTINGS)), REQUEST),
        lambda: runs.record_announced(SETTINGS, AuditReport(BATCH, (BATCH,))),
    ],
    ids=["a step of a task", "the batch of a run", "an announcement"],
)
def test_a_task_names_its_pipeline_in_a_fault(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], object]) -> None:
    monkeypatch.setattr(runs, "World", NoLedger)
    with pytest.raises(DatabaseUnavailable) as fault:
        ask()
    assert fault.value.pipeline == "orders"

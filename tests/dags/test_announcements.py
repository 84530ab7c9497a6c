"""The asset of a target table, its events, and what XCom carries."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import create_autospec

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, DownstreamTasksSkipped

from kafka_ingest.operators.dags import pipeline_dag
from kafka_ingest.operators.runs import event_extra
from kafka_ingest.operators.tasks import AuditBatchOperator, ReportLeftOutOperator, target_asset
from kafka_ingest.protocol.audit import AuditReport
from kafka_ingest.protocol.batch import Batch, BatchState, RecordCounts
from kafka_ingest.protocol.ports import Ledger
from kafka_ingest.report import batch_summary
from kafka_ingest.settings import PartitionFaultPolicy, TargetSettings
from tests.builders import EMPTY_VIEW, NOON, batch_settings, offset_range, pipeline_settings, planned_batch
from tests.dags.all_fakes import FakeSystem
from tests.dags.contexts import OutletEvents, TaskInstance, run_context
from tests.dags.replaced_world import replace_world

LOADED = replace(
    planned_batch(offset_range(0, 0, 10), offset_range(1, 3, 5), state=BatchState.COMMITTED),
    counts=RecordCounts(rows=9, deletes=4, superseded=3, dead_letters=2, invisible=1),
    record_time_min=NOON,
    record_time_max=NOON,
    valid_through=datetime(2026, 1, 2, 11, 59, tzinfo=UTC),
    warnings=("orders[1]: retention is 9 offsets behind",),
)
ORPHAN = replace(LOADED, batch_id="0b9b52ab-0c10-4be5-8f0e-9a3f0a4e4f00", ranges=(offset_range(0, 10, 12),))
EXTRA = {
    "batch_id": LOADED.batch_id,
    "pipeline": "orders",
    "kind": "live",
    "committed_offsets": {"orders": {"0": 10, "1": 5}},
    "record_time_min": "2026-01-02T12:00:00+00:00",
    "record_time_max": "2026-01-02T12:00:00+00:00",
    "valid_through": "2026-01-02T11:59:00+00:00",
    "rows": 9,
    "deletes": 4,
    "superseded": 3,
    "dead_letters": 2,
    "warnings": ["orders[1]: retention is 9 offsets behind"],
    "page": f"/kafka-ingest/batches/{LOADED.batch_id}",
}


def context() -> Any:
    return {"ti": TaskInstance("audit_batch", run_id="r1"), "outlet_events": OutletEvents()}


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A ledger in which the run's batch is ``LOADED``, every invariant holds, and an orphan was never announced."""
    ledger = create_autospec(Ledger, instance=True)
    ledger.plan_view.return_value = EMPTY_VIEW
    ledger.batch_of.return_value = LOADED
    ledger.batch.return_value = LOADED
    ledger.violations.return_value = []
    ledger.unannounced.return_value = [ORPHAN, LOADED]
    replace_world(monkeypatch, ledger=lambda: ledger)
    return ledger


def test_the_asset_is_known_without_connections_and_tells_databases_apart() -> None:
    asset = target_asset(batch_settings())
    assert (asset.name, asset.uri) == (
        "postgres_default.shop.orders",
        "x-kafka-ingest://postgres_default/shop/orders",
    )
    other = target_asset(replace(batch_settings(), target_connection="warehouse"))
    assert (other.name, other.uri) == ("warehouse.shop.orders", "x-kafka-ingest://warehouse/shop/orders")


def test_a_table_name_cannot_break_the_uri() -> None:
    asset = target_asset(replace(batch_settings(), target=TargetSettings("shop", "a/b?c#d")))
    assert asset.uri == "x-kafka-ingest://postgres_default/shop/a%2Fb%3Fc%23d"


def test_the_event_tells_batch_counts_and_offsets() -> None:
    assert event_extra(AuditReport(LOADED, (LOADED,))) == {**EXTRA, "also_announced": []}


def test_batches_of_dead_runs_are_announced_along() -> None:
    [other] = event_extra(AuditReport(LOADED, (LOADED, ORPHAN)))["also_announced"]
    assert other["batch_id"] == ORPHAN.batch_id
    assert other["committed_offsets"] == {"orders": {"0": 12}}


def test_audit_announces_the_run_s_batch_and_orphans(ledger: Any) -> None:
    task = context()
    result = AuditBatchOperator(task_id="audit_batch", pipeline=pipeline_settings()).execute(task)

    extra = task["outlet_events"].extras["postgres_default.shop.orders"]
    assert {key: extra[key] for key in EXTRA} == EXTRA
    assert [batch["batch_id"] for batch in extra["also_announced"]] == [ORPHAN.batch_id]
    assert result["batch_id"] == LOADED.batch_id
    assert not ledger.mark_announced.called


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> FakeSystem:
    system = FakeSystem()
    system.install(monkeypatch)
    return system


def announced(extra: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the offsets of the batches that an event tells of, its own first."""
    return [batch["committed_offsets"] for batch in (extra, *extra["also_announced"])]


@pytest.mark.parametrize("ends_as", [None, "failed", "up_for_retry"])
def test_what_a_run_announced_before_it_died_is_announced_by_the_next_one(
    system: FakeSystem, ends_as: str | None
) -> None:
    """The process dies before Airflow has success and event; or its server refuses the success."""
    system.log.append("orders", b"1")
    system.plan_and_load("dies")
    assert announced(system.audit("dies", ends_as=ends_as)) == [{"orders": {"0": 1}}]
    system.log.append("orders", b"2")
    assert announced(system.run("next")) == [{"orders": {"0": 2}}, {"orders": {"0": 1}}]
    system.log.append("orders", b"3")
    assert announced(system.run("third")) == [{"orders": {"0": 3}}]


def test_an_audit_that_is_tried_again_announces_the_same(system: FakeSystem) -> None:
    system.log.append("orders", b"1")
    system.plan_and_load("tried twice")
    assert system.audit("tried twice", ends_as=None) == system.audit("tried twice")


def test_a_run_that_finds_nothing_sends_no_event_and_the_asset_stays_one_of_the_dag(system: FakeSystem) -> None:
    task = pipeline_dag(system.settings).get_task("audit_batch")
    copy = task.prepare_for_execution()
    assert isinstance(copy, AuditBatchOperator)
    system.plan_and_load("empty")
    events = OutletEvents()
    context: Any = {**run_context(ti=TaskInstance("audit_batch", run_id="empty")), "outlet_events": events}
    with pytest.raises(DownstreamTasksSkipped):
        copy.execute(context)
    assert (events.extras, copy.outlets, task.outlets) == ({}, [], [target_asset(system.settings.batch)])


def test_an_empty_run_announces_what_a_dead_one_left(system: FakeSystem) -> None:
    system.log.append("orders", b"1")
    system.plan_and_load("dies")
    system.audit("dies", ends_as=None)
    assert announced(system.run("empty")) == [{}, {"orders": {"0": 1}}]
    assert system.run("empty, too") == {}


def test_callbacks_of_users_are_called_beside_ours(system: FakeSystem) -> None:
    def theirs(_: Any) -> None: ...

    for given in (theirs, [theirs]):
        task = AuditBatchOperator(task_id="audit_batch", pipeline=system.settings, on_success_callback=given)
        assert len(task.on_success_callback) == 2
        assert task.on_success_callback[1] is theirs


def test_audit_fails_at_once_when_the_load_was_only_marked_successful(ledger: Any) -> None:
    ledger.batch.return_value = replace(LOADED, state=BatchState.PLANNED, counts=None)
    task = context()
    with pytest.raises(AirflowFailException, match="not committed"):
        AuditBatchOperator(task_id="audit_batch", pipeline=pipeline_settings()).execute(task)
    assert task["outlet_events"].extras == {}


def test_audit_fails_at_once_when_nothing_was_planned(ledger: Any) -> None:
    ledger.batch_of.return_value = None
    with pytest.raises(AirflowFailException, match="no batch to audit"):
        AuditBatchOperator(task_id="audit_batch", pipeline=pipeline_settings()).execute(context())


def test_a_run_that_left_partitions_out_ends_red_after_it_was_announced(ledger: Any) -> None:
    ledger.batch_of.return_value = replace(LOADED, left_out=("orders[3]: no leader",))
    AuditBatchOperator(task_id="audit_batch", pipeline=pipeline_settings()).execute(context())
    with pytest.raises(AirflowFailException, match=r"orders\[3\]: no leader"):
        ReportLeftOutOperator(task_id="report_left_out", pipeline=pipeline_settings()).execute(context())


def test_a_run_that_left_nothing_out_stays_green(ledger: Any) -> None:
    ReportLeftOutOperator(task_id="report_left_out", pipeline=pipeline_settings()).execute(context())


def test_only_pipelines_that_may_leave_partitions_out_have_the_task() -> None:
    settings = pipeline_settings()
    leaves_out = replace(settings, plan=replace(settings.plan, on_partition_fault=PartitionFaultPolicy.LEAVE_OUT))
    assert "report_left_out" not in pipeline_dag(settings).task_ids
    assert pipeline_dag(leaves_out).get_task("report_left_out").upstream_task_ids == {"audit_batch"}


@pytest.mark.parametrize("batch", [LOADED, planned_batch(offset_range(0, 0, 10)), planned_batch()])
def test_xcom_survives_json_unchanged_and_is_small(batch: Batch) -> None:
    summary = batch_summary(batch)
    assert json.loads(json.dumps(summary)) == summary
    assert len(json.dumps(summary)) < 2_000

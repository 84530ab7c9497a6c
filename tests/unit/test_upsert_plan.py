"""What a plan asks of an upsert table that only the ledger and its rows tell: no other pipeline, no unknown rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafka_ingest.errors import ConfigError, TargetMismatch
from kafka_ingest.protocol.batch import Request, RunOptions
from kafka_ingest.protocol.ledger_view import PlanView, ServedTopic
from kafka_ingest.protocol.plan import PlanPorts, plan_batch
from kafka_ingest.protocol.ranges import LogTimes, choose_ranges
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSettings,
    Deletes,
    OrderBy,
    PipelineSettings,
    UpsertSettings,
    ValueFormat,
    ValueSettings,
)
from tests.builders import (
    CLUSTER,
    EMPTY_VIEW,
    batch_settings,
    partition_state,
    pipeline_settings,
    position,
    snapshot,
    view_of,
)
from tests.fakes.ledger import FakeLedger
from tests.fakes.loading import FakeRunStates, FakeTarget
from tests.fakes.log import FakeLog

ID = ColumnSettings("id", "bigint", ("id",), required=True)
UPSERT: BatchSettings = replace(
    batch_settings(),
    value=ValueSettings(ValueFormat.JSON_COLUMNS, (ID,)),
    upsert=UpsertSettings(("id",), OrderBy.OFFSET, Deletes.REMOVE),
)
SALES = ServedTopic("sales", CLUSTER, "sales")


def faults(settings: PipelineSettings, *served: ServedTopic, view: PlanView = EMPTY_VIEW) -> Sequence[tuple[str, str]]:
    log = snapshot({"orders": [partition_state(0, 0, 10)]})
    seen = replace(view, served=(*view.served, *served))
    choice = choose_ranges(settings, seen, log, options=RunOptions(), times=LogTimes())
    assert {fault.error for fault in choice.faults} <= {ConfigError}
    return [(fault.where, fault.expected) for fault in choice.faults]


def test_an_upsert_pipeline_shares_its_table_with_no_other_whatever_that_one_reads() -> None:
    [(where, expected)] = faults(pipeline_settings(batch=UPSERT), SALES, replace(SALES, topic="returns"))
    assert where == "table shop.orders"
    assert expected == "one pipeline in all, which is sales: orders holds the current state in it (mode: upsert)"


def test_no_pipeline_appends_to_the_table_of_an_upsert_pipeline() -> None:
    other = replace(SALES, is_upsert=True, cluster_id="cluster-2")
    for view in (EMPTY_VIEW, view_of(position(0, 5))):
        [(_, expected)] = faults(pipeline_settings(), other, view=view)
        assert "sales holds the current state in it" in expected


def test_every_other_pipeline_of_the_table_is_named() -> None:
    found = faults(pipeline_settings(batch=UPSERT), SALES, ServedTopic("billing", CLUSTER, "bills"))
    assert [expected.partition(":")[0] for _, expected in found] == [
        "one pipeline in all, which is billing",
        "one pipeline in all, which is sales",
    ]


def test_pipelines_that_append_share_a_table_and_retired_topics_do_not_count() -> None:
    assert faults(pipeline_settings(), SALES) == []
    retired = replace(SALES, is_retired=True)
    assert faults(pipeline_settings(batch=UPSERT), retired) == []
    assert faults(pipeline_settings(), replace(retired, is_upsert=True)) == []


def test_the_own_topics_of_an_upsert_pipeline_are_no_other_pipeline() -> None:
    own = ServedTopic("orders", CLUSTER, "returns", is_upsert=True)
    assert faults(pipeline_settings(batch=UPSERT), own, view=view_of(position(0, 5))) == []


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    log.create_topic("orders", partitions=1)
    return log


def plan(ledger: FakeLedger, log: FakeLog, target: FakeTarget, *, batch: BatchSettings = UPSERT, run: str) -> None:
    ports = PlanPorts(ledger, log, target, FakeRunStates())
    plan_batch(pipeline_settings(batch=batch), Request("orders", run), ports, settings_hash="hash-1")


def test_rows_without_a_version_stop_the_first_plan_again_and_again_and_no_later_one(log: FakeLog) -> None:
    ledger = FakeLedger()
    for _ in range(2):
        with pytest.raises(TargetMismatch, match="3 rows without a version"):
            plan(ledger, log, FakeTarget(rows_without_version=3), run="run-1")
    assert ledger.database.batches == {}
    plan(ledger, log, FakeTarget(), run="run-1")
    plan(ledger, log, FakeTarget(rows_without_version=3), run="run-2")
    assert len(ledger.database.batches) == 2


def test_an_append_pipeline_loads_beside_rows_without_a_version(log: FakeLog) -> None:
    plan(FakeLedger(), log, FakeTarget(rows_without_version=3), batch=batch_settings(), run="run-1")


def test_the_ledger_tells_that_a_topic_is_served_by_an_upsert_pipeline(log: FakeLog) -> None:
    ledger = FakeLedger()
    plan(ledger, log, FakeTarget(), run="run-1")
    assert [served.is_upsert for served in ledger.database.served.values()] == [True]

"""A run that only shows its plan: its tasks are skipped, so it is green, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from kafka_ingest.operators.dags import pipeline_dag
from kafka_ingest.operators.tasks import LoadBatchOperator, PlanBatchOperator
from kafka_ingest.protocol.plan import PlanPorts
from tests.builders import pipeline_settings
from tests.dags.contexts import run_context
from tests.dags.replaced_world import replace_world
from tests.fakes.ledger import FakeLedger
from tests.fakes.loading import FakeRunStates, FakeTarget
from tests.fakes.log import FakeLog

Operator = type[PlanBatchOperator] | type[LoadBatchOperator]


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    log.create_topic("orders", partitions=2)
    log.append("orders", b"a", b"b", b"c", partition=1)
    return log


@pytest.fixture
def ledger(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLedger]:
    ledger = FakeLedger()
    ports = PlanPorts(ledger, log, FakeTarget(), FakeRunStates())
    replace_world(monkeypatch, plan_ports=lambda: ports)
    yield ledger
    assert ledger.database.batches == {}
    assert ledger.database.pipelines == {}


@pytest.mark.parametrize("operator", [PlanBatchOperator, LoadBatchOperator])
def test_the_log_shows_what_a_run_would_read(
    operator: Operator, ledger: FakeLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    task = operator(task_id="some_task", pipeline=pipeline_settings(), has_form=True)
    with pytest.raises(AirflowSkipException, match="show its plan only"):
        task.execute(run_context(conf={"mode": "plan_only", "limit": 2}))
    assert (
        "A run would read 2 offsets in 1 partitions\n"
        "  topic   partition  start  end  offsets  committed before  above log start\n"
        "  ------  ---------  -----  ---  -------  ----------------  ---------------\n"
        "  orders          1      0    2        2                 0                0\n"
        "  the limit leaves 1 of 3 offsets for later runs"
    ) in capsys.readouterr().out


def test_what_would_stop_a_run_makes_it_red(ledger: FakeLedger, log: FakeLog) -> None:
    log.delete_topic("orders")
    task = PlanBatchOperator(task_id="plan_batch", pipeline=pipeline_settings(), has_form=True)
    with pytest.raises(AirflowFailException, match="TopicMissing"):
        task.execute(run_context(conf={"mode": "plan_only"}))


def test_faults_of_the_form_are_one_message_of_the_plan_task(ledger: FakeLedger) -> None:
    task = PlanBatchOperator(task_id="plan_batch", pipeline=pipeline_settings(), has_form=True)
    with pytest.raises(AirflowFailException) as caught:
        task.execute(run_context(conf={"mode": "reload", "limit": 5, "form": "x"}))
    text = str(caught.value)
    assert text.startswith("ConfigError: the run asks for something that cannot be done (pipeline orders)\n")
    assert [line.partition(":")[0].strip() for line in text.splitlines()[3:]] == [
        "form",
        "From (time)",
        "Reason",
        "Limit (offsets)",
        "next",
    ]


def test_a_skipped_plan_skips_the_whole_run() -> None:
    dag = pipeline_dag(pipeline_settings())
    assert all(task.trigger_rule == "all_success" for task in dag.tasks)
    assert [task.task_id for task in dag.roots] == ["plan_batch"]

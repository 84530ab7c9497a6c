"""The documented examples of notifiers: what arrives in Slack and in a mailbox, through Airflow's own providers."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import TaskInstanceState
from airflow.sdk.execution_time.task_runner import finalize
from airflow.sdk.log import mask_secret

from kafka_ingest.errors import IngestError, TargetMismatch
from kafka_ingest.integrity import POLICIES, Report, load, violations
from kafka_ingest.operators.dags import pipeline_dag
from kafka_ingest.operators.tasks import LoadBatchOperator
from kafka_ingest.protocol.ledger_view import PlanView
from kafka_ingest.protocol.log import observe
from kafka_ingest.settings import WatchSettings
from sandbox.paths import CHECKOUT
from tests.builders import NOON, partition_state, pipeline_settings, position, snapshot, view_of
from tests.dags.all_fakes import FakeSystem
from tests.dags.contexts import TaskInstance, run_context
from tests.inbox import Inbox, open_inbox

EXAMPLES = CHECKOUT / "docs" / "examples"
SECRET = "s3cret-of-the-database"


@pytest.fixture
def notify(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, found under the name that Airflow's configuration folder gives it."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/")
    return imported("notify", monkeypatch)


@pytest.fixture
def watch(notify: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return imported("watch_pipelines", monkeypatch)


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Inbox]:
    for provider in ("slack", "smtp"):  # the oldest Airflow is tested without them
        pytest.importorskip(f"airflow.providers.{provider}")
    with open_inbox() as inbox:
        for name, value in inbox.connections().items():
            monkeypatch.setenv(name, value)
        yield inbox


def fail_load(notify: ModuleType, monkeypatch: pytest.MonkeyPatch, fault: IngestError) -> None:
    """Runs the load of a pipeline's DAG, with the policy applied, into a fault; Airflow calls what the task has."""
    system = FakeSystem(job_fault=fault)
    system.install(monkeypatch)
    system.log.append("orders", b"1")
    dag = pipeline_dag(system.settings)
    for task in dag.tasks:
        notify.task_policy(task)
    task = cast("LoadBatchOperator", dag.get_task("load_batch"))
    ti = TaskInstance("load_batch", dag_id=dag.dag_id, run_id="scheduled__13:00")
    context: Any = {**run_context(ti=ti), "dag": dag}
    with pytest.raises(AirflowException) as caught:
        task.execute(context)
    context["exception"] = caught.value
    instance: Any = SimpleNamespace(task=task, start_date=None, end_date=None)
    finalize(instance, TaskInstanceState.FAILED, context, structlog.get_logger(), caught.value)


def test_a_failed_load_tells_both_channels_pipeline_fault_next_command_and_page(
    notify: ModuleType, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = TargetMismatch(
        "the target refused the batch",
        found="customer 7 is not there",
        next_command="clear load_batch",
        pipeline="orders",
    )
    fail_load(notify, monkeypatch, fault)
    [told], [mail], [body] = inbox.slack, inbox.mails, inbox.mail_texts()
    page = "https://airflow.example.com/kafka-ingest/pipelines/orders"
    for text in (told, body):
        assert "TargetMismatch: the target refused the batch (pipeline orders" in text
        assert "found: customer 7 is not there" in text
        assert "next: clear load_batch" in text
        assert page in text
    assert told.startswith("*orders: load_batch failed in scheduled__13:00*\n")
    assert (mail["Subject"], mail["To"]) == (
        "orders: load_batch failed in scheduled__13:00",
        "data-platform@example.com",
    )


def test_what_a_message_quotes_of_a_record_does_nothing(
    notify: ModuleType, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "<!channel> {{ dag }} ``` <https://evil.example|click> <script>alert(1)</script>"
    fail_load(notify, monkeypatch, TargetMismatch("the target refused the batch", found=hostile))
    [told], [body] = inbox.slack, inbox.mail_texts()
    assert "&lt;!channel&gt; {{ dag }} ''' &lt;https://evil.example|click&gt;" in told
    assert told.count("```") == 2
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in body
    assert "<script" not in body


def test_a_secret_that_airflow_knows_is_not_sent(
    notify: ModuleType, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask_secret(SECRET)
    fail_load(notify, monkeypatch, TargetMismatch(f"postgresql://loader:{SECRET}@db is not there"))
    [told], [body] = inbox.slack, inbox.mail_texts()
    assert "postgresql://loader:***@db is not there" in told
    assert SECRET not in told + body


def test_a_mail_is_sent_where_slack_refuses(notify: ModuleType, inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = json.loads(inbox.connections()["AIRFLOW_CONN_SLACK_ALERTS"]) | {"password": "revoked"}
    monkeypatch.setenv("AIRFLOW_CONN_SLACK_ALERTS", json.dumps(wrong))
    fail_load(notify, monkeypatch, TargetMismatch("the target refused the batch"))
    assert inbox.slack == []
    assert len(inbox.mails) == 1


def test_a_task_that_was_killed_says_so(notify: ModuleType, inbox: Inbox) -> None:
    notify.slack_failure(run_context(ti=TaskInstance("load_batch", dag_id="kafka_to_postgres__orders")))
    [told] = inbox.slack
    assert "The task was killed, or gave no sign of life." in told


def test_callbacks_of_the_task_itself_stay_and_tasks_of_other_dags_get_none(notify: ModuleType) -> None:
    def own(_: Any) -> None:
        """A user's."""

    ours = SimpleNamespace(dag=SimpleNamespace(tags={"kafka-ingest"}), on_failure_callback=[own])
    theirs = SimpleNamespace(dag=SimpleNamespace(tags={"shop"}), on_failure_callback=[own])
    notify.task_policy(ours)
    notify.task_policy(theirs)
    assert ours.on_failure_callback == [own, notify.slack_failure, notify.mailbox_failure]
    assert theirs.on_failure_callback == [own]


# ----------
# The DAG that watches.

ORDERS = replace(pipeline_settings(), watch=WatchSettings(min_headroom_offsets=10))
#: The schedule is hourly: a run that ended at five past twelve leaves one that is due at one.
STATUS = {"last_committed_at": NOON + timedelta(minutes=5), "valid_through": NOON}


def view(log_start: int, committed: int) -> PlanView:
    """A log of one partition that ends at 100."""
    seen = observe(snapshot({"orders": [partition_state(0, log_start, 100)]}), ())
    return replace(view_of(position(0, committed)), observations=seen)


@pytest.mark.parametrize(
    ("minutes", "complete", "log_start", "expected"),
    [
        (74, NOON, 0, []),
        (76, NOON, 0, ["late"]),
        (70, NOON - timedelta(hours=25), 0, ["behind"]),
        (70, NOON, 45, ["close to losing records"]),
        (70, NOON, 51, ["losing records"]),
        (70, None, 0, []),
    ],
)
def test_problems_are_those_of_schedule_table_and_retention(
    watch: ModuleType, minutes: int, complete: datetime | None, log_start: int, expected: list[str]
) -> None:
    status = {**STATUS, "valid_through": complete}
    found = watch.problems_of(ORDERS, status, view(log_start, 50), NOON + timedelta(minutes=minutes))
    assert [problem for problem, _ in found] == expected


def test_a_pipeline_that_never_ran_has_no_problem_yet(watch: ModuleType) -> None:
    status = {"last_committed_at": None, "valid_through": None}
    assert list(watch.problems_of(ORDERS, status, view_of(), datetime.now(UTC))) == []


def test_a_problem_is_news_once_and_again_when_it_has_gone_in_between(watch: ModuleType) -> None:
    late = {"pipeline": "orders", "problem": "late", "text": "..."}
    behind = {"pipeline": "orders", "problem": "behind", "text": "..."}
    assert watch.news([late], []) == [late]
    assert watch.news([late, behind], [["orders", "late"]]) == [behind]
    assert watch.news([late], [["payments", "late"]]) == [late]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Both examples where their first lines say, loaded as the dag processor does."""
    home, dags = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("dags")
    shutil.copytree(CHECKOUT / "dags", dags, dirs_exist_ok=True)
    shutil.copy(EXAMPLES / "watch_pipelines.py", dags)
    (home / "config").mkdir()
    shutil.copy(EXAMPLES / "notify.py", home / "config")
    (home / "config" / "airflow_local_settings.py").write_text("from notify import task_policy\n")
    return load(dags, home)


def test_the_policy_gives_every_task_of_the_package_a_callback(installed: Report) -> None:
    assert installed["import_errors"] == {}
    tasks = [task["__var"] for dag in installed["dags"] for task in json.loads(dag["serialized"])["dag"]["tasks"]]
    assert {"plan_batch", "load_batch", "audit_batch", "look", "tell"} <= {task["task_id"] for task in tasks}
    plain = [task for task in tasks if not task.get("_is_mapped")]
    assert [task["task_id"] for task in plain if not task.get("has_on_failure_callback")] == []


def test_the_watching_dag_loads_nothing_heavy_and_asks_nobody(installed: Report) -> None:
    [file] = [file for file in installed["files"] if file["file"] == "watch_pipelines.py"]
    assert (file["heavy"], file["network"], file["opened_yaml"]) == ([], [], [])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_the_watching_dag_keeps_the_policies(installed: Report, policy: Any) -> None:
    assert [fault for fault in violations(installed, policy) if "kafka_ingest_watch" in fault] == []


def test_the_documentation_shows_the_examples() -> None:
    page = (CHECKOUT / "docs" / "alerting.md").read_text(encoding="utf-8")
    assert all(f"(examples/{name}.py)" in page for name in ("notify", "watch_pipelines"))

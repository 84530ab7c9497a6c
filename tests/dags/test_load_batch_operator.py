"""How load_batch decides: by the ledger, never by spark-submit's exit code. Spark itself is left out here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, cast
from unittest.mock import create_autospec

import pytest
import structlog
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from kafka_ingest.errors import (
    BrokerUnavailable,
    Busy,
    CommitStateUnknown,
    ConfigError,
    DatabaseUnavailable,
    Fenced,
    IngestError,
    TooManyDeadLetters,
)
from kafka_ingest.operators import runs
from kafka_ingest.operators.runs import run_plan_step
from kafka_ingest.operators.spark_job import SparkJob, SparkSubmitLog
from kafka_ingest.operators.tasks import LoadBatchOperator
from kafka_ingest.protocol.batch import Batch, BatchStanding, BatchState, LoadPhases, RecordCounts, TaskSeconds
from kafka_ingest.protocol.ports import Ledger
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.staging import DeadLetterGroup
from kafka_ingest.spark.in_process import load_in_process
from kafka_ingest.spark.submission import JOB_FILE_VARIABLE, OUTCOME_VARIABLE, JobSubmission, write_batch, write_error
from tests.builders import offset_range, pipeline_settings, planned_batch
from tests.dags.contexts import TaskInstance, run_context
from tests.dags.replaced_world import replace_world, variables_of

PLANNED = planned_batch(offset_range(0, 0, 10))
COMMITTED = replace(PLANNED, state=BatchState.COMMITTED, counts=RecordCounts(rows=10))
SECRET = "s3cret-of-the-job"

Spark = Callable[[SparkSubmitHook], None]


@dataclass
class World:
    """What the operator meets: the planned batch, the ledger after the job, and what the job does."""

    planned: Batch | IngestError = PLANNED
    after: Batch = PLANNED
    job: Spark = lambda _: None
    locked: CommitStateUnknown | None = None
    spark_runs: int = 0
    dead_letter_groups: Sequence[DeadLetterGroup] | IngestError = ()
    given_back: list[int] = field(default_factory=list)

    def plan_step(self, *_: object, has_form: bool) -> Batch:
        if isinstance(self.planned, IngestError):
            raise self.planned
        return self.planned

    def ledger(self) -> Ledger:
        ledger = create_autospec(Ledger, instance=True)
        standing = BatchStanding(self.after.state, self.after.claim)
        ledger.settle.side_effect = self.locked if self.locked else [standing, standing]
        ledger.batch.return_value = self.after
        ledger.dead_letter_groups.side_effect = [self.dead_letter_groups]
        ledger.release_hold.side_effect = lambda _, claim: self.given_back.append(claim)
        return cast("Ledger", ledger)

    def submit(self, hook: SparkSubmitHook, _: object) -> None:
        self.spark_runs += 1
        self.job(hook)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(runs, "run_plan_step", create_autospec(run_plan_step, side_effect=found.plan_step))
    replace_world(monkeypatch, ledger=found.ledger, submission=submission)
    monkeypatch.setattr(SparkSubmitHook, "submit", create_autospec(SparkSubmitHook.submit, side_effect=found.submit))
    return found


def submission(batch_id: str, outcome_file: Path) -> JobSubmission:
    return JobSubmission(
        master="local[2]",
        application="/jobs/load_batch.py",
        py_files="/jobs/code.zip",
        application_args=("--pipeline", "orders", "--batch-id", batch_id),
        conf={"spark.ui.enabled": "false"},
        env_vars={JOB_FILE_VARIABLE: str(_job_file(outcome_file)), OUTCOME_VARIABLE: str(outcome_file)},
        name="kafka_ingest.orders",
        driver_memory="1g",
        executor_memory="1g",
        executor_cores=None,
    )


def _job_file(outcome_file: Path) -> Path:
    path = outcome_file.with_name("settings.json")
    path.write_text(SECRET)
    return path


def run(*, waited_seconds: int = 0) -> dict[str, Any]:
    context = run_context(ti=TaskInstance(waiting_since=datetime.now(UTC) - timedelta(seconds=waited_seconds)))
    return LoadBatchOperator(task_id="load_batch", pipeline=pipeline_settings()).execute(context)


def warnings_of_a_run() -> list[str]:
    return [text for level, text in logged(run) if level == "warning"]


def logged(act: Callable[[], object]) -> list[tuple[str, str]]:
    """Give level and text of what is logged meanwhile."""
    with structlog.testing.capture_logs() as captured:
        act()
    return [(entry["log_level"], str(entry["event"])) for entry in captured]


def killed(_: SparkSubmitHook) -> None:
    raise AirflowException(
        "Cannot execute: spark-submit. Error code is: 137.\nLast spark-submit output:\nstaged 7 of 10"
    )


def reports(error: IngestError) -> Spark:
    def job(hook: SparkSubmitHook) -> None:
        write_error(Path(variables_of(hook)[OUTCOME_VARIABLE]), error)
        raise AirflowException("Cannot execute: spark-submit. Error code is: 78.")

    return job


def test_a_committed_batch_starts_no_spark(world: World) -> None:
    world.planned = COMMITTED
    assert run()["state"] == "committed"
    assert world.spark_runs == 0


def test_an_empty_plan_is_green_and_starts_no_spark(world: World) -> None:
    world.planned = replace(COMMITTED, ranges=(), counts=RecordCounts())
    assert run()["ranges"] == {}
    assert world.spark_runs == 0


@pytest.mark.parametrize(
    ("below", "way"),
    [
        (None, "With Spark: 10 offsets"),
        (10, "With Spark: 10 offsets, not fewer than spark.in_process_below_offsets (10)"),
        (11, "In this process, without Spark: 10 offsets, fewer than spark.in_process_below_offsets (11)"),
    ],
)
def test_a_batch_of_fewer_offsets_than_the_pipeline_says_starts_no_spark_and_the_log_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, below: int | None, way: str
) -> None:
    loaded: list[Batch] = []
    replace_world(monkeypatch, job_environment=lambda: None)
    in_process = create_autospec(load_in_process, side_effect=lambda batch, *_, **__: loaded.append(batch))
    monkeypatch.setattr("kafka_ingest.world.load_in_process", in_process)
    world.after = COMMITTED
    settings = pipeline_settings()
    settings = replace(settings, job=replace(settings.job, in_process_below_offsets=below))
    operator = LoadBatchOperator(task_id="load_batch", pipeline=settings)
    assert ("info", way) in logged(lambda: operator.execute(run_context()))
    is_in_process = way.startswith("In this process")
    assert (world.spark_runs, loaded) == ((0, [PLANNED]) if is_in_process else (1, []))


def test_a_held_pipeline_is_asked_again_and_starts_no_spark(world: World) -> None:
    world.planned = Busy("another request holds the pipeline")
    with pytest.raises(AirflowRescheduleException):
        run()
    assert world.spark_runs == 0


def test_a_job_that_committed_is_green(world: World) -> None:
    world.after = COMMITTED
    assert run()["counts"]["rows"] == 10
    assert (world.spark_runs, world.given_back) == (1, [])


@pytest.mark.parametrize("error", [TooManyDeadLetters("too many"), BrokerUnavailable("the broker is away")])
def test_a_load_that_fails_gives_back_the_hold_of_its_plan_and_of_its_job(world: World, error: IngestError) -> None:
    world.job = reports(error)
    with pytest.raises(AirflowException):
        run()
    assert world.given_back == [PLANNED.claim, PLANNED.claim + 1]


def test_a_job_that_committed_says_where_its_time_went(world: World) -> None:
    phases = LoadPhases(session=3.0, stage=12.0, publish=2.0, tasks=TaskSeconds(read=5.5, decode=8.0, copy=9.0))

    def job(hook: SparkSubmitHook) -> None:
        write_batch(Path(variables_of(hook)[OUTCOME_VARIABLE]), {}, phases)

    world.job, world.after = job, COMMITTED
    assert run()["phases"] == {
        "session": 3.0,
        "stage": 12.0,
        "publish": 2.0,
        "tasks": {"read": 5.5, "decode": 8.0, "copy": 9.0},
    }
    world.job = killed
    assert run()["phases"] is None


@pytest.mark.parametrize("is_loaded_before", [False, True])
def test_dead_letters_of_a_green_load_are_one_warning_with_reasons_first_offsets_and_the_command(
    world: World, is_loaded_before: bool
) -> None:
    with_dead_letters = replace(COMMITTED, counts=RecordCounts(rows=4, dead_letters=6))
    world.planned, world.after = (with_dead_letters if is_loaded_before else PLANNED), with_dead_letters
    world.dead_letter_groups = [
        DeadLetterGroup("malformed", 4, TopicPartition("orders", 0), 2),
        DeadLetterGroup("too_long", 2, TopicPartition("orders", 0), 3),
    ]
    [warning] = warnings_of_a_run()
    assert warning == (
        "6 of 10 records became dead letters: shop.orders does not have them\n"
        "  reason     records  first at\n"
        "  ---------  -------  ------------------\n"
        "  malformed        4  orders[0] offset 2\n"
        "  too_long         2  orders[0] offset 3\n"
        "  look: python -m kafka_ingest dead-letters list orders --batch 6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10\n"
        "  the batch went through because it did not pass\n"
        "    10,000 dead letters\n"
        "    5.0% of its records (not looked at up to 100 dead letters)\n"
        "    1,000 dead letters in a row in one partition"
    )


def test_a_committed_batch_is_green_when_nobody_can_say_why_records_did_not_fit(world: World) -> None:
    world.after = replace(COMMITTED, counts=RecordCounts(rows=4, dead_letters=6))
    world.dead_letter_groups = DatabaseUnavailable("the server is gone")
    [warning] = warnings_of_a_run()
    assert warning.startswith("6 of 10 records became dead letters")


def test_a_load_without_dead_letters_warns_of_nothing(world: World) -> None:
    world.after = COMMITTED
    assert warnings_of_a_run() == []


def test_a_job_that_committed_and_then_failed_is_green(world: World) -> None:
    world.job, world.after = killed, COMMITTED
    assert run()["state"] == "committed"


def test_exit_code_0_without_a_committed_batch_is_a_failure(world: World) -> None:
    with pytest.raises(AirflowException, match="exit code 0") as caught:
        run()
    assert not isinstance(caught.value, AirflowFailException)


def test_a_killed_job_is_retried_and_its_last_lines_are_told(world: World) -> None:
    world.job = killed
    with pytest.raises(AirflowException, match="staged 7 of 10") as caught:
        run()
    assert not isinstance(caught.value, AirflowFailException)


def test_what_the_job_reported_decides_about_the_retry(world: World) -> None:
    world.job = reports(TooManyDeadLetters("11000 records would become dead letters"))
    with pytest.raises(AirflowFailException, match="11000 records"):
        run()
    world.job = reports(Fenced("a newer claim owns the batch"))
    with pytest.raises(AirflowException, match="newer claim") as caught:
        run()
    assert not isinstance(caught.value, AirflowFailException)


def test_a_missing_spark_submit_is_told_as_such(world: World) -> None:
    def job(_: SparkSubmitHook) -> None:
        raise FileNotFoundError(2, "No such file or directory", "spark-submit")

    world.job = job
    with pytest.raises(AirflowFailException, match="spark-submit cannot be started"):
        run()


def test_secrets_reach_the_job_by_its_file_alone_and_do_not_stay(world: World) -> None:
    seen: dict[str, object] = {}

    def job(hook: SparkSubmitHook) -> None:
        job_file = Path(variables_of(hook)[JOB_FILE_VARIABLE])
        seen["secret"], seen["folder"] = job_file.read_text(), job_file.parent
        seen["line"] = [hook._build_spark_submit_command("/jobs/load_batch.py"), hook._env]

    world.job, world.after = job, COMMITTED
    run()
    assert seen["secret"] == SECRET
    assert SECRET not in repr(seen["line"])
    assert not cast("Path", seen["folder"]).exists()


def test_nothing_of_the_submission_can_be_rendered() -> None:
    assert tuple(LoadBatchOperator.template_fields) == ()


def test_a_batch_that_an_orphan_publishes_is_asked_for_again_and_starts_no_spark(world: World) -> None:
    world.locked = CommitStateUnknown("the batch row is locked")
    with pytest.raises(AirflowRescheduleException):
        run()
    assert world.spark_runs == 0


def test_a_job_that_met_a_publishing_orphan_uses_up_no_retry(world: World) -> None:
    world.job = reports(Busy("another session has the batch locked"))
    with pytest.raises(AirflowRescheduleException):
        run()


def test_a_batch_that_stays_locked_fails_the_task_after_the_time_that_it_may_wait(world: World) -> None:
    world.job = reports(Busy("another session has the batch locked"))
    with pytest.raises(AirflowFailException, match="BusyTooLong"):
        run(waited_seconds=1_000_000)


@pytest.mark.parametrize(
    ("line", "level", "told"),
    [
        ("26/11/28 22:38:16 WARN TaskSetManager: Lost task 0.0", "warning", "TaskSetManager: Lost task 0.0"),
        ("26/11/28 22:38:16 ERROR SparkContext: stopped", "error", "SparkContext: stopped"),
        ("26/11/28 22:38:16 INFO SparkContext: OS info", "info", "SparkContext: OS info"),
        ("22:38:16 WARNING heartbeat not stored", "warning", "heartbeat not stored"),
        ("22:38:16 CRITICAL unexpected error", "error", "unexpected error"),
        ("22:38:16 INFO staging: 5 records", "info", "staging: 5 records"),
        ("26/11/28 22:38:15 WARN NativeCodeLoader: no library", "info", "NativeCodeLoader: no library"),
        ("WARNING: Using incubator modules: jdk", "info", "WARNING: Using incubator modules: jdk"),
        ("100 % of it", "info", "100 % of it"),
    ],
)
def test_lines_of_the_job_have_the_level_that_they_name(line: str, level: str, told: str) -> None:
    assert logged_by_hook(line) == [(level, told)]


class RecordedProcess:
    """What the provider's hook starts in place of spark-submit; it ends at once, without a word."""

    started: ClassVar[list[tuple[list[str], dict[str, str]]]] = []
    stdout: tuple[str, ...] = ()

    def __init__(self, command: list[str], *, env: dict[str, str], **_: object) -> None:
        self.started.append((command, env))

    def wait(self) -> int:
        return 0


@pytest.mark.parametrize("master", ["local[2]", "spark://m:7077", "yarn", "k8s://https://api.example:6443"])
def test_on_every_master_the_jobs_variables_are_spark_submits_environment_and_not_on_its_command_line(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(RecordedProcess, "started", started)
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.subprocess.Popen", RecordedProcess)
    monkeypatch.setattr(
        spark_submit, "kube_client", object(), raising=False
    )  # the provider wants another one for k8s://
    connection = {"conn_type": "spark", "host": master, "extra": {"queue": "loads", "namespace": "loads"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.setattr(runs, "run_plan_step", create_autospec(run_plan_step, return_value=PLANNED))
    world = World()
    world.after = COMMITTED
    replace_world(monkeypatch, ledger=world.ledger, submission=submission)
    run()
    [(command, environment)] = started
    assert command[:3] == ["spark-submit", "--master", master]
    assert environment[JOB_FILE_VARIABLE].endswith("settings.json")
    assert [word for word in command if JOB_FILE_VARIABLE in word or "Env." in word or "settings.json" in word] == []


def test_kubernetes_without_airflows_provider_for_it_is_told_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection = {"conn_type": "spark", "host": "k8s://https://api.example:6443"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.delattr(spark_submit, "kube_client", raising=False)
    with pytest.raises(ConfigError, match="Kubernetes") as caught:
        spark_job(tmp_path).run(run_context())
    assert "apache-airflow-providers-apache-spark[cncf.kubernetes]" in caught.value.next_command


def test_the_command_is_folded_away() -> None:
    assert logged_by_hook("Spark-Submit cmd: %s", "spark-submit --master local[2] --name orders app.py") == [
        ("info", "::group::Spark-Submit cmd"),
        ("info", "spark-submit"),
        ("info", "  --master local[2]"),
        ("info", "  --name orders app.py"),
        ("info", "::endgroup::"),
    ]


def test_what_spark_submit_prints_is_logged_in_this_way(world: World) -> None:
    world.job, world.after = (lambda hook: hook.log.info("22:38:16 WARNING heartbeat not stored")), COMMITTED
    assert warnings_of_a_run() == ["heartbeat not stored"]


def test_a_task_that_is_marked_failed_ends_spark_submit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[SparkSubmitHook] = []
    monkeypatch.setattr(SparkSubmitHook, "on_kill", create_autospec(SparkSubmitHook.on_kill, side_effect=ended.append))
    operator = LoadBatchOperator(task_id="load_batch", pipeline=pipeline_settings())
    operator.on_kill()  # before anything was submitted
    submitted: list[SparkSubmitHook] = []

    def job(hook: SparkSubmitHook) -> None:
        submitted.append(hook)
        operator.on_kill()

    world.job, world.after = job, COMMITTED
    operator.execute(run_context())
    assert ended == submitted != []


def spark_job(folder: Path) -> SparkJob:
    """Return a job that is not yet submitted."""
    return SparkJob(submission("batch", folder / "outcome.json"), pipeline_settings(), lambda *_: None)


def logged_by_hook(event: str, *args: object) -> list[tuple[str, str]]:
    return logged(lambda: SparkSubmitLog(structlog.get_logger("hook")).info(event, *args))

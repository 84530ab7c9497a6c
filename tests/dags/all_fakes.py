"""A pipeline whose operators meet fakes of every port; spark-submit runs the load step in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest
import structlog
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import TaskInstanceState
from airflow.sdk.execution_time import task_runner

from kafka_ingest.errors import IngestError
from kafka_ingest.operators.tasks import AuditBatchOperator, LoadBatchOperator, PlanBatchOperator
from kafka_ingest.protocol.batch import LoadPhases
from kafka_ingest.protocol.load import LoadPorts, load_batch
from kafka_ingest.protocol.plan import PlanPorts
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import PipelineSettings
from kafka_ingest.spark.master import MasterKind, SparkMaster
from kafka_ingest.spark.submission import OUTCOME_VARIABLE, JobSubmission, write_batch, write_error
from tests.builders import NOON, pipeline_settings
from tests.dags.contexts import OutletEvents, TaskInstance, run_context
from tests.dags.replaced_world import replace_world, variables_of
from tests.fakes.attempts import FakeAttempts
from tests.fakes.database import FakeDatabase
from tests.fakes.group_mirror import FakeGroupMirror
from tests.fakes.ledger import FakeLedger
from tests.fakes.loading import FakeClock, FakeRunner, FakeRunStates, FakeStaging, FakeTarget
from tests.fakes.log import FakeLog
from tests.fakes.publisher import FakePublisher
from tests.fakes.schema_evolution import FakeSchemaEvolution


@dataclass
class FakeSystem:
    """Topic orders with two partitions, and everything that the operators of pipeline orders meet.

    ``job_says`` are lines that spark-submit prints first, ``job_fault`` is what the job finds instead of loading.
    """

    settings: PipelineSettings = field(default_factory=pipeline_settings)
    log: FakeLog = field(default_factory=FakeLog)
    database: FakeDatabase = field(default_factory=FakeDatabase)
    job_says: tuple[str, ...] = ()
    job_fault: IngestError | None = None

    def __post_init__(self) -> None:
        self.log.create_topic("orders", partitions=2)
        self.ledger = FakeLedger(self.database)
        self.publisher = FakePublisher(self.database)
        self.attempts = FakeAttempts()
        self.groups = FakeGroupMirror({TopicPartition("orders", 0), TopicPartition("orders", 1)})
        self._submitted = ""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ports = PlanPorts(self.ledger, self.log, FakeTarget(), FakeRunStates())
        replace_world(
            monkeypatch,
            plan_ports=lambda: ports,
            ledger=lambda: self.ledger,
            mirror=lambda: self.groups,
            attempts=lambda: self.attempts,
            spark_master=lambda: SparkMaster("spark_default", "local[2]", MasterKind.LOCAL),
            submission=self._submission,
        )
        # Where the end of a task stores its links: there is no supervisor to send them to.
        monkeypatch.setattr(task_runner, "_xcom_push_to_db", lambda *_, **__: None)
        submit = create_autospec(SparkSubmitHook.submit, side_effect=self._run_job)
        monkeypatch.setattr(SparkSubmitHook, "submit", submit)

    def run(self, run_id: str) -> dict[str, Any]:
        """Runs plan, load and audit of one DAG run; gives what the audit announced."""
        self.plan_and_load(run_id)
        return self.audit(run_id)

    def plan_and_load(self, run_id: str) -> None:
        for task_id, operator in (("plan_batch", PlanBatchOperator), ("load_batch", LoadBatchOperator)):
            operator(task_id=task_id, pipeline=self.settings).execute(
                run_context(ti=TaskInstance(task_id, run_id=run_id))
            )

    def audit(self, run_id: str, *, ends_as: str | None = "success") -> dict[str, Any]:
        """Audits; ``ends_as`` is what Airflow's server holds of the task afterwards, ``None``: the process dies before.

        The end is Airflow's own, which calls the task's callbacks.
        """
        ti, events = TaskInstance("audit_batch", run_id=run_id, server_state=ends_as or "running"), OutletEvents()
        task = AuditBatchOperator(task_id="audit_batch", pipeline=self.settings)
        context: Any = {**run_context(ti=ti), "outlet_events": events, "task": task}
        task.execute(context)
        if ends_as:
            instance: Any = SimpleNamespace(task=task, start_date=None, end_date=None)
            task_runner.finalize(instance, TaskInstanceState.SUCCESS, context, structlog.get_logger())
        return next(iter(events.extras.values()), {})

    def _submission(self, batch_id: str, outcome_file: Path) -> JobSubmission:
        self._submitted = batch_id
        return JobSubmission(
            master="local[2]",
            application="/jobs/load_batch.py",
            py_files="/jobs/code.zip",
            application_args=("--batch-id", batch_id),
            conf={},
            env_vars={OUTCOME_VARIABLE: str(outcome_file)},
            name="kafka_ingest.orders",
            driver_memory="1g",
            executor_memory="1g",
            executor_cores=None,
        )

    def _run_job(self, hook: SparkSubmitHook, _: object) -> None:
        """As the job does: what came of it is written down, and spark-submit tells an exit code alone."""
        outcome_file = Path(variables_of(hook)[OUTCOME_VARIABLE])
        for line in self.job_says:
            hook.log.info(line)
        published: list[LoadPhases] = []
        staging, runner = FakeStaging(self.database), FakeRunner(self.database, self.log)
        clock, evolution = FakeClock(NOON), FakeSchemaEvolution(self.database)
        ports = LoadPorts(self.ledger, self.log, staging, runner, self.publisher, clock, evolution)
        try:
            if self.job_fault:
                raise self.job_fault
            hold = self.settings.plan.hold
            load_batch(self._submitted, ports, hold=hold, report=lambda _: None, on_published=published.append)
        except IngestError as error:
            write_error(outcome_file, error)
            raise AirflowException("Cannot execute: spark-submit. Error code is: 78.\n" + _STACK_TRACE) from None
        write_batch(outcome_file, {}, next(iter(published), None))


_STACK_TRACE = "org.apache.spark.SparkException: Job aborted\n\tat org.apache.spark.scheduler.DAGScheduler.abortStage"

"""A run in this process, with something done at named moments of it: the product's own code, real services.

Moments are the events of :mod:`tests.crash.watched_ports`, for example ``load.task.copy:middle``. Where a process has
to die, ``killed_driver`` is the tool; where the world changes around a process that lives, this is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from kafka_ingest.cli.command import world_of
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.postgres.database import TransactionLimits
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.postgres.rows import settings_hash
from kafka_ingest.protocol.audit import audit_batch, record_announcement
from kafka_ingest.protocol.batch import Batch, BatchState, Request
from kafka_ingest.protocol.load import load_batch
from kafka_ingest.protocol.plan import plan_batch
from spark_jobs import stage
from spark_jobs.load_job import InProcessRunner, load_ports, stage_context
from tests.crash.killed_driver import DAG_ID, EveryRunHasEnded
from tests.crash.watched_ports import watched_load_ports, watched_plan_ports, watched_stage_task

#: The run has a planned batch, and its job was not started yet.
PLANNED = "load.ledger.claim:before"
#: The first task has read its first chunk, and put nothing of it into staging.
READING = "load.task.copy:before"
#: Half of the first chunk went to the server.
COPYING = "load.task.copy:middle"
#: All tasks have staged, nothing is published.
STAGED = "load.runner.run:after"
#: Rows are in the target and positions moved, uncommitted.
PUBLISHING = "load.publication.insert_rows:after"


@dataclass
class Happening:
    """What is done at which event: once, at its first occurrence."""

    at: Mapping[str, Callable[[], object]]
    seen: set[str] = field(default_factory=set)

    def reached(self, event: str) -> None:
        if event not in self.seen:
            self.seen.add(event)
            self.at.get(event, _nothing)()


@dataclass(frozen=True)
class EventfulRun:
    """A run of a pipeline.

    Attributes:
        pipeline: Its name.
        parameters: What the run is asked to do.
        at: What is done at which event.
        kafka: librdkafka settings for the job that differ from the pipeline's.
        no_progress_seconds: After this long without progress the broker counts as unavailable.
        publish_limits: Time-outs of the publish transaction.
    """

    pipeline: str
    at: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    parameters: str = "{}"
    kafka: Mapping[str, str] = field(default_factory=dict)
    no_progress_seconds: int = 120
    publish_limits: TransactionLimits = field(default_factory=partial(TransactionLimits, lock_timeout_seconds=30))

    def run(self, run_id: str) -> Batch:
        """Plans, loads and audits; the same run id again is a retry. All events of ``at`` must come if it succeeds."""
        happening, request = Happening(self.at), Request(DAG_ID, run_id, parameters=self.parameters)
        settings = find_pipeline(self.pipeline)
        ports = replace(world_of(settings).plan_ports(), runs=EveryRunHasEnded())
        watched = watched_plan_ports(ports, happening.reached)
        batch = plan_batch(settings, request, watched, settings_hash=settings_hash(settings.batch))
        if batch.state is not BatchState.COMMITTED:
            batch = self._load(batch, happening)
        report = audit_batch(batch.batch_id, request, ports.ledger)
        record_announcement(report, ports.ledger)
        assert self.at.keys() <= happening.seen
        return report.batch

    def _load(self, batch: Batch, happening: Happening) -> Batch:
        settings = find_pipeline(self.pipeline)
        environment = world_of(settings).job_environment()
        environment = replace(
            environment,
            kafka={**environment.kafka, **self.kafka},
            job=replace(settings.job, no_progress_timeout_seconds=self.no_progress_seconds),
        )
        runner = InProcessRunner(partial(stage_context, environment=environment), tasks=2)
        ports = replace(
            load_ports(environment, runner), publisher=PostgresPublisher(environment.postgres, self.publish_limits)
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(stage, "stage_task", watched_stage_task(happening.reached))
            watched = watched_load_ports(ports, happening.reached)
            return load_batch(batch.batch_id, watched, hold=environment.hold, report=lambda _: None)


def _nothing() -> None:
    """Most events have nothing to be done at them."""

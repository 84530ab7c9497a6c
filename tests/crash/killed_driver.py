"""A run of a pipeline that kills or stops itself at a named moment.

``tests.crash.started`` starts it with ``INSTRUCTIONS``, the JSON of :class:`tests.crash.instructions.Instructions`. It
plans, loads and audits as the command line does, with the product's own ports and the job's own code. The ports are
wrapped, so that the process can be ended between any two calls. The exit code is that of the job, or of the step that
failed.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import msgspec

from kafka_ingest.cli.command import world_of
from kafka_ingest.errors import OK, CommitStateUnknown, IngestError, exit_code
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.postgres import current_state, schema_changes
from kafka_ingest.postgres.database import TransactionLimits
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.postgres.rows import settings_hash
from kafka_ingest.protocol import staging
from kafka_ingest.protocol.audit import audit_batch, record_announcement
from kafka_ingest.protocol.batch import Batch, BatchState, Request
from kafka_ingest.protocol.load import LoadPorts
from kafka_ingest.protocol.plan import plan_batch
from kafka_ingest.protocol.ports import TaskRunner
from kafka_ingest.protocol.staging import StageResult
from kafka_ingest.settings import PipelineSettings
from kafka_ingest.spark.submission import JobEnvironment, hand_over, read_outcome, write_batch
from spark_jobs import load_job, stage
from spark_jobs.process import set_up_logging
from tests.crash.instructions import Instructions, Situation
from tests.crash.watched_ports import (
    reporting,
    watched,
    watched_fold,
    watched_load_ports,
    watched_plan_ports,
    watched_stage_task,
)
from tests.integration.new_fields import adding_columns, reporting_new_fields

DAG_ID = "crash"
#: Longer than any test waits: whoever waits so long here is killed before.
_FOREVER_SECONDS = 120.0


class EveryRunHasEnded:
    """Port ``RunStates`` of a scheduler that knows all other runs to have ended."""

    def is_finished(self, request: Request) -> bool:
        return True


class Driver:
    """Runs the steps, and dies where it was told to.

    Args:
        instructions: What to do.
    """

    def __init__(self, instructions: Instructions) -> None:
        self._told = instructions
        self._settings = _settings_of(instructions)
        self._params = world_of(self._settings).postgres_params()
        self._ledger = PostgresLedger(
            self._params, TransactionLimits(instructions.lock_timeout_seconds, instructions.idle_timeout_seconds)
        )
        self._batch_id = instructions.batch_id
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def run(self) -> int:
        """Return the exit code."""
        if self._batch_id:
            return self._load()
        try:
            batch = self._plan()
            self._batch_id = batch.batch_id
            if batch.state is not BatchState.COMMITTED and (code := self._load()) != OK:
                return code
            ledger = watched(self._ledger, "audit.ledger", self.reached)
            record_announcement(audit_batch(self._batch_id, self._request, ledger), ledger)
        except IngestError as error:
            sys.stdout.write(f"{error}\n")
            return exit_code(error)
        return OK

    def reached(self, event: str) -> None:
        """Notes an event, meets what the situation has for it, and dies where the instructions say so."""
        with self._lock:
            self._seen[event] += 1
            is_the_moment = (event, self._seen[event]) == (self._told.stop_at, self._told.nth)
            if self._told.trace:
                with Path(self._told.trace).open("a", encoding="utf-8") as trace:
                    trace.write(f"{event}\n")
        if is_the_moment:
            sys.stdout.flush()
            # To this thread: it does not get any further, whichever thread the kernel would have chosen.
            signal.pthread_kill(threading.get_ident(), self._told.stop_with)
        self._meet(event)

    @property
    def _request(self) -> Request:
        return Request(DAG_ID, self._told.run_id, parameters=self._told.parameters)

    def _plan(self) -> Batch:
        ports = replace(world_of(self._settings).plan_ports(), ledger=self._ledger)
        if self._told.other_runs_have_ended:
            ports = replace(ports, runs=EveryRunHasEnded())
        hash_ = settings_hash(self._settings.batch)
        return plan_batch(self._settings, self._request, watched_plan_ports(ports, self.reached), settings_hash=hash_)

    def _load(self) -> int:
        replace_in(load_job, "load_ports", self._load_ports)
        replace_in(load_job, "write_batch", reporting(write_batch, "load.job.write_batch", self.reached))
        replace_in(stage, "stage_task", self._stage_task())
        record = schema_changes._record
        replace_in(schema_changes, "_record", reporting(record, "load.evolution.record", self.reached))
        for name in ("run_query", "fetch_rows"):
            replace_in(current_state, name, watched_fold(name, self.reached))
        # A few dozen records are one task otherwise.
        bound = "MIN_TASK_BYTES" if self._told.situation is Situation.SIZES else "MIN_TASK_OFFSETS"
        replace_in(staging, bound, 1)
        with tempfile.TemporaryDirectory() as folder:
            outcome = Path(self._told.outcome or f"{folder}/outcome.json")
            code = self._run_job(outcome)
            _tell_error(outcome)
            return code

    def _run_job(self, outcome: Path) -> int:
        """Run it as spark-submit does, or as a load in process does."""
        pipeline, environment = self._told.pipeline, world_of(self._settings).job_environment()
        if self._told.runner == "spark":
            os.environ.update(hand_over(environment, outcome))
            return load_job.main(["--pipeline", pipeline, "--batch-id", self._batch_id])
        set_up_logging(())
        return load_job.load_planned(pipeline, self._batch_id, environment, outcome, runner=self._told.runner)

    def _stage_task(self) -> Callable[..., StageResult]:
        stage_task = watched_stage_task(self.reached)
        return (
            reporting_new_fields(stage_task, {"text": "text"})
            if self._told.situation is Situation.NEW_FIELDS
            else stage_task
        )

    def _load_ports(self, environment: JobEnvironment, runner: TaskRunner) -> LoadPorts:
        publish_limits = TransactionLimits(30, self._told.idle_timeout_seconds)
        ports = replace(
            _LOAD_PORTS(environment, runner),
            ledger=self._ledger,
            publisher=PostgresPublisher(self._params, publish_limits),
        )
        return watched_load_ports(ports, self.reached)

    def _meet(self, event: str) -> None:
        match self._told.situation, event:
            case Situation.SLOW, "load.runner.run:after":
                _wait_to_be_killed()
            case Situation.OUTRUN, "load.runner.run:before":
                self._ledger.claim(self._batch_id, 60)
                _wait_to_be_killed()
            case Situation.FENCED, "load.runner.run:after":
                self._ledger.claim(self._batch_id, 60)
            case Situation.ANSWER_LOST, "load.publication.commit:after":
                raise CommitStateUnknown("the answer to COMMIT was taken away by the test")
            case _:
                pass


def _settings_of(told: Instructions) -> PipelineSettings:
    settings = find_pipeline(told.pipeline)
    if told.situation is not Situation.NEW_FIELDS:
        return settings
    adding = adding_columns(settings)
    value = replace(adding.batch.value, columns=adding.batch.value.columns[:1])
    return replace(adding, batch=replace(adding.batch, value=value))


_LOAD_PORTS = load_job.load_ports


def replace_in(module: ModuleType, name: str, value: object) -> None:
    """Replaces a name of a module for the rest of this process."""
    assert hasattr(module, name)
    setattr(module, name, value)


def _tell_error(outcome: Path) -> None:
    """Print the error that the job handed over, as whoever submits a job does."""
    try:
        read_outcome(outcome)
    except IngestError as error:
        sys.stdout.write(f"{error}\n")


def _wait_to_be_killed() -> None:
    threading.Event().wait(_FOREVER_SECONDS)


if __name__ == "__main__":
    sys.exit(Driver(msgspec.json.decode(sys.argv[1], type=Instructions)).run())

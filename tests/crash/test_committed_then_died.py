"""The batch is committed and the driver dies, or its exit code is lost: whoever started it asks the ledger."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kafka_ingest.errors import RetryLater
from kafka_ingest.protocol.batch import BatchState
from kafka_ingest.spark.submission import loaded_batch
from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import DriverProcess, PipelineAtRisk


def job_killed_at(pipeline: PipelineAtRisk, event: str) -> DriverProcess:
    """Runs the job alone, as its submitter does, for the planned batch of the run ``killed``."""
    batch_id = pipeline.plan("killed").batch_id
    job = pipeline.start(Instructions(pipeline.name, batch_id=batch_id, stop_at=event))
    assert job.end() == -signal.SIGKILL, job.output
    return job


COMMITTED = [
    "load.publication.commit:after",
    "load.staging.drop:before",
    "load.ledger.batch:after",
    "load.job.write_batch:after",
]


@pytest.mark.parametrize("event", COMMITTED)
def test_a_job_that_died_after_its_commit_has_succeeded_without_another_attempt(
    pipeline: PipelineAtRisk, tmp_path: Path, event: str
) -> None:
    job_killed_at(pipeline, event)
    planned = pipeline.plan("killed")
    batch = loaded_batch(planned, pipeline.ledger, tmp_path / "never written", "exit code -9")
    assert (batch.state, batch.claim) == (BatchState.COMMITTED, 1)
    assert pipeline.run("killed") == batch
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


@pytest.mark.parametrize("event", ["load.runner.run:after", "load.publication.commit:before"])
def test_an_exit_code_of_0_does_not_make_a_success(pipeline: PipelineAtRisk, tmp_path: Path, event: str) -> None:
    planned = pipeline.plan("killed")
    job_killed_at(pipeline, event)
    with pytest.raises(RetryLater, match="the job ended without having committed the batch"):
        loaded_batch(planned, pipeline.ledger, tmp_path / "never written", "exit code 0")
    pipeline.run("killed")
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


def test_a_batch_that_was_committed_and_announced_by_nobody_is_announced_by_the_next_run(
    pipeline: PipelineAtRisk,
) -> None:
    job_killed_at(pipeline, "load.publication.commit:after")
    waiting = "SELECT run_id FROM kafka_ingest.batch WHERE announced_at IS NULL"
    assert pipeline.files.query(waiting) == [("killed",)]
    pipeline.run("next")
    assert pipeline.files.query(waiting) == []

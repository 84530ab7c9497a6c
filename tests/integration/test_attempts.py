"""What the ledger keeps of each try: of runs that load, that fail and that are tried again."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from kafka_ingest.errors import IngestError
from kafka_ingest.postgres.database import NewSessions
from kafka_ingest.postgres.ledger import PostgresAttempts
from kafka_ingest.postgres.staging_tables import PostgresHousekeeper
from kafka_ingest.protocol.attempts import Attempt, AttemptOutcome, Step
from kafka_ingest.protocol.batch import LoadPhases, Request, TaskSeconds
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest

PHASES = LoadPhases(1.0, 2.0, 3.0, TaskSeconds(0.0, 0.0, 0.0))


def attempt(step: Step = Step.LOAD, try_number: int = 1) -> Attempt:
    return Attempt("orders", step, Request("dag", "run 1"), f"{step}_batch", try_number)


def stored(pipeline: PipelineUnderTest, columns: str) -> list[tuple[Any, ...]]:
    return pipeline.query(f"SELECT {columns} FROM kafka_ingest.attempt ORDER BY attempt_number")


@pytest.fixture
def attempts(pipeline: PipelineUnderTest) -> PostgresAttempts:
    return PostgresAttempts(NewSessions(pipeline.database))


def test_a_run_leaves_an_entry_for_each_step(pipeline: FedPipeline) -> None:
    pipeline.send(pipeline.open(), b"1", b"2")
    summary = pipeline.load("--run-id", "first")
    assert stored(pipeline, "step, outcome, batch_id::text, dag_id, run_id, try_number") == [
        (step, "succeeded", summary["batch_id"], "cli", "first", 1) for step in ("plan", "load", "audit")
    ]
    [(session, stage, publish)] = pipeline.query(
        "SELECT session_seconds, stage_seconds, publish_seconds FROM kafka_ingest.attempt WHERE step = 'load'"
    )
    assert session >= 0
    assert min(stage, publish) > 0


def test_a_plan_that_fails_before_anything_is_bound_leaves_its_fault(pipeline: PipelineUnderTest) -> None:
    pipeline.write("nobody-made-this-topic")
    code, _, _ = pipeline.command("run", pipeline.name, "--run-id", "fails", "--runner", "in-process")
    assert code != 0
    [(step, outcome, fault, message)] = stored(pipeline, "step, outcome, fault, message")
    assert (step, outcome, fault) == ("plan", "failed", "TopicMissing")
    assert "nobody-made-this-topic" in message
    assert pipeline.query("SELECT count(*) FROM kafka_ingest.pipeline") == [(0,)]


def test_a_try_has_one_entry_which_tells_its_newest_state(
    attempts: PostgresAttempts, pipeline: PipelineUnderTest
) -> None:
    own = attempt()
    attempts.record(own)
    assert stored(pipeline, "outcome, ended_at") == [(None, None)]
    own.spark_application_id, own.spark_ui_url = "app-1", "http://driver:4040"
    attempts.record(own)
    own.end(None)
    own.phases = PHASES
    attempts.record(own)
    columns = "outcome, spark_application_id, spark_ui_url, session_seconds, stage_seconds, publish_seconds"
    assert stored(pipeline, columns) == [("succeeded", "app-1", "http://driver:4040", 1.0, 2.0, 3.0)]
    attempts.record(attempt(try_number=2))
    assert stored(pipeline, "try_number, outcome") == [(1, "succeeded"), (2, None)]


def test_a_try_that_waits_and_is_asked_again_began_when_it_first_asked(
    attempts: PostgresAttempts, pipeline: PipelineUnderTest
) -> None:
    waiting = attempt()
    waiting.outcome = AttemptOutcome.WAITING
    attempts.record(waiting)
    [(began,)] = stored(pipeline, "started_at")
    again = attempt()
    again.end(None)
    attempts.record(again)
    assert stored(pipeline, "started_at, outcome") == [(began, "succeeded")]


def test_a_message_may_hold_anything_and_has_an_end(attempts: PostgresAttempts, pipeline: PipelineUnderTest) -> None:
    own = attempt()
    own.end(IngestError("found \x00 and \ud800 " + "x" * 1_000_000))
    attempts.record(own)
    [(message,)] = stored(pipeline, "message")
    assert "found \\x00 and \\ud800 xxx" in message
    assert len(message) < 25_000


def test_attempts_follow_a_pipeline_that_is_renamed(pipeline: FedPipeline) -> None:
    pipeline.send(pipeline.open(), b"1")
    pipeline.load()
    former, pipeline.name = pipeline.name, "renamed"
    pipeline.write(pipeline.topic, target={"table": f"shop.{former}", "create_table": True})
    code, _, notes = pipeline.command("change", "renamed", "rename", "--from", former, "--reason", "r", "--apply")
    assert code == 0, notes
    assert stored(pipeline, "pipeline") == [("renamed",)] * 3


def test_housekeeping_deletes_old_tries_and_a_dry_run_counts_them(
    attempts: PostgresAttempts, pipeline: PipelineUnderTest
) -> None:
    old = replace(attempt(Step.PLAN), _began=time.monotonic() - 2 * 86_400)
    attempts.record(old)
    attempts.record(attempt(Step.AUDIT))
    housekeeper = PostgresHousekeeper(pipeline.database)
    assert housekeeper.delete_old_attempts(1, is_dry_run=True) == 1
    assert stored(pipeline, "step") == [("plan",), ("audit",)]
    assert housekeeper.delete_old_attempts(1, is_dry_run=False) == 1
    assert housekeeper.delete_old_attempts(1, is_dry_run=False) == 0
    assert stored(pipeline, "step") == [("audit",)]

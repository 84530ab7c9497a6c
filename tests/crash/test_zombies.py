"""An attempt that was stopped and wakes up later, and attempts side by side: fencing, and nothing changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import SECTIONS, PipelineAtRisk, read_all_the_time
from tests.crash.stopped_runs import has_open_transactions, stopped
from tests.deadlines import until

RETRY_LATER = 75
HEARTBEAT_TIMEOUT_SECONDS = 2


@pytest.fixture
def impatient(pipeline: PipelineAtRisk) -> PipelineAtRisk:
    """The pipeline, with a hold that passes soon when its holder is silent; one batch is loaded."""
    with_short_hold(pipeline)
    pipeline.run("before")
    return pipeline


def with_short_hold(pipeline: PipelineAtRisk) -> None:
    hold = {**SECTIONS["hold"], "heartbeat_timeout_seconds": HEARTBEAT_TIMEOUT_SECONDS}
    pipeline.files.write(pipeline.topic.name, **{**SECTIONS, "hold": hold})


def run_to_its_end(pipeline: PipelineAtRisk, run_id: str, **more: Any) -> tuple[int, str]:
    driver = pipeline.start(Instructions(pipeline.name, run_id, **more))
    return driver.end(), driver.output


def hold_has_passed(pipeline: PipelineAtRisk) -> bool:
    passed = "SELECT bool_and(hold_until < clock_timestamp()) FROM kafka_ingest.batch_hold"
    return pipeline.files.query(passed) == [(True,)]


# Where a zombie sleeps: before it stages, in the middle of a COPY, and about to open its transaction.
SLEEPING = ["load.staging.create:after", "load.task.copy:middle", "load.publisher.begin:before"]


@pytest.mark.parametrize("event", SLEEPING)
def test_a_zombie_whose_batch_was_superseded_is_fenced_and_changes_nothing(
    impatient: PipelineAtRisk, event: str
) -> None:
    with read_all_the_time(impatient):
        zombie = stopped(impatient, event)
        until(lambda: hold_has_passed(impatient), "the zombie's hold has passed")
        code, output = run_to_its_end(impatient, "newer")
        assert code == 0, output
        before = impatient.everything()
        zombie.wake()
        assert zombie.end() == RETRY_LATER, zombie.output
        assert "Fenced: " in zombie.output
        assert "found: state superseded" in zombie.output or "found: a newer one" in zombie.output
        assert impatient.everything() == before
    impatient.run_until_nothing_is_left()
    impatient.require_every_record_once()


@pytest.mark.parametrize("event", SLEEPING)
def test_a_zombie_finds_what_a_retry_of_its_run_committed_and_changes_nothing(
    impatient: PipelineAtRisk, event: str
) -> None:
    with read_all_the_time(impatient):
        zombie = stopped(impatient, event)
        code, output = run_to_its_end(impatient, "zombie")
        assert code == 0, output
        before = impatient.everything()
        zombie.wake()
        # The batch is committed: that is what its caller wanted to know, or another retry learns it.
        assert zombie.end() in (0, RETRY_LATER), zombie.output
        assert impatient.everything() == before
    impatient.run_until_nothing_is_left()
    impatient.require_every_record_once()


def test_a_run_that_another_one_holds_is_told_to_come_back_until_the_hold_has_passed(impatient: PipelineAtRisk) -> None:
    zombie = stopped(impatient, "load.runner.run:after")
    impatient.files.query("UPDATE kafka_ingest.batch_hold SET hold_until = clock_timestamp() + interval '1 hour'")
    code, output = run_to_its_end(impatient, "newer")
    assert code == RETRY_LATER, output
    assert "Busy: another request holds the pipeline" in output
    zombie.wake()
    assert zombie.end() == 0, zombie.output
    impatient.run_until_nothing_is_left()
    impatient.require_every_record_once()


# A retry waits for the batch row when it claims, another run when it supersedes.
WAITING = [("zombie", "load.ledger.claim:before"), ("newer", "plan.ledger.record_plan:before")]


@pytest.mark.parametrize(("newer", "event"), WAITING)
def test_a_zombie_inside_publish_holds_its_locks_until_the_server_ends_it(
    pipeline: PipelineAtRisk, newer: str, event: str
) -> None:
    pipeline.run("before")
    pipeline.plan("zombie")
    # It comes as far as the lock before the zombie takes it: how fast processes start then does not matter.
    rival = stopped(pipeline, event, newer, lock_timeout_seconds=0.5, other_runs_have_ended=True)
    with read_all_the_time(pipeline):
        zombie = stopped(pipeline, "load.publication.advance_positions:after", idle_timeout_seconds=5)
        rival.wake()
        assert rival.end() == RETRY_LATER, rival.output
        assert "Busy: another session has the batch locked" in rival.output
        pipeline.require_all_or_nothing()

        until(lambda: not has_open_transactions(pipeline), "the server has ended the zombie's transactions")
        code, output = run_to_its_end(pipeline, newer, other_runs_have_ended=True)
        assert code == 0, output
        before = pipeline.everything()
        zombie.wake()
        assert zombie.end() == RETRY_LATER, zombie.output
        assert "DatabaseUnavailable: could not " in zombie.output
        assert pipeline.everything() == before
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


# Started at the same moment, from the first statement of each step that changes something.
TOGETHER = ["plan.ledger.plan_view:after", "plan.ledger.record_plan:before", "load.ledger.claim:before"]


@pytest.mark.parametrize("event", TOGETHER)
def test_the_same_task_started_twice_at_the_same_moment_loads_once(pipeline: PipelineAtRisk, event: str) -> None:
    committed = "SELECT count(*) FROM kafka_ingest.batch WHERE state = 'committed'"
    with_short_hold(pipeline)
    with read_all_the_time(pipeline):
        # The second one starts its plan before the first one has recorded one.
        twins = [stopped(pipeline, event) for _ in range(2)]
        for twin in twins:
            twin.wake()
        codes = [twin.end() for twin in twins]
        assert set(codes) <= {0, RETRY_LATER}, [twin.output for twin in twins]
        pipeline.require_all_or_nothing()
        # The older one locks the batch row only to find that it is fenced, and the newer one waits a second for it. On
        # a machine where that takes longer nobody commits, and a retry does.
        assert pipeline.files.query(committed) == [(int(0 in codes),)], [twin.output for twin in twins]
        code, output = run_to_its_end(pipeline, "zombie")
        assert code == 0, output
        assert pipeline.files.query(committed) == [(1,)]
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


@pytest.mark.parametrize("event", TOGETHER[:2])
def test_two_runs_at_the_same_moment_load_one_after_the_other(pipeline: PipelineAtRisk, event: str) -> None:
    with read_all_the_time(pipeline):
        runs = [stopped(pipeline, event, run_id) for run_id in ("manual", "backfill")]
        for run in runs:
            run.wake()
        codes = sorted(run.end() for run in runs)
        # One of them plans first; the other one comes back later, or comes when the first one is done.
        assert codes in ([0, 0], [0, RETRY_LATER]), [run.output for run in runs]
        pipeline.require_all_or_nothing()
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()

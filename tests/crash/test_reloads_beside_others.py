"""A reload that lost its answer to COMMIT, its session or its batch, and reloads beside live runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.cut_runs import proxy_for, start_through
from tests.crash.cutting_proxy import Session, lose_answer, lose_request
from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import PipelineAtRisk, read_all_the_time
from tests.crash.reloads import MIXED, WHOLE
from tests.crash.stopped_runs import has_open_transactions, stopped
from tests.deadlines import until

RETRY_LATER = 75


@pytest.mark.parametrize(
    ("on_commit", "code", "state"),
    [(lose_request, RETRY_LATER, "planned"), (lose_answer, 0, "committed")],
    ids=["COMMIT was lost", "its answer was lost"],
)
def test_a_reload_whose_commit_is_in_doubt_is_all_old_or_all_new_as_the_ledger_says(
    pipeline: PipelineAtRisk, on_commit: Callable[[Session, bytes], None], code: int, state: str
) -> None:
    before = MIXED.load_before(pipeline)
    parameters = MIXED.parameters(pipeline.topic.name)
    with read_all_the_time(pipeline), proxy_for(pipeline, on_commit) as proxy:
        driver = start_through(proxy, pipeline, parameters=parameters)
        assert driver.end() == code, driver.output
        assert proxy.saw_commit.is_set()
        [(batch_id, found)] = pipeline.files.query(
            "SELECT batch_id::text, state FROM kafka_ingest.batch WHERE run_id = 'cut'"
        )
        assert found == state
        after = MIXED.owners_after(before, pipeline, batch_id)
        assert pipeline.owners() == (after if state == "committed" else before)
        assert pipeline.run("cut", parameters).batch_id == batch_id
        assert pipeline.owners() == after
        pipeline.run_until_nothing_is_left()
    pipeline.require_every_value_once()


def test_a_reload_that_sleeps_after_its_deletion_loses_its_session_and_its_retry_replaces_once(
    pipeline: PipelineAtRisk,
) -> None:
    before = WHOLE.load_before(pipeline)
    parameters = WHOLE.parameters(pipeline.topic.name)
    with read_all_the_time(pipeline):
        zombie = stopped(pipeline, "load.publication.replace:after", parameters=parameters, idle_timeout_seconds=5)
        assert pipeline.owners() == before
        until(lambda: not has_open_transactions(pipeline), "the server has ended the zombie's transactions")
        newer = pipeline.run("zombie", parameters)
        assert pipeline.owners() == WHOLE.owners_after(before, pipeline, newer.batch_id)
        everything = pipeline.everything()
        zombie.wake()
        assert zombie.end() == RETRY_LATER, zombie.output
        assert "DatabaseUnavailable: could not " in zombie.output
        assert pipeline.everything() == everything
    pipeline.require_every_record_once()


def test_a_reload_that_a_live_run_superseded_is_fenced_and_is_planned_anew_when_it_is_asked_for_again(
    pipeline: PipelineAtRisk,
) -> None:
    before = WHOLE.load_before(pipeline)
    parameters = WHOLE.parameters(pipeline.topic.name)
    zombie = stopped(pipeline, "load.publisher.begin:before", parameters=parameters)
    assert pipeline.run("live").ranges == ()
    zombie.wake()
    assert zombie.end() == RETRY_LATER, zombie.output
    assert "found: state superseded" in zombie.output
    assert pipeline.owners() == before
    again = pipeline.run("zombie", parameters)
    assert pipeline.owners() == WHOLE.owners_after(before, pipeline, again.batch_id)
    pipeline.require_every_record_once()


@pytest.mark.parametrize("is_reload_first", [True, False], ids=["a live run waits", "a reload waits"])
def test_a_reload_and_a_live_run_wait_for_each_other_and_both_end_right(
    pipeline: PipelineAtRisk, is_reload_first: bool
) -> None:
    MIXED.load_before(pipeline)
    runs = [("reload", MIXED.parameters(pipeline.topic.name)), ("live", "{}")]
    (first, asked), (second, asked_second) = runs if is_reload_first else reversed(runs)
    with read_all_the_time(pipeline):
        holder = stopped(pipeline, "load.runner.run:after", first, parameters=asked)
        other = pipeline.start(Instructions(pipeline.name, second, asked_second))
        assert other.end() == RETRY_LATER, other.output
        assert "Busy: another request holds the pipeline" in other.output
        holder.wake()
        assert holder.end() == 0, holder.output
        assert pipeline.run(second, asked_second).ranges != ()
        pipeline.run_until_nothing_is_left()
    pipeline.require_every_value_once()
    require_the_span_is_the_reloads(pipeline)


def test_a_reload_and_a_live_run_that_plan_at_the_same_moment_come_one_after_the_other(
    pipeline: PipelineAtRisk,
) -> None:
    MIXED.load_before(pipeline)
    asked = {"reload": MIXED.parameters(pipeline.topic.name), "live": "{}"}
    with read_all_the_time(pipeline):
        event = "plan.ledger.record_plan:before"
        runs = [stopped(pipeline, event, run_id, parameters=parameters) for run_id, parameters in asked.items()]
        for run in runs:
            run.wake()
        codes = sorted(run.end() for run in runs)
        assert codes in ([0, 0], [0, RETRY_LATER]), [run.output for run in runs]
        for run_id, parameters in asked.items():
            pipeline.run(run_id, parameters)
        pipeline.run_until_nothing_is_left()
    pipeline.require_every_value_once()
    require_the_span_is_the_reloads(pipeline)


def require_the_span_is_the_reloads(pipeline: PipelineAtRisk) -> None:
    """Whoever came first: a live run goes on behind the reload, or the reload replaces what the live run has loaded."""
    [(batch_id,)] = pipeline.files.query(
        "SELECT batch_id::text FROM kafka_ingest.batch WHERE run_id = 'reload' AND state = 'committed'"
    )
    found = {(partition, offset) for partition, offset, owner in pipeline.owners() if owner == batch_id}
    assert found == {(p, offset) for p, offset, _ in pipeline.topic.records if MIXED.start <= offset < MIXED.end}

"""COMMIT was sent and its answer is lost: the batch row decides, and nobody guesses."""

from __future__ import annotations

from tests.crash.cut_runs import proxy_for, start_through
from tests.crash.cutting_proxy import DEADLINE_SECONDS, HeldCommit, lose_answer, lose_request
from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import PipelineAtRisk, read_all_the_time
from tests.deadlines import until

RETRY_LATER = 75


def batch_of_the_cut_run(pipeline: PipelineAtRisk) -> tuple[object, ...]:
    [found] = pipeline.files.query("SELECT state, claim FROM kafka_ingest.batch WHERE run_id = 'cut'")
    return found


def require_the_rest_is_loaded_once(pipeline: PipelineAtRisk) -> None:
    pipeline.require_all_or_nothing()
    assert pipeline.run("cut").state.value == "committed"
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


def test_a_commit_that_never_reached_the_server_did_not_happen_and_is_a_retry(pipeline: PipelineAtRisk) -> None:
    with read_all_the_time(pipeline), proxy_for(pipeline, lose_request) as proxy:
        driver = start_through(proxy, pipeline)
        assert driver.end() == RETRY_LATER, driver.output
        assert "CommitDidNotHappen: the connection broke during COMMIT and nothing was committed" in driver.output
        assert proxy.saw_commit.is_set()
        assert batch_of_the_cut_run(pipeline) == ("planned", 1)
        require_the_rest_is_loaded_once(pipeline)
    assert batch_of_the_cut_run(pipeline) == ("committed", 2)


def test_a_commit_whose_answer_was_lost_is_found_and_is_a_success(pipeline: PipelineAtRisk) -> None:
    with read_all_the_time(pipeline), proxy_for(pipeline, lose_answer) as proxy:
        driver = start_through(proxy, pipeline)
        assert driver.end() == 0, driver.output
        assert proxy.saw_commit.is_set()
        assert batch_of_the_cut_run(pipeline) == ("committed", 1)
        require_the_rest_is_loaded_once(pipeline)
    assert batch_of_the_cut_run(pipeline) == ("committed", 1)


def test_a_commit_that_ends_after_the_doubt_began_is_waited_for(pipeline: PipelineAtRisk) -> None:
    held = HeldCommit(cut=True)
    with read_all_the_time(pipeline), proxy_for(pipeline, held) as proxy:
        driver = start_through(proxy, pipeline)
        until(lambda: pipeline.waiting_for_a_lock("kafka_ingest ledger"), "the doubt is asked about", DEADLINE_SECONDS)
        # A read without a lock would say now that nothing was committed.
        assert batch_of_the_cut_run(pipeline) == ("planned", 1)
        held.release.set()
        assert driver.end() == 0, driver.output
        assert batch_of_the_cut_run(pipeline) == ("committed", 1)
        require_the_rest_is_loaded_once(pipeline)


def test_a_commit_that_stays_under_way_leaves_the_outcome_unknown_until_a_retry_finds_it(
    pipeline: PipelineAtRisk,
) -> None:
    held = HeldCommit(cut=True)
    with read_all_the_time(pipeline), proxy_for(pipeline, held) as proxy:
        driver = start_through(proxy, pipeline, lock_timeout_seconds=0.5)
        assert driver.end() == RETRY_LATER, driver.output
        assert "CommitStateUnknown: the answer to COMMIT was lost and the batch is still locked" in driver.output
        held.release.set()
        until(lambda: batch_of_the_cut_run(pipeline)[0] == "committed", "the COMMIT has ended", DEADLINE_SECONDS)
        require_the_rest_is_loaded_once(pipeline)
    assert batch_of_the_cut_run(pipeline) == ("committed", 1)


def test_a_driver_that_is_killed_while_its_commit_is_under_way_leaves_it_to_the_ledger(
    pipeline: PipelineAtRisk,
) -> None:
    held = HeldCommit(cut=False)
    with read_all_the_time(pipeline), proxy_for(pipeline, held) as proxy:
        killed = start_through(proxy, pipeline)
        assert proxy.saw_commit.wait(DEADLINE_SECONDS), killed.output
        killed.process.kill()
        assert killed.end() < 0
        retry = pipeline.start(Instructions(pipeline.name, "cut", lock_timeout_seconds=30))
        until(lambda: pipeline.waiting_for_a_lock("kafka_ingest ledger"), "the retry claims", DEADLINE_SECONDS)
        held.release.set()
        assert retry.end() == 0, retry.output
        assert "is committed already: nothing to do" in retry.output
        require_the_rest_is_loaded_once(pipeline)
    assert batch_of_the_cut_run(pipeline) == ("committed", 1)

"""A reset, a roll-back or a run that skips its lag is killed in its transaction: all of it or nothing, and once."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import SECTIONS, PipelineAtRisk
from tests.crash.reloads import WHOLE

REASON = ("--reason", "a crash test", "--request-id", "r1", "--apply")


def kill_command(pipeline: PipelineAtRisk, event: str, *arguments: str) -> None:
    killed = pipeline.start_module("killed_command", event, *arguments)
    assert killed.end() == -signal.SIGKILL, f"{event} was not reached\n{killed.output}"


def run_command(pipeline: PipelineAtRisk, *arguments: str) -> None:
    again = pipeline.start_command(*arguments)
    assert again.end() == 0, again.output


def positions(pipeline: PipelineAtRisk) -> set[tuple[int, int, int]]:
    """Return committed offset, ``loaded_to`` and line of all partitions."""
    return set(pipeline.files.query("SELECT committed_offset, loaded_to, line FROM kafka_ingest.committed_offset"))


RESET = [
    ("change.record_change:before", False),
    ("change.change_positions:after", False),
    ("change.record_change:after", True),
]


@pytest.mark.parametrize(("event", "is_made"), RESET)
def test_a_reset_that_is_killed_is_made_once_when_it_is_asked_for_again(
    pipeline: PipelineAtRisk, event: str, is_made: bool
) -> None:
    owners = WHOLE.load_before(pipeline)
    reset = ("change", pipeline.name, "reset", "--by", "-24", *REASON)
    kill_command(pipeline, event, *reset)
    assert positions(pipeline) == ({(5, 29, 1)} if is_made else {(29, 29, 0)})
    run_command(pipeline, *reset)
    assert positions(pipeline) == {(5, 29, 1)}
    assert pipeline.files.query("SELECT count(*) FROM kafka_ingest.position_change WHERE request_id = 'r1'") == [(3,)]
    assert pipeline.owners() == owners
    pipeline.run_until_nothing_is_left()
    assert positions(pipeline) == {(29, 29, 1)}
    pipeline.require_every_value_once()


ROLL_BACK = [
    pytest.param("roll_back.lock:after", False, marks=pytest.mark.slow),
    pytest.param("roll_back.count:after", False, marks=pytest.mark.slow),
    ("roll_back.delete:after", False),
    pytest.param("roll_back.record:after", False, marks=pytest.mark.slow),
    pytest.param("roll_back.commit:before", False, marks=pytest.mark.slow),
    ("roll_back.commit:after", True),
]


@pytest.mark.parametrize(("event", "is_made"), ROLL_BACK)
def test_a_roll_back_that_is_killed_is_made_once_when_it_is_asked_for_again(
    pipeline: PipelineAtRisk, event: str, is_made: bool
) -> None:
    pipeline.run("stays")
    before, (stays, where) = pipeline.owners(), pipeline.loaded()
    pipeline.run("is rolled back")
    after = pipeline.owners()
    roll_back = ("roll-back", pipeline.name, "--batches", "1", *REASON)
    kill_command(pipeline, event, *roll_back)
    assert pipeline.owners() == (before if is_made else after)
    pipeline.require_all_or_nothing()
    run_command(pipeline, *roll_back)
    assert pipeline.owners() == before
    assert pipeline.loaded() == (stays, where)
    pipeline.require_all_or_nothing()
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


@pytest.mark.parametrize(
    ("event", "skipped"), [("plan.ledger.record_plan:before", 0), ("load.publication.replace:after", 3)]
)
def test_a_run_that_skips_its_lag_and_is_killed_skips_once(pipeline: PipelineAtRisk, event: str, skipped: int) -> None:
    """Positions at 13 and 14 of 29 lag by more than ten: all but the last five offsets are given up."""
    before = pipeline.run("before")
    ends = {r.partition: r.end for r in before.ranges}
    assert sorted(ends.values()) == [13, 13, 14]
    policy = {"action": "skip_to", "max_lag_offsets": 10, "keep_offsets": 5}
    pipeline.files.write(pipeline.topic.name, **{**SECTIONS, "lag_policy": policy})
    killed = pipeline.start(Instructions(pipeline.name, "skips", stop_at=event))
    assert killed.end() == -signal.SIGKILL, killed.output
    recorded = "SELECT count(*) FROM kafka_ingest.position_change WHERE kind = 'lag_skipped'"
    assert pipeline.files.query(recorded) == [(skipped,)]
    pipeline.require_invariants()

    batch = pipeline.run("skips")
    assert {(r.start, r.end, r.timeline) for r in batch.ranges} == {(24, 29, 0)}
    assert pipeline.files.query(recorded) == [(3,)]
    assert pipeline.run("has nothing to read").ranges == ()
    kept = {(p, o) for p, o, _ in pipeline.topic.records if o < ends[p] or o >= 24}
    assert Counter((p, o) for p, o, _ in pipeline.owners().elements()) == Counter(kept)
    pipeline.require_invariants()

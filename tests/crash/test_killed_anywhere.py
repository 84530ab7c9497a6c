"""A run is killed at every point, with a real SIGKILL, and run again: every record ends in the database once.

For PostgreSQL every point inside the publish transaction is the same one: nothing was committed. Each change takes the
first and the last of them, when the transaction is open and before COMMIT; those between are slow.
"""

from __future__ import annotations

import signal

import pytest

from tests.crash.crash_points import KINDS, POINTS, CrashPoint
from tests.crash.instructions import Instructions
from tests.crash.mixed_topic import MixedTopic
from tests.crash.pipeline_at_risk import DriverProcess, PipelineAtRisk, read_all_the_time


def start(pipeline: PipelineAtRisk, point: CrashPoint, run_id: str = "killed") -> DriverProcess:
    return pipeline.start(
        Instructions(
            pipeline.name,
            run_id,
            parameters=point.parameters,
            stop_at=point.event,
            nth=point.nth,
            situation=point.situation,
        )
    )


def test_the_topic_holds_what_the_tests_say(mixed_topic: MixedTopic) -> None:
    # 8 + 1 malformed, 3 of the committed transaction (one malformed), 7 + 1 malformed: 20 values, for each partition.
    assert (mixed_topic.records.total(), mixed_topic.tombstones) == (3 * 20, 3 * 2)
    # 2 + 2 aborted values and three markers, too.
    assert mixed_topic.ends == (29, 29, 29)


def lies_inside_the_transaction(point: CrashPoint) -> bool:
    return point.kind == 5 and point.call.startswith("load.publication.")


AGAIN = [
    pytest.param(
        point,
        run_id,
        id=f"{point.kind} {point.name}, then the {run_id} run",
        marks=pytest.mark.slow if lies_inside_the_transaction(point) else (),
    )
    for point in POINTS
    for run_id in ("same", "next")
    if run_id == "same" or point.leaves_a_planned_batch
]


@pytest.mark.parametrize(("point", "again"), AGAIN)
def test_killed_at_a_point_then_run_again_ends_with_every_record_once(
    pipeline: PipelineAtRisk, point: CrashPoint, again: str
) -> None:
    # Plans are killed in the pipeline's first run, which has more to record; loads in the middle of its life.
    if point.step != "plan":
        pipeline.run("before")
    with read_all_the_time(pipeline):
        killed = start(pipeline, point)
        assert killed.end() == -signal.SIGKILL, f"{point.name} was not reached\n{killed.output}"
        pipeline.require_all_or_nothing()
        if again == "same":
            pipeline.run("killed", point.parameters)
        else:
            pipeline.run("next")
        pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()

    before = pipeline.contents()
    assert pipeline.run("killed", point.parameters).state.value == "committed"
    assert pipeline.run("nothing new").ranges == ()
    assert pipeline.contents() == before
    pipeline.require_every_record_once()
    assert point.kind in KINDS

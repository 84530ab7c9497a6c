"""A reload is killed, with a real SIGKILL, and run again: its span is all old or all new at every moment, never a mix.

At every point of kinds 2 to 9, for a span below the position and for one across it. Each change takes three of them:
after the deletion, and on both sides of COMMIT. The others are slow: before COMMIT they are the same to PostgreSQL, and
they differ from a live run's in nothing but the ranges.
"""

from __future__ import annotations

import signal

import pytest

from tests.crash.crash_points import POINTS, CrashPoint
from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import PipelineAtRisk, read_all_the_time
from tests.crash.reloads import MIXED, WHOLE, Reload

#: Points at which a reload can do what no live run can.
QUICK = {
    "load.publication.replace:after",
    "load.publication.commit:before",
    "load.publication.commit:after",
}
KILLED = [
    pytest.param(
        reload,
        point,
        id=f"{reload.name}: {point.kind} {point.name}",
        marks=() if point.name in QUICK else pytest.mark.slow,
    )
    for reload in (WHOLE, MIXED)
    for point in POINTS
    if point.kind > 1
]


@pytest.mark.parametrize(("reload", "point"), KILLED)
def test_a_reload_that_is_killed_leaves_its_span_all_old_or_all_new_and_ends_all_new(
    pipeline: PipelineAtRisk, reload: Reload, point: CrashPoint
) -> None:
    before = reload.load_before(pipeline)
    parameters = reload.parameters(pipeline.topic.name)
    with read_all_the_time(pipeline):
        killed = pipeline.start(
            Instructions(
                pipeline.name,
                "reload",
                parameters,
                stop_at=point.event,
                nth=point.nth,
                situation=point.situation,
            )
        )
        assert killed.end() == -signal.SIGKILL, f"{point.name} was not reached\n{killed.output}"
        [(batch_id,)] = pipeline.files.query("SELECT batch_id::text FROM kafka_ingest.batch WHERE run_id = 'reload'")
        after = reload.owners_after(before, pipeline, batch_id)
        assert pipeline.owners() == (before if point.leaves_a_planned_batch else after)
        pipeline.require_all_or_nothing()

        again = pipeline.run("reload", parameters)
        assert (again.batch_id, again.state.value) == (batch_id, "committed")
        assert pipeline.owners() == after
        pipeline.require_all_or_nothing()
        pipeline.run_until_nothing_is_left()
    pipeline.require_every_value_once()

    contents = pipeline.contents()
    assert pipeline.run("reload", parameters).batch_id == batch_id
    assert pipeline.contents() == contents

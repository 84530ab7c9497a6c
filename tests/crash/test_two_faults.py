"""Two faults in one run: killed at one point, and the next attempt at another. A seeded sample of all ordered pairs.

``KAFKA_INGEST_CRASH_PAIRS=all`` runs every pair (two hours on two cores), a number so many; ``KAFKA_INGEST_CRASH_SEED``
draws others.
"""

from __future__ import annotations

import os
import random
import signal
from itertools import product

import pytest

from tests.crash.crash_points import POINTS, CrashPoint
from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import DriverProcess, PipelineAtRisk, read_all_the_time

#: Half a minute on two cores.
SAMPLE = 12
SEED = 20_260_102


def sampled_pairs() -> list[tuple[CrashPoint, CrashPoint]]:
    pairs = list(product(POINTS, POINTS))
    wanted = os.environ.get("KAFKA_INGEST_CRASH_PAIRS", str(SAMPLE))
    if wanted == "all":
        return pairs
    seed = int(os.environ.get("KAFKA_INGEST_CRASH_SEED", str(SEED)))
    return random.Random(seed).sample(pairs, int(wanted))


def attempt(pipeline: PipelineAtRisk, point: CrashPoint, run_id: str, parameters: str) -> DriverProcess:
    return pipeline.start(
        Instructions(
            pipeline.name,
            run_id,
            parameters=parameters,
            stop_at=point.event,
            nth=point.nth,
            situation=point.situation,
            other_runs_have_ended=True,
        )
    )


@pytest.mark.parametrize(("first", "second"), sampled_pairs(), ids=lambda point: point.name)
def test_killed_twice_then_run_again_ends_with_every_record_once(
    pipeline: PipelineAtRisk, first: CrashPoint, second: CrashPoint
) -> None:
    # The second attempt is a retry, or a later run: which one does not matter, so the pair decides.
    next_run = "killed" if (POINTS.index(first) + POINTS.index(second)) % 2 else "later"
    if first.step != "plan":
        pipeline.run("before")
    with read_all_the_time(pipeline):
        killed = attempt(pipeline, first, "killed", first.parameters)
        assert killed.end() == -signal.SIGKILL, killed.output
        pipeline.require_all_or_nothing()
        # A retry asks for what the first attempt asked for.
        parameters = first.parameters if next_run == "killed" else second.parameters
        again = attempt(pipeline, second, next_run, parameters)
        # What the first attempt has done already the second one does not do again, so it may live.
        assert again.end() in (-signal.SIGKILL, 0), again.output
        pipeline.require_all_or_nothing()
        pipeline.run("killed", first.parameters)
        pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()

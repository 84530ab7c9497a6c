"""A load that adds columns is killed on the way: run again, it loses no value of the batch, and adds a column once."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from tests.crash.crash_points import POINTS, CrashPoint
from tests.crash.instructions import Instructions, Situation
from tests.crash.pipeline_at_risk import SECTIONS, PipelineAtRisk

#: The pipeline reads n; text is the field that no column reads. One run reads all.
ONE_COLUMN = {**SECTIONS, "limit": None, "value": {**SECTIONS["value"], "columns": SECTIONS["value"]["columns"][:1]}}
ON_THE_WAY = [point for point in POINTS if point.situation is Situation.NEW_FIELDS]
LATER = [
    CrashPoint(5, event, "published with the new columns", situation=Situation.NEW_FIELDS)
    for event in ("load.publication.commit:before", "load.publication.commit:after")
]


@pytest.fixture
def pipeline(pipeline: PipelineAtRisk) -> PipelineAtRisk:
    """The pipeline with one column."""
    pipeline.files.write(pipeline.topic.name, **ONE_COLUMN)
    return pipeline


def run(pipeline: PipelineAtRisk, run_id: str, point: CrashPoint | None = None) -> tuple[int, str]:
    told = Instructions(pipeline.name, run_id, situation=Situation.NEW_FIELDS, other_runs_have_ended=True)
    driver = pipeline.start(replace(told, stop_at=point.event, nth=point.nth) if point else told)
    return driver.end(), driver.output


def visible(pipeline: PipelineAtRisk) -> int:
    [(rows,)] = pipeline.files.query(f"SELECT count(*) FROM {pipeline.files.table}")
    return int(rows)


@pytest.mark.parametrize(
    ("point", "again"),
    [
        *((point, "killed") for point in [*ON_THE_WAY, *LATER]),
        *((point, "next") for point in ON_THE_WAY if point.event.startswith("load.evolution.")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_killed_while_columns_are_added_then_run_again_ends_with_every_value_once(
    pipeline: PipelineAtRisk, point: CrashPoint, again: str
) -> None:
    code, output = run(pipeline, "killed", point)
    assert code == -signal.SIGKILL, f"{point.name} was not reached\n{output}"
    assert (visible(pipeline) > 0) == (point.event == "load.publication.commit:after")

    code, output = run(pipeline, again)
    assert code == 0, output
    pipeline.require_every_record_once()
    added = "SELECT column_name, column_type, path FROM kafka_ingest.schema_change"
    assert pipeline.files.query(added) == [("text", "text", ["text"])]

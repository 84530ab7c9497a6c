"""What the page of a pipeline's DAG tells."""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest.operators.dags import pipeline_doc
from kafka_ingest.settings import DeadLetterLimits
from tests.builders import batch_settings, pipeline_settings


def test_limits_of_dead_letters_stand_there_with_the_floor_under_which_the_share_is_not_looked_at() -> None:
    limits = DeadLetterLimits(max_count=5_000, max_ratio=0.125, ratio_from_count=70, max_consecutive=300)
    page = pipeline_doc(pipeline_settings(batch=replace(batch_settings(), dead_letters=limits)))
    assert (
        "| a batch stops at more than | 5,000 dead letters, or 12.5% of its records (not looked at up to 70 dead "
        "letters), or 300 dead letters in a row in one partition |"
    ) in page


def test_a_green_run_is_said_to_be_able_to_have_dead_letters() -> None:
    page = pipeline_doc(pipeline_settings())
    assert "becomes a dead letter" in page
    assert "the run stays green" in page

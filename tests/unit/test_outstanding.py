from __future__ import annotations

import pytest

from kafka_ingest.errors import BatchOutstanding
from kafka_ingest.protocol.decisions import batch_to_supersede
from tests.builders import held, offset_range, planned_batch, position, view_of


def test_a_free_pipeline_has_nothing_to_supersede() -> None:
    view = view_of(position(0, 5))
    assert batch_to_supersede(view, supersede=False) is None
    assert batch_to_supersede(view, supersede=True) is None


def test_an_outstanding_batch_refuses_a_change_and_is_named() -> None:
    batch = planned_batch(offset_range(0, 5, 9))
    with pytest.raises(BatchOutstanding, match="outstanding") as refused:
        batch_to_supersede(held(view_of(position(0, 5)), batch, until_seconds=30), supersede=False)
    assert refused.value.batch_id == batch.batch_id
    assert refused.value.found == (
        "DAG orders, run scheduled__2026-01-02T12:00:00+00:00, step stage, hold until 2026-01-02T12:00:30+00:00"
    )


def test_an_outstanding_batch_goes_when_the_operator_says_so() -> None:
    batch = planned_batch(offset_range(0, 5, 9))
    view = held(view_of(position(0, 5)), batch, until_seconds=30)
    assert batch_to_supersede(view, supersede=True) == batch.batch_id

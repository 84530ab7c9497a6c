"""Which runs are followed by another one at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.core.batch import Batch, BatchKind, BatchState, Request
from kafka_ingest.core.follow_up import follow_up_form, follow_up_run_id
from kafka_ingest.core.offsets import OffsetRange
from kafka_ingest.core.run_options import RunMode, RunOptions, TimeSpan
from kafka_ingest.core.settings import OffsetLimit
from tests.builders import offset_range, planned_batch

LIMIT = OffsetLimit(total_offsets=10)


def loaded(*ranges: OffsetRange, options: RunOptions | None = None) -> Batch:
    request = Request("orders", "r1", parameters=(options or RunOptions()).to_parameters())
    return planned_batch(*ranges, request=request, state=BatchState.COMMITTED)


CUT = loaded(offset_range(0, 0, 4), offset_range(1, 3, 9))  # 4 + 6 offsets


def test_a_run_that_used_up_the_limit_is_followed_by_a_plain_one() -> None:
    assert follow_up_form(CUT, LIMIT) == {}


def test_a_run_that_read_less_than_the_limit_is_not() -> None:
    assert follow_up_form(CUT, OffsetLimit(total_offsets=11)) is None
    assert follow_up_form(loaded(), LIMIT) is None


def test_a_partition_that_used_up_its_own_limit_is_enough() -> None:
    assert follow_up_form(CUT, OffsetLimit(100, per_partition_offsets=6)) == {}
    assert follow_up_form(CUT, OffsetLimit(100, per_partition_offsets=7)) is None


def test_a_follow_up_ends_where_the_run_would_have_ended() -> None:
    bounded = loaded(offset_range(0, 0, 10), options=RunOptions(until_ms=1_767_225_600_250))
    assert follow_up_form(bounded, LIMIT) == {"to": "2026-01-01T00:00:00.250000+00:00"}


@pytest.mark.parametrize(
    "batch",
    [
        replace(CUT, state=BatchState.PLANNED),
        replace(CUT, state=BatchState.ROLLED_BACK),
        loaded(offset_range(0, 0, 10), options=RunOptions(limit_offsets=10)),
        replace(
            loaded(offset_range(0, 0, 10), options=RunOptions(RunMode.RELOAD, times=TimeSpan(0))),
            kind=BatchKind.RELOAD,
        ),
    ],
    ids=["not loaded", "rolled back", "limited by hand", "reload"],
)
def test_nothing_follows_any_other_run(batch: Batch) -> None:
    assert follow_up_form(batch, LIMIT) is None


def test_the_run_that_follows_a_batch_has_one_id() -> None:
    assert follow_up_run_id(CUT) == "follow_up__6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10"

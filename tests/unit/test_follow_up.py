"""Which runs are followed by another one at once."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from kafka_ingest.forms.run import run_options
from kafka_ingest.protocol.batch import Batch, BatchKind, BatchState, Request, RunMode, RunOptions, TimeSpan
from kafka_ingest.protocol.plan import follow_up_form, follow_up_run_id, why_nothing_follows
from kafka_ingest.protocol.position import OffsetRange
from kafka_ingest.settings import OffsetLimit
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


def test_a_follow_up_decides_about_what_is_read_again_as_the_run_did() -> None:
    """A live run after a reset backwards, of a topic that compaction has thinned out."""
    asked = RunOptions(until_ms=1_000, reload_what_is_left=True, replace_resolved=True, reason="mapping was wrong")
    form = follow_up_form(loaded(offset_range(0, 0, 10), options=asked), LIMIT)
    assert form == {
        "to": "1970-01-01T00:00:01+00:00",
        "reload_what_is_left": True,
        "replace_resolved": True,
        "reason": "mapping was wrong",
    }
    assert run_options(form, zone="UTC", pipeline="orders") == asked


def test_a_follow_up_carries_every_option_that_a_live_run_can_have() -> None:
    """A new option of a live run must be carried over, too: a limit by hand is the one that ends the chain."""
    carried = {"until_ms", "reload_what_is_left", "replace_resolved", "reason"}
    of_reloads = {"mode", "times", "offsets", "into_new_table"}
    assert {field.name for field in fields(RunOptions)} == carried | of_reloads | {"limit_offsets"}


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (None, "this run planned no batch"),
        (replace(CUT, state=BatchState.PLANNED), f"batch {CUT.batch_id} is planned, not committed"),
        (replace(CUT, state=BatchState.ROLLED_BACK), f"batch {CUT.batch_id} is rolled_back, not committed"),
        (
            loaded(offset_range(0, 0, 10), options=RunOptions(limit_offsets=10)),
            "the run itself was limited to 10 offsets",
        ),
        (
            replace(
                loaded(offset_range(0, 0, 10), options=RunOptions(RunMode.RELOAD, times=TimeSpan(0))),
                kind=BatchKind.RELOAD,
            ),
            "a reload reads its whole span",
        ),
        (loaded(offset_range(0, 0, 9)), "its 9 offsets are below the limit of 10: all was read"),
    ],
)
def test_nothing_follows_any_other_run_and_it_is_said_why(batch: Batch | None, why: str) -> None:
    assert why_nothing_follows(batch, LIMIT) == why
    assert batch is None or follow_up_form(batch, LIMIT) is None


def test_the_run_that_follows_a_batch_has_one_id() -> None:
    assert follow_up_run_id(CUT) == "follow_up__6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10"

"""What became of offsets: every count is a part of the sum, and the sum is the span."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from kafka_ingest.protocol.batch import RecordCounts

#: Different powers of two: a count that is left out, or counted twice, changes every sum.
EACH = RecordCounts(rows=1, deletes=2, superseded=4, dead_letters=8, tombstones=16, filtered=32, invisible=64)


def test_all_counts_together_are_the_offsets() -> None:
    assert EACH.offsets == 127


def test_everything_but_invisible_offsets_is_readable() -> None:
    assert EACH.readable == 63


@pytest.mark.parametrize("count", [field.name for field in fields(RecordCounts)])
def test_counts_are_added_one_by_one(count: str) -> None:
    more = RecordCounts(**{count: 1_000})
    assert EACH + more == replace(EACH, **{count: getattr(EACH, count) + 1_000})


def test_a_pipeline_that_appends_names_neither_deletes_nor_superseded_records() -> None:
    counts = RecordCounts(rows=5, dead_letters=1)
    assert (counts.deletes, counts.superseded, counts.offsets) == (0, 0, 6)

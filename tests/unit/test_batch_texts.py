"""What people are told of a committed batch, in lines that a narrow column can hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from kafka_ingest.protocol.batch import BatchState, RecordCounts
from kafka_ingest.report import announced_text, batch_summary, committed_text
from tests.builders import offset_range, planned_batch

COMMITTED = replace(
    planned_batch(offset_range(0, 0, 60)),
    state=BatchState.COMMITTED,
    counts=RecordCounts(rows=20_000, dead_letters=40, invisible=2),
    record_time_min=datetime(2026, 1, 2, 11, 0, tzinfo=UTC),
    record_time_max=datetime(2026, 1, 2, 11, 30, tzinfo=UTC),
    valid_through=datetime(2026, 1, 2, 12, 0, tzinfo=UTC),
)


def test_a_committed_batch_is_told_a_line_for_each_fact() -> None:
    assert committed_text(COMMITTED) == (
        "The batch is committed:\n"
        "  batch                     6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10\n"
        "  target                    shop.orders\n"
        "  rows                      20,000\n"
        "  dead letters              40\n"
        "  tombstones counted        0\n"
        "  offsets without a record  2\n"
        "  record times              2026-01-02 11:00:00Z, 2026-01-02 11:30:00Z\n"
        "  valid through             2026-01-02 12:00:00Z"
    )


def test_deletes_and_superseded_records_are_told_where_there_are_any() -> None:
    counts = RecordCounts(rows=5, deletes=3, dead_letters=1)
    upserted = replace(COMMITTED, counts=counts)
    assert committed_text(upserted).splitlines()[3:6] == [
        "  rows                      5",
        "  deletes                   3",
        "  dead letters              1",
    ]
    outdone = replace(COMMITTED, counts=replace(counts, deletes=0, superseded=12))
    assert announced_text("a", [COMMITTED, outdone]).splitlines()[1:] == [
        "  batch id                              kind    rows  superseded  dead letters  valid through",
        "  ------------------------------------  ----  ------  ----------  ------------  --------------------",
        "  6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10  live  20,000           0            40  2026-01-02 12:00:00Z",
        "  6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10  live       5          12             1  2026-01-02 12:00:00Z",
    ]


def test_a_machine_is_told_deletes_and_superseded_records_even_where_there_are_none() -> None:
    counts = batch_summary(COMMITTED)["counts"]
    assert (counts["rows"], counts["deletes"], counts["superseded"]) == (20_000, 0, 0)


def test_every_announced_batch_is_a_row_of_a_table() -> None:
    other = replace(COMMITTED, batch_id="00000000-0000-0000-0000-000000000002", counts=None, valid_through=None)
    assert announced_text("postgres_default.shop.orders", [COMMITTED, other]) == (
        "Every invariant holds. Announced as postgres_default.shop.orders:\n"
        "  batch id                              kind    rows  dead letters  valid through\n"
        "  ------------------------------------  ----  ------  ------------  --------------------\n"
        "  6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10  live  20,000            40  2026-01-02 12:00:00Z\n"
        "  00000000-0000-0000-0000-000000000002  live       0             0  -"
    )

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kafka_ingest.errors import AccountingMismatch, RetryLater, TooManyDeadLetters
from kafka_ingest.protocol.accounting import account_for
from kafka_ingest.protocol.batch import RecordCounts
from kafka_ingest.protocol.staging import (
    MOST_NEW_FIELDS,
    DeadLetterRun,
    DeadLetterSample,
    NewField,
    Split,
    SplitResult,
    StageResult,
    StageTask,
)
from kafka_ingest.settings import DeadLetterLimits, NewFields
from tests.builders import NOON, offset_range, planned_batch

TASKS = (
    StageTask(0, (Split(0, "orders", 0, 0, 0, 60),)),
    StageTask(1, (Split(1, "orders", 0, 0, 60, 100), Split(2, "orders", 1, 0, 5, 10))),
)
BATCH = planned_batch(offset_range(0, 0, 100), offset_range(1, 5, 10, reaches_high_watermark=True))


def result(index: int, *, rows: int, dead: int = 0, invisible: int = 0) -> SplitResult:
    return SplitResult(
        index,
        RecordCounts(rows=rows, dead_letters=dead, invisible=invisible),
        record_time_min_ms=1_000 * (index + 1),
        record_time_max_ms=2_000 * (index + 1),
        last_record_time_ms=1_500 * (index + 1),
        end_leader_epoch=index,
        dead_letter_run=DeadLetterRun(records=rows + dead),
    )


RESULTS = (
    StageResult(0, 70, (result(0, rows=57, dead=3),)),
    StageResult(1, 71, (result(1, rows=39, invisible=1), result(2, rows=5))),
)


def test_results_add_up_to_ranges_with_winners_times_and_epochs() -> None:
    outcome = account_for(BATCH, TASKS, RESULTS)
    first, second = outcome.partitions
    assert first.counts == RecordCounts(rows=96, dead_letters=3, invisible=1)
    assert second.counts == RecordCounts(rows=5)
    assert outcome.winners == {0: 70, 1: 71}
    assert outcome.counts == RecordCounts(rows=101, dead_letters=3, invisible=1)
    assert (first.record_time_min, first.record_time_max) == (
        datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC),
    )
    assert first.end_leader_epoch == 1


def fields(*paths: tuple[str, ...]) -> tuple[NewField, ...]:
    return tuple(NewField(path, "jsonb") for path in paths)


def warnings_of(*found: tuple[NewField, ...], policy: NewFields = NewFields.WARN) -> tuple[str, ...]:
    settings = replace(BATCH.settings, value=replace(BATCH.settings.value, new_fields=policy))
    results = [replace(result, new_fields=of) for result, of in zip(RESULTS, found, strict=True)]
    return account_for(replace(BATCH, settings=settings), TASKS, results).warnings


def test_new_fields_of_all_tasks_are_one_warning() -> None:
    [warning] = warnings_of(fields(("b",), ("a", "b c")), fields(("b",), ("a",)))
    assert warning == "fields of the value that no column reads: $.a, $.a['b c'], $.b"
    assert warnings_of((), ()) == ()
    assert warnings_of(fields(("a",)), (), policy=NewFields.IGNORE) == ()


@pytest.mark.parametrize(("count", "end"), [(20, "$.f19"), (21, "$.f19 and 1 more"), (99, "$.f19 and 79 more")])
def test_a_warning_names_twenty_fields_and_counts_the_others(count: int, end: str) -> None:
    [warning] = warnings_of(fields(*((f"f{n:02}",) for n in range(count))), ())
    assert warning.startswith("fields of the value that no column reads: $.f00, $.f01, ")
    assert warning.endswith(end)


def test_where_a_task_has_met_more_fields_than_it_reports_their_number_is_a_lower_bound() -> None:
    [warning] = warnings_of(fields(*((f"f{n}",) for n in range(MOST_NEW_FIELDS))), fields(("g",)))
    assert warning.endswith(" and at least 81 more")


def test_a_field_of_many_types_is_one_field_of_a_warning() -> None:
    found = [NewField((f"f{n}",), type_) for n in range(MOST_NEW_FIELDS // 2) for type_ in ("integer", "bigint")]
    [warning] = warnings_of(tuple(found), ())
    assert warning.endswith(" and 30 more")


def test_names_in_a_warning_are_shortened_and_escaped() -> None:
    [warning] = warnings_of(fields(("a\x00\n\u202e",), ("x" * 200,)), ())
    assert warning.isprintable()
    assert warning == rf"fields of the value that no column reads: $.{'x' * 58}…, $['a\x00\n\u202e']"


def test_valid_through_is_the_plan_at_the_high_watermark_and_else_the_last_record_read() -> None:
    first, second = account_for(BATCH, TASKS, RESULTS).partitions
    assert first.valid_through == datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)
    assert second.valid_through == NOON


def test_a_range_that_moves_no_position_says_nothing_of_what_is_valid_through() -> None:
    reload = planned_batch(*(replace(r, committed_before=100, loaded_to=100) for r in BATCH.ranges))
    assert [part.valid_through for part in account_for(reload, TASKS, RESULTS).partitions] == [None, None]


def test_a_record_time_beyond_the_year_9999_gives_no_time_for_the_batch() -> None:
    far = replace(RESULTS[0].splits[0], record_time_max_ms=2**62, last_record_time_ms=2**62)
    outcome = account_for(BATCH, TASKS, (replace(RESULTS[0], splits=(far,)), RESULTS[1]))
    assert outcome.partitions[0].record_time_max is None


def test_a_count_that_does_not_add_up_to_the_span_stops() -> None:
    short = replace(RESULTS[0], splits=(result(0, rows=59),))
    with pytest.raises(AccountingMismatch, match=r"orders\[0\] \[0, 60\) do not add up"):
        account_for(BATCH, TASKS, (short, RESULTS[1]))


@pytest.mark.parametrize(
    "results",
    [
        RESULTS[:1],
        (*RESULTS, RESULTS[0]),
        (RESULTS[0], replace(RESULTS[1], splits=RESULTS[1].splits[:1])),
        (RESULTS[0], replace(RESULTS[1], splits=RESULTS[1].splits * 2)),
    ],
    ids=["task missing", "task twice", "split missing", "split twice"],
)
def test_every_task_and_split_counts_exactly_once(results: tuple[StageResult, ...]) -> None:
    with pytest.raises(AccountingMismatch):
        account_for(BATCH, TASKS, results)


def test_splits_that_do_not_cover_the_range_stop() -> None:
    gap = (StageTask(0, (Split(0, "orders", 0, 0, 0, 50),)), TASKS[1])
    with pytest.raises(AccountingMismatch, match="do not cover"):
        account_for(BATCH, gap, (StageResult(0, 70, (result(0, rows=50),)), RESULTS[1]))


def limited(limits: DeadLetterLimits, *splits: SplitResult) -> None:
    total = sum(s.counts.offsets for s in splits)
    batch = planned_batch(offset_range(0, 0, total))
    edges = [sum(s.counts.offsets for s in splits[:i]) for i in range(len(splits) + 1)]
    cut = tuple(Split(i, "orders", 0, 0, edges[i], edges[i + 1]) for i in range(len(splits)))
    batch = replace(batch, settings=replace(batch.settings, dead_letters=limits))
    account_for(batch, (StageTask(0, cut),), (StageResult(0, 1, splits),))


def test_one_bad_record_alone_in_a_batch_never_blocks_a_topic() -> None:
    limited(DeadLetterLimits(), result(0, rows=0, dead=1))


def test_a_share_above_max_ratio_stops_once_the_floor_is_passed() -> None:
    limited(DeadLetterLimits(max_ratio=0.5, ratio_from_count=10), result(0, rows=0, dead=10))
    with pytest.raises(TooManyDeadLetters, match="max_ratio"):
        limited(DeadLetterLimits(max_ratio=0.5, ratio_from_count=10), result(0, rows=0, dead=11))


def test_more_than_max_count_stops_and_names_the_first_offsets() -> None:
    sample = DeadLetterSample("orders", 0, 17, "malformed", "not JSON")
    bad = replace(result(0, rows=1000, dead=6), samples=(sample,))
    with pytest.raises(TooManyDeadLetters) as stopped:
        limited(DeadLetterLimits(max_count=5), bad)
    assert "orders[0] offset 17: malformed: not JSON" in stopped.value.found


def test_a_run_of_bad_records_counts_across_the_seam_of_two_tasks() -> None:
    first = replace(
        result(0, rows=100, dead=6), dead_letter_run=DeadLetterRun(106, 0, 6, 6, longest_start=100, trailing_start=100)
    )
    second = replace(
        result(1, rows=100, dead=5), dead_letter_run=DeadLetterRun(105, 5, 0, 5, longest_start=106, trailing_start=-1)
    )
    limited(DeadLetterLimits(max_consecutive=11), first, second)
    with pytest.raises(TooManyDeadLetters, match="max_consecutive"):
        limited(DeadLetterLimits(max_consecutive=10), first, second)


def seam(end_epoch: int | None, start_epoch: int | None) -> tuple[StageResult, StageResult]:
    """Two tasks met at offset 60 of partition 0, and saw these leader epochs there."""
    left, right, other = (result(0, rows=60), result(1, rows=40), result(2, rows=5))
    return (
        StageResult(0, 70, (replace(left, end_leader_epoch=end_epoch),)),
        StageResult(1, 71, (replace(right, start_leader_epoch=start_epoch), other)),
    )


@pytest.mark.parametrize(("end_epoch", "start_epoch"), [(3, 4), (4, 3)])
def test_tasks_that_read_one_partition_before_and_after_an_unclean_election_are_not_published(
    end_epoch: int, start_epoch: int
) -> None:
    with pytest.raises(RetryLater, match=r"orders\[0\] changed while it was read") as caught:
        account_for(BATCH, TASKS, seam(end_epoch, start_epoch))
    assert f"leader epoch {end_epoch} at offset 60" in str(caught.value)


@pytest.mark.parametrize(("end_epoch", "start_epoch"), [(3, 3), (None, 3), (3, None)])
def test_tasks_that_saw_the_same_or_an_unknown_epoch_where_they_met_are_published(
    end_epoch: int | None, start_epoch: int | None
) -> None:
    assert account_for(BATCH, TASKS, seam(end_epoch, start_epoch)).counts == RecordCounts(rows=105)

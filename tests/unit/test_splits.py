"""Where ranges are cut, with offsets worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from kafka_ingest.errors import DeadLetterReason, RefusedRecord
from kafka_ingest.protocol import staging
from kafka_ingest.protocol.position import OffsetRange
from kafka_ingest.protocol.staging import Split, StageTask, cut_into_tasks, has_use_for_sizes, tasks_with_refused
from tests.builders import offset_range


def pieces(r: OffsetRange) -> list[tuple[int, int, int | None, int]]:
    """Start, end, leader epoch that the read begins with, and up to where it reads again."""
    tasks = cut_into_tasks([r], 1)
    return [(s.start, s.end, s.leader_epoch, s.replaced_to) for task in tasks for s in task.splits]


def test_a_live_range_begins_with_the_leader_epoch_of_its_position() -> None:
    assert pieces(replace(offset_range(0, 4, 10), leader_epoch=3)) == [(4, 10, 3, 4)]


def test_a_range_across_the_position_is_cut_at_it_because_only_there_the_leader_epoch_is_known() -> None:
    across = replace(offset_range(0, 0, 10), committed_before=6, loaded_to=6, leader_epoch=3)
    assert pieces(across) == [(0, 6, None, 6), (6, 10, 3, 6)]


def test_a_range_below_the_position_is_read_without_its_leader_epoch() -> None:
    below = replace(offset_range(0, 0, 10), committed_before=10, loaded_to=20, leader_epoch=3)
    assert pieces(below) == [(0, 10, None, 10)]


def test_a_range_behind_a_backward_change_knows_up_to_where_it_replaces() -> None:
    lowered = replace(offset_range(0, 4, 10), loaded_to=7, timeline=1, leader_epoch=None)
    assert pieces(lowered) == [(4, 10, None, 7)]


def spans(*lengths: int, parallelism: int, offset_bytes: int | None = None) -> list[int]:
    """Offsets of each task, where partition n holds the n-th number of offsets."""
    ranges = [offset_range(number, 0, length) for number, length in enumerate(lengths)]
    tasks = cut_into_tasks(ranges, parallelism, offset_bytes)
    return [sum(s.span_offsets for s in task.splits) for task in tasks]


def test_a_partition_that_holds_nine_tenths_is_split_so_that_tasks_are_nearly_equal() -> None:
    """Two pieces of 900,000 and the small ones beside them: at most 3.4 % more than half."""
    skewed = (1_800_000, 66_667, 66_667, 66_666)
    assert spans(*skewed, parallelism=2) == [900_000 + 66_667 + 66_666, 900_000 + 66_667]
    assert spans(*skewed, parallelism=4) == [450_000 + 66_667, 450_000 + 66_667, 450_000 + 66_666, 450_000]


def test_hundreds_of_partitions_with_little_in_each_share_few_tasks() -> None:
    """A task is one consumer, whatever the number of its partitions; less than 50,000 offsets are not worth two."""
    assert spans(*[100] * 300, parallelism=8) == [30_000]
    assert spans(*[1_000] * 300, parallelism=2) == [150_000, 150_000]
    assert spans(*[1_000] * 300, parallelism=8) == [38_000] * 4 + [37_000] * 4


def test_a_thousand_records_of_1_mb_are_as_many_tasks_as_run_at_once() -> None:
    """Two tasks of 500 MB would lose too much with an executor (320 MB at most): two cores get two each."""
    assert spans(1_000, parallelism=8, offset_bytes=1_000_000) == [125] * 8
    assert spans(1_000, parallelism=2, offset_bytes=1_000_000) == [250] * 4
    assert spans(1_000, parallelism=2) == [1_000]


def test_large_records_are_cut_only_while_each_task_has_8_mb() -> None:
    assert spans(60, parallelism=16, offset_bytes=1_000_000) == [9, 9, 9, 9, 8, 8, 8]
    assert spans(15, parallelism=16, offset_bytes=1_000_000) == [15]
    assert spans(20, 20, parallelism=2, offset_bytes=300_000) == [40]
    assert spans(30, 30, parallelism=2, offset_bytes=300_000) == [30, 30]


def test_records_larger_than_a_task_should_be_are_one_a_task() -> None:
    assert spans(3, parallelism=2, offset_bytes=900_000_000) == [1, 1, 1]


def test_records_of_the_usual_size_and_empty_ones_are_cut_by_offsets() -> None:
    for offset_bytes in (None, 0, 1, 300, 320):
        assert spans(49_999, parallelism=2, offset_bytes=offset_bytes) == [49_999]
        assert spans(2_000_000, parallelism=2, offset_bytes=offset_bytes) == [1_000_000] * 2
    # 24,922 of 321 bytes are 8 MB.
    assert spans(49_844, parallelism=2, offset_bytes=321) == [24_922] * 2


def test_nothing_to_read_is_no_task_whatever_records_hold() -> None:
    assert cut_into_tasks([], 2, 1_000_000) == ()
    assert not has_use_for_sizes([], 2)


def test_sizes_are_asked_for_only_where_they_could_give_more_tasks() -> None:
    def asks(*lengths: int, parallelism: int = 2) -> bool:
        return has_use_for_sizes([offset_range(n, 0, length) for n, length in enumerate(lengths)], parallelism)

    assert asks(25_000, 24_999)
    assert not asks(1_000, parallelism=1)
    assert not asks(10_000_000, parallelism=1)
    # Seven messages of the default's greatest size are one task of 8 MB at most.
    assert asks(7, 7)
    assert not asks(7, 6)


def test_sizes_are_asked_for_where_tasks_that_fill_all_cores_could_be_too_large() -> None:
    """305 messages of the default's greatest size are 320 MB."""
    with patch.object(staging, "MIN_TASK_OFFSETS", 100):
        assert not has_use_for_sizes([offset_range(0, 0, 610)], 2)
        assert has_use_for_sizes([offset_range(0, 0, 611)], 2)
    assert has_use_for_sizes([offset_range(0, 0, 10_000_000)], 2)


def test_tasks_are_told_the_refused_records_that_they_have_read_and_others_are_left_out() -> None:
    tasks = (
        StageTask(0, (Split(0, "orders", 0, 0, 0, 60),)),
        StageTask(1, (Split(1, "orders", 0, 0, 60, 100), Split(2, "orders", 1, 0, 5, 10))),
        StageTask(2, (Split(3, "returns", 0, 0, 0, 100),)),
    )

    def refused(partition: int, offset: int) -> RefusedRecord:
        return RefusedRecord("orders", partition, offset, DeadLetterReason.REFUSED_BY_DATABASE, "no partition")

    first, last, at_edge, beside = refused(0, 0), refused(0, 59), refused(0, 60), refused(1, 9)
    assert tasks_with_refused(tasks, [first, last, at_edge, beside]) == (
        replace(tasks[0], refused=(first, last)),
        replace(tasks[1], refused=(at_edge, beside)),
    )
    assert tasks_with_refused(tasks, [beside]) == (replace(tasks[1], refused=(beside,)),)

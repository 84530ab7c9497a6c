"""What the task log says about a plan."""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest.operators.runs import describe_plan
from kafka_ingest.protocol.batch import BatchState, RecordCounts
from kafka_ingest.protocol.position import TopicPartition
from tests.builders import offset_range, planned_batch

BATCH = planned_batch(offset_range(0, 120, 4120), offset_range(11, 5, 6))


def test_ranges_stand_in_a_table_with_what_they_begin_from() -> None:
    assert describe_plan(BATCH, {TopicPartition("orders", 0): 100, TopicPartition("orders", 11): 5}) == (
        "Batch 6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10 is planned: 4,001 offsets in 2 partitions\n"
        "  of pipeline orders into shop.orders\n"
        "  topic   partition  start    end  offsets  committed before  above log start\n"
        "  ------  ---------  -----  -----  -------  ----------------  ---------------\n"
        "  orders          0    120  4,120    4,000               120               20\n"
        "  orders         11      5      6        1                 5                0"
    )


def test_a_batch_that_was_planned_before_has_no_table_since_the_log_of_the_task_that_planned_it_has_it() -> None:
    assert describe_plan(BATCH, {}) == (
        "Batch 6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10 was planned before: 4,001 offsets in 2 partitions\n"
        "  of pipeline orders into shop.orders"
    )


def test_a_table_of_many_partitions_ends_with_what_it_leaves_out() -> None:
    many = planned_batch(*(offset_range(number, 0, 10) for number in range(2_000)))
    lines = describe_plan(many, {TopicPartition("orders", 0): 0}).splitlines()
    assert len(lines) == 2 + 2 + 40 + 1
    assert lines[-1] == "  and 1,960 more partitions with 19,600 offsets"


def test_an_empty_plan_says_so_and_that_spark_stays_away() -> None:
    empty = replace(planned_batch(), state=BatchState.COMMITTED, counts=RecordCounts())
    assert describe_plan(empty, {}).endswith("c9a10: there is nothing to read, Spark is not started")


def test_partitions_that_were_left_out_are_named() -> None:
    text = describe_plan(replace(BATCH, left_out=("orders[3]: no leader",)), {})
    assert text.splitlines()[-1] == "  left out: orders[3]: no leader"

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kafka_ingest.errors import PartitionsFaulty, TopicRecreated, fault_error
from kafka_ingest.protocol.batch import RunOptions
from kafka_ingest.protocol.decisions import PlanChoice
from kafka_ingest.protocol.ledger_view import PlanView, ServedTopic
from kafka_ingest.protocol.log import LogSnapshot, PartitionState, TimedOffset
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.ranges import LogTimes, choose_ranges
from kafka_ingest.settings import (
    FirstRun,
    FirstRunKind,
    LagAction,
    LagPolicy,
    OffsetLimit,
    PartitionFaultPolicy,
    PartitionOffset,
    PipelineSettings,
    TopicIdentity,
    TopicSelection,
)
from tests.builders import (
    EMPTY_VIEW,
    NOON,
    TOPIC_ID,
    batch_settings,
    partition_state,
    pipeline_settings,
    position,
    snapshot,
    view_of,
)


def choose(settings: PipelineSettings, view: PlanView, log: LogSnapshot) -> PlanChoice:
    return choose_ranges(settings, view, log, options=RunOptions(), times=LogTimes())


def spans(choice: PlanChoice) -> list[tuple[str, int, int, int]]:
    return [(r.topic, r.partition, r.start, r.end) for r in choice.ranges]


def fault_names(choice: PlanChoice) -> list[str]:
    return [fault.error.__name__ for fault in choice.faults]


def test_a_live_run_reads_from_the_committed_offset_to_the_end_offset() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 120), partition_state(1, 5, 70)]})
    choice = choose(pipeline_settings(), view_of(position(0, 100), position(1, 70)), log)
    assert spans(choice) == [("orders", 0, 100, 120)]
    assert choice.ranges[0].reaches_high_watermark
    assert choice.faults == ()


@pytest.mark.parametrize(("may_read", "faults"), [(False, ["ConfigError"]), (True, []), (None, [])])
def test_a_topic_is_planned_unless_the_right_to_read_it_is_known_to_be_missing(
    may_read: bool | None, faults: list[str]
) -> None:
    log = snapshot({"orders": [partition_state(0, 0, 120)]})
    log = replace(log, topics={"orders": replace(log.topics["orders"], may_read=may_read)})
    choice = choose(pipeline_settings(), view_of(position(0, 100)), log)
    assert fault_names(choice) == faults
    for fault in choice.faults:
        assert "--operation Read --topic orders" in fault.next_command


def test_a_partition_with_nothing_to_read_is_valid_through_the_time_of_the_plan() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 120), partition_state(1, 0, 70)]})
    choice = choose(pipeline_settings(), view_of(position(0, 100), position(1, 70)), log)
    assert choice.valid_through == {TopicPartition("orders", 1): NOON}


def test_an_open_transaction_ends_the_range_at_the_last_stable_offset() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 1663, end=300)]})
    choice = choose(pipeline_settings(), view_of(position(0, 200)), log)
    assert spans(choice) == [("orders", 0, 200, 300)]
    assert not choice.ranges[0].reaches_high_watermark


def test_a_last_stable_offset_below_the_position_is_an_empty_range_and_no_fault() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 300, end=150)]})
    choice = choose(pipeline_settings(), view_of(position(0, 200)), log)
    assert (spans(choice), choice.faults, choice.valid_through) == ([], (), {})


def test_c29_a_readable_end_that_does_not_pass_the_position_while_records_wait_is_told() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 1663, end=200), partition_state(1, 0, 70, end=60)]})
    since = replace(position(0, 200), valid_through=NOON)
    choice = choose(pipeline_settings(), view_of(since, position(1, 50)), log)
    assert choice.faults == ()
    [stalled] = choice.stalled
    assert str(stalled).startswith(
        "orders[0]: an open producer transaction holds back 1463 offsets: readable up to 200, high watermark 1663, "
        f"complete up to {NOON.isoformat(timespec='seconds')};"
    )


def test_c29_a_partition_that_is_read_to_its_high_watermark_is_not_stalled() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 200)]})
    assert choose(pipeline_settings(), view_of(position(0, 200)), log).stalled == ()


@pytest.mark.parametrize(
    ("first_run", "start"),
    [
        (FirstRun(FirstRunKind.EARLIEST), 40),
        (FirstRun(FirstRunKind.LATEST), 90),
        (FirstRun(FirstRunKind.OFFSETS, offsets=(PartitionOffset("orders", 0, 55),)), 55),
    ],
)
def test_the_first_plan_begins_where_first_run_says(first_run: FirstRun, start: int) -> None:
    log = snapshot({"orders": [partition_state(0, 40, 100, end=90)]})
    choice = choose(pipeline_settings(first_run=first_run), EMPTY_VIEW, log)
    [new] = choice.new_positions
    assert (new.committed_offset, new.loaded_to, new.timeline, new.generation) == (start, start, 0, 0)
    assert new.topic_id == TOPIC_ID
    assert choice.new_topics == ("orders",)


def test_a_partition_that_joins_later_belongs_to_the_generation_of_its_topic() -> None:
    """The topic "orders" was re-created twice and then grew; "returns" never was; "refunds" is new."""
    view = view_of(replace(position(0, 3), generation=2), position(0, 7, topic="returns"))
    grown = [partition_state(0, 0, 10), partition_state(1, 0, 5)]
    log = snapshot({"orders": grown, "returns": grown, "refunds": grown[:1]})
    settings = pipeline_settings("orders", "returns", "refunds")
    found = [(p.topic, p.partition, p.generation) for p in choose(settings, view, log).new_positions]
    assert found == [("orders", 1, 2), ("refunds", 0, 0), ("returns", 1, 0)]


def test_first_run_by_time_begins_at_the_first_offset_at_or_after_it() -> None:
    settings = pipeline_settings(first_run=FirstRun(FirstRunKind.TIMESTAMP, timestamp_ms=1))
    log = snapshot({"orders": [partition_state(0, 40, 100), partition_state(1, 0, 10)]})
    first = {TopicPartition("orders", 0): TimedOffset(77, 5), TopicPartition("orders", 1): TimedOffset(10)}
    times = LogTimes(first_run=first)
    choice = choose_ranges(settings, EMPTY_VIEW, log, options=RunOptions(), times=times)
    assert [p.committed_offset for p in choice.new_positions] == [77, 10]
    assert spans(choice) == [("orders", 0, 77, 100)]


def test_first_run_by_time_may_begin_above_the_snapshot_of_a_topic_that_grows() -> None:
    """Between the snapshot and the question for the time, 20 records from before that time were written."""
    settings = pipeline_settings(first_run=FirstRun(FirstRunKind.TIMESTAMP, timestamp_ms=1))
    log = snapshot({"orders": [partition_state(0, 40, 100)]})
    times = LogTimes(first_run={TopicPartition("orders", 0): TimedOffset(120)})
    choice = choose_ranges(settings, EMPTY_VIEW, log, options=RunOptions(), times=times)
    assert (choice.faults, choice.ranges) == ((), ())
    assert [p.committed_offset for p in choice.new_positions] == [120]


def test_first_run_by_offsets_lists_every_partition_without_one() -> None:
    first_run = FirstRun(FirstRunKind.OFFSETS, offsets=(PartitionOffset("orders", 0, 500),))
    log = snapshot({"orders": [partition_state(0, 40, 100), partition_state(1, 0, 10)]})
    choice = choose(pipeline_settings(first_run=first_run), EMPTY_VIEW, log)
    assert [(f.where, f.found) for f in choice.faults] == [
        ("first_run.offsets for orders[0]", "500"),
        ("first_run.offsets for orders[1]", "none listed"),
    ]


@pytest.mark.parametrize("kind", [FirstRunKind.LATEST, FirstRunKind.EARLIEST])
def test_a_partition_that_joins_later_starts_at_its_log_start_whatever_first_run_says(kind: FirstRunKind) -> None:
    log = snapshot({"orders": [partition_state(0, 0, 100), partition_state(1, 3, 10)]})
    choice = choose(pipeline_settings(first_run=FirstRun(kind)), view_of(position(0, 100)), log)
    assert spans(choice) == [("orders", 1, 3, 10)]
    assert [p.partition for p in choice.new_positions] == [1]


def test_a_topic_that_joins_later_starts_at_its_log_start() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 100)], "returns": [partition_state(0, 7, 9)]})
    settings = pipeline_settings("orders", "returns", first_run=FirstRun(FirstRunKind.LATEST))
    choice = choose(settings, view_of(position(0, 100)), log)
    assert choice.new_topics == ("returns",)
    assert spans(choice) == [("returns", 0, 7, 9)]


def test_an_empty_topic_gets_its_position_recorded_on_the_first_plan() -> None:
    choice = choose(pipeline_settings(), EMPTY_VIEW, snapshot({"orders": [partition_state(0, 0, 0)]}))
    assert choice.ranges == ()
    assert [p.committed_offset for p in choice.new_positions] == [0]


def test_a_committed_offset_below_the_log_start_stops_and_says_how_much_is_gone() -> None:
    choice = choose(
        pipeline_settings(), view_of(position(0, 100)), snapshot({"orders": [partition_state(0, 150, 200)]})
    )
    [fault] = choice.faults
    assert fault.error.__name__ == "OffsetsExpired"
    assert "committed offset 100" in fault.expected
    assert "150" in fault.found
    assert "50 offsets" in fault.found


def test_an_expired_partition_is_left_out_when_the_pipeline_says_so() -> None:
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, on_partition_fault=PartitionFaultPolicy.LEAVE_OUT))
    log = snapshot({"orders": [partition_state(0, 150, 200), partition_state(1, 0, 10)]})
    choice = choose(settings, view_of(position(0, 100), position(1, 4)), log)
    assert (choice.faults, spans(choice)) == ((), [("orders", 1, 4, 10)])
    assert [f.where for f in choice.left_out] == ["orders[0]"]


def test_a_truncated_log_is_never_left_out() -> None:
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, on_partition_fault=PartitionFaultPolicy.LEAVE_OUT))
    choice = choose(settings, view_of(position(0, 100)), snapshot({"orders": [partition_state(0, 0, 90)]}))
    assert fault_names(choice) == ["LogTruncated"]


def test_a_leaderless_partition_of_the_first_plan_is_left_out_only_with_earliest() -> None:
    log = snapshot({"orders": [PartitionState(0, has_leader=False), partition_state(1, 0, 10)]})

    def faults_with(kind: FirstRunKind) -> list[str]:
        settings = pipeline_settings(first_run=FirstRun(kind))
        plan = replace(settings.plan, on_partition_fault=PartitionFaultPolicy.LEAVE_OUT)
        return fault_names(choose(replace(settings, plan=plan), EMPTY_VIEW, log))

    assert faults_with(FirstRunKind.EARLIEST) == []
    assert faults_with(FirstRunKind.LATEST) == ["LeaderMissing"]


@pytest.mark.parametrize("high_watermark", [300, 700])
def test_a_recreated_topic_stops_whether_it_is_shorter_or_longer_than_before(high_watermark: int) -> None:
    log = snapshot({"orders": [partition_state(0, 0, high_watermark)]}, topic_id="topic-id-2")
    choice = choose(pipeline_settings(), view_of(position(0, 500)), log)
    error = fault_error(choice.faults, "orders")
    assert isinstance(error, TopicRecreated)
    assert "topic-id-1" in error.expected
    assert "[0] 500" in error.expected
    assert "topic-id-2" in error.found
    assert choice.ranges == ()


def test_another_cluster_stops_without_looking_at_its_offsets() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 10)]}, cluster_id="cluster-2", topic_id="other")
    choice = choose(pipeline_settings(), view_of(position(0, 500)), log)
    assert fault_names(choice) == ["ClusterChanged"]


def test_a_broker_without_topic_ids_needs_the_explicit_choice() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 10)]}, topic_id=None)
    assert fault_names(choose(pipeline_settings(), EMPTY_VIEW, log)) == ["ConfigError"]
    settings = pipeline_settings(batch=replace(batch_settings(), topic_identity=TopicIdentity.NONE))
    choice = choose(settings, EMPTY_VIEW, log)
    assert choice.faults == ()
    assert choice.new_positions[0].topic_id is None


def test_metadata_that_lists_fewer_partitions_than_known_stops() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 10)]})
    choice = choose(pipeline_settings(), view_of(position(0, 10), position(1, 99)), log)
    assert [(f.error.__name__, f.where) for f in choice.faults] == [("PartitionMissing", "orders[1]")]


def test_a_named_topic_that_does_not_exist_stops() -> None:
    assert fault_names(choose(pipeline_settings("orders", "nowhere"), EMPTY_VIEW, snapshot({}))) == [
        "TopicMissing",
        "TopicMissing",
    ]


def test_a_topic_read_before_by_pattern_that_is_gone_stops() -> None:
    settings = pipeline_settings()
    plan = replace(settings.plan, topics=TopicSelection(pattern="ord.*"))
    log = snapshot({"orders_eu": [partition_state(0, 0, 10)]})
    choice = choose(replace(settings, plan=plan), view_of(position(0, 5)), log)
    assert [(f.error.__name__, f.where) for f in choice.faults] == [("TopicMissing", "topic orders")]


def test_a_topic_that_another_pipeline_loads_into_the_same_table_stops() -> None:
    view = replace(EMPTY_VIEW, served=(ServedTopic("first_orders", "cluster-1", "orders"),))
    choice = choose(pipeline_settings(), view, snapshot({"orders": [partition_state(0, 0, 10)]}))
    [fault] = choice.faults
    assert "first_orders" in fault.expected


def test_every_fault_is_reported_at_once() -> None:
    log = snapshot({"orders": [partition_state(0, 150, 200), partition_state(1, 0, 90)]})
    choice = choose(pipeline_settings("orders", "nowhere"), view_of(position(0, 100), position(1, 100)), log)
    error = fault_error(choice.faults, "orders")
    assert isinstance(error, PartitionsFaulty)
    text = str(error)
    for part in ("topic nowhere", "orders[0]", "OffsetsExpired", "orders[1]", "LogTruncated"):
        assert part in text


def test_the_limit_completes_small_partitions_and_shares_the_rest_evenly() -> None:
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, limit=OffsetLimit(total_offsets=100)))
    log = snapshot({"orders": [partition_state(0, 0, 10), partition_state(1, 0, 1000), partition_state(2, 0, 500)]})
    choice = choose(settings, view_of(position(0, 0), position(1, 0), position(2, 0)), log)
    assert spans(choice) == [("orders", 0, 0, 10), ("orders", 1, 0, 45), ("orders", 2, 0, 45)]
    assert [r.reaches_high_watermark for r in choice.ranges] == [True, False, False]
    assert choice.backlog_offsets == 1510


def test_a_range_never_starts_above_its_position() -> None:
    with pytest.raises(ValueError, match="gap"):
        OffsetRange("orders", 0, 0, None, 0, start=11, end=20, committed_before=10, loaded_to=10)
    with pytest.raises(ValueError, match="start < end"):
        OffsetRange("orders", 0, 0, None, 0, start=10, end=10, committed_before=10, loaded_to=10)


def retired(view: PlanView, topic: str) -> PlanView:
    served = (ServedTopic(s.pipeline, s.cluster_id, s.topic, is_retired=s.topic == topic) for s in view.served)
    return replace(view, served=tuple(served))


def test_a_retired_topic_is_neither_read_nor_missed() -> None:
    view = retired(view_of(position(0, 100), position(0, 7, topic="returns")), "returns")
    settings = pipeline_settings("orders", "returns")
    there = snapshot({"orders": [partition_state(0, 0, 120)], "returns": [partition_state(0, 50, 90)]})
    gone = snapshot({"orders": [partition_state(0, 0, 120)]})
    for log in (there, gone):
        choice = choose(settings, view, log)
        assert (spans(choice), choice.faults, choice.backlog_offsets) == ([("orders", 0, 100, 120)], (), 20)


def test_a_retired_topic_that_exists_is_told_with_the_command_that_reads_it_again() -> None:
    view = retired(view_of(position(0, 100), position(0, 7, topic="returns")), "returns")
    settings, orders = pipeline_settings("orders", "returns"), [partition_state(0, 0, 100)]
    [warning] = choose(settings, view, snapshot({"orders": orders, "returns": [partition_state(0, 0, 1)]})).warnings
    assert warning == (
        "topic returns exists and is not read, because it is retired: take it out of the pipeline file's selection, or "
        'let it be read again: python -m kafka_ingest change orders read-topic-again returns --reason "..."'
    )
    assert choose(settings, view, snapshot({"orders": orders})).warnings == ()
    assert choose(settings, view, snapshot({"orders": orders, "returns": []})).warnings == ()


def test_a_pattern_that_matches_nothing_but_retired_topics_reads_nothing() -> None:
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, topics=TopicSelection(pattern="ord.*")))
    view = retired(view_of(position(0, 100)), "orders")
    choice = choose(settings, view, snapshot({"orders": [partition_state(0, 0, 120)]}))
    assert (choice.ranges, choice.new_topics, choice.faults) == ((), (), ())


def test_a_topic_that_the_pipeline_served_on_a_former_cluster_only_is_not_retired() -> None:
    view = view_of(position(0, 100))
    view = replace(view, served=(*view.served, ServedTopic("orders", "cluster-0", "orders", is_retired=True)))
    assert spans(choose(pipeline_settings(), view, snapshot({"orders": [partition_state(0, 0, 120)]}))) == [
        ("orders", 0, 100, 120)
    ]


def test_faults_that_a_position_change_resolves_name_its_command() -> None:
    command = "python -m kafka_ingest change orders"
    view = view_of(position(0, 100))

    def next_command(log: LogSnapshot, of: PlanView = view) -> str:
        [fault] = choose(pipeline_settings(), of, log).faults
        return fault.next_command

    assert f"{command} accept-loss" in next_command(snapshot({"orders": [partition_state(0, 150, 500)]}))
    assert f"{command} reset --to latest" in next_command(snapshot({"orders": [partition_state(0, 0, 90)]}))
    recreated = snapshot({"orders": [partition_state(0, 0, 90)]}, topic_id="topic-id-2")
    assert f"{command} accept-recreation orders" in next_command(recreated)
    elsewhere = snapshot({"orders": [partition_state(0, 0, 90)]}, cluster_id="cluster-2")
    assert f"{command} accept-cluster" in next_command(elsewhere)
    assert f"{command} retire-topic orders" in next_command(snapshot({}))
    renamed = replace(EMPTY_VIEW, served=(ServedTopic("sales", "cluster-1", "orders"),))
    assert f"{command} rename --from sales" in next_command(snapshot({"orders": [partition_state(0, 0, 9)]}), renamed)


def test_positions_without_a_topic_id_take_over_the_brokers_and_their_ranges_carry_it() -> None:
    """Planned under none; both partitions take it over, whether there is something to read or not."""
    blind = (replace(position(0, 100), topic_id=None), replace(position(1, 80), topic_id=None))
    log = snapshot({"orders": [partition_state(0, 0, 150), partition_state(1, 0, 80)]})
    choice = choose(pipeline_settings(), view_of(*blind), log)
    assert choice.faults == ()
    assert [(move.before, move.after) for move in choice.adopted] == [
        (blind[0], position(0, 100)),
        (blind[1], position(1, 80)),
    ]
    assert [(r.partition, r.topic_id, r.start, r.end) for r in choice.ranges] == [(0, TOPIC_ID, 100, 150)]
    [warning] = choice.warnings
    assert warning == (
        f"topic orders: its positions had no topic id (topic_identity: none) and take over {TOPIC_ID}; "
        "from now on a re-created topic is noticed"
    )


def test_a_position_that_takes_over_a_topic_id_and_skips_its_lag_does_the_one_before_the_other() -> None:
    policy = LagPolicy(LagAction.SKIP_TO, max_lag_offsets=10, keep_offsets=5)
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, lag_policy=policy))
    view = view_of(replace(position(0, 100), topic_id=None))
    choice = choose(settings, view, snapshot({"orders": [partition_state(0, 0, 150)]}))
    [adopted], [skip] = choice.adopted, choice.skips
    assert (adopted.after, skip.before) == (position(0, 100), position(0, 100))
    assert [(r.start, r.end, r.topic_id) for r in choice.ranges] == [(145, 150, TOPIC_ID)]


@pytest.mark.parametrize("partition", [0, 1])
def test_a_recreated_topic_is_noticed_by_the_id_of_any_partition(partition: int) -> None:
    """The other partition joined under none: it has no id."""
    known, blind = replace(position(partition, 5), topic_id="topic-id-0"), position(1 - partition, 5)
    view = view_of(*sorted((known, replace(blind, topic_id=None)), key=lambda p: p.partition))
    choice = choose(
        pipeline_settings(), view, snapshot({"orders": [partition_state(0, 0, 9), partition_state(1, 0, 9)]})
    )
    assert (fault_names(choice), choice.ranges, choice.adopted) == (["TopicRecreated"], (), ())
    assert "topic id topic-id-0" in choice.faults[0].expected


def test_positions_keep_their_topic_id_under_none_and_are_read_on_from() -> None:
    settings = pipeline_settings(batch=replace(batch_settings(), topic_identity=TopicIdentity.NONE))
    log = snapshot({"orders": [partition_state(0, 0, 9), partition_state(1, 0, 9)]}, topic_id=None)
    choice = choose(settings, view_of(position(0, 5)), log)
    assert (choice.faults, choice.adopted) == ((), ())
    assert [(r.partition, r.start, r.topic_id) for r in choice.ranges] == [(0, 5, TOPIC_ID), (1, 0, None)]


def test_a_limit_below_the_number_of_partitions_reads_those_that_have_waited_longest() -> None:
    """Partition 2 was read an hour ago, 0 and 3 two hours ago; 1 never was."""
    hours_ago = {0: 2, 1: None, 2: 1, 3: 2}
    read = {n: None if hours is None else NOON - timedelta(hours=hours) for n, hours in hours_ago.items()}
    view = view_of(*(replace(position(n, 0), updated_at=read[n]) for n in range(4)))
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, limit=OffsetLimit(total_offsets=3)))
    log = snapshot({"orders": [partition_state(n, 0, size) for n, size in enumerate((5, 9, 100, 7))]})
    assert spans(choose(settings, view, log)) == [("orders", 0, 0, 1), ("orders", 1, 0, 1), ("orders", 3, 0, 1)]

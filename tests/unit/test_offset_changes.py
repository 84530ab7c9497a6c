"""What each change of offsets does to positions; the numbers are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.protocol.changes import choose_offsets
from kafka_ingest.protocol.decisions import (
    AcceptLoss,
    LogPlace,
    OffsetChange,
    ResetBy,
    ResetToOffsets,
    ResetToPlace,
    ResetToTime,
    Selection,
    SkipLag,
)
from kafka_ingest.protocol.ledger_view import ChangePlan, PlanView, ServedTopic
from kafka_ingest.protocol.log import LogSnapshot, TimedOffset
from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.settings import PartitionOffset, TopicIdentity
from tests.builders import CLUSTER, NOON, partition_state, position, snapshot, view_of

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))


def choose(
    change: OffsetChange, view: PlanView, log: LogSnapshot, identity: TopicIdentity = TopicIdentity.TOPIC_ID
) -> ChangePlan:
    return choose_offsets(change, view, log, {}, identity=identity)


def after(plan: ChangePlan) -> dict[int, tuple[int, int, int]]:
    """Return (committed offset, line, loaded to) by partition."""
    assert plan.faults == ()
    positions = [move.after for move in plan.moves if move.after is not None]
    return {p.partition: (p.committed_offset, p.timeline, p.loaded_to) for p in positions}


def test_a_reset_backwards_begins_a_line_and_keeps_what_was_loaded() -> None:
    log = snapshot({"orders": [partition_state(0, 20, 200), partition_state(1, 0, 90)]})
    plan = choose(ResetToPlace(LogPlace.EARLIEST), view_of(position(0, 100), position(1, 80)), log)
    assert after(plan) == {0: (20, 1, 100), 1: (0, 1, 80)}
    assert [(c.read_again, c.given_up) for c in plan.positions] == [((20, 100), None), ((0, 80), None)]


def test_a_reset_forwards_stays_in_its_line_and_gives_up_what_it_passes_over() -> None:
    log = snapshot({"orders": [partition_state(0, 20, 200, end=150)]})
    plan = choose(ResetToPlace(LogPlace.LATEST), view_of(position(0, 100)), log)
    assert after(plan) == {0: (150, 0, 150)}
    assert [(c.read_again, c.given_up) for c in plan.positions] == [(None, (100, 150))]


def test_going_forwards_below_what_was_loaded_keeps_that() -> None:
    lowered = replace(position(0, 30), loaded_to=100, timeline=2)
    log = snapshot({"orders": [partition_state(0, 0, 200)]})
    assert after(choose(ResetBy(20), view_of(lowered), log)) == {0: (50, 2, 100)}


def test_a_moved_position_keeps_no_leader_epoch_and_the_time_up_to_which_it_is_complete() -> None:
    read = replace(position(0, 100), leader_epoch=7, valid_through=NOON)
    log = snapshot({"orders": [partition_state(0, 0, 200)]})
    for change in (ResetBy(10), ResetBy(-10)):
        [move] = choose(change, view_of(read), log).moves
        assert move.after is not None
        assert (move.after.leader_epoch, move.after.valid_through) == (None, NOON)


def test_a_position_that_is_there_already_is_left_alone() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 100), partition_state(1, 0, 70)]})
    plan = choose(ResetToPlace(LogPlace.LATEST), view_of(position(0, 100), position(1, 60)), log)
    assert after(plan) == {1: (70, 0, 70)}


def test_latest_never_goes_back_below_an_open_transaction() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 300, end=150)]})
    assert choose(ResetToPlace(LogPlace.LATEST), view_of(position(0, 200)), log) == ChangePlan()


def test_latest_goes_back_where_the_log_was_truncated() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 90)]})
    assert after(choose(ResetToPlace(LogPlace.LATEST), view_of(position(0, 100)), log)) == {0: (90, 1, 100)}


def test_a_time_is_the_first_offset_at_or_after_it_within_the_readable_log() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 200), partition_state(1, 40, 200, end=150)]})
    view = view_of(position(0, 100), position(1, 100))
    found = {P0: TimedOffset(60, 5), P1: TimedOffset(200)}
    plan = choose_offsets(ResetToTime(1), view, log, found, identity=TopicIdentity.TOPIC_ID)
    assert after(plan) == {0: (60, 1, 100), 1: (150, 0, 150)}


def test_listed_offsets_move_only_their_partitions() -> None:
    log = snapshot({"orders": [partition_state(0, 20, 200), partition_state(1, 0, 90), partition_state(2, 5, 9)]})
    view = view_of(position(0, 100), position(1, 80), position(2, 9))
    listed = ResetToOffsets((PartitionOffset("orders", 0, 200), PartitionOffset("orders", 2, 5)))
    assert after(choose(listed, view, log)) == {0: (200, 0, 200), 2: (5, 1, 9)}


def test_a_listed_offset_where_the_position_stands_makes_it_forget_its_leader_epoch() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 200)]})
    listed = ResetToOffsets((PartitionOffset("orders", 0, 100),))
    read = replace(position(0, 100), leader_epoch=7, timeline=2)
    [move] = choose(listed, view_of(read), log).moves
    assert (move.after, move.given_up, move.change.read_again) == (replace(read, leader_epoch=None), None, None)
    assert choose(listed, view_of(position(0, 100)), log).moves == ()


def test_offsets_outside_the_log_are_faults_all_at_once() -> None:
    log = snapshot({"orders": [partition_state(0, 20, 200), partition_state(1, 0, 90)]})
    listed = ResetToOffsets(
        (
            PartitionOffset("orders", 0, 19),
            PartitionOffset("orders", 1, 91),
            PartitionOffset("orders", 7, 0),
            PartitionOffset("returns", 0, 0),
        )
    )
    plan = choose(listed, view_of(position(0, 100), position(1, 80)), log)
    assert [(f.where, f.expected, f.found) for f in plan.faults if f.found.isdigit()] == [
        ("orders[0]", "one offset from 20 (log start) to 200 (high watermark)", "19"),
        ("orders[1]", "one offset from 0 (log start) to 90 (high watermark)", "91"),
    ]
    assert {f.where for f in plan.faults} == {"orders[0]", "orders[1]", "orders[7]", "returns[0]"}


def test_two_offsets_for_one_partition_are_a_fault() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 200)]})
    listed = ResetToOffsets((PartitionOffset("orders", 0, 5), PartitionOffset("orders", 0, 6)))
    assert [f.found for f in choose(listed, view_of(position(0, 100)), log).faults] == ["5, 6"]


@pytest.mark.parametrize(
    ("by", "to"), [(-30, (70, 1, 100)), (-500, (20, 1, 100)), (30, (130, 0, 130)), (500, (150, 0, 150))]
)
def test_a_shift_ends_at_the_ends_of_the_readable_log(by: int, to: tuple[int, int, int]) -> None:
    log = snapshot({"orders": [partition_state(0, 20, 200, end=150)]})
    assert after(choose(ResetBy(by), view_of(position(0, 100)), log)) == {0: to}


def test_skipping_lag_leaves_the_last_offsets_and_never_goes_back() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 1000), partition_state(1, 0, 100), partition_state(2, 990, 1000)]})
    plan = choose(SkipLag(50), view_of(position(0, 100), position(1, 80), position(2, 10)), log)
    assert after(plan) == {0: (950, 0, 950), 2: (990, 0, 990)}
    assert [c.given_up for c in plan.positions] == [(100, 950), (10, 990)]


def test_skipping_lag_leaves_a_truncated_partition_to_its_fault() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 90)]})
    assert choose(SkipLag(5), view_of(position(0, 100)), log) == ChangePlan()


def test_accepted_loss_begins_at_the_log_start_and_its_margin_only_where_something_was_lost() -> None:
    log = snapshot({"orders": [partition_state(0, 150, 500), partition_state(1, 40, 500), partition_state(2, 99, 105)]})
    view = view_of(position(0, 100), position(1, 40), position(2, 90))
    plan = choose(AcceptLoss(margin_offsets=20), view, log)
    assert after(plan) == {0: (170, 0, 170), 2: (105, 0, 105)}
    assert [c.given_up for c in plan.positions] == [(100, 170), (90, 105)]


def test_only_the_selected_partitions_move() -> None:
    def elsewhere(number: int, committed: int) -> Position:
        return position(number, committed, topic="returns")

    log = snapshot(
        {
            "orders": [partition_state(0, 0, 200), partition_state(1, 0, 200)],
            "returns": [partition_state(0, 0, 200), partition_state(1, 0, 200)],
        }
    )
    view = view_of(position(0, 100), position(1, 100), elsewhere(0, 100), elsewhere(1, 100))
    only = Selection(topics=("returns",), partitions=(P1,))
    plan = choose(ResetToPlace(LogPlace.EARLIEST, only), view, log)
    assert [str(move.place) for move in plan.moves] == ["orders[1]", "returns[0]", "returns[1]"]


def test_retired_topics_are_left_alone_and_cannot_be_selected() -> None:
    view = replace(view_of(position(0, 100)), served=(ServedTopic("orders", CLUSTER, "orders", is_retired=True),))
    assert choose(ResetToPlace(LogPlace.EARLIEST), view, snapshot({})) == ChangePlan()
    plan = choose(ResetToPlace(LogPlace.EARLIEST, Selection(partitions=(P0,))), view, snapshot({}))
    assert [(f.error.__name__, f.where) for f in plan.faults] == [("ConfigError", "orders[0]")]


def test_offsets_of_another_log_are_faults() -> None:
    view = view_of(position(0, 100), position(1, 100), position(2, 100))
    change = ResetToPlace(LogPlace.EARLIEST)
    elsewhere = choose(change, view, snapshot({"orders": [partition_state(0, 0, 200)]}, cluster_id="cluster-2"))
    assert [f.error.__name__ for f in elsewhere.faults] == ["ClusterChanged"]
    recreated = choose(change, view, snapshot({"orders": [partition_state(0, 0, 200)]}, topic_id="topic-id-2"))
    assert [f.error.__name__ for f in recreated.faults] == ["TopicRecreated"] * 3
    leaderless = replace(partition_state(1, 0, 0), has_leader=False, end_offset=None)
    partly = choose(change, view, snapshot({"orders": [partition_state(0, 0, 200), leaderless]}))
    assert [(f.error.__name__, f.where) for f in partly.faults] == [
        ("LeaderMissing", "orders[1]"),
        ("PartitionMissing", "orders[2]"),
    ]
    gone = choose(change, view, snapshot({}))
    assert [f.error.__name__ for f in gone.faults] == ["TopicMissing"] * 3


def test_positions_with_topic_ids_can_be_reset_where_brokers_tell_none_and_none_is_asked_for() -> None:
    log = snapshot({"orders": [partition_state(0, 20, 200)]}, topic_id=None)
    change, view = ResetToPlace(LogPlace.EARLIEST), view_of(position(0, 100))
    assert after(choose(change, view, log, TopicIdentity.NONE)) == {0: (20, 1, 100)}
    assert [fault.error.__name__ for fault in choose(change, view, log).faults] == ["TopicRecreated"]

"""What a roll-back chooses, worked out by hand: batches, positions, what is counted first, and what stops it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kafka_ingest.errors import (
    BatchOutstanding,
    ClusterChanged,
    LeaderMissing,
    LogTruncated,
    OffsetsExpired,
    PartitionMissing,
    RollBackRefused,
    TopicMissing,
    TopicRecreated,
)
from kafka_ingest.protocol.batch import Batch, BatchState
from kafka_ingest.protocol.ledger_view import PlanView, ServedTopic, still_stands
from kafka_ingest.protocol.log import LogSnapshot, PartitionState
from kafka_ingest.protocol.position import OffsetRange, Position, TopicPartition
from kafka_ingest.protocol.roll_back import (
    RollBackPlan,
    RollBackRequest,
    RollBackView,
    Writer,
    WrittenCounts,
    WrittenRange,
    choose_roll_back,
    undone_topics,
)
from kafka_ingest.settings import IsolationLevel, TopicIdentity
from tests.builders import CLUSTER, held, offset_range, partition_state, planned_batch, position, snapshot, view_of

WHOLE_LOG = snapshot({"orders": [partition_state(0, 0, 1_000), partition_state(1, 0, 1_000)]})
DELETE = {"orders": "delete"}


def writer(name: str, *ranges: OffsetRange, state: BatchState = BatchState.COMMITTED) -> Writer:
    """A batch of that name that wrote a row for every offset."""
    batch = replace(planned_batch(*ranges, state=state), batch_id=name)
    return Writer(batch, tuple(WrittenRange(r, WrittenCounts(r.span_offsets, 0)) for r in ranges))


def reread(partition: int, start: int, end: int, *, committed: int) -> OffsetRange:
    """A range that begins below the position."""
    return replace(offset_range(partition, start, end), committed_before=committed, loaded_to=max(committed, end))


def request(batches: int = 1, **flags: bool) -> RollBackRequest:
    return RollBackRequest("r", "orders", batches, "operator", "why", **flags)


def view(*writers: Writer, positions: tuple[Position, ...], bound_timeline: int = 0) -> RollBackView:
    """The newest batch first."""
    ledger = view_of(*positions)
    return RollBackView(ledger, {p.topic_partition: bound_timeline for p in positions}, writers)


def choose(
    seen: RollBackView,
    batches: int = 1,
    *,
    log: LogSnapshot = WHOLE_LOG,
    policies: Mapping[str, str] = DELETE,
    **flags: bool,
) -> RollBackPlan:
    return choose_roll_back(request(batches, **flags), seen, log, policies)


def lowered(plan: RollBackPlan) -> list[tuple[int, int, int]]:
    return [(p.before.partition, p.before.committed_offset, p.after.committed_offset) for p in plan.positions]


def counted(plan: RollBackPlan) -> list[str]:
    return [str(written.range) for written in plan.counted]


def faults(plan: RollBackPlan) -> list[type[Exception]]:
    return [fault.error for fault in plan.faults]


def test_the_newest_batch_goes_back_to_where_it_began() -> None:
    older, newest = writer("b1", offset_range(0, 0, 10)), writer("b2", replace(offset_range(0, 10, 25), leader_epoch=3))
    at = replace(position(0, 25), leader_epoch=4, timeline=2, valid_through=view_of().now)
    plan = choose(view(newest, older, positions=(at,)))
    assert [batch.batch_id for batch in plan.batches] == ["b2"]
    [change] = plan.positions
    assert change.before == at
    assert change.after == replace(
        at, committed_offset=10, loaded_to=10, timeline=3, leader_epoch=3, valid_through=None
    )
    assert (change.span_offsets, counted(plan), plan.faults) == (15, ["orders[0] [10, 25)"], ())


def test_two_batches_lower_each_partition_to_the_older_begin() -> None:
    b3 = writer("b3", offset_range(0, 10, 25), offset_range(1, 4, 6))
    b2 = writer("b2", offset_range(0, 3, 10))
    b1 = writer("b1", offset_range(0, 0, 3), offset_range(1, 0, 4))
    plan = choose(view(b3, b2, b1, positions=(position(0, 25), position(1, 6))), 2)
    assert [batch.batch_id for batch in plan.batches] == ["b3", "b2"]
    assert (lowered(plan), [p.after.timeline for p in plan.positions]) == ([(0, 25, 3), (1, 6, 4)], [1, 1])
    assert counted(plan) == ["orders[0] [10, 25)", "orders[1] [4, 6)", "orders[0] [3, 10)"]


def test_batches_that_only_reloaded_or_are_rolled_back_are_passed_over() -> None:
    reload = writer("reload", reread(0, 2, 5, committed=10))
    undone = writer("undone", offset_range(0, 10, 20), state=BatchState.ROLLED_BACK)
    b1 = writer("b1", offset_range(0, 0, 10))
    seen = view(reload, undone, b1, positions=(replace(position(0, 10), timeline=1),))
    plan = choose(seen)
    assert ([batch.batch_id for batch in plan.batches], lowered(plan)) == (["b1"], [(0, 10, 0)])
    assert undone_topics(request(), seen) == ("orders",)


def test_of_a_batch_that_also_reloaded_only_what_moved_is_undone() -> None:
    b1 = writer("b1", offset_range(0, 0, 10), offset_range(1, 0, 10))
    mixed = writer("mixed", reread(0, 5, 15, committed=10), reread(1, 5, 8, committed=10))
    plan = choose(view(mixed, b1, positions=(position(0, 15), position(1, 10))))
    assert lowered(plan) == [(0, 15, 10)]
    assert counted(plan) == ["orders[0] [5, 15)"]


def test_a_range_that_a_later_batch_wrote_into_is_not_counted_but_the_later_one_is() -> None:
    b1, b2 = writer("b1", offset_range(0, 0, 10)), writer("b2", offset_range(0, 10, 20))
    reload = writer("reload", reread(0, 5, 15, committed=20))
    plan = choose(view(reload, b2, b1, positions=(position(0, 20),)))
    assert counted(plan) == ["orders[0] [5, 15)"]


def test_a_reload_whose_end_an_earlier_roll_back_took_is_not_counted() -> None:
    b1 = writer("b1", offset_range(0, 0, 10))
    undone = writer("b2", offset_range(0, 10, 20), state=BatchState.ROLLED_BACK)
    reload = writer("reload", reread(0, 5, 15, committed=20))
    plan = choose(view(reload, undone, b1, positions=(replace(position(0, 10), timeline=1),)))
    assert (lowered(plan), counted(plan)) == ([(0, 10, 0)], [])


def test_what_a_batch_that_was_rolled_back_had_replaced_is_not_counted_for_the_batch_before() -> None:
    b1 = writer("b1", offset_range(0, 0, 10))
    mixed = writer("mixed", reread(0, 5, 15, committed=10), state=BatchState.ROLLED_BACK)
    plan = choose(view(mixed, b1, positions=(replace(position(0, 10), timeline=1),)))
    assert (lowered(plan), counted(plan)) == ([(0, 10, 0)], [])


def test_rows_that_an_older_reset_left_above_the_position_stay_below_loaded_to() -> None:
    """Loaded to 100, reset to 50, loaded to 70: rolled back to 50, rows from 70 on are still there."""
    again = writer("again", replace(offset_range(0, 50, 70), timeline=1, loaded_to=100))
    at = replace(position(0, 70), loaded_to=100, timeline=1)
    [change] = choose(view(again, positions=(at,), bound_timeline=1)).positions
    assert (change.after.committed_offset, change.after.loaded_to, change.after.timeline) == (50, 100, 2)


def test_where_the_position_had_passed_the_old_end_nothing_is_left_above() -> None:
    """Loaded to 100, reset to 50, loaded to 120."""
    again = writer("again", replace(offset_range(0, 50, 120), timeline=1, loaded_to=100))
    [change] = choose(view(again, positions=(replace(position(0, 120), timeline=1),), bound_timeline=1)).positions
    assert change.after.loaded_to == 50


@pytest.mark.parametrize(
    ("at", "bound_timeline"),
    [
        pytest.param(replace(position(0, 30), loaded_to=30), 0, id="skipped ahead"),
        pytest.param(replace(position(0, 5), loaded_to=25, timeline=1), 1, id="reset"),
        pytest.param(replace(position(0, 25), timeline=2), 2, id="reset there and back"),
        pytest.param(replace(position(0, 25), generation=1), 0, id="another generation"),
        pytest.param(replace(position(0, 25), topic_id="another"), 0, id="another topic id"),
        pytest.param(replace(position(0, 25), cluster_id="another"), 0, id="another cluster"),
    ],
)
def test_a_position_change_since_is_never_passed(at: Position, bound_timeline: int) -> None:
    newest = writer("b2", offset_range(0, 10, 25))
    plan = choose(view(newest, positions=(at,), bound_timeline=bound_timeline))
    assert (RollBackRefused in faults(plan), plan.positions) == (True, ())


def test_a_position_change_between_two_batches_is_never_passed() -> None:
    """Lag was skipped from 10 to 40 between them."""
    newest, older = writer("b2", offset_range(0, 40, 50)), writer("b1", offset_range(0, 0, 10))
    seen = view(newest, older, positions=(position(0, 50),))
    assert choose(seen).faults == ()
    [fault] = choose(seen, 2).faults
    assert (fault.error, fault.found.split(":")[0]) == (RollBackRefused, "offset 40, line 0")


def test_a_position_that_is_gone_is_a_position_change() -> None:
    plan = choose(view(writer("b1", offset_range(0, 0, 10)), positions=()))
    assert [fault.found.split(":")[0] for fault in plan.faults] == ["no position"]


def test_lines_of_earlier_roll_backs_are_passed() -> None:
    b1 = writer("b1", offset_range(0, 0, 10))
    assert choose(view(b1, positions=(replace(position(0, 10), timeline=3),))).faults == ()


def changed(ledger: PlanView) -> list[PlanView]:
    assert ledger.pipeline is not None
    return [
        replace(ledger, pipeline=replace(ledger.pipeline, target_table="another")),
        replace(ledger, pipeline=replace(ledger.pipeline, isolation_level=IsolationLevel.READ_UNCOMMITTED)),
        replace(ledger, served=(ServedTopic("orders", CLUSTER, "orders", is_retired=True),)),
    ]


@pytest.mark.parametrize("number", range(3))
def test_a_target_isolation_level_or_retirement_since_is_never_passed(number: int) -> None:
    seen = view(writer("b1", offset_range(0, 0, 10)), positions=(position(0, 10),))
    plan = choose(replace(seen, ledger=changed(seen.ledger)[number]))
    assert faults(plan) == [RollBackRefused]


def test_an_outstanding_batch_refuses_it_unless_it_is_to_be_superseded() -> None:
    seen = view(writer("b1", offset_range(0, 0, 10)), positions=(position(0, 10),))
    planned = planned_batch(offset_range(0, 10, 20))
    busy = replace(seen, ledger=held(seen.ledger, planned, until_seconds=30))
    assert faults(choose(busy)) == [BatchOutstanding]
    plan = choose(busy, supersede=True)
    assert (plan.faults, plan.supersedes) == ((), planned.batch_id)


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (snapshot({"orders": [partition_state(0, 11, 1_000)]}), OffsetsExpired),
        (snapshot({"orders": [partition_state(0, 0, 24)]}), LogTruncated),
        (snapshot({"orders": [partition_state(0, 0, 1_000)]}, topic_id="another"), TopicRecreated),
        (snapshot({"orders": [partition_state(0, 0, 1_000)]}, cluster_id="another"), ClusterChanged),
        (snapshot({}), TopicMissing),
        (snapshot({"orders": [partition_state(1, 0, 1_000)]}), PartitionMissing),
        (snapshot({"orders": [PartitionState(0, has_leader=False)]}), LeaderMissing),
    ],
)
def test_a_log_that_cannot_give_the_records_again_refuses_it(log: LogSnapshot, error: type[Exception]) -> None:
    seen = view(writer("b2", offset_range(0, 10, 25)), positions=(position(0, 25),))
    assert faults(choose(seen, log=log)) == [error]


def test_a_log_that_holds_just_the_span_is_enough() -> None:
    seen = view(writer("b2", offset_range(0, 10, 25)), positions=(position(0, 25),))
    assert choose(seen, log=snapshot({"orders": [partition_state(0, 10, 25)]})).faults == ()


@pytest.mark.parametrize("policies", [{"orders": "compact"}, {"orders": "compact,delete"}, {}])
def test_a_compacted_topic_or_one_whose_settings_are_hidden_must_be_allowed(policies: Mapping[str, str]) -> None:
    seen = view(writer("b1", offset_range(0, 0, 10)), positions=(position(0, 10),))
    assert faults(choose(seen, policies=policies)) == [RollBackRefused]
    assert choose(seen, policies=policies, allow_compacted=True).faults == ()


def test_fewer_batches_than_asked_for_refuse_it_and_every_fault_is_listed() -> None:
    seen = view(writer("b1", offset_range(0, 0, 10)), positions=(position(0, 10),))
    log = snapshot({"orders": [partition_state(0, 5, 1_000)]})
    plan = choose(seen, 2, log=log, policies={"orders": "compact"})
    assert faults(plan) == [RollBackRefused, OffsetsExpired, RollBackRefused]
    assert plan.faults[0].found == "1; a batch that only reloaded or was rolled back does not count"


def test_what_was_deleted_is_recorded_by_partition_and_0_where_nothing_was() -> None:
    b1 = writer("b1", offset_range(0, 0, 10), offset_range(1, 0, 4))
    plan = choose(view(b1, positions=(position(0, 10), position(1, 4))))
    record = plan.record({TopicPartition("orders", 0): WrittenCounts(9, 1)})
    assert [(s.partition, s.from_offset, s.to_offset, s.to_timeline, s.counts) for s in record.spans] == [
        (0, 10, 0, 1, WrittenCounts(9, 1)),
        (1, 4, 0, 1, WrittenCounts(0, 0)),
    ]


def test_a_view_still_stands_while_only_clock_and_claim_move() -> None:
    seen = view(writer("b1", offset_range(0, 0, 10)), positions=(position(0, 10),))
    planned: Batch = planned_batch(offset_range(0, 10, 20))
    busy = replace(seen, ledger=held(seen.ledger, planned, until_seconds=30))
    later = replace(busy, ledger=held(seen.ledger, replace(planned, claim=7), until_seconds=90))
    assert still_stands(busy, later)
    assert not still_stands(busy, seen)
    assert not still_stands(seen, replace(seen, bound_timelines={TopicPartition("orders", 0): 1}))


def test_a_batch_that_was_loaded_without_comparing_topic_ids_is_rolled_back_where_brokers_tell_none() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 1_000)]}, topic_id=None)
    loaded = writer("b1", offset_range(0, 10, 25))
    settings = replace(loaded.batch.settings, topic_identity=TopicIdentity.NONE)
    blind = replace(loaded, batch=replace(loaded.batch, settings=settings))
    assert choose(view(blind, positions=(position(0, 25),)), log=log).faults == ()
    [fault] = choose(view(loaded, positions=(position(0, 25),)), log=log).faults
    assert fault.error is TopicRecreated

"""What every ledger promises about position changes: the fake one and the one in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import LedgerMoved
from kafka_ingest.protocol.batch import Batch, BatchState, Request
from kafka_ingest.protocol.decisions import (
    AcceptCluster,
    AcceptRecreation,
    Change,
    ChangeIdentityColumns,
    ChangeRequest,
    ChangeTarget,
    ChangeView,
    NewChange,
    ReadTopicAgain,
    RenamePipeline,
    ResetBy,
    RetireTopic,
)
from kafka_ingest.protocol.ledger_view import (
    ChangePlan,
    PipelineRecord,
    PositionChange,
    PositionMove,
    PositionPoint,
    RecordedChange,
    ServedTopic,
    SettingChange,
    moved,
)
from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.protocol.roll_back import RollBackRequest
from kafka_ingest.settings import IdentityColumns, TargetSettings
from tests.builders import CLUSTER, NOON, TOPIC_ID, offset_range, position
from tests.contracts.ledger_values import TARGET, first_plan, load, new_plan, next_plan, stored, view
from tests.contracts.ledger_worlds import LedgerWorld

ELSEWHERE = TargetSettings("mart", "sales")


@pytest.fixture
def world(world: LedgerWorld) -> LedgerWorld:
    """A ledger with the positions 3 and 2 of partitions 0 and 1, free."""
    load(world, first_plan(world), valid_through=NOON)
    return world


def asked(change: Change, request_id: str = "r1", *, pipeline: str = "orders") -> ChangeRequest:
    return ChangeRequest(pipeline, request_id, change, "ada", "because")


def seen_by(world: LedgerWorld, request: ChangeRequest, target: TargetSettings = TARGET) -> ChangeView:
    return world.changes.change_view(request, target)


def record(
    world: LedgerWorld, request: ChangeRequest, plan: ChangePlan, *, target: TargetSettings = TARGET
) -> RecordedChange:
    return world.changes.record_change(NewChange(request, plan), seen_by(world, request, target))


def bound(world: LedgerWorld) -> PipelineRecord:
    found = view(world).pipeline
    assert found is not None
    return found


def empty_plan(world: LedgerWorld, run_id: str, *begins: Position) -> Batch:
    """Record a plan that reads nothing."""
    request = Request("orders", run_id)
    return world.ledger.record_plan(new_plan(request=request, begins=begins), view(world, request))


def plan_elsewhere(world: LedgerWorld) -> None:
    """Let another pipeline, sales, serve topic orders into another table."""
    settings = replace(new_plan().settings, target=ELSEWHERE)
    plan = replace(new_plan(begins=(position(0, 0),)), pipeline="sales", settings=settings)
    world.ledger.record_plan(plan, world.ledger.plan_view("sales", plan.request, ELSEWHERE))


def prepared(world: LedgerWorld) -> tuple[NewChange, ChangeView]:
    """Decide to set partition 0 back by one, from 3 to 2, and do not do it yet."""
    request = asked(ResetBy(-1))
    seen = seen_by(world, request)
    return NewChange(request, ChangePlan((moved(seen.ledger.positions[0], 2),))), seen


def reset(world: LedgerWorld, by: int, request_id: str = "r1") -> RecordedChange:
    """Move partition 0."""
    first = view(world).positions[0]
    plan = ChangePlan((moved(first, first.committed_offset + by),))
    return record(world, asked(ResetBy(by), request_id), plan)


def test_a_change_is_recorded_with_who_why_from_and_to(world: LedgerWorld) -> None:
    recorded = reset(world, -2)
    assert recorded == RecordedChange(
        pipeline="orders",
        request_id="r1",
        kind="reset",
        arguments=asked(ResetBy(-2)).arguments,
        who="ada",
        why="because",
        at=recorded.at,
        positions=(
            PositionChange(
                "orders", 0, PositionPoint(3, 0, 0, TOPIC_ID, CLUSTER), PositionPoint(1, 0, 1, TOPIC_ID, CLUSTER)
            ),
        ),
    )
    assert seen_by(world, asked(ResetBy(-2))).recorded == recorded
    assert seen_by(world, asked(ResetBy(-2), "r2")).recorded is None


def test_a_backward_change_begins_a_line_and_the_invariants_hold(world: LedgerWorld) -> None:
    reset(world, -2)
    lowered, other = view(world).positions
    assert (lowered.committed_offset, lowered.timeline, lowered.loaded_to) == (1, 1, 3)
    assert (lowered.leader_epoch, lowered.valid_through) == (None, NOON)
    assert (other.committed_offset, other.timeline, other.leader_epoch) == (2, 0, 5)
    assert world.ledger.violations("orders") == []


def test_a_forward_change_stays_in_its_line_and_records_what_was_given_up(world: LedgerWorld) -> None:
    recorded = reset(world, 4)
    assert recorded.positions[0].given_up == (3, 7)
    first = view(world).positions[0]
    assert (first.committed_offset, first.timeline, first.loaded_to) == (7, 0, 7)
    assert world.ledger.violations("orders") == []
    load(world, next_plan(world, replace(offset_range(0, 7, 9), loaded_to=7)))
    assert world.ledger.violations("orders") == []


def test_a_change_is_refused_when_the_ledger_moved_since_it_was_seen(world: LedgerWorld) -> None:
    change, seen = prepared(world)
    load(world, next_plan(world, offset_range(0, 3, 6)))
    with pytest.raises(LedgerMoved):
        world.changes.record_change(change, seen)
    assert view(world).positions[0].committed_offset == 6
    assert seen_by(world, change.request).recorded is None


def test_a_change_is_refused_when_its_request_was_recorded_since_it_was_seen(world: LedgerWorld) -> None:
    change, seen = prepared(world)
    world.changes.record_change(change, seen)
    with pytest.raises(LedgerMoved):
        world.changes.record_change(change, seen)
    assert view(world).positions[0].timeline == 1


def test_a_change_that_does_not_supersede_the_outstanding_batch_is_refused(world: LedgerWorld) -> None:
    batch = next_plan(world, offset_range(0, 3, 6))
    with pytest.raises(LedgerMoved):
        reset(world, -1)
    change, seen = prepared(world)
    assert seen.ledger.outstanding == batch
    recorded = world.changes.record_change(replace(change, supersedes=batch.batch_id), seen)
    assert recorded.superseded == batch.batch_id
    assert stored(world, batch).state is BatchState.SUPERSEDED
    assert world.ledger.hold(batch.batch_id) is None
    assert view(world).positions[0].committed_offset == 2


def test_a_change_without_effect_is_recorded_too(world: LedgerWorld) -> None:
    recorded = record(world, asked(ResetBy(5)), ChangePlan())
    assert (recorded.positions, recorded.settings, recorded.superseded) == ((), (), None)
    assert seen_by(world, asked(ResetBy(5))).recorded == recorded


def test_a_new_generation_has_exactly_the_partitions_of_the_new_log(world: LedgerWorld) -> None:
    first, second = view(world).positions
    new = Position("orders", 0, 1, "topic-id-2", CLUSTER, 4, 4)
    joined = replace(new, partition=2, committed_offset=0, loaded_to=0)
    moves = (PositionMove(first, new, (0, 4)), PositionMove(second, None), PositionMove(None, joined))
    recorded = record(world, asked(AcceptRecreation()), ChangePlan(moves))
    assert view(world).positions == (new, joined)
    assert [(c.partition, c.before is None, c.after is None, c.given_up) for c in recorded.positions] == [
        (0, False, False, (0, 4)),
        (1, False, True, None),
        (2, True, False, None),
    ]
    assert world.ledger.violations("orders") == []


def test_a_retired_topic_stays_with_its_position_and_bounds_nothing(world: LedgerWorld) -> None:
    returns = replace(position(0, 0), topic="returns")
    empty_plan(world, "joins", returns)
    assert empty_plan(world, "a").valid_through is None
    setting = (SettingChange("topic returns", "read", "retired"),)
    recorded = record(world, asked(RetireTopic("returns")), ChangePlan(retired_topic="returns", settings=setting))
    assert (recorded.positions, recorded.settings) == ((), setting)
    assert view(world).served == (
        ServedTopic("orders", CLUSTER, "orders"),
        ServedTopic("orders", CLUSTER, "returns", is_retired=True),
    )
    assert len(view(world).positions) == 3
    assert empty_plan(world, "b").valid_through == NOON
    again = (SettingChange("topic returns", "retired", "read"),)
    change = asked(ReadTopicAgain("returns"), "r2")
    recorded = record(world, change, ChangePlan(topic_read_again="returns", settings=again))
    assert (recorded.kind, recorded.positions, recorded.settings) == ("topic_read_again", (), again)
    assert not any(served.is_retired for served in view(world).served)
    assert empty_plan(world, "c").valid_through is None


def test_another_target_is_served_and_the_former_one_stays_taken(world: LedgerWorld) -> None:
    before = bound(world)
    after = replace(before, target_schema="mart", target_table="sales")
    setting = (SettingChange("target", "shop.orders", "mart.sales"),)
    record(world, asked(ChangeTarget()), ChangePlan(binding=after, settings=setting), target=ELSEWHERE)
    assert view(world).pipeline == after
    assert view(world).served == (ServedTopic("orders", CLUSTER, "orders", is_retired=True),)
    there = seen_by(world, asked(ChangeTarget(), "r2"), ELSEWHERE).ledger
    assert there.served == (ServedTopic("orders", CLUSTER, "orders"),)
    assert len(there.positions) == 2
    record(world, asked(ChangeTarget(), "back"), ChangePlan(binding=before))
    assert view(world).served == (ServedTopic("orders", CLUSTER, "orders"),)


def test_identity_columns_are_bound_and_the_table_is_looked_at(world: LedgerWorld) -> None:
    after = replace(bound(world), identity=IdentityColumns("t", "g", "p", "o"))
    seen = seen_by(world, asked(ChangeIdentityColumns()))
    assert seen.target_columns is not None
    assert {"kafka_topic": "text", "kafka_offset": "bigint"}.items() <= seen.target_columns.items()
    assert seen_by(world, asked(ChangeTarget()), ELSEWHERE).target_columns is None
    setting = (SettingChange("column of offset", "kafka_offset", "o"),)
    recorded = record(world, asked(ChangeIdentityColumns()), ChangePlan(binding=after, settings=setting))
    assert (recorded.kind, recorded.settings) == ("identity_columns_changed", setting)
    assert view(world).pipeline == after
    assert view(world).served == (ServedTopic("orders", CLUSTER, "orders"),)


def test_after_another_target_the_pipeline_is_still_complete_up_to_its_time(world: LedgerWorld) -> None:
    after = replace(bound(world), target_table="sales")
    record(world, asked(ChangeTarget()), ChangePlan(binding=after), target=TargetSettings("shop", "sales"))
    assert empty_plan(world, "a").valid_through == NOON


def test_another_cluster_is_bound_with_its_topics(world: LedgerWorld) -> None:
    moves = tuple(
        PositionMove(p, Position("orders", p.partition, 1, "topic-id-2", "cluster-2", 0, 0))
        for p in view(world).positions
    )
    plan = ChangePlan(moves, binding=replace(bound(world), cluster_id="cluster-2"))
    record(world, asked(AcceptCluster()), plan)
    assert view(world).pipeline == plan.binding
    assert set(view(world).served) == {
        ServedTopic("orders", CLUSTER, "orders", is_retired=True),
        ServedTopic("orders", "cluster-2", "orders"),
    }
    assert {p.cluster_id for p in view(world).positions} == {"cluster-2"}
    assert world.ledger.violations("orders") == []


def test_a_topic_that_another_pipeline_serves_there_is_never_taken_over(world: LedgerWorld) -> None:
    plan_elsewhere(world)
    before = bound(world)
    plan = ChangePlan(binding=replace(before, target_schema="mart", target_table="sales"))
    with pytest.raises(LedgerMoved):
        record(world, asked(ChangeTarget()), plan, target=ELSEWHERE)
    assert bound(world) == before
    assert view(world).served == (ServedTopic("orders", CLUSTER, "orders"),)


def test_a_renamed_pipeline_keeps_its_positions_batches_and_changes(world: LedgerWorld) -> None:
    before = bound(world)
    reset(world, -2, "earlier")
    request = asked(RenamePipeline("orders"), pipeline="sales")
    assert not seen_by(world, request).name_is_taken
    recorded = record(world, request, ChangePlan(binding=replace(before, pipeline="sales")))
    assert recorded.pipeline == "sales"
    assert view(world).pipeline is None
    after = view(world, pipeline="sales")
    assert after.pipeline == replace(before, pipeline="sales")
    assert [p.committed_offset for p in after.positions] == [1, 2]
    assert after.served == (ServedTopic("sales", CLUSTER, "orders"),)
    assert after.own is not None
    assert seen_by(world, request).recorded == recorded
    assert seen_by(world, asked(ResetBy(-2), "earlier", pipeline="sales")).recorded is not None
    undo = RollBackRequest("undo", "sales", 1, "ada", "because")
    assert world.roll_backs.roll_back_view(undo).bound_timelines[TopicPartition("orders", 0)] == 1
    assert world.ledger.violations("sales") == []


def test_a_name_that_is_taken_is_seen(world: LedgerWorld) -> None:
    plan_elsewhere(world)
    assert seen_by(world, asked(RenamePipeline("orders"), pipeline="sales")).name_is_taken


def test_a_change_is_refused_when_a_batch_was_planned_since_it_was_seen(world: LedgerWorld) -> None:
    change, seen = prepared(world)
    batch = next_plan(world, offset_range(0, 3, 6))
    for supersedes in (None, batch.batch_id):
        with pytest.raises(LedgerMoved):
            world.changes.record_change(replace(change, supersedes=supersedes), seen)
    assert view(world).positions[0].committed_offset == 3
    assert view(world).outstanding == batch

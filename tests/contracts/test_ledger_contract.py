"""What every ledger promises: the fake one and the one in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from kafka_ingest.errors import ConfigError, Fenced, LeaderMissing, LedgerMoved, PartitionFault
from kafka_ingest.protocol.batch import BatchStanding, BatchState, RecordCounts, Request
from kafka_ingest.protocol.ledger_view import PipelineRecord, PlanView, PositionMove, ServedTopic
from kafka_ingest.protocol.log import observe
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.staging import DeadLetterGroup, StageProgress
from kafka_ingest.settings import FirstRun, FirstRunKind, IdentityColumns, IsolationLevel
from tests.builders import (
    CLUSTER,
    NOON,
    REQUEST,
    TOPIC_ID,
    batch_settings,
    offset_range,
    partition_state,
    position,
    snapshot,
)
from tests.contracts.ledger_values import (
    LATER,
    TARGET,
    all_rows,
    choosing,
    claimed,
    first_plan,
    load,
    new_plan,
    next_plan,
    outcome_of,
    publish,
    skipping,
    stored,
    view,
)
from tests.contracts.ledger_worlds import LedgerWorld

UNKNOWN = "00000000-0000-4000-8000-000000000000"


def test_an_unused_ledger_knows_nothing(world: LedgerWorld) -> None:
    seen = view(world)
    assert seen == PlanView(seen.now, None, (), (), None, None, None)
    assert seen.now.utcoffset() == timedelta(0)


def test_the_first_plan_binds_the_pipeline_and_its_positions(world: LedgerWorld) -> None:
    first_plan(world)
    seen = view(world)
    assert seen.pipeline == PipelineRecord(
        "orders",
        "shop",
        "orders",
        CLUSTER,
        IsolationLevel.READ_COMMITTED,
        FirstRun(FirstRunKind.EARLIEST),
        IdentityColumns("kafka_topic", "kafka_generation", "kafka_partition", "kafka_offset"),
    )
    assert seen.positions == (position(0, 0), position(1, 0))
    assert seen.served == (ServedTopic("orders", CLUSTER, "orders"),)


def test_a_recorded_plan_is_given_back_as_it_was_planned(world: LedgerWorld) -> None:
    planned = OffsetRange("orders", 0, 0, TOPIC_ID, 0, 0, 3, 0, 0, leader_epoch=4, reaches_high_watermark=True)
    request = Request("orders", "manual__1", "group", 2, 1, '{"b":1,"a":"ü"}')
    fault = PartitionFault(LeaderMissing, "orders[7]", "a leader", "none", "bring its brokers back")
    plan = choosing(new_plan(planned, request=request, begins=(position(0, 0),)), left_out=(fault,))
    batch = world.ledger.record_plan(plan, view(world, request))
    assert world.ledger.batch(batch.batch_id) == batch
    assert batch.request == request
    assert batch.settings == batch_settings()
    assert batch.ranges == (planned,)
    assert batch.left_out == ("orders[7]: LeaderMissing: expected a leader; found none",)
    assert (batch.state, batch.claim, batch.counts, batch.planned_at) == (BatchState.PLANNED, 0, None, NOON)


def test_what_a_plan_saw_and_warned_of_is_kept_and_replaced_by_the_next(world: LedgerWorld) -> None:
    log = snapshot({"orders": [partition_state(0, 10, 90, end=60), partition_state(1, 0, 5)]})
    first = observe(log, ())
    plan = new_plan(offset_range(0, 0, 3), begins=(position(0, 0), position(1, 0)))
    batch = world.ledger.record_plan(
        choosing(plan, observations=first, unread_topics=("orders[0]: short",)), view(world)
    )
    assert batch.warnings == ("orders[0]: short",)
    assert stored(world, batch) == batch
    assert view(world).observations == first

    later = replace(snapshot({"orders": [partition_state(0, 20, 95, end=60)]}), taken_at=NOON + timedelta(hours=1))
    seen, second = view(world, LATER), observe(later, first)
    plan = choosing(new_plan(request=LATER, supersedes=batch.batch_id), observations=second)
    world.ledger.record_plan(plan, seen)
    assert view(world).observations == (second[0], first[1])
    assert second[0].pinned_since == NOON
    assert world.ledger.plan_view("others", REQUEST, TARGET).observations == ()


def test_an_outstanding_batch_and_its_hold_are_seen_by_every_request(world: LedgerWorld) -> None:
    batch = first_plan(world)
    seen = view(world, LATER)
    assert seen.outstanding == batch
    assert seen.own is None
    assert seen.hold is not None
    assert (seen.hold.batch_id, seen.hold.request, seen.hold.step) == (batch.batch_id, REQUEST, "plan")
    assert seen.hold.total_offsets == 5
    assert seen.hold.hold_until > seen.now + timedelta(minutes=29)


def test_a_plan_is_refused_when_another_was_recorded_since_it_was_seen(world: LedgerWorld) -> None:
    seen = view(world, LATER)
    first_plan(world)
    with pytest.raises(LedgerMoved):
        world.ledger.record_plan(new_plan(offset_range(0, 0, 3), request=LATER, begins=(position(0, 0),)), seen)
    assert view(world, LATER).own is None


def test_a_plan_is_refused_when_a_batch_was_published_since_it_was_seen(world: LedgerWorld) -> None:
    batch = first_plan(world)
    seen = view(world, LATER)
    load(world, batch)
    with pytest.raises(LedgerMoved):
        world.ledger.record_plan(new_plan(offset_range(0, 0, 3), request=LATER, supersedes=batch.batch_id), seen)
    assert view(world).own == world.ledger.batch(batch.batch_id)


def test_a_plan_is_refused_when_another_run_came_and_went_since_it_was_seen(world: LedgerWorld) -> None:
    load(world, first_plan(world))
    seen = view(world, LATER)
    between = Request("orders", "manual__between")
    load(world, next_plan(world, offset_range(0, 3, 6), request=between))
    with pytest.raises(LedgerMoved):
        world.ledger.record_plan(new_plan(offset_range(0, 3, 6), request=LATER), seen)
    assert view(world, LATER).own is None


def test_a_claim_or_a_heartbeat_since_it_was_seen_does_not_refuse_a_plan(world: LedgerWorld) -> None:
    batch = first_plan(world)
    seen = view(world, LATER)
    claimed(world, batch)
    newer = world.ledger.record_plan(new_plan(offset_range(0, 0, 3), request=LATER, supersedes=batch.batch_id), seen)
    assert newer.state is BatchState.PLANNED


def test_a_plan_that_does_not_supersede_the_outstanding_batch_is_refused(world: LedgerWorld) -> None:
    first_plan(world)
    with pytest.raises(LedgerMoved):
        next_plan(world, offset_range(0, 0, 3))
    with pytest.raises(LedgerMoved):
        next_plan(world)


def test_a_superseded_batch_is_fenced_and_holds_nothing(world: LedgerWorld) -> None:
    old = claimed(world, first_plan(world))
    new = next_plan(world, offset_range(0, 0, 3), supersedes=old.batch_id)
    assert view(world).outstanding == new
    assert stored(world, old).state is BatchState.SUPERSEDED
    assert world.ledger.hold(old.batch_id) is None
    with pytest.raises(Fenced):
        claimed(world, old)


def test_a_run_sees_its_newest_batch_whatever_its_number_and_state(world: LedgerWorld) -> None:
    old = first_plan(world)
    new = next_plan(world, offset_range(0, 0, 3), request=REQUEST, supersedes=old.batch_id)
    assert view(world).own == new
    assert view(world, replace(REQUEST, number=1)).own == new
    again = replace(REQUEST, number=1, clear_number=2)
    newer = next_plan(world, offset_range(0, 0, 3), request=again, supersedes=new.batch_id)
    assert view(world).own == newer
    assert newer.request == again
    assert view(world, replace(REQUEST, run_id="another")).own is None
    assert world.ledger.batch_of("orders", REQUEST) == newer
    assert world.ledger.batch_of("orders", replace(REQUEST, run_id="another")) is None
    assert world.ledger.batch_of("another", REQUEST) is None


def test_another_pipeline_cannot_serve_the_same_topic_into_the_same_table(world: LedgerWorld) -> None:
    first_plan(world)
    plan = replace(new_plan(offset_range(0, 0, 3), request=LATER, begins=(position(0, 0),)), pipeline="orders_copy")
    with pytest.raises(ConfigError, match=r"orders: pipeline orders\b"):
        world.ledger.record_plan(plan, view(world, LATER, pipeline="orders_copy"))
    assert view(world, LATER, pipeline="orders_copy").pipeline is None


def test_an_empty_plan_is_a_committed_batch_without_a_hold(world: LedgerWorld) -> None:
    plan = new_plan(begins=(position(0, 0),))
    batch = world.ledger.record_plan(plan, view(world))
    assert (batch.state, batch.counts, batch.ranges) == (BatchState.COMMITTED, RecordCounts(), ())
    assert batch.committed_at is not None
    assert world.ledger.hold(batch.batch_id) is None
    assert view(world, LATER).outstanding is None


def test_an_empty_plan_is_valid_through_the_minimum_over_all_partitions(world: LedgerWorld) -> None:
    early, late = NOON - timedelta(hours=2), NOON
    begins = (position(0, 0), replace(position(1, 0), valid_through=early))
    plan = new_plan(begins=begins, valid_through={TopicPartition("orders", 0): late})
    assert world.ledger.record_plan(plan, view(world)).valid_through == early


def test_an_empty_plan_is_valid_through_no_time_when_one_partition_is_unknown(world: LedgerWorld) -> None:
    plan = new_plan(begins=(position(0, 0), position(1, 0)), valid_through={TopicPartition("orders", 0): NOON})
    assert world.ledger.record_plan(plan, view(world)).valid_through is None
    assert [p.valid_through for p in view(world).positions] == [NOON, None]


def test_each_claim_is_the_next_and_renews_the_hold(world: LedgerWorld) -> None:
    batch = first_plan(world)
    assert [claimed(world, batch).claim, claimed(world, batch).claim] == [1, 2]
    hold = world.ledger.hold(batch.batch_id)
    assert hold is not None
    assert hold.step == "claim"
    assert hold.hold_until < view(world).now + timedelta(minutes=2)


def test_a_committed_batch_is_given_back_without_a_new_claim(world: LedgerWorld) -> None:
    committed = load(world, first_plan(world))
    assert claimed(world, committed) == committed
    assert (committed.state, committed.claim) == (BatchState.COMMITTED, 1)


@pytest.mark.parametrize("unknown", [UNKNOWN, "not-a-batch-id"])
def test_an_unknown_batch_cannot_be_claimed_settled_or_kept_alive(world: LedgerWorld, unknown: str) -> None:
    with pytest.raises(ConfigError, match="no such batch"):
        world.ledger.claim(unknown, 60)
    with pytest.raises(ConfigError, match="no such batch"):
        world.ledger.settle(unknown)
    with pytest.raises(ConfigError, match="no such batch"):
        world.ledger.heartbeat(unknown, 1, step="stage", progress=StageProgress(), hold_seconds=60)
    assert world.ledger.batch(unknown) is None
    assert world.ledger.hold(unknown) is None


def test_a_heartbeat_of_the_newest_claim_stores_progress_and_extends_the_hold(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    standing = world.ledger.heartbeat(
        batch.batch_id, 1, step="stage", progress=StageProgress(records=3, offsets=4), hold_seconds=3600
    )
    assert standing == BatchStanding(BatchState.PLANNED, 1)
    hold = world.ledger.hold(batch.batch_id)
    assert hold is not None
    assert (hold.step, hold.staged_records, hold.staged_offsets) == ("stage", 3, 4)
    assert hold.hold_until > view(world).now + timedelta(minutes=59)


def test_a_heartbeat_of_an_older_claim_changes_nothing_and_learns_the_newer(world: LedgerWorld) -> None:
    batch = first_plan(world)
    claimed(world, batch)
    claimed(world, batch)
    before = world.ledger.hold(batch.batch_id)
    standing = world.ledger.heartbeat(batch.batch_id, 1, step="stage", progress=StageProgress(9, 9), hold_seconds=3600)
    assert standing == BatchStanding(BatchState.PLANNED, 2)
    assert world.ledger.hold(batch.batch_id) == before


def test_settle_tells_the_standing(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world))
    assert world.ledger.settle(batch.batch_id) == BatchStanding(BatchState.PLANNED, 1)


def test_every_committed_batch_is_announced_once_and_again_by_its_announcer_only(world: LedgerWorld) -> None:
    orphan = load(world, first_plan(world))
    own = next_plan(world, request=LATER)
    assert [b.batch_id for b in world.ledger.unannounced("orders", LATER)] == [orphan.batch_id, own.batch_id]
    world.ledger.mark_announced([orphan.batch_id, own.batch_id], LATER)
    assert [b.batch_id for b in world.ledger.unannounced("orders", LATER)] == [orphan.batch_id, own.batch_id]
    third = Request("orders", "manual__3")
    assert world.ledger.unannounced("orders", third) == []
    # The orphan's own run, cleared later, still gets its own batch.
    assert [b.batch_id for b in world.ledger.unannounced("orders", REQUEST)] == [orphan.batch_id]


def test_the_first_announcer_stays(world: LedgerWorld) -> None:
    batch = load(world, first_plan(world))
    world.ledger.mark_announced([batch.batch_id], LATER)
    announced = stored(world, batch)
    world.ledger.mark_announced([batch.batch_id], REQUEST)
    assert stored(world, batch) == announced
    assert announced.announced_at is not None


def test_a_planned_batch_is_not_announced(world: LedgerWorld) -> None:
    batch = first_plan(world)
    world.ledger.mark_announced([batch.batch_id, str(uuid4())], REQUEST)
    assert world.ledger.batch(batch.batch_id) == batch
    assert world.ledger.unannounced("orders", REQUEST) == []


def test_invariants_hold_at_every_stage_of_a_batch(world: LedgerWorld) -> None:
    assert world.ledger.violations("orders") == []
    batch = first_plan(world)
    assert world.ledger.violations("orders") == []
    claimed(world, batch)
    assert world.ledger.violations("orders") == []
    load(world, batch)
    assert world.ledger.violations("orders") == []
    second = next_plan(world, replace(offset_range(0, 3, 6), leader_epoch=5))
    load(world, second)
    assert world.ledger.violations("orders") == []


def test_a_row_that_somebody_deleted_violates_an_invariant(world: LedgerWorld) -> None:
    load(world, first_plan(world, offset_range(0, 0, 3)))
    world.delete_row(1)
    (violation,) = world.ledger.violations("orders")
    assert violation.invariant == "target_rows"
    assert "rows_found 2" in violation.row


def test_dead_letters_of_a_batch_are_counted_by_reason_with_the_first_of_each(world: LedgerWorld) -> None:
    batch = claimed(world, first_plan(world, offset_range(0, 0, 6)))
    reasons = (None, "too_long", "malformed", "too_long", "malformed", "too_long")
    staged = [(t, a, replace(record, reason=r)) for (t, a, record), r in zip(all_rows(batch), reasons, strict=True)]
    world.stage(batch, staged)
    publish(world, batch, outcome_of(batch, dead_letters=5))
    assert world.ledger.dead_letter_groups(batch.batch_id) == [
        DeadLetterGroup("too_long", 3, TopicPartition("orders", 0), 1),
        DeadLetterGroup("malformed", 2, TopicPartition("orders", 0), 2),
    ]


def test_a_batch_without_dead_letters_has_no_reasons(world: LedgerWorld) -> None:
    assert world.ledger.dead_letter_groups(load(world, first_plan(world)).batch_id) == []
    assert world.ledger.dead_letter_groups("unheard of") == []


def test_a_plan_that_skips_lag_moves_the_position_before_its_ranges(world: LedgerWorld) -> None:
    load(world, first_plan(world, offset_range(0, 0, 3)))
    [before, other] = view(world).positions
    skipped = replace(offset_range(0, 50, 60), timeline=0)
    plan = choosing(new_plan(skipped, request=LATER), lagging=(skipping(before, 50),))
    batch = world.ledger.record_plan(plan, view(world, LATER))
    assert view(world).positions == (replace(before, committed_offset=50, loaded_to=50, leader_epoch=None), other)
    load(world, batch)
    assert view(world).positions[0].committed_offset == 60
    # The chain begins anew where the recorded change has put the position.
    assert world.ledger.violations("orders") == []


def test_a_plan_that_takes_over_topic_ids_records_them_before_what_it_skips(world: LedgerWorld) -> None:
    blind = [replace(position(number, 0), topic_id=None) for number in (0, 1)]
    read = [replace(offset_range(number, 0, 3), topic_id=None) for number in (0, 1)]
    first = new_plan(*read, begins=tuple(blind))
    load(world, world.ledger.record_plan(first, view(world)))
    before = view(world).positions
    known = [replace(position, topic_id=TOPIC_ID) for position in before]
    plan = choosing(
        new_plan(offset_range(0, 50, 60), offset_range(1, 3, 4), request=LATER),
        adopted=tuple(PositionMove(b, a) for b, a in zip(before, known, strict=True)),
        lagging=(skipping(known[0], 50),),
    )
    batch = world.ledger.record_plan(plan, view(world, LATER))
    places = [(p.committed_offset, p.topic_id, p.timeline) for p in view(world).positions]
    assert places == [(50, TOPIC_ID, 0), (3, TOPIC_ID, 0)]
    load(world, batch)
    assert [p.committed_offset for p in view(world).positions] == [60, 4]
    assert world.ledger.violations("orders") == []


def test_a_position_tells_which_partition_was_read_longest_ago(world: LedgerWorld) -> None:
    def by_age() -> list[int]:
        return [p.partition for p in sorted(view(world).positions, key=lambda p: (p.updated_at or NOON, p.partition))]

    load(world, first_plan(world, offset_range(0, 0, 3), offset_range(1, 0, 2)))
    world.let_time_pass()
    load(world, next_plan(world, offset_range(0, 3, 4)))
    assert by_age() == [1, 0]
    world.let_time_pass()
    later = Request("orders", "a later run")
    load(world, next_plan(world, offset_range(1, 2, 3), request=later))
    assert by_age() == [0, 1]


def test_a_hold_is_released_by_the_newest_claim_alone(world: LedgerWorld) -> None:
    batch = first_plan(world)

    def is_held() -> bool:
        seen = view(world, LATER)
        return seen.hold is not None and seen.hold.hold_until > seen.now

    first, second = claimed(world, batch), claimed(world, batch)
    for claim in (batch.claim, first.claim, second.claim + 1):
        world.ledger.release_hold(batch.batch_id, claim)
        assert is_held()
    world.ledger.release_hold(batch.batch_id, second.claim)
    assert not is_held()
    world.ledger.heartbeat(batch.batch_id, second.claim, step="stage", progress=StageProgress(), hold_seconds=60)
    assert is_held()
    world.ledger.release_hold(UNKNOWN, 0)


def test_the_hold_of_a_plan_that_nobody_claimed_is_released_by_the_claim_of_the_plan(world: LedgerWorld) -> None:
    batch = first_plan(world)
    world.ledger.release_hold(batch.batch_id, batch.claim)
    seen = view(world, LATER)
    assert seen.hold is not None
    assert seen.hold.hold_until <= seen.now

"""Plans and outcomes for the contract tests of ledger and publisher: pipeline orders, topic orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from kafka_ingest.protocol.batch import Batch, BatchKind, BatchOutcome, PartitionOutcome, RecordCounts, Request
from kafka_ingest.protocol.decisions import Lagging, NewPlan, PlanChoice
from kafka_ingest.protocol.ledger_view import PlanView, moved
from kafka_ingest.protocol.position import OffsetRange, Position, TopicPartition
from kafka_ingest.settings import FirstRun, FirstRunKind, HoldSettings
from tests.builders import CLUSTER, NOON, REQUEST, TOPIC_ID, batch_settings, offset_range, position
from tests.contracts.ledger_worlds import LedgerWorld, Staged
from tests.fakes.database import StoredRecord

TARGET = batch_settings().target
LATER = Request("orders", "scheduled__2026-01-02T13:00:00+00:00")


def view(world: LedgerWorld, request: Request = REQUEST, *, pipeline: str = "orders") -> PlanView:
    return world.ledger.plan_view(pipeline, request, TARGET)


def new_plan(
    *ranges: OffsetRange,
    request: Request = REQUEST,
    begins: tuple[Position, ...] = (),
    supersedes: str | None = None,
    valid_through: Mapping[TopicPartition, datetime] | None = None,
) -> NewPlan:
    """A plan of pipeline orders; ``begins`` are its new positions, whose topics it begins to serve."""
    return NewPlan(
        pipeline="orders",
        request=request,
        kind=BatchKind.LIVE,
        settings=batch_settings(),
        settings_hash="hash-1",
        first_run=FirstRun(FirstRunKind.EARLIEST),
        hold=HoldSettings(),
        cluster_id=CLUSTER,
        planned_at=NOON,
        choice=PlanChoice(
            ranges=ranges,
            new_topics=tuple(sorted({p.topic for p in begins})),
            new_positions=begins,
            valid_through=valid_through or {},
            faults=(),
            left_out=(),
            backlog_offsets=0,
        ),
        supersedes=supersedes,
    )


def choosing(plan: NewPlan, **chosen: Any) -> NewPlan:
    """The plan with these parts of its choice."""
    return replace(plan, choice=replace(plan.choice, **chosen))


def skipping(before: Position, to: int) -> Lagging:
    """A partition whose lag the plan gives up: its position goes forwards."""
    return Lagging(before.topic_partition, to - before.committed_offset, None, "max_lag_offsets 1", moved(before, to))


def first_plan(world: LedgerWorld, *ranges: OffsetRange) -> Batch:
    """Record the pipeline's first plan: partitions 0 and 1 begin at offset 0."""
    ranges = ranges or (offset_range(0, 0, 3), offset_range(1, 0, 2))
    plan = new_plan(*ranges, begins=(position(0, 0), position(1, 0)))
    return world.ledger.record_plan(plan, view(world))


def next_plan(
    world: LedgerWorld, *ranges: OffsetRange, request: Request = LATER, supersedes: str | None = None
) -> Batch:
    """Record a further plan; it supersedes only what it says."""
    return world.ledger.record_plan(new_plan(*ranges, request=request, supersedes=supersedes), view(world, request))


def claimed(world: LedgerWorld, batch: Batch) -> Batch:
    return world.ledger.claim(batch.batch_id, 60)


def stored(world: LedgerWorld, batch: Batch) -> Batch:
    """Read the batch as the ledger holds it."""
    found = world.ledger.batch(batch.batch_id)
    assert found is not None
    return found


def all_rows(batch: Batch, *dead_letters: int, task: int = 0, attempt: int = 7) -> list[Staged]:
    """Return every offset of the batch as a row of one task attempt, or where it is listed as a dead letter."""
    return [
        (task, attempt, StoredRecord(r.topic, r.generation, r.partition, offset, batch.batch_id, reason))
        for r in batch.ranges
        for offset in range(r.start, r.end)
        for reason in ["malformed" if r.partition == 0 and offset in dead_letters else None]
    ]


def staged(world: LedgerWorld, batch: Batch, *dead_letters: int) -> Batch:
    """Claim a batch and stage all of it: rows, and dead letters at the listed offsets of partition 0."""
    attempt = claimed(world, batch)
    world.stage(attempt, all_rows(attempt, *dead_letters))
    return attempt


def outcome_of(
    batch: Batch,
    *,
    winners: Mapping[int, int] | None = None,
    dead_letters: int = 0,
    valid_through: datetime | None = None,
) -> BatchOutcome:
    """All offsets are rows, except for N dead letters in the first range."""
    parts = []
    for number, planned in enumerate(batch.ranges):
        bad = dead_letters if number == 0 else 0
        counts = RecordCounts(rows=planned.span_offsets - bad, dead_letters=bad)
        parts.append(PartitionOutcome(planned, counts, NOON, NOON, 5, valid_through))
    return BatchOutcome(tuple(parts), {0: 7} if winners is None else winners)


def publish(world: LedgerWorld, batch: Batch, outcome: BatchOutcome) -> tuple[int, int, int]:
    """Run all statements of a publish; return positions moved, rows and dead letters inserted."""
    with world.publisher.begin(batch) as publication:
        publication.lock_batch()
        moved = publication.advance_positions(outcome)
        outcome = publication.replace(outcome, with_resolved=False).outcome_of(outcome)
        rows = publication.insert_rows(outcome)
        dead_letters = publication.insert_dead_letters(outcome)
        publication.record_outcome(outcome)
        publication.commit()
    return moved, rows, dead_letters


def load(world: LedgerWorld, batch: Batch, *dead_letters: int, valid_through: datetime | None = None) -> Batch:
    """Claim, stage and publish a batch; return it as the ledger holds it."""
    attempt = staged(world, batch, *dead_letters)
    publish(world, attempt, outcome_of(attempt, dead_letters=len(dead_letters), valid_through=valid_through))
    return stored(world, batch)


def position_after(committed: int, *, partition: int, epoch: int | None = 5) -> Position:
    return Position("orders", partition, 0, TOPIC_ID, CLUSTER, committed, committed, leader_epoch=epoch)

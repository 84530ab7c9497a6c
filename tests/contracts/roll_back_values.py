"""Batches to roll back, for the contract, integration and crash tests: pipeline orders, topic orders."""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest.protocol.batch import Batch, Request
from kafka_ingest.protocol.position import OffsetRange
from kafka_ingest.protocol.roll_back import (
    RollBackPlan,
    RollBackPorts,
    RollBackRecord,
    RollBackRequest,
    preview_roll_back,
    roll_back,
)
from tests.builders import CLUSTER, TOPIC_ID, offset_range
from tests.contracts.ledger_values import first_plan, load, next_plan, stored
from tests.contracts.ledger_worlds import LedgerWorld
from tests.fakes.log import FakeLog


def orders_log() -> FakeLog:
    """Topic orders with 100 records in each of its two partitions."""
    log = FakeLog(CLUSTER)
    log.create_topic("orders", 2)
    log.topics["orders"].topic_id = TOPIC_ID
    for partition in (0, 1):
        log.append("orders", *[b"x"] * 100, partition=partition)
    return log


def asked(batches: int = 1, request_id: str = "undo", **flags: bool) -> RollBackRequest:
    return RollBackRequest(request_id, "orders", batches, "operator", "wrong data", **flags)


def undo(
    world: LedgerWorld, batches: int = 1, request_id: str = "undo", *, log: FakeLog | None = None, **flags: bool
) -> RollBackRecord:
    """Roll back."""
    return roll_back(asked(batches, request_id, **flags), RollBackPorts(world.roll_backs, log or orders_log()))


def previewed(world: LedgerWorld) -> RollBackPlan:
    """Return what rolling back one batch would do."""
    return preview_roll_back(asked(), RollBackPorts(world.roll_backs, orders_log()))


def loaded(world: LedgerWorld, *ranges: OffsetRange, run: str) -> Batch:
    """Load ranges of a later plan as rows."""
    return load(world, next_plan(world, *ranges, request=Request("orders", run)))


def two_batches(world: LedgerWorld) -> tuple[Batch, Batch]:
    """Load offsets 0 to 2 and 0 to 1 of the partitions; then 3 to 5 of partition 0, of which 3 is a dead letter."""
    return load(world, first_plan(world)), load(world, next_plan(world, range_at(3, 6)), 3)


def range_at(start: int, end: int, *, timeline: int = 0) -> OffsetRange:
    """Return a range of partition 0 that continues the position, with the epoch that the tests' batches end with."""
    return replace(offset_range(0, start, end), timeline=timeline, leader_epoch=5)


def states(world: LedgerWorld, *batches: Batch) -> list[str]:
    return [stored(world, batch).state.value for batch in batches]


def offsets(world: LedgerWorld) -> list[tuple[int, int]]:
    return [(row.partition, row.offset) for row in world.rows()]

"""Batches to roll back, for the contract, integration and crash tests: pipeline orders, topic orders."""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest.protocol.batch import Batch, Request
from kafka_ingest.protocol.position import OffsetRange
from kafka_ingest.protocol.roll_back import RollBackRequest
from tests.builders import CLUSTER, TOPIC_ID, offset_range
from tests.contracts.ledger_values import all_rows, claimed, dead, first_plan, load, next_plan, outcome_of, publish
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


def loaded(world: LedgerWorld, *ranges: OffsetRange, run: str) -> Batch:
    """Loads ranges of a later plan as rows."""
    return load(world, next_plan(world, *ranges, request=Request("orders", run)))


def two_batches(world: LedgerWorld) -> tuple[Batch, Batch]:
    """Offsets 0 to 2 and 0 to 1 of the partitions; then 3 to 5 of partition 0, of which 3 is a dead letter."""
    first = load(world, first_plan(world))
    second = claimed(world, next_plan(world, range_at(3, 6)))
    staged = all_rows(second)
    staged[0] = (0, 7, dead(staged[0][2]))
    world.stage(second, staged)
    publish(world, second, outcome_of(second, dead_letters=1))
    return first, second


def range_at(start: int, end: int, *, timeline: int = 0) -> OffsetRange:
    """A range of partition 0 that continues the position, read with the epoch that the tests' batches end with."""
    return replace(offset_range(0, start, end), timeline=timeline, leader_epoch=5)


def states(world: LedgerWorld, *batches: Batch) -> list[str]:
    found = [world.ledger.batch(batch.batch_id) for batch in batches]
    return [batch.state.value for batch in found if batch]


def offsets(world: LedgerWorld) -> list[tuple[int, int]]:
    return [(row.partition, row.offset) for row in world.rows()]

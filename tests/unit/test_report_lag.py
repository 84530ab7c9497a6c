"""Lag, headroom and what an open transaction holds back, from one view of the ledger and one snapshot of the log."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from kafka_ingest.protocol.ledger_view import PlanView
from kafka_ingest.protocol.log import LogSnapshot, PartitionState, observe
from kafka_ingest.protocol.ports import Clock, Ledger, Log
from kafka_ingest.report import LagPorts, PartitionLag, report_lag
from kafka_ingest.settings import IsolationLevel, TopicSelection
from tests.builders import EMPTY_VIEW, NOON, partition_state, pipeline_settings, position, snapshot, view_of

SETTINGS = pipeline_settings("orders")


class Seen:
    """A ledger, a log and a clock that always answer the same."""

    def __init__(self, view: PlanView, log: LogSnapshot) -> None:
        self._view, self._log = view, log

    def plan_view(self, *_: Any) -> PlanView:
        return self._view

    def snapshot(self, topics: TopicSelection, isolation_level: IsolationLevel) -> LogSnapshot:
        assert (topics, isolation_level) == (SETTINGS.plan.topics, SETTINGS.batch.isolation_level)
        return self._log

    def now(self) -> Any:
        return NOON


def lag(view: PlanView, *partitions: PartitionState) -> list[PartitionLag]:
    seen = Seen(view, snapshot({"orders": list(partitions)} if partitions else {}))
    ports = LagPorts(cast(Ledger, seen), cast(Log, seen), cast(Clock, seen))
    return list(report_lag(SETTINGS, ports))


def test_offsets_that_wait_are_end_offset_minus_committed_offset() -> None:
    minutes_ago = replace(position(0, 40), valid_through=NOON - timedelta(minutes=5))
    assert lag(view_of(minutes_ago), partition_state(0, log_start=10, high_watermark=100, end=90)) == [
        PartitionLag(
            topic="orders",
            partition=0,
            committed_offset=40,
            end_offset=90,
            lag_offsets=50,
            lag_seconds=300.0,
            headroom_offsets=30,
            headroom_seconds=None,
            open_transaction_offsets=10,
        )
    ]


def test_headroom_in_time_is_at_the_rate_that_plans_observed() -> None:
    # The log start moved from 0 to 7,200 in two hours: one offset a second; it now stands 300 below the position.
    [first] = observe(snapshot({"orders": [partition_state(0, 0, 10_000)]}), ())
    later = replace(snapshot({"orders": [partition_state(0, 7_200, 10_000)]}), taken_at=NOON + timedelta(hours=2))
    view = replace(view_of(position(0, 8_000)), observations=observe(later, (first,)))
    [found] = lag(view, partition_state(0, log_start=7_700, high_watermark=10_000))
    assert (found.headroom_offsets, found.headroom_seconds) == (300, 300.0)


def test_nothing_waits_when_the_position_is_at_or_above_the_end() -> None:
    found = lag(
        view_of(position(0, 100), position(1, 100)), partition_state(0, 0, 100), partition_state(1, 0, 120, end=95)
    )
    assert [(p.lag_offsets, p.lag_seconds) for p in found] == [(0, 0.0), (0, 0.0)]


def test_a_position_below_the_log_start_has_negative_headroom() -> None:
    [found] = lag(view_of(position(0, 5)), partition_state(0, log_start=8, high_watermark=10))
    assert (found.headroom_offsets, found.lag_offsets, found.lag_seconds) == (-3, 5, None)


def test_before_the_first_plan_there_is_a_log_and_no_position() -> None:
    [found] = lag(EMPTY_VIEW, partition_state(0, 0, 10))
    assert (found.committed_offset, found.end_offset, found.lag_offsets) == (None, 10, None)


def test_partitions_that_only_one_side_knows_are_told() -> None:
    found = lag(view_of(position(1, 7)), PartitionState(0, has_leader=False))
    assert [(p.partition, p.committed_offset, p.lag_offsets, p.fault) for p in found] == [
        (0, None, None, "no leader"),
        (1, 7, None, "Kafka does not list this partition"),
    ]


def test_partitions_of_a_retired_topic_are_not_reported() -> None:
    view = view_of(position(0, 40))
    view = replace(view, served=tuple(replace(served, is_retired=True) for served in view.served))
    assert lag(view, partition_state(0, 10, 100)) == []

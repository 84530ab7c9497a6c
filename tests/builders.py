"""Values for tests of decisions: small, complete, and changed where a test is about something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from kafka_ingest.protocol.batch import Batch, BatchKind, BatchState, Hold, Request
from kafka_ingest.protocol.ledger_view import PipelineRecord, PlanView, ServedTopic
from kafka_ingest.protocol.log import LogSnapshot, PartitionState, TopicState
from kafka_ingest.protocol.position import OffsetRange, Position
from kafka_ingest.settings import (
    PROTOCOL_VERSION,
    BatchSettings,
    ColumnSettings,
    DeadLetterLimits,
    FirstRun,
    FirstRunKind,
    HoldSettings,
    IsolationLevel,
    JobSettings,
    MetadataColumns,
    PipelineSettings,
    PlanSettings,
    ScheduleSettings,
    TargetSettings,
    Tombstones,
    TopicIdentity,
    TopicSelection,
    ValueFormat,
    ValueSettings,
)

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
CLUSTER = "cluster-1"
TOPIC_ID = "topic-id-1"
REQUEST = Request("orders", "scheduled__2026-01-02T12:00:00+00:00")


def batch_settings() -> BatchSettings:
    return BatchSettings(
        kafka_connection="kafka_default",
        target_connection="postgres_default",
        isolation_level=IsolationLevel.READ_COMMITTED,
        topic_identity=TopicIdentity.TOPIC_ID,
        value=ValueSettings(ValueFormat.RAW, (ColumnSettings("payload", "bytea"),)),
        key=None,
        headers_column=None,
        tombstones=Tombstones.ROW,
        metadata=MetadataColumns(),
        target=TargetSettings("shop", "orders", create_table=True),
        dead_letters=DeadLetterLimits(),
    )


def pipeline_settings(
    *topics: str, first_run: FirstRun | None = None, batch: BatchSettings | None = None
) -> PipelineSettings:
    return PipelineSettings(
        pipeline="orders",
        batch=batch or batch_settings(),
        plan=PlanSettings(
            topics=TopicSelection(names=topics or ("orders",)),
            first_run=first_run or FirstRun(FirstRunKind.EARLIEST),
            hold=HoldSettings(),
        ),
        job=JobSettings(),
        schedule=ScheduleSettings(schedule="@hourly"),
    )


def partition_state(number: int, log_start: int, high_watermark: int, end: int | None = None) -> PartitionState:
    return PartitionState(number, True, log_start, high_watermark, end_offset=high_watermark if end is None else end)


def snapshot(
    topics: Mapping[str, list[PartitionState]], *, cluster_id: str = CLUSTER, topic_id: str | None = TOPIC_ID
) -> LogSnapshot:
    return LogSnapshot(
        cluster_id,
        {name: TopicState(name, topic_id, {p.partition: p for p in states}) for name, states in topics.items()},
        taken_at=NOON,
    )


def position(partition: int, committed: int, *, topic: str = "orders") -> Position:
    return Position(topic, partition, 0, TOPIC_ID, CLUSTER, committed_offset=committed, loaded_to=committed)


def view_of(*positions: Position) -> PlanView:
    """A ledger after the first plan, free, with these positions."""
    return PlanView(
        now=NOON,
        pipeline=PipelineRecord(
            "orders",
            "shop",
            "orders",
            CLUSTER,
            IsolationLevel.READ_COMMITTED,
            FirstRun(FirstRunKind.EARLIEST),
            batch_settings().metadata.identity,
        ),
        positions=positions,
        served=tuple(ServedTopic("orders", CLUSTER, topic) for topic in sorted({p.topic for p in positions})),
        outstanding=None,
        hold=None,
        own=None,
    )


EMPTY_VIEW = PlanView(NOON, None, (), (), None, None, None)


def offset_range(partition: int, start: int, end: int, *, reaches_high_watermark: bool = False) -> OffsetRange:
    return OffsetRange(
        "orders", partition, 0, TOPIC_ID, 0, start, end, start, start, reaches_high_watermark=reaches_high_watermark
    )


def planned_batch(*ranges: OffsetRange, request: Request = REQUEST, state: BatchState = BatchState.PLANNED) -> Batch:
    return Batch(
        batch_id="6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10",
        pipeline="orders",
        request=request,
        kind=BatchKind.LIVE,
        state=state,
        claim=1,
        settings=batch_settings(),
        settings_hash="hash-1",
        protocol_version=PROTOCOL_VERSION,
        cluster_id=CLUSTER,
        ranges=ranges,
        planned_at=NOON,
    )


def held(view: PlanView, by: Batch, *, until_seconds: float) -> PlanView:
    """The same ledger with an outstanding batch whose hold ends so many seconds from the view's now."""
    hold = Hold(by.batch_id, by.request, view.now + timedelta(seconds=until_seconds), "stage", 10, 20, 40)
    return replace(view, outstanding=by, hold=hold)

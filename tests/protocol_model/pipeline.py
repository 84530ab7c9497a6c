"""The pipeline of the model."""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest.settings import (
    ColumnSettings,
    DeadLetterLimits,
    FirstRun,
    FirstRunKind,
    NewFields,
    OffsetLimit,
    PartitionFaultPolicy,
    PipelineSettings,
    Tombstones,
    TopicSelection,
    ValueFormat,
    ValueSettings,
)
from tests.builders import batch_settings, pipeline_settings


def model_settings(
    first_run: FirstRunKind = FirstRunKind.EARLIEST,
    *,
    total_offsets: int = 100,
    policy: PartitionFaultPolicy = PartitionFaultPolicy.STOP,
    tombstones: Tombstones = Tombstones.ROW,
) -> PipelineSettings:
    """Return a pipeline that any number of dead letters does not stop, over the topics orders and returns.

    It adds columns for new fields.
    """
    unlimited = DeadLetterLimits(max_ratio=1.0)
    payload = ColumnSettings("payload", "bytea", ("payload",))
    value = ValueSettings(ValueFormat.JSON_COLUMNS, (payload,), new_fields=NewFields.ADD_COLUMN)
    batch = replace(batch_settings(), value=value, dead_letters=unlimited, tombstones=tombstones)
    settings = pipeline_settings(batch=batch)
    plan = replace(
        settings.plan,
        topics=TopicSelection(pattern="orders|returns"),
        first_run=FirstRun(first_run),
        limit=OffsetLimit(total_offsets),
        on_partition_fault=policy,
    )
    return replace(settings, plan=plan)

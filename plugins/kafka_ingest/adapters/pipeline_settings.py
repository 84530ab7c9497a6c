"""From the model of a pipeline file to the settings that the steps use."""

from __future__ import annotations

from kafka_ingest.adapters.pipeline_model import PipelineFile
from kafka_ingest.adapters.pipeline_sections import (
    FirstRunSection,
    KeySection,
    LagPolicySection,
    TargetSection,
    ValueSection,
)
from kafka_ingest.core import settings as core
from kafka_ingest.core.lag_settings import LagAction, LagPolicy
from kafka_ingest.core.schedule_settings import RunEnd, ScheduleSettings


def to_settings(file: PipelineFile) -> core.PipelineSettings:
    """Gives the settings of a file that has no faults."""
    return core.PipelineSettings(
        pipeline=file.pipeline,
        batch=_batch(file),
        plan=_plan(file),
        job=_job(file),
        schedule=_schedule(file),
        watch=core.WatchSettings(**file.alerts.model_dump(), mirror_group=file.mirror_group),
    )


def _batch(file: PipelineFile) -> core.BatchSettings:
    return core.BatchSettings(
        kafka_connection=file.kafka.connection,
        target_connection=file.target.connection,
        isolation_level=core.IsolationLevel(file.kafka.isolation_level),
        topic_identity=core.TopicIdentity(file.kafka.topic_identity),
        value=_value(file.value),
        key=_key(file.key),
        headers_column=file.headers.column if file.headers else None,
        tombstones=core.Tombstones(file.tombstones or "row"),
        metadata=core.MetadataColumns(**file.metadata_columns.model_dump()),
        target=_target(file.target),
        dead_letters=core.DeadLetterLimits(**file.dead_letters.model_dump()),
    )


def _key(key: KeySection | None) -> core.KeySettings | None:
    return core.KeySettings(core.KeyFormat(key.format), key.column, key.required) if key else None


_SINGLE_COLUMN_TYPES = {"json": "jsonb", "raw": "bytea", "text": "text"}


def _value(value: ValueSection) -> core.ValueSettings:
    if value.columns is None:
        column = core.ColumnSettings(value.column or "", _SINGLE_COLUMN_TYPES[value.format], required=value.required)
        return core.ValueSettings(core.ValueFormat(value.format), (column,))
    columns = tuple(
        core.ColumnSettings(c.name, c.type, (c.name,) if c.path is None else c.path, c.required) for c in value.columns
    )
    return core.ValueSettings(core.ValueFormat.JSON_COLUMNS, columns)


def _target(target: TargetSection) -> core.TargetSettings:
    schema, _, table = target.table.partition(".")
    return core.TargetSettings(schema, table, create_table=target.create_table, unique_key=target.unique_key)


def _plan(file: PipelineFile) -> core.PlanSettings:
    return core.PlanSettings(
        topics=core.TopicSelection(names=tuple(file.kafka.topics or ()), pattern=file.kafka.pattern),
        first_run=_first_run(file.first_run),
        limit=core.OffsetLimit(file.limit.offsets_per_run, file.limit.offsets_per_partition),
        on_partition_fault=core.PartitionFaultPolicy(file.on_partition_fault),
        hold=core.HoldSettings(**file.hold.model_dump()),
        lag_policy=_lag_policy(file.lag_policy),
    )


def _lag_policy(policy: LagPolicySection | None) -> LagPolicy | None:
    if policy is None:
        return None
    return LagPolicy(**{**policy.model_dump(), "action": LagAction(policy.action)})


def _first_run(place: str | FirstRunSection) -> core.FirstRun:
    if isinstance(place, str):
        return core.FirstRun(core.FirstRunKind(place))
    if place.offsets is None:
        return core.FirstRun(core.FirstRunKind.TIMESTAMP, timestamp_ms=place.timestamp)
    offsets = tuple(
        core.PartitionOffset(topic, partition, offset)
        for topic, partitions in sorted(place.offsets.items())
        for partition, offset in sorted(partitions.items())
    )
    return core.FirstRun(core.FirstRunKind.OFFSETS, offsets=offsets)


def _job(file: PipelineFile) -> core.JobSettings:
    spark = file.spark.model_dump(exclude={"connection", "conf"})
    return core.JobSettings(
        spark_connection=file.spark.connection, conf=tuple(sorted(file.spark.conf.items())), **spark
    )


def _schedule(file: PipelineFile) -> ScheduleSettings:
    airflow = file.airflow.model_dump(exclude={"tags"})
    return ScheduleSettings(
        schedule=file.schedule,
        timezone=file.timezone,
        start_date=file.start_date,
        end=RunEnd(file.end),
        catchup=file.catchup,
        follow_up=file.follow_up,
        tags=tuple(file.airflow.tags),
        description=file.description,
        **airflow,
    )

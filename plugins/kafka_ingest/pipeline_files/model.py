"""The whole pipeline file, and the settings that come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from pydantic import Discriminator, Field
from pydantic import Tag as Branch

from kafka_ingest import settings as core
from kafka_ingest.pipeline_files import kinds, sections
from kafka_ingest.settings import JobSettings, ScheduleSettings, WatchSettings

# ----------
# The model of a pipeline file: its top-level keys, and the sections about how and when it runs.
#
# Each key is checked by itself; what keys say about each other is in ``rules.py``. The reference page
# ``docs/configuration.md`` and the schema for editors are generated from here, so the descriptions are their prose.

# The defaults have one home, the settings that the steps use.
_JOB, _SCHEDULE, _WATCH = JobSettings(), ScheduleSettings(schedule=None), WatchSettings()


class SparkSection(sections.Section):
    """How the Spark job runs."""

    connection: kinds.ConnectionId = Field(
        default=_JOB.spark_connection,
        description="Airflow connection of type `spark`: `local[*]`, `spark://host:port`, `yarn` or `k8s://https://host:port`.",
    )
    conf: dict[kinds.SparkKey, kinds.SparkValue] = Field(
        default_factory=dict,
        description="Spark properties. They stand on the command line, so secrets are refused.",
        examples=[{"spark.network.timeout": "300s"}],
    )
    driver_memory: kinds.Memory = Field(default=_JOB.driver_memory, description="Heap of the driver.")
    executor_memory: kinds.Memory = Field(default=_JOB.executor_memory, description="Heap of each executor.")
    executor_cores: kinds.PositiveCount | None = Field(
        default=_JOB.executor_cores, description="Cores of each executor; `null` leaves it to the cluster."
    )
    tasks: kinds.PositiveCount | None = Field(
        default=_JOB.tasks,
        description="Greatest number of parallel readers, each with one Kafka consumer and one database connection; "
        "`null`: Spark's default parallelism.",
    )
    no_progress_timeout_seconds: kinds.Seconds = Field(
        default=_JOB.no_progress_timeout_seconds,
        description="After this long without a record or a moving position the broker counts as unavailable.",
    )
    in_process_below_offsets: kinds.PositiveCount | None = Field(
        default=_JOB.in_process_below_offsets,
        description="A batch of fewer offsets is loaded in the task's own process: no Spark is started for it. The "
        "worker then needs the packages of an executor; `null`: every batch is loaded by Spark. For example `50000`.",
    )


class AirflowSection(sections.Section):
    """What Airflow shows and how it retries."""

    owner: kinds.Tag = Field(default=_SCHEDULE.owner, description="Owner of the tasks.")
    tags: list[kinds.Tag] = Field(default_factory=list, description="Tags of the DAG.", examples=[["shop"]])
    retries: kinds.Count = Field(
        default=_SCHEDULE.retries, description="Retries of each task. Faults that no retry can mend do not use them up."
    )
    retry_delay_seconds: kinds.Count = Field(
        default=_SCHEDULE.retry_delay_seconds, description="Seconds between two tries."
    )
    execution_timeout_seconds: kinds.Seconds = Field(
        default=_SCHEDULE.execution_timeout_seconds, description="A task that runs longer is stopped, and retried."
    )
    busy_timeout_seconds: kinds.Seconds = Field(
        default=_SCHEDULE.busy_timeout_seconds,
        description="How long a task waits for a pipeline that another run holds before it fails and names the holder. "
        "Waiting uses up no retry and no worker.",
    )


class PipelineFile(sections.Section):
    """One pipeline: what is read from Kafka, which columns it becomes, and where and when it goes."""

    pipeline: kinds.PipelineName = Field(
        description="Name of the pipeline and of its DAG, unique over all files. The ledger knows the pipeline by it: "
        "a renamed pipeline is a new one."
    )
    description: str = Field(default=_SCHEDULE.description, description="A sentence for the people who see the DAG.")
    schedule: kinds.Schedule | None = Field(
        description="When it runs: a cron expression of five fields, `@hourly`, `@daily`, `@weekly`, `@monthly`, "
        "`@quarterly` or `@yearly`; `null`: only when triggered.",
        examples=["@hourly", "*/15 * * * *"],
    )
    timezone: kinds.TimezoneName = Field(
        default=_SCHEDULE.timezone, description="Time zone of the schedule and the start date."
    )
    start_date: kinds.DateText = Field(
        default=_SCHEDULE.start_date, description="No scheduled run before this day. See `catchup`."
    )
    end: Literal["head", "interval"] = Field(
        default="head",
        description="Up to where a run reads that is no reload. `head`: all that may be read when it plans. "
        "`interval`: in each partition up to the first record whose time is at or after the end of the run's data "
        "interval; needs a `schedule`. A run without a data interval uses the last interval that had ended before it.",
    )
    catchup: bool = Field(
        default=_SCHEDULE.catchup,
        description="Whether Airflow makes up for every missed interval since `start_date`, one run each, in order. "
        "Only with `end: interval`, since under `head` the first of them would read everything, and with a "
        "`start_date` of your own. Off by default, also with `interval`: switching a DAG on must not start thousands "
        "of runs, and without it the next run loads the same records, up to the end of its own interval.",
    )
    follow_up: bool = Field(
        default=_SCHEDULE.follow_up,
        description="Whether a run that read as much as `limit` allows starts the next one at once, so that a backlog "
        "does not wait for the schedule. Runs with a limit of their own, reloads and backfills start none.",
    )
    kafka: sections.KafkaSection = Field(description="What is read.")
    first_run: Annotated[
        Annotated[kinds.FirstRunWord, Branch("<word>")] | Annotated[sections.FirstRunSection, Branch("<section>")],
        Discriminator(sections.branch_of),
    ] = Field(
        description="Where a pipeline without a position begins: `earliest` (all that the log holds), `latest` (only "
        "what comes after the first plan), a time, or offsets. It has no default, since a wrong one loses or repeats "
        "records. It is stored with the first plan; a topic or partition that joins later is read from its log start.",
        examples=["earliest", {"timestamp": "2026-01-01T00:00:00Z"}, {"offsets": {"orders": {0: 100, 1: 5}}}],
    )
    limit: sections.LimitSection = Field(default_factory=sections.LimitSection, description="How much one run reads.")
    value: sections.ValueSection = Field(description="How the value of a record becomes columns.")
    key: sections.KeySection | None = Field(default=None, description="How the key becomes a column.")
    headers: sections.HeadersSection | None = Field(default=None, description="Where the headers go.")
    tombstones: Literal["row", "dead_letter", "count"] | None = Field(
        default=None,
        description="What becomes of a record whose value is null: `row` stores it with NULL in the columns of the "
        "value, `dead_letter` keeps it aside, `count` only counts it. `null`: `row` if every column of the value "
        "allows NULL, else the key is required.",
    )
    target: sections.TargetSection = Field(description="Where the rows go.")
    metadata_columns: sections.MetadataSection = Field(
        default_factory=sections.MetadataSection, description="Names of the columns that say where a row came from."
    )
    dead_letters: sections.DeadLettersSection = Field(
        default_factory=sections.DeadLettersSection,
        description="When a batch stops instead of making more dead letters.",
    )
    on_partition_fault: Literal["stop", "leave_out"] = Field(
        default="stop",
        description="Whether a partition whose offsets expired or that has no leader stops the others. `leave_out`: "
        "the others are loaded, and the run ends red.",
    )
    lag_policy: sections.LagPolicySection | None = Field(
        default=None, description="What a run does about a partition that has fallen far behind; `null`: nothing."
    )
    hold: sections.HoldSection = Field(
        default_factory=sections.HoldSection, description="How long a silent run holds the pipeline."
    )
    alerts: sections.AlertsSection = Field(
        default_factory=sections.AlertsSection,
        description="When a plan warns or stops because of what it sees in the log.",
    )
    mirror_group: bool = Field(
        default=_WATCH.mirror_group,
        description="Whether each run copies the committed offsets to the Kafka consumer group "
        "`kafka_ingest.<pipeline>`, so that lag tools show the pipeline. The copy is never read back, and a failure to "
        "copy is a warning. The connection's user needs READ on the group.",
    )
    spark: SparkSection = Field(default_factory=SparkSection, description="How the Spark job runs.")
    airflow: AirflowSection = Field(
        default_factory=AirflowSection, description="What Airflow shows and how it retries."
    )


# ----------
# From the model of a pipeline file to the settings that the steps use.
#
# A key reaches the field of its name. What has another name or form is said in ``_batch``, ``_plan`` and below.

_Settings = TypeVar("_Settings")


def to_settings(file: PipelineFile) -> core.PipelineSettings:
    """Return the settings of a file that has no faults."""
    conf = tuple(sorted(file.spark.conf.items()))
    return core.PipelineSettings(
        pipeline=file.pipeline,
        batch=_batch(file),
        plan=_plan(file),
        job=_settings_of(JobSettings, file.spark, spark_connection=file.spark.connection, conf=conf),
        schedule=_settings_of(ScheduleSettings, file, file.airflow),
        watch=_settings_of(WatchSettings, file, file.alerts),
    )


def _settings_of(kind: Callable[..., _Settings], *parts: sections.Section, **others: object) -> _Settings:
    """Return settings whose fields are the keys of these sections, but for ``others``, whose name or form differs.

    A field that no section has, or that two have, is a fault of this module: it is found with the first file.
    """
    values: dict[str, Any] = {}
    for name, wanted in _fields(kind).items():
        if name not in others:
            (value,) = (vars(section)[name] for section in parts if name in vars(section))
            values[name] = _value_of(wanted, value)
    return kind(**values, **others)


@cache
def _fields(kind: Callable[..., object]) -> Mapping[str, Any]:
    """Return the type of each field; of one that may be ``None``, the type of its other values."""
    hints = get_type_hints(kind)
    return {
        name: next(part for part in (*get_args(hint), hint) if part is not NoneType) for name, hint in hints.items()
    }


def _value_of(wanted: Any, value: object) -> object:
    """Return a key's value as its field holds it: a word as its enum, a list as a tuple, a section as settings."""
    if isinstance(value, sections.Section):
        return _settings_of(wanted, value)
    if isinstance(value, list):
        return tuple(value)
    return wanted(value) if isinstance(value, str) and issubclass(wanted, StrEnum) else value


def _batch(file: PipelineFile) -> core.BatchSettings:
    schema, _, table = file.target.table.partition(".")
    batch = _settings_of(
        core.BatchSettings,
        file,
        file.kafka,
        kafka_connection=file.kafka.connection,
        target_connection=file.target.connection,
        value=_value(file.value),
        headers_column=file.headers.column if file.headers else None,
        registry_connection=file.kafka.registry,
        tombstones=core.Tombstones(file.tombstones or "row"),
        upsert=_upsert(file) if file.target.mode == "upsert" else None,
        history=_history(file.target),
        metadata=_settings_of(core.MetadataColumns, file.metadata_columns),
        target=_settings_of(core.TargetSettings, file.target, schema=schema, table=table),
    )
    return _with_required(batch) if batch.upsert else batch


def _history(target: sections.TargetSection) -> core.TargetSettings | None:
    if target.history is None:
        return None
    schema, _, table = target.history.partition(".")
    return core.TargetSettings(schema, table, create_table=target.create_table)


def _with_required(batch: core.BatchSettings) -> core.BatchSettings:
    """Require a value in every column without which a record has no place in the current state."""
    never_null, value, key = batch.never_null, batch.value, batch.key
    columns = (replace(c, required=c.required or c.name in never_null) for c in value.columns)
    if key and key.column in never_null:
        key = replace(key, required=True)
    return replace(batch, value=replace(value, columns=tuple(columns)), key=key)


def _upsert(file: PipelineFile) -> core.UpsertSettings:
    target = file.target
    order_column = target.order.column if isinstance(target.order, sections.OrderSection) else None
    deletes, when = core.Deletes(target.deletes or ""), target.delete_when
    return core.UpsertSettings(
        key=tuple(target.key or ()),
        order=core.OrderBy.COLUMN if order_column else core.OrderBy(str(target.order)),
        deletes=deletes,
        order_column=order_column,
        delete_when=core.DeleteWhen(when.path, when.equals) if when else None,
        deleted_at=(target.deleted_at or "deleted_at") if deletes is core.Deletes.MARK else None,
        envelope=_envelope(file),
    )


def _envelope(file: PipelineFile) -> core.EnvelopeSettings | None:
    value = file.value
    if value.envelope is None:
        return None
    return core.EnvelopeSettings(
        core.Envelope(value.envelope),
        core.Truncate(file.target.truncate or ""),
        value.unavailable_placeholder or core.UNAVAILABLE_PLACEHOLDER,
        sections.below_payload("value", value.with_schema),
        core.Unavailable(value.unavailable or core.Unavailable.DEAD_LETTER),
    )


_SINGLE_COLUMN_TYPES = {"json": "jsonb", "raw": "bytea", "text": "text"}


def _value(value: sections.ValueSection) -> core.ValueSettings:
    if value.columns is None:
        column = core.ColumnSettings(value.column or "", _SINGLE_COLUMN_TYPES[value.format], required=value.required)
        return core.ValueSettings(core.ValueFormat(value.format), (column,))
    kind = core.ValueFormat.JSON_COLUMNS if value.format == "json" else core.ValueFormat(value.format)
    new_fields = core.NewFields(value.new_fields or core.NewFields.IGNORE)
    columns = tuple(_column(column, value) for column in value.columns)
    return core.ValueSettings(kind, columns, value.subject, new_fields)


def _column(column: sections.ColumnSection, value: sections.ValueSection) -> core.ColumnSettings:
    path, *others = column.path or ((column.name,) if column.header is None else (),)
    if column.header is None and value.envelope:
        way = sections.way_in_event(column.from_, value.with_schema)
        path, others = (*way, *path), [(*way, *other) for other in others]
    conversion = core.Conversion(column.as_) if column.as_ else None
    return _settings_of(
        core.ColumnSettings,
        column,
        path=path,
        other_paths=tuple(others),
        conversion=conversion,
        from_key=column.from_ == "key",
        rounding=core.Rounding(column.round_) if column.round_ else None,
    )


def _plan(file: PipelineFile) -> core.PlanSettings:
    return _settings_of(
        core.PlanSettings,
        file,
        file.kafka,
        topics=core.TopicSelection(names=tuple(file.kafka.topics or ()), pattern=file.kafka.pattern),
        first_run=_first_run(file.first_run),
        limit=core.OffsetLimit(file.limit.offsets_per_run, file.limit.offsets_per_partition),
    )


def _first_run(place: str | sections.FirstRunSection) -> core.FirstRun:
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

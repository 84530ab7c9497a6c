"""The sections of a pipeline file that decide what is read, decoded and written: kind, default and meaning of each key.

The descriptions are the prose of ``docs/configuration.md`` and of the schema for editors.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from kafka_ingest.adapters.pipeline_fields import (
    ColumnName,
    ColumnTypeText,
    ConnectionId,
    Count,
    JsonPath,
    Offset,
    PartitionNumber,
    PositiveCount,
    RecordTimeMs,
    Seconds,
    TableName,
    TopicName,
    TopicPattern,
)
from kafka_ingest.core.settings import (
    DeadLetterLimits,
    HoldSettings,
    MetadataColumns,
    OffsetLimit,
    WatchSettings,
)

# The defaults have one home, the settings that the steps use.
_DEAD_LETTERS, _HOLD, _LIMIT, _METADATA = DeadLetterLimits(), HoldSettings(), OffsetLimit(), MetadataColumns()
_WATCH = WatchSettings()


class Section(BaseModel):
    """A mapping of the file: unknown keys are faults, and no value is turned into another kind."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class KafkaSection(Section):
    """What is read."""

    connection: ConnectionId = Field(
        default="kafka_default",
        description="Airflow connection of type `kafka`, with librdkafka settings in its extra. "
        "Planner and job use the same, so they see the same cluster in the same way.",
    )
    topics: list[TopicName] | None = Field(
        default=None, min_length=1, description="Names of the topics. Either this or `pattern`.", examples=[["orders"]]
    )
    pattern: TopicPattern | None = Field(
        default=None,
        description="Regular expression that the whole name of a topic must match; topics that appear later join by "
        "themselves, from their log start. The syntax is RE2's, whose time is bounded whatever topics the cluster has: "
        "no look-ahead or look-behind, no references to groups. Either this or `topics`.",
        examples=["orders\\..*"],
    )
    isolation_level: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed",
        description="Which records of producer transactions are read. `read_committed` never loads records of an "
        "aborted transaction, and stops before one that is still open.",
    )
    topic_identity: Literal["topic_id", "none"] = Field(
        default="topic_id",
        description="Whether a deleted and re-created topic is recognised by its topic id. `none` only for brokers "
        "that tell no topic id (before Kafka 2.8): then nothing protects against a re-created topic. The key can be "
        "changed at any time: under `none` positions keep the ids that they have, and the first plan under `topic_id` "
        "gives the broker's id to those without one.",
    )


class FirstRunSection(Section):
    """A place to begin that one word cannot say. Exactly one of the keys."""

    timestamp: RecordTimeMs | None = Field(
        default=None,
        description="Begin at the first record whose time is at or after this; at the end where there is none.",
        examples=["2026-01-01T00:00:00Z"],
    )
    offsets: dict[TopicName, dict[PartitionNumber, Offset]] | None = Field(
        default=None,
        min_length=1,
        description="Begin at these offsets, by topic and partition. Every partition of the first plan must be listed.",
        examples=[{"orders": {0: 100, 1: 5}}],
    )


class LimitSection(Section):
    """How much one run reads. What is left over waits for the next run."""

    offsets_per_run: PositiveCount = Field(
        default=_LIMIT.total_offsets,
        description="Offsets that one run may read in all, shared fairly by backlog over the partitions. Finite, so "
        "that the first run on an old topic does not become one endless transaction.",
    )
    offsets_per_partition: PositiveCount | None = Field(
        default=_LIMIT.per_partition_offsets,
        description="Offsets that one run may read from each partition; `null`: no limit.",
    )


class LagPolicySection(Section):
    """What a run does about a partition that has fallen far behind. Not for reloads, nor for the first run."""

    action: Literal["fail", "warn", "skip_to"] = Field(
        description="`fail` stops the run; `warn` says so and loads; `skip_to` gives up all but the newest "
        "`keep_offsets` offsets of the partition: what it gives up is recorded in `kafka_ingest.position_change` and "
        "logged, and is not loaded unless it is reloaded."
    )
    max_lag_offsets: PositiveCount | None = Field(
        default=None, description="Greatest lag in offsets: end offset - committed offset; `null`: no limit."
    )
    max_lag_seconds: Seconds | None = Field(
        default=None,
        description="Greatest lag in time: since the partition was complete, an estimate; `null`: no limit.",
    )
    keep_offsets: PositiveCount | None = Field(
        default=None, description="With `skip_to`: how many of the newest offsets are read."
    )


class ColumnSection(Section):
    """A typed column that is filled from one place of a JSON value."""

    name: ColumnName = Field(description="Name of the column in the target, as it is: it is always quoted.")
    type: ColumnTypeText = Field(description="PostgreSQL type; see [column types](#column-types).")
    path: JsonPath | None = Field(
        default=None,
        description="Where the value stands: `$`, `$.key.key`, `$['any key']`. `null`: the member with the column's "
        "name as it is, so `a.b` is the member `a.b` and not `b` in `a`.",
        examples=["$.order.id"],
    )
    required: bool = Field(
        default=False,
        description="Whether a missing or null value makes the record a dead letter. A created table gets NOT NULL.",
    )


class ValueSection(Section):
    """How the value of a record becomes columns."""

    format: Literal["json", "raw", "text"] = Field(
        description="`json` with `columns`: typed columns by JSON path. `json` with `column`: the whole value as "
        "jsonb (a JSON null as the jsonb value null). `raw`: the bytes as bytea, whatever they are. `text`: strict "
        "UTF-8 as text."
    )
    columns: list[ColumnSection] | None = Field(
        default=None,
        min_length=1,
        max_length=1_500,
        description="The typed columns of `json`, in the order of a created table.",
    )
    column: ColumnName | None = Field(default=None, description="The one column of `raw`, `text` or whole `json`.")
    required: bool = Field(
        default=False,
        description="With `column`: whether the column is NOT NULL. With `columns` each says it for itself.",
    )


class KeySection(Section):
    """How the key of a record becomes a column. Left out: keys are not stored with the rows."""

    format: Literal["raw", "text", "json"] = Field(
        description="`raw`: the bytes as bytea. `text`: strict UTF-8 as text. `json`: as jsonb."
    )
    column: ColumnName = Field(description="Name of the column.")
    required: bool = Field(default=False, description="Whether a record without a key is a dead letter.")


class HeadersSection(Section):
    """Where the headers of a record go. Left out: headers are not stored with the rows."""

    column: ColumnName = Field(
        description='Name of a jsonb column. It gets an array of `{"key": name, "value": base64 or null}`, in order, '
        "repeated names included."
    )


class TargetSection(Section):
    """Where the rows go. The ledger is in the same database, so that rows and offsets commit together."""

    connection: ConnectionId = Field(default="postgres_default", description="Airflow connection of type `postgres`.")
    table: TableName = Field(
        description="The table with its schema. Names are taken as they are written, upper case too.",
        examples=["shop.orders"],
    )
    create_table: bool = Field(
        default=False,
        description="Whether a missing table is created, with a BRIN index that finds rows to replace, as long as "
        "nothing was loaded into it. A table that exists is only checked, and every mismatch is listed.",
    )
    unique_key: bool = Field(
        default=False,
        description="Whether a created table gets a unique key of topic, generation, partition and offset. The ledger "
        "keeps rows unique without it; the key more than halves the speed of writing.",
    )


class MetadataSection(Section):
    """Names of the columns that say where a row came from. They can have other names, not be left out.

    By topic, generation, partition and offset a row is found again. So the first plan binds these four names: later
    they are renamed in the table, in this file and in the ledger (`change-identity-columns`).
    """

    topic: ColumnName = Field(default=_METADATA.topic, description="text: the topic.")
    generation: ColumnName = Field(
        default=_METADATA.generation,
        description="integer: how often the topic had been re-created when the row was loaded.",
    )
    partition: ColumnName = Field(default=_METADATA.partition, description="integer: the partition.")
    offset: ColumnName = Field(default=_METADATA.offset, description="bigint: the offset.")
    timestamp: ColumnName = Field(
        default=_METADATA.timestamp, description="timestamptz: the record time; NULL if it has none."
    )
    batch_id: ColumnName = Field(
        default=_METADATA.batch_id, description="uuid: the batch that wrote the row, in the ledger."
    )
    timestamp_type: ColumnName | None = Field(
        default=_METADATA.timestamp_type,
        description="text: `create` (the producer's clock) or `log_append` (the broker's). `null`: not stored.",
    )


class DeadLettersSection(Section):
    """When a batch stops, with nothing written, instead of turning more records into dead letters.

    One bad record never blocks a topic, and a broken producer never drains into the dead letters.
    """

    max_count: Count = Field(
        default=_DEAD_LETTERS.max_count, description="More dead letters than this in one batch stop it."
    )
    max_ratio: float = Field(
        default=_DEAD_LETTERS.max_ratio,
        ge=0,
        le=1,
        description="A greater share of a batch's readable records stops it, once `ratio_from_count` is passed.",
    )
    ratio_from_count: Count = Field(
        default=_DEAD_LETTERS.ratio_from_count,
        description="Up to so many dead letters the ratio is not looked at: a few in a small batch say nothing.",
    )
    max_consecutive: Count = Field(
        default=_DEAD_LETTERS.max_consecutive,
        description="More dead letters than this, one after another in one partition, stop the batch.",
    )


class HoldSection(Section):
    """How long a plan or a running load holds the pipeline without a sign of life.

    A takeover is safe at any time; holding only avoids work for nothing.
    """

    start_timeout_seconds: Seconds = Field(
        default=_HOLD.start_timeout_seconds,
        description="From the plan to the job's first sign of life, and for Spark to find executors.",
    )
    heartbeat_timeout_seconds: Seconds = Field(
        default=_HOLD.heartbeat_timeout_seconds, description="After the last heartbeat; then another run may take over."
    )
    heartbeat_interval_seconds: Seconds = Field(
        default=_HOLD.heartbeat_interval_seconds, description="Between two heartbeats; at most half of the time-out."
    )


class AlertsSection(Section):
    """When a plan warns or stops because of what it sees in the log.

    Warnings stand in the task log, in metrics and in the asset event. Only a plan looks: a pipeline that does not run
    warns of nothing.
    """

    min_headroom_offsets: PositiveCount | None = Field(
        default=_WATCH.min_headroom_offsets,
        description="A plan warns of a partition where records wait and retention is less than so many offsets behind "
        "the committed offset; `null`: never.",
        examples=[100_000],
    )
    min_headroom_seconds: Seconds | None = Field(
        default=_WATCH.min_headroom_seconds,
        description="The same in time: until retention reaches the committed offset, at the rate that the plans of the "
        "last 12 to 24 hours observed (an estimate, and none in the first hour). `null`: never.",
    )
    max_stalled_seconds: Seconds | None = Field(
        default=_WATCH.max_stalled_seconds,
        description="A partition in which an open producer transaction has let nothing be read for longer is a fault, "
        "as `on_partition_fault` says. `null`: only a warning, and the other partitions are loaded.",
        examples=[3_600],
    )

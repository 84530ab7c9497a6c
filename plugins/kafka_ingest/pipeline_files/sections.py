"""The sections of a pipeline file that decide what is read, decoded and written: each key, its default and meaning.

The descriptions are the prose of ``docs/configuration.md`` and of the schema for editors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field
from pydantic import Tag as Branch

from kafka_ingest.pipeline_files.kinds import (
    ColumnName,
    ColumnTypeText,
    ConnectionId,
    Count,
    DefaultText,
    HeaderName,
    JsonPath,
    JsonPaths,
    JsonValue,
    Offset,
    OrderWord,
    PartitionNumber,
    Placeholder,
    PositiveCount,
    RecordTimeMs,
    Seconds,
    Subject,
    TableName,
    TopicName,
    TopicPattern,
)
from kafka_ingest.settings import (
    UNAVAILABLE_PLACEHOLDER,
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
    registry: ConnectionId | None = Field(
        default=None,
        description="Airflow connection of type `http` of the schema registry that the formats `avro`, `protobuf` and "
        "`json_schema` ask for schemas: any registry with Confluent's API. See [deploying](deploying.md).",
        examples=["schema_registry_default"],
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


ConversionWord = Literal[
    "epoch_seconds",
    "epoch_millis",
    "epoch_micros",
    "epoch_nanos",
    "epoch_days",
    "number_text",
    "json_text",
    "hex",
    "base64",
]


class ColumnSection(Section):
    """A typed column from one place of a value or key, which is JSON or of a registry's format, or from a header."""

    name: ColumnName = Field(description="Name of the column in the target, as it is: it is always quoted.")
    type: ColumnTypeText = Field(description="PostgreSQL type; see [column types](#column-types).")
    from_: Literal["value", "key", "header", "before", "source", "envelope"] = Field(
        default="value",
        alias="from",
        description="Which part of the record holds it. `value` or `key`: a document; the key is read as JSON where "
        "`key.format` names no registry's format, a null key gives NULL, a tombstone's key its value. `header`: the "
        "header that `header` names; bytea takes its bytes, texts and times take its characters, and other types read "
        "it as JSON. With `value.envelope`, `value` is the row after the change, `before` the row before it, `source` "
        "where the change came from, and `envelope` the whole event: paths begin there.",
    )
    path: JsonPaths | None = Field(
        default=None,
        description="Where the value stands: `$`, `$.key.key`, `$['any key']`, from where `from` says. `null`: the "
        "member with the column's name as it is, so `a.b` is the member `a.b` and not `b` in `a`. Of a list, the first "
        "that a record has counts, also where its value is null: so a field that was renamed fills one column. Not for "
        "a header.",
        examples=["$.order.id", ["$.customer_id", "$.customer"]],
    )
    header: HeaderName | None = Field(
        default=None, description="With `from: header`: the name of the header.", examples=["trace-id"]
    )
    occurrence: Literal["first", "last"] | None = Field(
        default=None,
        description="With `from: header`, and required there: which of several headers of the name counts.",
    )
    required: bool = Field(
        default=False,
        description="Whether a missing or null value makes the record a dead letter. A created table gets NOT NULL.",
    )
    as_: ConversionWord | None = Field(
        default=None,
        alias="as",
        description="What the value is written as, where it is not the usual spelling of the type; see "
        "[conversions](#conversions). `null`: as [column types](#column-types) says.",
        examples=["epoch_millis"],
    )
    round_: Literal["microseconds"] | None = Field(
        default=None,
        alias="round",
        description="Whether times that are finer than PostgreSQL stores, such as nanoseconds, are rounded to the "
        "nearest microsecond, halves up. `null`: they are dead letters. For `time`, `timestamp` and `timestamptz`.",
    )
    default: DefaultText | None = Field(
        default=None,
        description="What a missing value becomes, in the usual spelling of the type, whatever `as` says; numbers keep "
        "their digits. A value is missing where the path leads nowhere or the record has no such header. JSON null and "
        "a null header are there: they stay NULL, and so do the columns of a tombstone and of a null key. Not with "
        "`required`. `null`: NULL.",
        examples=["EUR", 0],
    )


class ValueSection(Section):
    """How the value of a record becomes columns."""

    format: Literal["json", "avro", "protobuf", "json_schema", "raw", "text"] = Field(
        description="`json` with `columns`: typed columns by JSON path. `json` with `column`: the whole value as "
        "jsonb (a JSON null as the jsonb value null). `avro`, `protobuf`, `json_schema`: typed columns by path, of "
        "values that name their schema in `kafka.registry`. `raw`: the bytes as bytea, whatever they are. `text`: "
        "strict UTF-8 as text."
    )
    columns: list[ColumnSection] | None = Field(
        default=None,
        min_length=1,
        max_length=1_500,
        description="The typed columns of `json` and of a registry's formats, in the order of a created table.",
    )
    subject: Subject | None = Field(
        default=None,
        description="Subject of the registry under which the schema of every value must be registered; a value with "
        "another schema is a dead letter. `null`: any schema of the registry.",
        examples=["orders-value"],
    )
    envelope: Literal["debezium"] | None = Field(
        default=None,
        description="Whose change events the values are, over `json`, `avro`, `protobuf` or `json_schema`; see "
        "[change events](change-events.md). `op` says what each is: a row (the columns read `after`), a delete of its "
        "key, or a record that is only counted. Needs `columns`, and `target.mode: upsert` with `order: offset` and "
        "`truncate`. `null`: values are rows.",
    )
    with_schema: list[Literal["value", "key"]] | None = Field(
        default=None,
        min_length=1,
        max_length=2,
        description='With `envelope`: which of value and key are JSON beside its schema, `{"schema": ..., '
        '"payload": ...}`, as Kafka Connect\'s JsonConverter writes it with `schemas.enable=true`. Their paths begin '
        "below `payload`. It has to be said, since looking in both places would read every value twice; where it is "
        "wrong, the dead letters say so. `null`: neither.",
        examples=[["value", "key"]],
    )
    unavailable_placeholder: Placeholder | None = Field(
        default=None,
        description="With `envelope`: what the connector writes for a value that was not changed and did not travel "
        "(its `unavailable.value.placeholder`). Such a value is the one that the key had before: see "
        "[values that did not travel](change-events.md#values-that-did-not-travel). "
        f"`null`: `{UNAVAILABLE_PLACEHOLDER}`.",
    )
    unavailable: Literal["dead_letter", "write_null"] | None = Field(
        default=None,
        description="With `envelope`: what becomes of a record with a value that did not travel, where nothing tells "
        "the value that its key had before. `dead_letter`: the record is one (`value_did_not_travel`), and the row "
        "stays as it was. `write_null`: the column is NULL. `null`: `dead_letter`.",
    )
    new_fields: Literal["ignore", "warn", "dead_letter", "add_column"] | None = Field(
        default=None,
        description="With `columns`: what becomes of a record with fields that no column reads, which are members of "
        "the root and of each object that a column's path leads through. `ignore`, as with `null`: they are passed "
        "over. `warn`: the batch is loaded, with a warning that names them (the first 20). `dead_letter`: the record "
        "is a dead letter (`wrong_type`) that names the first. `add_column`: the load adds a nullable column for "
        "each to the table, which its role must own, and reads the batch once more: "
        "[its type](values.md#new-fields), [what the logs say](operating.md#what-the-logs-say).",
    )
    column: ColumnName | None = Field(default=None, description="The one column of `raw`, `text` or whole `json`.")
    required: bool = Field(
        default=False,
        description="With `column`: whether the column is NOT NULL. With `columns` each says it for itself.",
    )


#: The member of a change event that columns read, by their ``from``; the others read the event itself, or the key.
_MEMBERS = {"value": ("after",), "before": ("before",), "source": ("source",)}


def below_payload(part: str, with_schema: Sequence[str] | None) -> tuple[str, ...]:
    """Return the keys from the root of a value or key to its data."""
    return ("payload",) if part in (with_schema or ()) else ()


def way_in_event(source: object, with_schema: Sequence[str] | None) -> tuple[str, ...]:
    """Return the keys from the root of the record's value, or key, to where the paths of a column begin."""
    if source == "key":
        return below_payload("key", with_schema)
    return (*below_payload("value", with_schema), *_MEMBERS.get(str(source), ()))


class KeySection(Section):
    """How the key of a record becomes a column. Left out: keys are not stored with the rows."""

    format: Literal["raw", "text", "json", "avro", "protobuf", "json_schema"] = Field(
        description="`raw`: the bytes as bytea. `text`: strict UTF-8 as text. `json`: as jsonb. `avro`, `protobuf`, "
        "`json_schema`: keys that name their schema in `kafka.registry`; columns of the value with `from: key` read "
        "them by path."
    )
    column: ColumnName | None = Field(
        default=None, description="Name of the column of `raw`, `text` or `json`, which need one."
    )
    required: bool = Field(
        default=False, description="Whether a record without a key is a dead letter. Only with `column`."
    )
    subject: Subject | None = Field(default=None, description="Like `subject` of the value.", examples=["orders-key"])


class HeadersSection(Section):
    """Where the headers of a record go. Left out: headers are not stored with the rows."""

    column: ColumnName = Field(
        description='Name of a jsonb column. It gets an array of `{"key": name, "value": base64 or null}`, in order, '
        "repeated names included."
    )


class OrderSection(Section):
    """An order that one word cannot say."""

    column: ColumnName = Field(
        description="Of two records of a key, the one with the greater value in this column is the newer one.",
        examples=["updated_at"],
    )


class DeleteWhenSection(Section):
    """Which records are deletes although they have a value."""

    path: JsonPath = Field(description="A place of the value.", examples=["$.op"])
    equals: JsonValue = Field(
        description="A record is a delete if it has this value there: a text, a number, true or false. Texts are equal "
        "character by character, numbers by their value.",
        examples=["d"],
    )


def branch_of(value: object) -> str:
    """Return whether a value of the file is a section or a word, for keys that take either."""
    return "<section>" if isinstance(value, dict) else "<word>"


class TargetSection(Section):
    """Where the rows go. The ledger is in the same database, so that rows and offsets commit together."""

    connection: ConnectionId = Field(default="postgres_default", description="Airflow connection of type `postgres`.")
    table: TableName = Field(
        description="The table with its schema. Names are taken as they are written, upper case too.",
        examples=["shop.orders"],
    )
    create_table: bool = Field(
        default=False,
        description="Whether a missing table is created, as long as nothing was loaded into it: under `append` with a "
        "BRIN index that finds rows to replace, under `upsert` with `key` as its primary key. A table that exists is "
        "only checked, and every mismatch is listed.",
    )
    unique_key: bool = Field(
        default=False,
        description="Whether a created table gets a unique key of topic, generation, partition and offset. The ledger "
        "keeps rows unique without it; the key more than halves the speed of writing. Only under `append`.",
    )
    mode: Literal["append", "upsert"] = Field(
        default="append",
        description="`append`: every record is a row. `upsert`: the table holds the current state, one row a key, the "
        "newest record of the key; see [current state](current-state.md). With it come `key`, `order` and `deletes`, "
        "and the first plan binds them all.",
    )
    key: list[ColumnName] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="With `upsert`: the columns that are the key. The table has a unique index over just these. A "
        "record with a null or missing key column is a dead letter; one with neither key nor value is counted as a "
        "tombstone.",
        examples=[["id"]],
    )
    order: (
        Annotated[
            Annotated[OrderWord, Branch("<word>")] | Annotated[OrderSection, Branch("<section>")],
            Discriminator(branch_of),
        ]
        | None
    ) = Field(
        default=None,
        description="With `upsert`, and required there: which of two records of a key is the newer one. `offset`: the "
        "one at the higher offset; a key that two partitions hold stops the batch. `record_time`: the one with the "
        "later record time. `{column: ...}`: the one with the greater value there. Equal times and values are ordered "
        "by topic, generation, partition and offset.",
        examples=["offset", {"column": "updated_at"}],
    )
    deletes: Literal["remove", "mark", "ignore", "dead_letter"] | None = Field(
        default=None,
        description="With `upsert`, and required there: what a delete does, which is a tombstone or a record that "
        "`delete_when` names. `remove`: the row goes. `mark`: the row stays, or is written, with the record time of "
        "the delete in `deleted_at`; under `order: offset` it keeps its last values, else they become NULL. `ignore`: "
        "the delete is counted with the tombstones, and the row stays. `dead_letter`: it is kept aside.",
    )
    delete_when: DeleteWhenSection | None = Field(
        default=None, description="With `upsert`: which records are deletes although they have a value; `null`: none."
    )
    deleted_at: ColumnName | None = Field(
        default=None,
        description="With `deletes: mark`: the column of type timestamptz that tells when a row was deleted, NULL in "
        "one that was not. `null`: `deleted_at`.",
    )
    history: TableName | None = Field(
        default=None,
        description="With `upsert`: a table that keeps every change beside the current state, written in the same "
        "transaction: a row for each record that is a row or a delete, also for those that a newer one outdoes; see "
        "[history](current-state.md#history). `create_table` is for it, too. `null`: none.",
        examples=["shop.orders_history"],
    )
    truncate: Literal["stop", "ignore"] | None = Field(
        default=None,
        description="With `value.envelope`, and required there: what a change event does that empties the source "
        "table. `stop`: the load stops before it ([TruncateFound](runbook.md#truncatefound)). `ignore`: it is counted "
        "with the tombstones, and the rows stay.",
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

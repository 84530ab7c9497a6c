"""The sections of a pipeline file: every key once, with its kind, default and meaning."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from kafka_ingest.column_types import MAX_IDENTIFIER_BYTES, RESERVED_COLUMNS, parse_column_type
from kafka_ingest.pipeline_files.document import WrittenNumber, may_be_secret
from kafka_ingest.settings import (
    DeadLetterLimits,
    HoldSettings,
    MetadataColumns,
    OffsetLimit,
    WatchSettings,
    parse_json_path,
)
from kafka_ingest.times import parse_record_time
from kafka_ingest.topic_patterns import check_topic_pattern

# ----------
# The kinds of text that keys of a pipeline file hold. A validator's message is what was expected.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
_RESERVED_SCHEMAS = frozenset({"kafka_ingest", "kafka_ingest_staging", "information_schema"})

#: A field that was renamed more often is better cleaned up in a view.
_MOST_PATHS = 10

# The presets for which Airflow knows a cron expression (airflow/utils/dates.py, 3.3).
_SCHEDULE_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
# Jenkins' H and croniter's R: H needs an id that nobody gives, R is another time whenever the file is read.
_RANDOM_CRON = re.compile(r"(?i)(?<![a-z])[hr](?![a-z])")

# Keys of Spark's configuration that have a key of their own here, or that the job's submission fixes.
_OWN_SPARK_KEYS = {
    "spark.master": "the host of the Airflow connection spark.connection",
    "spark.submit.deployMode": "client mode, which is fixed",
    "spark.submit.pyFiles": "the code that the job brings itself",
    "spark.app.name": "the name that the job gives itself",
    "spark.driver.memory": "the key spark.driver_memory",
    "spark.executor.memory": "the key spark.executor_memory",
    "spark.executor.cores": "the key spark.executor_cores",
}


@dataclass(frozen=True, slots=True)
class Words:
    """What the reference page calls a kind of value."""

    text: str


def _matching(pattern: str, expected: str) -> Callable[[str], str]:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(expected)
        return text

    return check


def _identifier(text: str) -> str:
    if not _IDENTIFIER.fullmatch(text) or len(text.encode()) > MAX_IDENTIFIER_BYTES:
        raise ValueError("a PostgreSQL name: letters, digits, _ and $, not a digit first, at most 63 bytes in UTF-8")
    return text


def _column_name(text: str) -> str:
    # psycopg2 would take a % in a statement for a parameter; a blank at an end is a slip, and nobody sees it.
    is_sound = text.isprintable() and "%" not in text and text == text.strip() != ""
    if not is_sound or len(text.encode()) > MAX_IDENTIFIER_BYTES:
        raise ValueError("a column name: printable characters but %, no blank at an end, at most 63 bytes in UTF-8")
    if text in RESERVED_COLUMNS:
        raise ValueError(f"a column name that is not reserved ({', '.join(sorted(RESERVED_COLUMNS))})")
    return text


def _table_name(text: str) -> str:
    schema, dot, table = text.partition(".")
    if not dot:
        raise ValueError("a table name with its schema, such as shop.orders")
    if _identifier(schema) in _RESERVED_SCHEMAS or schema.startswith("pg_"):
        raise ValueError(f"a schema of your own (not pg_*, {', '.join(sorted(_RESERVED_SCHEMAS))})")
    _identifier(table)
    return text


def _topic_name(text: str) -> str:
    # org.apache.kafka.common.internals.Topic, Kafka 4.2
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text) or text in (".", ".."):
        raise ValueError("a topic name: letters, digits, dot, _ and -, at most 249 of them")
    return text


def _schedule(text: str) -> str:
    if text in _SCHEDULE_PRESETS:
        return text
    expected = f"a cron expression of five fields, one of {', '.join(_SCHEDULE_PRESETS)}, or null for manual runs only"
    # A sixth field would be seconds: no batch runs every second, and other crons read it as something else.
    # A cron expression that lists every minute has 167 characters; croniter writes every list out.
    if len(text) > 500 or len(text.split()) != 5 or _RANDOM_CRON.search(text):
        raise ValueError(expected)
    # Airflow brings croniter; it has no type information. Only a file with a cron expression pays for its import.
    from croniter import CroniterError, croniter  # type: ignore[import-untyped]

    try:
        croniter(text, _EPOCH).get_next()
    except CroniterError as error:
        raise ValueError(f"{expected} ({error})") from error
    return text


def _timezone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ValueError, OSError, KeyError) as error:  # a malformed name, a folder of zones, an unknown name
        raise ValueError("a time zone of the IANA database, such as UTC or Europe/Vienna") from error
    return text


def _date(text: str) -> str:
    try:
        is_plain = date.fromisoformat(text).isoformat() == text  # fromisoformat takes 20250101 and 2025-W01-3, too
    except ValueError:
        is_plain = False
    if not is_plain:
        raise ValueError("a date such as 2025-01-01")
    return text


def _record_time_ms(value: object) -> int:
    return parse_record_time(value if isinstance(value, str) else "")


def _json_paths(value: object) -> tuple[tuple[str, ...], ...]:
    listed = value if isinstance(value, list) else [value]
    paths = tuple(parse_json_path(path if isinstance(path, str) else "") for path in listed)
    if not 1 <= len(paths) <= _MOST_PATHS or len(set(paths)) < len(paths):
        raise ValueError(f"a JSON path, or a list of different ones, at most {_MOST_PATHS}")
    return paths


def json_text(value: object) -> str:
    """Write a value of the file as JSON; numbers keep their digits."""
    if isinstance(value, WrittenNumber):
        return value.json
    if isinstance(value, list):
        return f"[{', '.join(map(json_text, value))}]"
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("keys that are text, as in JSON (put numbers in quotes)")
        return f"{{{', '.join(f'{json.dumps(key)}: {json_text(member)}' for key, member in value.items())}}}"
    return json.dumps(value)


def _first_run_word(value: object) -> object:
    if value not in ("earliest", "latest"):
        raise ValueError("earliest, latest, a mapping {timestamp: ...}, or a mapping {offsets: ...}")
    return value


def _spark_key(text: str) -> str:
    if text in _OWN_SPARK_KEYS:
        raise ValueError(f"{_OWN_SPARK_KEYS[text]} to decide it, not spark.conf")
    if may_be_secret(text):
        raise ValueError("no secrets in the file: it belongs into the cluster's own configuration")
    if not re.fullmatch(r"spark\.[^\s=]+", text):
        raise ValueError("a Spark property, which begins with spark. (spark-submit ignores any other)")
    return text


def _spark_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError("a text, a number, true or false")
    if may_be_secret(str(value)):
        raise ValueError("no secrets here: properties stand on the command line, which others on the machine can read")
    return str(value)


#: What the name of a pipeline looks like.
PIPELINE_NAME = r"[a-z][a-z0-9_]{0,40}"
_CONNECTION = r"[A-Za-z0-9_.-]{1,200}"
_MEMORY = r"[1-9][0-9]*[kKmMgGtT][bB]?"


def _schema(pattern: str | None = None, **keywords: str) -> WithJsonSchema:
    """Return what editors are told of a text; the check beside it decides."""
    return WithJsonSchema({"type": "string", **({"pattern": f"^{pattern}$"} if pattern else {}), **keywords})


PipelineName = Annotated[
    str,
    AfterValidator(_matching(PIPELINE_NAME, "a name of a-z, 0-9 and _, a letter first, at most 41 characters")),
    _schema(PIPELINE_NAME),
    Words("name"),
]
ConnectionId = Annotated[
    str,
    AfterValidator(_matching(_CONNECTION, "the id of an Airflow connection: letters, digits, _, . and -")),
    _schema(_CONNECTION),
    Words("id of an Airflow connection"),
]
ColumnName = Annotated[str, AfterValidator(_column_name), _schema(r"[^\s%]([^%]*[^\s%])?"), Words("column name")]
ColumnTypeText = Annotated[
    str, AfterValidator(lambda text: parse_column_type(text).sql), _schema(), Words("column type")
]
TableName = Annotated[str, AfterValidator(_table_name), _schema(r"[^.]+\..+"), Words("schema.table")]
TopicName = Annotated[str, AfterValidator(_topic_name), _schema(r"[A-Za-z0-9._-]{1,249}"), Words("topic name")]
TopicPattern = Annotated[str, AfterValidator(check_topic_pattern), _schema(format="regex"), Words("regular expression")]
Schedule = Annotated[str, AfterValidator(_schedule), _schema(), Words("cron expression or preset")]
TimezoneName = Annotated[str, AfterValidator(_timezone), _schema(), Words("time zone")]
DateText = Annotated[str, AfterValidator(_date), _schema(format="date"), Words("date")]
RecordTimeMs = Annotated[int, BeforeValidator(_record_time_ms), _schema(format="date-time"), Words("time with offset")]
_JSON_PATH = {"type": "string", "pattern": r"^\$.*$"}
JsonPaths = Annotated[
    tuple[tuple[str, ...], ...],
    BeforeValidator(_json_paths),
    WithJsonSchema({"anyOf": [_JSON_PATH, {"type": "array", "items": _JSON_PATH, "minItems": 1}]}),
    Words("JSON path, or list of JSON paths"),
]
DefaultText = Annotated[
    str, BeforeValidator(json_text), WithJsonSchema({}), Words("value of the type, as JSON spells it")
]
HeaderName = Annotated[str, Field(min_length=1, max_length=1_000), Words("name of a header")]
FirstRunWord = Annotated[
    str,
    BeforeValidator(_first_run_word),
    WithJsonSchema({"enum": ["earliest", "latest"]}),
    Words("`earliest` or `latest`"),
]
SparkKey = Annotated[str, AfterValidator(_spark_key), _schema(r"spark\..+"), Words("Spark property")]
SparkValue = Annotated[
    str,
    BeforeValidator(_spark_value),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
    Words("text, number or boolean"),
]
Memory = Annotated[
    str,
    AfterValidator(_matching(_MEMORY, "an amount of memory with its unit, such as 512m or 2g")),
    _schema(_MEMORY),
    Words("memory"),
]
Tag = Annotated[str, Field(min_length=1, max_length=100), Words("text")]
Subject = Annotated[str, Field(min_length=1, max_length=1_000), Words("subject")]
# 68 years; a timedelta, an Airflow column and a PostgreSQL interval hold it.
_MOST_SECONDS = 2**31 - 1
_MOST = 2**63 - 1  # what PostgreSQL's bigint and Airflow's serialization hold
Seconds = Annotated[int, Field(ge=1, le=_MOST_SECONDS), Words("seconds")]
Count = Annotated[int, Field(ge=0, le=_MOST), Words("whole number, at least 0")]
PositiveCount = Annotated[int, Field(ge=1, le=_MOST), Words("whole number, at least 1")]
PartitionNumber = Annotated[int, Field(ge=0, le=2**31 - 1), Words("partition")]
Offset = Annotated[int, Field(ge=0, le=2**63 - 1), Words("offset")]


# ----------
# The sections of a pipeline file that decide what is read, decoded and written: kind, default and meaning of each key.
#
# The descriptions are the prose of ``docs/configuration.md`` and of the schema for editors.

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
    from_: Literal["value", "key", "header"] = Field(
        default="value",
        alias="from",
        description="Which part of the record holds it. `value` or `key`: a document; the key is read as JSON where "
        "`key.format` names no registry's format, a null key gives NULL, a tombstone's key its value. `header`: the "
        "header that `header` names; bytea takes its bytes, texts and times take its characters, and other types read "
        "it as JSON.",
    )
    path: JsonPaths | None = Field(
        default=None,
        description="Where the value stands: `$`, `$.key.key`, `$['any key']`. `null`: the member with the column's "
        "name as it is, so `a.b` is the member `a.b` and not `b` in `a`. Of a list, the first that a record has "
        "counts, also where its value is null: so a field that was renamed fills one column. Not for a header.",
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

"""Settings of a pipeline as frozen values, whatever file they came from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

# ----------
# The lag policy.


class LagAction(StrEnum):
    """What a live plan does about a partition whose lag passes a limit."""

    FAIL = "fail"
    WARN = "warn"
    SKIP_TO = "skip_to"


@dataclass(frozen=True, slots=True)
class LagPolicy:
    """How far a partition may lag behind before a live plan does something about it.

    Attributes:
        action: What it does.
        max_lag_offsets: Greatest end offset - committed offset; ``None``: no limit.
        max_lag_seconds: Greatest time since the partition was complete; ``None``: no limit.
        keep_offsets: With ``skip_to``: how many of the newest offsets are read; all before them are given up.
    """

    action: LagAction
    max_lag_offsets: int | None = None
    max_lag_seconds: int | None = None
    keep_offsets: int | None = None


# ----------
# When Airflow runs a pipeline, up to where a run reads, and what its DAG shows. Not part of the settings hash.


class RunEnd(StrEnum):
    """Up to where a live run reads: the end of the log, or the end of the run's data interval."""

    HEAD = "head"
    INTERVAL = "interval"


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """When Airflow runs the pipeline and what its DAG shows.

    ``busy_timeout_seconds`` is by default the time that one task may take: a longer holder does not end by itself.
    """

    schedule: str | None
    timezone: str = "UTC"
    start_date: str = "2025-01-01"
    end: RunEnd = RunEnd.HEAD
    catchup: bool = False
    follow_up: bool = True
    owner: str = "data-platform"
    tags: tuple[str, ...] = ()
    description: str = ""
    retries: int = 3
    retry_delay_seconds: int = 60
    execution_timeout_seconds: int = 6 * 3600
    busy_timeout_seconds: int = 6 * 3600


# ----------
# JSON paths of a pipeline file: from the root to one member. The spelling is that of RFC 9535, without everything that
# could match several places: ``$``, ``$.order.id``, ``$['a key with spaces']``.

#: No JSON reader nests so deeply. Paths are compared by all their beginnings, whose lengths add up to its square.
MAX_MEMBERS = 100

SUPPORTED_PATHS = (
    "a JSON path of members only: $, $.name (letters, digits, _) or $['any key']; "
    f"at most {MAX_MEMBERS} of them; no *, .., [0] or filters (take an array as a whole, into a jsonb column)"
)

_SHORT_NAME = r"[^\W\d]\w*"
_MEMBER = re.compile(
    rf"""\.(?P<short>{_SHORT_NAME})|\[(?P<quote>['"])(?P<quoted>(?:\\['"\\]|(?!(?P=quote))[^\\])*)(?P=quote)\]"""
)
_ESCAPE = re.compile(r"\\(.)")


def parse_json_path(text: str) -> tuple[str, ...]:
    r"""Return the keys from the root to the member; no keys for ``$``, the whole value.

    Raises:
        ValueError: The text is not such a path; the message says what is supported.
    """
    if not text.startswith("$"):
        raise ValueError(SUPPORTED_PATHS)
    keys: list[str] = []
    at = 1
    while at < len(text):
        member = _MEMBER.match(text, at)
        if member is None or len(keys) == MAX_MEMBERS:
            raise ValueError(SUPPORTED_PATHS)
        short = member["short"]
        keys.append(_ESCAPE.sub(r"\1", member["quoted"]) if short is None else short)
        at = member.end()
    return tuple(keys)


def json_path_text(keys: tuple[str, ...]) -> str:
    """Return the shortest path that :func:`parse_json_path` reads as these keys."""
    return "$" + "".join(f".{key}" if re.fullmatch(_SHORT_NAME, key) else _quoted(key) for key in keys)


def _quoted(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"


# ----------
# Settings of a pipeline: plain frozen values, already validated.
#
# ``pipeline_files`` holds the model of the file, which documents every key; a key reaches the field of its name here.
# :class:`BatchSettings` is what decides what is read, decoded and written: it is frozen into the ledger with each
# batch, and its hash tells whether a planned batch still fits the file. It holds connection names, never secrets.

#: Version of the protocol between planner, job and ledger. It changes when one of them reads what another wrote in a
#: new way; a batch planned under another version is planned anew. 2: columns may have a conversion, several paths, a
#: default, and key or header as source, which a job of version 1 would leave out. 3: the target may hold the current
#: state, to which a job of version 2 would append, and values may be change events.
PROTOCOL_VERSION = 3


class IsolationLevel(StrEnum):
    """Which records of producer transactions are read."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Tombstones(StrEnum):
    """What becomes of a record whose value is null."""

    ROW = "row"
    DEAD_LETTER = "dead_letter"
    COUNT = "count"


class PartitionFaultPolicy(StrEnum):
    """Whether an expired or leaderless partition stops the others."""

    STOP = "stop"
    LEAVE_OUT = "leave_out"


class TopicIdentity(StrEnum):
    """Whether topic ids must be known: ``none`` is for brokers that tell no topic id."""

    TOPIC_ID = "topic_id"
    NONE = "none"


class FirstRunKind(StrEnum):
    """Where a pipeline without a position begins."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"


class ValueFormat(StrEnum):
    """How a record's value becomes columns."""

    JSON_COLUMNS = "json_columns"
    JSON = "json"
    RAW = "raw"
    TEXT = "text"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "json_schema"


class Conversion(StrEnum):
    """What a JSON value is written as, where it is not the usual spelling of its type."""

    EPOCH_SECONDS = "epoch_seconds"
    EPOCH_MILLIS = "epoch_millis"
    EPOCH_MICROS = "epoch_micros"
    EPOCH_NANOS = "epoch_nanos"
    EPOCH_DAYS = "epoch_days"
    NUMBER_TEXT = "number_text"
    JSON_TEXT = "json_text"
    HEX = "hex"
    BASE64 = "base64"


class NewFields(StrEnum):
    """What becomes of fields of the value that no column reads."""

    IGNORE = "ignore"
    WARN = "warn"
    DEAD_LETTER = "dead_letter"
    ADD_COLUMN = "add_column"


class Rounding(StrEnum):
    """What times are rounded to: the finest that PostgreSQL stores."""

    MICROSECONDS = "microseconds"


class KeyFormat(StrEnum):
    """How a record's key becomes a column, or the document of columns ``from: key``."""

    RAW = "raw"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "json_schema"


#: Formats whose bytes name the schema, in a schema registry, that they were written with.
REGISTRY_FORMATS: tuple[str, ...] = (ValueFormat.AVRO, ValueFormat.PROTOBUF, ValueFormat.JSON_SCHEMA)


class ColumnSource(StrEnum):
    """Which part of a record fills a column."""

    VALUE = "value"
    KEY = "key"
    HEADER = "header"


class Occurrence(StrEnum):
    """Which of several headers of one name counts."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class ColumnSettings:
    """One column of the target that is filled from the value, from the key, or from a header.

    Attributes:
        name: Column name, unquoted.
        type: PostgreSQL type in the canonical spelling of ``column_types.py``.
        path: Keys from the root of the JSON document to the column's value; empty for a format that fills one column.
        required: Whether a missing or null value makes the record a dead letter.
        conversion: What the value is written as; ``None`` for the usual spelling of the type.
        other_paths: Where else the value may stand, as ``path``: of all of them, the first that a record has counts.
        from_key: Whether the document is the record's key, and not its value.
        header: Name of the header that fills the column; ``None`` for a column of value or key.
        occurrence: Which of several headers of this name counts.
        default: What a missing value becomes, as JSON text in the usual spelling of the type; ``None``: NULL.
        rounding: What times are rounded to that are finer than the type; ``None``: they do not fit.
    """

    name: str
    type: str
    path: tuple[str, ...] = ()
    required: bool = False
    conversion: Conversion | None = None
    other_paths: tuple[tuple[str, ...], ...] = ()
    from_key: bool = False
    header: str | None = None
    occurrence: Occurrence | None = None
    default: str | None = None
    rounding: Rounding | None = None

    @property
    def source(self) -> ColumnSource:
        """The part of a record that fills the column."""
        if self.header is not None:
            return ColumnSource.HEADER
        return ColumnSource.KEY if self.from_key else ColumnSource.VALUE


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """Format of the value and its columns: several by path, or exactly one for a format that is taken whole.

    With ``subject``, schemas of the registry must be registered under it.
    """

    format: ValueFormat
    columns: tuple[ColumnSettings, ...]
    subject: str | None = None
    new_fields: NewFields = NewFields.IGNORE


@dataclass(frozen=True, slots=True)
class KeySettings:
    """Format of the key and its column. ``raw`` is bytea, ``text`` is text, ``json`` is jsonb.

    The key of a registry's format has no column of its own: columns of the value section read it by path.
    """

    format: KeyFormat
    column: str | None
    required: bool = False
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class IdentityColumns:
    """Names of the columns that identify a row. The first plan binds them: all rows have the same ones."""

    topic: str
    generation: str
    partition: str
    offset: str

    def differing(self, other: IdentityColumns) -> dict[str, tuple[str, str]]:
        """Return the names that differ, by key of ``metadata_columns``: the own name and the other's."""
        pairs = {key: (getattr(self, key), getattr(other, key)) for key in self.__slots__}
        return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


@dataclass(frozen=True, slots=True)
class MetadataColumns:
    """Names of the columns that tell where a row came from.

    ``timestamp_type`` (text: ``create``, ``log_append``; NULL when the record has no time) is kept only where a name
    is given; the others are always there. Types: text, integer, integer, bigint, timestamptz, uuid.
    """

    topic: str = "kafka_topic"
    generation: str = "kafka_generation"
    partition: str = "kafka_partition"
    offset: str = "kafka_offset"
    timestamp: str = "kafka_timestamp"
    batch_id: str = "batch_id"
    timestamp_type: str | None = None

    @property
    def identity(self) -> IdentityColumns:
        """The columns that identify a row."""
        return IdentityColumns(self.topic, self.generation, self.partition, self.offset)


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """The table that the rows go to, in the database that also holds the ledger."""

    schema: str
    table: str
    create_table: bool = False
    unique_key: bool = False

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


#: What a history has beside the columns of its target: ``put`` or ``delete``, and what did not travel.
HISTORY_COLUMNS = ("kafka_change", "unavailable_columns")


class OrderBy(StrEnum):
    """What decides which of two records of a key is the newer one."""

    OFFSET = "offset"
    RECORD_TIME = "record_time"
    COLUMN = "column"


class Deletes(StrEnum):
    """What a delete of a key does: a tombstone, or a record that ``delete_when`` names."""

    REMOVE = "remove"
    MARK = "mark"
    IGNORE = "ignore"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class DeleteWhen:
    """Which records with a value are deletes: those with the value ``equals``, as JSON text, at ``path``."""

    path: tuple[str, ...]
    equals: str


class Envelope(StrEnum):
    """Whose change events the values are."""

    DEBEZIUM = "debezium"


class Truncate(StrEnum):
    """What a change event that empties the source table does."""

    STOP = "stop"
    IGNORE = "ignore"


class Unavailable(StrEnum):
    """What becomes of a record with a value that did not travel and that nothing older tells."""

    DEAD_LETTER = "dead_letter"
    WRITE_NULL = "write_null"


#: What Debezium's connectors write for a value that was not changed and did not travel, unless they are told otherwise.
UNAVAILABLE_PLACEHOLDER = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True)
class EnvelopeSettings:
    """How values are change events: each tells of one row what was done, and what the row is afterwards.

    Attributes:
        kind: Whose events they are.
        truncate: What a truncation of the source table does.
        placeholder: What stands for a value that did not travel.
        path: Keys from the root of a value to the event.
        unavailable: What becomes of a record with such a value, where no older change and no row of its key has it.
    """

    kind: Envelope
    truncate: Truncate
    placeholder: str = UNAVAILABLE_PLACEHOLDER
    path: tuple[str, ...] = ()
    unavailable: Unavailable = Unavailable.DEAD_LETTER


@dataclass(frozen=True, slots=True)
class UpsertSettings:
    """How a table holds the current state: one row a key, the newest record of the key.

    The first plan binds them: rows that were written, and rows that were removed, followed these settings. Of the
    envelope it binds the kind; what a truncation does, for one, is changed when one was met.

    Attributes:
        key: Columns that are the key.
        order: What makes a record newer.
        deletes: What a delete does.
        order_column: The column whose greater value is newer; ``None`` under another order.
        delete_when: Which records with a value are deletes; ``None``: none.
        deleted_at: Column that gets the record time of a delete; ``None`` unless deletes mark rows.
        envelope: The change events that the values are; ``None``: values are rows.
    """

    key: tuple[str, ...]
    order: OrderBy
    deletes: Deletes
    order_column: str | None = None
    delete_when: DeleteWhen | None = None
    deleted_at: str | None = None
    envelope: EnvelopeSettings | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterLimits:
    """When a batch stops instead of turning more records into dead letters.

    Attributes:
        max_count: More dead letters than this in one batch stop it.
        max_ratio: A greater share of the batch's readable records stops it, once ``ratio_from_count`` is passed.
        ratio_from_count: Number of dead letters up to which the ratio does not count, so that one bad record in a
            small batch never blocks a topic.
        max_consecutive: A longer run of consecutive dead letters in one partition stops the batch.
    """

    max_count: int = 10_000
    max_ratio: float = 0.05
    ratio_from_count: int = 100
    max_consecutive: int = 1_000

    def texts(self) -> tuple[str, ...]:
        """Return what no batch may pass, for people, with the number up to which the share is not looked at."""
        return (
            f"{self.max_count:,} dead letters",
            f"{self.max_ratio:.1%} of its records (not looked at up to {self.ratio_from_count:,} dead letters)",
            f"{self.max_consecutive:,} dead letters in a row in one partition",
        )


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Everything that decides what a batch reads, decodes and writes. Frozen into the ledger; no secrets."""

    kafka_connection: str
    target_connection: str
    isolation_level: IsolationLevel
    topic_identity: TopicIdentity
    value: ValueSettings
    key: KeySettings | None
    headers_column: str | None
    tombstones: Tombstones
    metadata: MetadataColumns
    target: TargetSettings
    dead_letters: DeadLetterLimits
    registry_connection: str | None = None
    upsert: UpsertSettings | None = None
    #: Keeps a row of every change beside an upsert target.
    history: TargetSettings | None = None

    @property
    def never_null(self) -> frozenset[str]:
        """Columns without which a record has no place in the current state; none where every record is a row."""
        if self.upsert is None:
            return frozenset()
        return frozenset({*self.upsert.key, *([self.upsert.order_column] if self.upsert.order_column else ())})


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics of a pipeline: a list of names, or a regular expression that a whole name must match."""

    names: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """An offset of one partition, as ``first_run: offsets`` lists them."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class FirstRun:
    """Where a pipeline without a position begins: chosen by the owner, never by default."""

    kind: FirstRunKind
    timestamp_ms: int | None = None
    offsets: tuple[PartitionOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetLimit:
    """How many offsets one run may read: in all, and optionally from each partition."""

    total_offsets: int = 2_000_000
    per_partition_offsets: int | None = None


@dataclass(frozen=True, slots=True)
class HoldSettings:
    """How long a plan or a claim holds the pipeline without a sign of life.

    30 minutes let a Spark job wait for its cluster; 60 seconds are six missed heartbeats.
    """

    start_timeout_seconds: int = 1_800
    heartbeat_timeout_seconds: int = 60
    heartbeat_interval_seconds: int = 10


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What decides which offsets a batch gets; not part of the settings hash."""

    topics: TopicSelection
    first_run: FirstRun
    limit: OffsetLimit = field(default_factory=OffsetLimit)
    on_partition_fault: PartitionFaultPolicy = PartitionFaultPolicy.STOP
    hold: HoldSettings = field(default_factory=HoldSettings)
    lag_policy: LagPolicy | None = None


@dataclass(frozen=True, slots=True)
class JobSettings:
    """How the Spark job runs.

    Attributes:
        spark_connection: Airflow connection of type ``spark`` (``spark/master.py``).
        conf: Spark configuration properties; never secrets, because they are on the command line.
        driver_memory: Heap of the driver, in Spark's spelling (``1g``).
        executor_memory: Heap of each executor.
        executor_cores: Cores of each executor; ``None`` leaves it to the cluster.
        tasks: Upper limit of parallel readers; ``None`` means the cluster's default parallelism.
        no_progress_timeout_seconds: After this long without a record, an end-of-partition event or a moving position
            the broker counts as unavailable.
        in_process_below_offsets: A batch of fewer offsets is loaded in the task's own process, without Spark; ``None``:
            none is.
    """

    spark_connection: str = "spark_default"
    conf: tuple[tuple[str, str], ...] = ()
    driver_memory: str = "1g"
    executor_memory: str = "1g"
    executor_cores: int | None = None
    tasks: int | None = None
    no_progress_timeout_seconds: int = 120
    in_process_below_offsets: int | None = None

    def is_in_process(self, offsets: int) -> bool:
        """Whether a batch of so many offsets is loaded without Spark."""
        return self.in_process_below_offsets is not None and offsets < self.in_process_below_offsets


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """When a plan warns or stops because of what it sees in the log, and who else gets the position.

    Attributes:
        min_headroom_offsets: A plan warns when retention is less than this behind a committed offset with records
            waiting; ``None``: never. No default suits topics of all sizes.
        min_headroom_seconds: The same as estimated time. Six hours are six hourly runs, or a night until somebody
            comes.
        max_stalled_seconds: A partition that an open transaction holds back for longer is a fault; ``None``: only a
            warning, because a fault stops the other partitions, too, unless partitions may be left out.
        mirror_group: Whether positions are copied to a Kafka consumer group, for lag tools.
    """

    min_headroom_offsets: int | None = None
    min_headroom_seconds: int | None = 21_600
    max_stalled_seconds: int | None = None
    mirror_group: bool = False


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """One pipeline file, validated."""

    pipeline: str
    batch: BatchSettings
    plan: PlanSettings
    job: JobSettings
    schedule: ScheduleSettings
    watch: WatchSettings = field(default_factory=WatchSettings)

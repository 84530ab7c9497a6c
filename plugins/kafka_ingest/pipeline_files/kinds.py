"""The kinds of text and number that keys of a pipeline file hold: what each may be, and what was expected."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from kafka_ingest.column_types import MAX_IDENTIFIER_BYTES, RESERVED_COLUMNS, parse_column_type
from kafka_ingest.pipeline_files.document import WrittenNumber, may_be_secret
from kafka_ingest.settings import parse_json_path
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
OWN_SPARK_KEYS = {
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


def _one_json_path(value: object) -> tuple[str, ...]:
    return parse_json_path(value if isinstance(value, str) else "")


def _order_word(value: object) -> object:
    if value not in ("offset", "record_time"):
        raise ValueError("offset, record_time, or a mapping {column: ...}")
    return value


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
    if text in OWN_SPARK_KEYS:
        raise ValueError(f"{OWN_SPARK_KEYS[text]} to decide it, not spark.conf")
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
JsonPath = Annotated[tuple[str, ...], BeforeValidator(_one_json_path), WithJsonSchema(_JSON_PATH), Words("JSON path")]
DefaultText = Annotated[
    str, BeforeValidator(json_text), WithJsonSchema({}), Words("value of the type, as JSON spells it")
]
JsonValue = Annotated[str, BeforeValidator(json_text), WithJsonSchema({}), Words("JSON value")]
HeaderName = Annotated[str, Field(min_length=1, max_length=1_000), Words("name of a header")]
# JSON writers escape other characters in more than one way, and a placeholder is looked for as it is written.
_PLACEHOLDER = r"[ !#-\[\]-~]{1,200}"
Placeholder = Annotated[
    str,
    AfterValidator(_matching(_PLACEHOLDER, 'a text of printable ASCII characters but " and \\, at most 200')),
    _schema(_PLACEHOLDER),
    Words("text"),
]
FirstRunWord = Annotated[
    str,
    BeforeValidator(_first_run_word),
    WithJsonSchema({"enum": ["earliest", "latest"]}),
    Words("`earliest` or `latest`"),
]
OrderWord = Annotated[
    str,
    BeforeValidator(_order_word),
    WithJsonSchema({"enum": ["offset", "record_time"]}),
    Words("`offset` or `record_time`"),
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

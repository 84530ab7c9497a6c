"""Every kind of fault of a pipeline file: its line, its key, plain words, all at once, and never a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_ingest.adapters.pipeline_files import load_pipeline
from kafka_ingest.core.errors import ConfigError

# A sound file, one top-level key a line, so that a test can say which line it changes.
_SOUND = {
    "pipeline": "orders",
    "schedule": '"@hourly"',
    "kafka": "{topics: [orders]}",
    "first_run": "earliest",
    "value": "{format: json, columns: [{name: id, type: bigint}]}",
    "target": "{table: shop.orders, create_table: true}",
}


def _text(**changes: str | None) -> str:
    lines = {key: value for key, value in (_SOUND | changes).items() if value is not None}
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def _faults(path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_pipeline(path)
    return [line.removeprefix(f"{path}:") for line in caught.value.found.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.yaml"


def test_the_sound_file_of_these_tests_has_no_fault(path: Path) -> None:
    path.write_text(_text(), encoding="utf-8")
    assert load_pipeline(path).pipeline == "orders"


_STRING = "a name of a-z, 0-9 and _, a letter first, at most 41 characters"
_TYPES = "one of the supported types: boolean, smallint,"
_NAME = "a PostgreSQL name: letters, digits, _ and $, not a digit first, at most 63 bytes in UTF-8"
_WORDS = "earliest, latest, a mapping {timestamp: ...}, or a mapping {offsets: ...}"
_TIME = "a time with its offset from UTC, at most milliseconds, from 1970 on, such as 2026-01-01T00:00:00Z"
_CRON = "a cron expression of five fields, one of @hourly, @daily, @weekly, @monthly, @quarterly, @yearly, or null"


def _columns(*columns: str, more: str = "") -> str:
    return "{format: json, columns: [" + ", ".join(columns) + "]" + more + "}"


@pytest.mark.parametrize(
    ("key", "value", "place", "expected", "found"),
    [
        # kinds of values
        ("pipeline", "Orders", "pipeline", _STRING, "the text 'Orders'"),
        ("pipeline", "a" * 42, "pipeline", _STRING, f"the text '{'a' * 42}'"),
        ("pipeline", "7", "pipeline", "a text (put it in quotes)", "the number 7"),
        ("kafka", None, "kafka", "a value, for this key is required", "nothing"),
        ("kafka", "", "kafka", "a mapping of keys to values", "nothing"),
        ("kafka", "[orders]", "kafka", "a mapping of keys to values", "a list"),
        ("limit", "{offsets_per_run: 0}", "limit.offsets_per_run", "a number of at least 1", "the number 0"),
        ("limit", "{offsets_per_run: '5'}", "limit.offsets_per_run", "a whole number", "the text '5'"),
        ("limit", "{offsets_per_run: 1.5}", "limit.offsets_per_run", "a whole number", "the number 1.5"),
        ("limit", "{offsets_per_run: true}", "limit.offsets_per_run", "a whole number", "the value true"),
        ("limit", "{offsets_per_run: 010}", "limit.offsets_per_run", "a whole number", "the text '010'"),
        ("dead_letters", "{max_ratio: 1.5}", "dead_letters.max_ratio", "a number of at most 1.0", "the number 1.5"),
        ("dead_letters", "{max_ratio: 1e999}", "dead_letters.max_ratio", "a finite number", "the number inf"),
        ("dead_letters", "{max_count: -1}", "dead_letters.max_count", "a number of at least 0", "the number -1"),
        ("airflow", "{tags: shop}", "airflow.tags", "a list", "the text 'shop'"),
        ("airflow", "{owner: ''}", "airflow.owner", "a text that is not empty", "an empty text"),
        ("on_partition_fault", "no", "on_partition_fault", "stop or leave_out", "the text 'no'"),
        ("tombstones", "skip", "tombstones", "row, dead_letter or count", "the text 'skip'"),
        # unknown keys
        ("colour", "red", "colour", "a known key (the keys here are pipeline, description,", "the unknown key colour"),
        ("descripton", "x", "descripton", "a known key (did you mean description?)", "the unknown key descripton"),
        ("hold", "{timeout: 1}", "hold.timeout", "a known key (the keys here are start_timeout", "the unknown key tim"),
        ("key", "{1: x, format: raw, column: k}", "key[1]", "a key that is text", "the number 1"),
        # schedule
        ("schedule", '"61 * * * *"', "schedule", _CRON, "the text '61 * * * *'"),
        ("schedule", '"0 0 31 2 *"', "schedule", _CRON, "the text '0 0 31 2 *'"),
        ("schedule", '"* * * * * *"', "schedule", _CRON, "the text '* * * * * *'"),
        ("schedule", '"R * * * *"', "schedule", _CRON, "the text 'R * * * *'"),
        ("schedule", '"@reboot"', "schedule", _CRON, "the text '@reboot'"),
        ("schedule", None, "schedule", "a value, for this key is required", "nothing"),
        ("timezone", "Europe/Wien", "timezone", "a time zone of the IANA database", "the text 'Europe/Wien'"),
        ("timezone", "../etc/passwd", "timezone", "a time zone of the IANA database", "a text of 13 characters"),
        ("start_date", "2025-13-01", "start_date", "a date such as 2025-01-01", "the text '2025-13-01'"),
        # kafka
        ("kafka", "{topics: []}", "kafka.topics", "at least 1 of them", "a list"),
        ("kafka", "{topics: orders}", "kafka.topics", "a list", "the text 'orders'"),
        ("kafka", "{topics: [a b]}", "kafka.topics[0]", "a topic name: letters, digits, dot", "the text 'a b'"),
        ("kafka", "{topics: [a, b, a]}", "kafka.topics[2]", "each topic once", "a a second time"),
        ("kafka", "{}", "kafka", "either topics or pattern", "neither"),
        ("kafka", "{topics: [a], pattern: a}", "kafka", "either topics or pattern", "both"),
        ("kafka", "{pattern: 'a('}", "kafka.pattern", "a regular expression (missing )", "the text 'a('"),
        ("kafka", "{pattern: ''}", "kafka.pattern", "a regular expression that a whole", "an empty text"),
        (
            "kafka",
            "{topics: [a], isolation_level: none}",
            "kafka.isolation_level",
            "read_committed or read_uncommitted",
            "the text 'none'",
        ),
        # first_run
        ("first_run", None, "first_run", "a value, for this key is required", "nothing"),
        ("first_run", "earlist", "first_run", _WORDS, "the text 'earlist'"),
        ("first_run", "2026-01-01", "first_run", _WORDS, "the text '2026-01-01'"),
        ("first_run", "{}", "first_run", "either timestamp or offsets", "neither"),
        ("first_run", "{timestamp: 2026-01-01}", "first_run.timestamp", _TIME, "the text '2026-01-01'"),
        ("first_run", "{timestamp: 2026-01-01T00:00:00}", "first_run.timestamp", _TIME, "the text"),
        ("first_run", "{timestamp: 2026-01-01T00:00:00.0001Z}", "first_run.timestamp", _TIME, "the text"),
        ("first_run", "{timestamp: 1969-12-31T23:59:59Z}", "first_run.timestamp", _TIME, "the text"),
        ("first_run", "{timestamp: 1767225600}", "first_run.timestamp", _TIME, "the number 1767225600"),
        ("first_run", "{offsets: {orders: {0: -1}}}", "first_run.offsets.orders[0]", "a number of at least 0", "the"),
        ("first_run", "{offsets: {orders: {'0': 1}}}", "first_run.offsets.orders.0", "a whole number", "the text '0'"),
        ("first_run", "{offsets: {orders: 5}}", "first_run.offsets.orders", "a mapping of keys to values", "the num"),
        ("first_run", "{offsets: {other: {0: 1}}}", "first_run.offsets.other", "a topic of kafka.topics", "other"),
        # value
        ("value", "{format: json}", "value", "either columns (typed, by JSON path) or column", "neither"),
        ("value", "{format: raw}", "value.column", "the name of the column", "nothing"),
        ("value", "{format: avro, column: a}", "value.format", "json, raw or text", "the text 'avro'"),
        ("value", _columns(), "value.columns", "at least 1 of them", "a list"),
        ("value", _columns("x"), "value.columns[0]", "a mapping of keys to values", "the text 'x'"),
        ("value", _columns("{name: a, type: int9}"), "value.columns[0].type", _TYPES, "the text 'int9'"),
        ("value", _columns("{name: a, type: 'jsonb[]'}"), "value.columns[0].type", "a type that has arrays", "the"),
        ("value", _columns("{name: a b, type: text}"), "value.columns[0].name", _NAME, "the text 'a b'"),
        ("value", _columns(f"{{name: {'é' * 32}, type: text}}"), "value.columns[0].name", _NAME, "the text"),
        ("value", _columns("{name: ctid, type: text}"), "value.columns[0].name", "a column name that is not", "the"),
        ("value", _columns("{name: stage_task, type: text}"), "value.columns[0].name", "a column name that is", "the"),
        ("value", _columns("{name: a, type: text, path: '$[0]'}"), "value.columns[0].path", "a JSON path", "the text"),
        (
            "value",
            _columns("{name: a, type: text, path: 5}"),
            "value.columns[0].path",
            "a JSON path of",
            "the number 5",
        ),
        (
            "value",
            _columns("{name: a, type: text, required: yes}"),
            "value.columns[0].required",
            "true or false",
            "the",
        ),
        (
            "value",
            _columns("{name: a, type: text}", more=", required: true"),
            "value.required",
            "required in the entries of columns",
            "required for all of them",
        ),
        (
            "value",
            _columns("{name: a, type: text}", "{name: b, type: jsonb, path: $.a.b}"),
            "value.columns[0].type",
            "jsonb for an object",
            "the type text, while other columns take members of $.a",
        ),
        # column names over all sections
        (
            "value",
            _columns("{name: a, type: text}", "{name: a, type: text}"),
            "value.columns[1].name",
            "a column name of its own",
            "a, which value.columns[0].name has already",
        ),
        (
            "value",
            _columns("{name: kafka_offset, type: bigint}"),
            "value.columns[0].name",
            "a column name of its own",
            "kafka_offset, which metadata_columns.offset has already",
        ),
        ("key", "{format: raw, column: id}", "key.column", "a column name of its own", "id, which value.columns[0]"),
        ("headers", "{column: id}", "headers.column", "a column name of its own", "id, which value.columns[0].name"),
        ("metadata_columns", "{topic: batch_id}", "metadata_columns.batch_id", "a column name of its own", "batch_id"),
        ("metadata_columns", "{topic: null}", "metadata_columns.topic", "a text", "nothing"),
        # target
        ("target", "{table: orders}", "target.table", "a table name with its schema", "the text 'orders'"),
        ("target", "{table: a.b.c}", "target.table", _NAME, "the text 'a.b.c'"),
        ("target", "{table: kafka_ingest.batch}", "target.table", "a schema of your own", "the text"),
        ("target", "{table: pg_catalog.x}", "target.table", "a schema of your own", "the text"),
        ("target", "{table: a.b, unique_key: true}", "target.unique_key", "create_table: true beside it", "create_tab"),
        # hold
        (
            "hold",
            "{heartbeat_timeout_seconds: 19}",
            "hold.heartbeat_timeout_seconds",
            "a time-out of at least two heartbeat intervals",
            "a time-out of 19 s and an interval of 10 s",
        ),
        # spark
        ("spark", "{driver_memory: 1024}", "spark.driver_memory", "a text (put it in quotes)", "the number 1024"),
        ("spark", "{driver_memory: '1024'}", "spark.driver_memory", "an amount of memory with its unit", "the text"),
        ("spark", "{tasks: 0}", "spark.tasks", "a number of at least 1", "the number 0"),
        ("spark", "{conf: {spark.x: [1]}}", "spark.conf['spark.x']", "a text, a number, true or false", "a list"),
        ("spark", "{conf: {master: x}}", "spark.conf.master", "a Spark property, which begins with spark.", "the text"),
        (
            "spark",
            "{conf: {spark.master: local}}",
            "spark.conf['spark.master']",
            "the host of the Airflow connection spark.connection to decide it, not spark.conf",
            "the text 'spark.master'",
        ),
        (
            "spark",
            "{conf: {spark.submit.deployMode: cluster}}",
            "spark.conf['spark.submit.deployMode']",
            "client mode, which is fixed to decide it",
            "the text",
        ),
    ],
)
def test_a_fault_names_line_key_expected_and_found(
    path: Path, key: str, value: str | None, place: str, expected: str, found: str
) -> None:
    text = _text(**{key: value})
    lines = text.splitlines()
    line = next((number for number, at in enumerate(lines, 1) if at.startswith(f"{key}:")), 1)
    (fault,) = _faults(path, text)
    assert fault.startswith(f"{line}: {place}: expected {expected}")
    assert f"; found {found}" in fault


@pytest.mark.parametrize("value", ["{format: raw, column: a, columns: [{name: b, type: text}]}"])
def test_columns_beside_raw_bytes_are_refused(path: Path, value: str) -> None:
    assert _faults(path, _text(value=value)) == [
        "5: value.columns: expected column alone with the format raw; found columns"
    ]


@pytest.mark.parametrize(("given", "found"), [(None, "nothing"), ("row", "row")])
def test_tombstones_must_be_decided_where_a_column_of_the_value_is_required(
    path: Path, given: str | None, found: str
) -> None:
    text = _text(value=_columns("{name: id, type: bigint, required: true}"), tombstones=given)
    (fault,) = _faults(path, text)
    assert fault.startswith(f"{7 if given else 1}: tombstones: expected dead_letter or count, since a column")
    assert fault.endswith(f"; found {found}")


@pytest.mark.parametrize(
    "value", ["{format: raw, column: a, required: true}", "{format: json, column: a, required: true}"]
)
def test_tombstones_must_be_decided_where_the_whole_value_is_required(path: Path, value: str) -> None:
    (fault,) = _faults(path, _text(value=value))
    assert fault.startswith("1: tombstones: expected dead_letter or count")
    path.write_text(_text(value=value, tombstones="count"), encoding="utf-8")
    assert load_pipeline(path).batch.tombstones == "count"


def test_an_unknown_place_to_begin_names_the_known_ones(path: Path) -> None:
    assert _faults(path, _text(first_run="{timestmp: 2026-01-01T00:00:00Z}")) == [
        "4: first_run: expected either timestamp or offsets; found neither",
        "4: first_run.timestmp: expected a known key (did you mean timestamp?); found the unknown key timestmp",
    ]


def test_an_offset_of_a_topic_that_the_pattern_does_not_match_is_a_fault(path: Path) -> None:
    text = _text(kafka="{pattern: 'shop\\..*'}", first_run="{offsets: {shop.a: {0: 1}, other: {0: 1}}}")
    assert _faults(path, text) == [
        "4: first_run.offsets.other: expected a topic that kafka.pattern matches; found other"
    ]


def test_all_faults_of_a_file_are_told_at_once_by_line(path: Path) -> None:
    text = """\
pipeline: Orders
schedule: "@hourly"
kafka:
  topics: orders
  isolation: read_committed
first_run: earlist
value:
  format: json
  columns:
    - {name: id, type: bigintt}
    - {name: id, type: text, required: yes}
    - {type: text}
target:
  table: orders
spark: &s
  tasks: 1.5
spark:
  tasks: 2
"""
    assert [fault.split(": ")[:2] for fault in _faults(path, text)] == [
        ["1", "pipeline"],
        ["4", "kafka.topics"],
        ["5", "kafka.isolation"],
        ["6", "first_run"],
        ["10", "value.columns[0].type"],
        ["11", "value.columns[1].name"],
        ["11", "value.columns[1].required"],
        ["12", "value.columns[2].name"],
        ["14", "target.table"],
        ["16", "spark.tasks"],
        ["17", "spark"],
    ]


def test_an_unreadable_value_is_one_fault_and_not_two(path: Path) -> None:
    assert _faults(path, _text(first_run="!!binary aa")) == [
        "4: first_run: expected a plain value; found the tag tag:yaml.org,2002:binary"
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_file_says_what_belongs_into_it(path: Path, text: str) -> None:
    assert _faults(path, text) == [
        "1: expected a mapping of keys to values that begins with pipeline: NAME; found an empty file"
    ]


@pytest.mark.parametrize("text", ["- pipeline: orders\n", "orders\n"])
def test_a_file_that_is_no_mapping_says_so(path: Path, text: str) -> None:
    assert _faults(path, text) == [
        "1: expected a mapping of keys to values that begins with pipeline: NAME; found something else"
    ]


def test_broken_yaml_is_the_only_fault(path: Path) -> None:
    (fault,) = _faults(path, "pipeline: orders\nkafka: {topics: [a\n")
    assert fault.startswith("3: expected valid YAML; found a syntax error")


def test_a_file_that_cannot_be_read_is_a_fault_of_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 1 fault") as caught:
        load_pipeline(tmp_path / "missing.yaml")
    assert caught.value.found.endswith("expected a readable file; found: No such file or directory")


def test_the_error_has_all_four_parts_and_each_fault_on_a_line_of_its_own(path: Path) -> None:
    path.write_text(_text(schedule=None, first_run=None), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_pipeline(path)
    assert str(caught.value) == (
        f"ConfigError: pipeline file {path} has 2 faults (pipeline orders)\n"
        "  expected: a file as docs/configuration.md describes it\n"
        "  found:\n"
        f"    {path}:1: schedule: expected a value, for this key is required; found nothing\n"
        f"    {path}:1: first_run: expected a value, for this key is required; found nothing\n"
        "  next: correct the file, then: python -m kafka_ingest check-config"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("password", "hunter2"),
        ("target", "{table: a.b, password: hunter2}"),
        ("target", "{table: a.b, connection: 'postgres://u:hunter2@host/db'}"),
        ("kafka", "{topics: [a], connection: 'sasl.password=hunter2'}"),
        ("spark", "{conf: {spark.ssl.keyPassword: hunter2}}"),
        ("spark", "{conf: {spark.authenticate.secret: hunter2}}"),
        ("spark", "{conf: {spark.hadoop.fs.s3a.access.key: hunter2}}"),
        ("spark", "{conf: {spark.driver.extraJavaOptions: -Dssl.password=hunter2}}"),
    ],
)
def test_a_secret_in_a_file_is_refused_and_never_shown(path: Path, key: str, value: str) -> None:
    faults = _faults(path, _text(**{key: value}))
    assert faults
    assert "hunter2" not in "\n".join(faults)

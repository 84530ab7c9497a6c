"""A fault of one key of a pipeline file: its line, its key, what was expected and what was found, in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline_texts import faults_of, json_columns, pipeline_text

_STRING = "a name of a-z, 0-9 and _, a letter first, at most 41 characters"
_TYPES = "one of the supported types: boolean, smallint,"
_COLUMN = "a column name: printable characters but %, no blank at an end, at most 63 bytes in UTF-8"
_NAME = "a PostgreSQL name: letters, digits, _ and $, not a digit first, at most 63 bytes in UTF-8"
_WORDS = "earliest, latest, a mapping {timestamp: ...}, or a mapping {offsets: ...}"
_TIME = "a time with its offset from UTC, at most milliseconds, from 1970 on, such as 2026-01-01T00:00:00Z"
_CRON = "a cron expression of five fields, one of @hourly, @daily, @weekly, @monthly, @quarterly, @yearly, or null"


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
        (
            "airflow",
            "{retries: '3'}",
            "airflow.retries",
            "a whole number, written with digits alone and",
            "the text '3'",
        ),
        ("airflow", "{retries: 1e3}", "airflow.retries", "a whole number", "the number 1000.0"),
        ("airflow", f"{{retries: {10**30}}}", "airflow.retries", f"a number of at most {2**63 - 1}", "the number"),
        ("airflow", "{busy_timeout_seconds: 9_999_999_999}", "airflow.busy_timeout_seconds", "a number of at most", ""),
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
        ("start_date", "'20250101'", "start_date", "a date such as 2025-01-01", "the text '20250101'"),
        ("start_date", "2025-13-01", "start_date", "a date such as 2025-01-01", "the text '2025-13-01'"),
        # lag_policy
        (
            "lag_policy",
            "{action: skip, max_lag_offsets: 5}",
            "lag_policy.action",
            "fail, warn or skip_to",
            "the text 'sk",
        ),
        ("lag_policy", "{action: warn}", "lag_policy", "max_lag_offsets or max_lag_seconds, or both", "neither"),
        (
            "lag_policy",
            "{action: skip_to, max_lag_offsets: 5}",
            "lag_policy.keep_offsets",
            "how many of the newest offsets skip_to reads",
            "nothing",
        ),
        (
            "lag_policy",
            "{action: fail, max_lag_offsets: 5, keep_offsets: 3}",
            "lag_policy.keep_offsets",
            "only with action: skip_to",
            "3",
        ),
        (
            "lag_policy",
            "{action: skip_to, max_lag_offsets: 5, keep_offsets: 6}",
            "lag_policy.keep_offsets",
            "at most max_lag_offsets, 5",
            "6",
        ),
        # end, catchup
        ("end", "now", "end", "head or interval", "the text 'now'"),
        ("catchup", "yes", "catchup", "true or false", "the text 'yes'"),
        (
            "airflow",
            "{busy_timeout_seconds: 0}",
            "airflow.busy_timeout_seconds",
            "a number of at least 1",
            "the number",
        ),
        # kafka
        ("kafka", "{topics: []}", "kafka.topics", "at least 1 of them", "a list"),
        ("kafka", "{topics: orders}", "kafka.topics", "a list", "the text 'orders'"),
        ("kafka", "{topics: [a b]}", "kafka.topics[0]", "a topic name: letters, digits, dot", "the text 'a b'"),
        ("kafka", "{topics: [a, b, a]}", "kafka.topics[2]", "each topic once", "a a second time"),
        ("kafka", "{}", "kafka", "either topics or pattern", "neither"),
        ("kafka", "{topics: [a], pattern: a}", "kafka", "either topics or pattern", "both"),
        ("kafka", "{pattern: 'a('}", "kafka.pattern", "a regular expression (missing )", "the text 'a('"),
        (
            "kafka",
            "{pattern: '(?!a)b'}",
            "kafka.pattern",
            "a regular expression in the syntax of RE2",
            "the text '(?!a)b'",
        ),
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
        ("value", json_columns(), "value.columns", "at least 1 of them", "a list"),
        ("value", json_columns("x"), "value.columns[0]", "a mapping of keys to values", "the text 'x'"),
        ("value", json_columns("{name: a, type: int9}"), "value.columns[0].type", _TYPES, "the text 'int9'"),
        ("value", json_columns("{name: a, type: 'jsonb[]'}"), "value.columns[0].type", "a type that has arrays", "the"),
        ("value", json_columns("{name: 'a ', type: text}"), "value.columns[0].name", _COLUMN, "the text 'a '"),
        ("value", json_columns("{name: '5 %', type: text}"), "value.columns[0].name", _COLUMN, "the text '5 %'"),
        ("value", json_columns(f"{{name: {'é' * 32}, type: text}}"), "value.columns[0].name", _COLUMN, "the text"),
        (
            "value",
            json_columns("{name: ctid, type: text}"),
            "value.columns[0].name",
            "a column name that is not",
            "the",
        ),
        (
            "value",
            json_columns("{name: stage_task, type: text}"),
            "value.columns[0].name",
            "a column name that is",
            "the",
        ),
        (
            "value",
            json_columns("{name: a, type: text, path: '$[0]'}"),
            "value.columns[0].path",
            "a JSON path",
            "the text",
        ),
        (
            "value",
            json_columns("{name: a, type: text, path: 5}"),
            "value.columns[0].path",
            "a JSON path of",
            "the number 5",
        ),
        (
            "value",
            json_columns("{name: a, type: text, required: yes}"),
            "value.columns[0].required",
            "true or false",
            "the",
        ),
        (
            "value",
            json_columns("{name: a, type: text}", more=", required: true"),
            "value.required",
            "required in the entries of columns",
            "required for all of them",
        ),
        (
            "value",
            json_columns("{name: a, type: text}", "{name: b, type: jsonb, path: $.a.b}"),
            "value.columns[0].type",
            "jsonb for an object",
            "the type text, while other columns take members of $.a",
        ),
        # column names over all sections
        (
            "value",
            json_columns("{name: a, type: text}", "{name: a, type: text}"),
            "value.columns[1].name",
            "a column name of its own",
            "a, which value.columns[0].name has already",
        ),
        (
            "value",
            json_columns("{name: kafka_offset, type: bigint}"),
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
    tmp_path: Path, key: str, value: str | None, place: str, expected: str, found: str
) -> None:
    text = pipeline_text(**{key: value})
    lines = text.splitlines()
    line = next((number for number, at in enumerate(lines, 1) if at.startswith(f"{key}:")), 1)
    (fault,) = faults_of(tmp_path / "pipeline.yaml", text)
    assert fault.startswith(f"{line}: {place}: expected {expected}")
    assert f"; found {found}" in fault

"""Every kind of fault of a pipeline file: its line, its key, plain words, all at once, and never a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.files import load_pipeline
from tests.pipeline_texts import faults_of, json_columns, pipeline_text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.yaml"


def test_the_sound_file_of_these_tests_has_no_fault(path: Path) -> None:
    path.write_text(pipeline_text(), encoding="utf-8")
    assert load_pipeline(path).pipeline == "orders"


@pytest.mark.parametrize("value", ["{format: raw, column: a, columns: [{name: b, type: text}]}"])
def test_columns_beside_raw_bytes_are_refused(path: Path, value: str) -> None:
    assert faults_of(path, pipeline_text(value=value)) == [
        "5: value.columns: expected column alone with the format raw; found columns"
    ]


@pytest.mark.parametrize(("given", "found"), [(None, "nothing"), ("row", "row")])
def test_tombstones_must_be_decided_where_a_column_of_the_value_is_required(
    path: Path, given: str | None, found: str
) -> None:
    text = pipeline_text(value=json_columns("{name: id, type: bigint, required: true}"), tombstones=given)
    (fault,) = faults_of(path, text)
    assert fault.startswith(f"{7 if given else 1}: tombstones: expected dead_letter or count, since a column")
    assert fault.endswith(f"; found {found}")


@pytest.mark.parametrize(
    "value", ["{format: raw, column: a, required: true}", "{format: json, column: a, required: true}"]
)
def test_tombstones_must_be_decided_where_the_whole_value_is_required(path: Path, value: str) -> None:
    (fault,) = faults_of(path, pipeline_text(value=value))
    assert fault.startswith("1: tombstones: expected dead_letter or count")
    path.write_text(pipeline_text(value=value, tombstones="count"), encoding="utf-8")
    assert load_pipeline(path).batch.tombstones == "count"


def test_an_unknown_place_to_begin_names_the_known_ones(path: Path) -> None:
    assert faults_of(path, pipeline_text(first_run="{timestmp: 2026-01-01T00:00:00Z}")) == [
        "4: first_run: expected either timestamp or offsets; found neither",
        "4: first_run.timestmp: expected a known key (did you mean timestamp?); found the unknown key timestmp",
    ]


def test_an_offset_of_a_topic_that_the_pattern_does_not_match_is_a_fault(path: Path) -> None:
    text = pipeline_text(kafka="{pattern: 'shop\\..*'}", first_run="{offsets: {shop.a: {0: 1}, other: {0: 1}}}")
    assert faults_of(path, text) == [
        "4: first_run.offsets.other: expected a topic that kafka.pattern matches; found other"
    ]


def test_an_interval_needs_a_schedule(path: Path) -> None:
    (fault,) = faults_of(path, pipeline_text(schedule="null", end="interval"))
    assert fault == (
        "7: end: expected head, or a schedule, whose intervals bound the runs; found interval and schedule: null"
    )


def test_only_bounded_runs_with_a_start_are_caught_up(path: Path) -> None:
    unbounded, without_start = faults_of(path, pipeline_text(catchup="true"))
    assert unbounded.startswith("7: catchup: expected end: interval beside it")
    assert unbounded.endswith("; found end: head")
    assert without_start.startswith("7: catchup: expected a start_date beside it")
    assert without_start.endswith("; found the default start_date")


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
spark:
  tasks: 1.5
spark:
  tasks: 2
"""
    assert [fault.split(": ")[:2] for fault in faults_of(path, text)] == [
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


def test_what_a_fault_quotes_never_breaks_its_line(path: Path) -> None:
    assert _unbroken(faults_of(path, pipeline_text() + '"a\\nb": 1\n'), "7: ['a\\nb']: expected a known key")
    assert _unbroken(faults_of(path, pipeline_text(schedule='"61\\n* * * *"')), "2: schedule: expected a cron")


def _unbroken(faults: list[str], start: str) -> bool:
    return len(faults) == 1 and faults[0].startswith(start)


def test_an_unreadable_value_is_one_fault_and_not_two(path: Path) -> None:
    assert faults_of(path, pipeline_text(first_run="!!binary aa")) == [
        "4: first_run: expected a plain value; found the tag tag:yaml.org,2002:binary"
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_file_says_what_belongs_into_it(path: Path, text: str) -> None:
    assert faults_of(path, text) == [
        "1: expected a mapping of keys to values that begins with pipeline: NAME; found an empty file"
    ]


@pytest.mark.parametrize("text", ["- pipeline: orders\n", "orders\n"])
def test_a_file_that_is_no_mapping_says_so(path: Path, text: str) -> None:
    assert faults_of(path, text) == [
        "1: expected a mapping of keys to values that begins with pipeline: NAME; found something else"
    ]


def test_broken_yaml_is_the_only_fault(path: Path) -> None:
    (fault,) = faults_of(path, "pipeline: orders\nkafka: {topics: [a\n")
    assert fault.startswith("3: expected valid YAML; found a syntax error")


def test_a_file_that_cannot_be_read_is_a_fault_of_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 1 fault") as caught:
        load_pipeline(tmp_path / "missing.yaml")
    assert caught.value.found.endswith("expected a readable file; found: No such file or directory")


def test_the_error_has_all_four_parts_and_each_fault_on_a_line_of_its_own(path: Path) -> None:
    path.write_text(pipeline_text(schedule=None, first_run=None), encoding="utf-8")
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
    faults = faults_of(path, pipeline_text(**{key: value}))
    assert faults
    assert "hunter2" not in "\n".join(faults)

"""Every kind of fault of a pipeline file: its line, its key, plain words, all at once, and never a secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.files import load_pipeline
from tests.pipeline_texts import faults_of, pipeline_text

CASES = Path(__file__).parents[1] / "data" / "pipelines" / "faults.txt"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.yaml"


def test_the_sound_file_of_these_tests_has_no_fault(path: Path) -> None:
    path.write_text(pipeline_text(), encoding="utf-8")
    assert load_pipeline(path).pipeline == "orders"


Case = tuple[dict[str, str | None], list[str]]


def _cases() -> list[Case]:
    """Return what each case changes in the sound file, and the faults that the file then has."""
    cases: list[Case] = [({}, [])]
    for line in CASES.read_text(encoding="utf-8").splitlines():
        changes, faults = cases[-1]
        if line.startswith(" "):
            faults.append(line.strip())
        elif line and not line.startswith("#"):
            key, colon, value = line.removeprefix("- ").partition(":")
            change = {key: value.strip() if colon else None}
            if faults:
                cases.append((change, []))
            else:
                changes |= change
    return cases


@pytest.mark.parametrize(("changes", "expected"), _cases(), ids=lambda part: part[0] if isinstance(part, list) else "")
def test_a_fault_names_line_key_expected_and_found(
    path: Path, changes: dict[str, str | None], expected: list[str]
) -> None:
    faults = faults_of(path, pipeline_text(**changes))
    assert len(faults) == len(expected), faults
    for fault, words in zip(faults, expected, strict=True):
        assert re.fullmatch(".*".join(map(re.escape, words.split("…"))), fault), fault


@pytest.mark.parametrize(
    "value", ["{format: raw, column: a, required: true}", "{format: json, column: a, required: true}"]
)
def test_a_required_value_is_sound_where_tombstones_are_only_counted(path: Path, value: str) -> None:
    path.write_text(pipeline_text(value=value, tombstones="count"), encoding="utf-8")
    assert load_pipeline(path).batch.tombstones == "count"


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
    (fault,) = faults_of(path, pipeline_text() + '"a\\nb": 1\n')
    assert fault.startswith("7: ['a\\nb']: expected a known key")


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

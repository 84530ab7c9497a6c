"""Finding and reading pipeline files: a broken one hides nothing, and two never load one topic into one table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.document import YamlDocument, parse_yaml
from kafka_ingest.pipeline_files.files import (
    FOLDERS_VARIABLE,
    find_pipeline,
    load_pipelines,
    pipeline_paths,
    read_pipelines,
)


@pytest.fixture(autouse=True)
def _no_folders_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDERS_VARIABLE, raising=False)


def _write(path: Path, name: str, *, kafka: str = "{topics: [orders]}", target: str = "{table: shop.orders}") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"pipeline: {name}\nschedule: null\nkafka: {kafka}\nfirst_run: earliest\n"
        f"value: {{format: json, column: payload}}\ntarget: {target}\n",
        encoding="utf-8",
    )
    return path


def test_files_come_by_folder_and_then_by_name_each_once(tmp_path: Path) -> None:
    own, more = tmp_path / "own", tmp_path / "more"
    names = [own / "b.yaml", own / "a.yml", own / "C.YAML", more / "a.yaml"]
    for path in names:
        _write(path, "x")
    for path in (own / "notes.txt", own / ".hidden.yaml", own / "deeper" / "d.yaml"):
        _write(path, "x")
    (more / "link.yaml").symlink_to(own / "b.yaml")
    environment = {FOLDERS_VARIABLE: os.pathsep.join([str(more), "", str(own)])}
    assert pipeline_paths(own, environment=environment) == [
        own / "C.YAML",
        own / "a.yml",
        own / "b.yaml",
        more / "a.yaml",
    ]


def test_a_missing_default_folder_is_no_fault(tmp_path: Path) -> None:
    assert pipeline_paths(tmp_path / "missing", environment={}) == []


def test_the_default_folder_holds_the_examples() -> None:
    assert {path.name for path in pipeline_paths(environment={})} >= {"orders.yaml", "raw_events.yaml"}


def test_a_missing_or_relative_folder_in_the_environment_is_a_fault(tmp_path: Path) -> None:
    environment = {FOLDERS_VARIABLE: os.pathsep.join([str(tmp_path), "/missing/folder", "relative"])}
    with pytest.raises(ConfigError, match="names folders that are not there") as caught:
        pipeline_paths(tmp_path, environment=environment)
    assert caught.value.found.splitlines() == ["/missing/folder", "relative"]


def test_a_broken_file_does_not_hide_the_sound_ones(tmp_path: Path) -> None:
    sound = _write(tmp_path / "a.yaml", "a")
    broken = _write(tmp_path / "b.yaml", "B")
    loaded = read_pipelines([broken, sound])
    assert {path: settings.pipeline for path, settings in loaded.settings.items()} == {sound: "a"}
    assert list(loaded.errors) == [broken]


def _alias_bomb() -> str:
    levels = [f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 11)]
    return "a0: &a0 [x]\n" + "".join(levels)


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        (_alias_bomb(), 2, "the alias *a0"),
        ("a: " + "[" * 900_000, 1, "nesting depth"),
        ("\n".join(f"k{number}: 1" for number in range(24_000)), 1, "the unknown key k0"),
        ("\n".join(f"k{number}: 1" for number in range(700_000)), 1, "more"),
        ("description: '" + "x" * 2_000_000 + "'", 1, "more"),
        (f"? '{'k' * 900_000}'\n: 1\n", 1, "kkk..."),
        ("schedule: '" + "0," * 100_000 + "0 * * * *'\n", 1, "the text '0,0,"),
        ("kafka: {pattern: '" + "(" * 900 + "'}", 1, "the text '((("),
        ("value: {columns: [{name: a, type: text, path: $" + ".a" * 400_000 + "}]}", 1, "the text '$.a.a"),
        (
            "kafka: {pattern: '(a+)+$'}\nfirst_run: {offsets: {"
            + ", ".join(f"{'a' * 200}{n}: {{0: 1}}" for n in range(3_000))
            + "}}",
            1,
            "nothing",
        ),
    ],
)
def test_whatever_one_file_holds_its_faults_are_few_and_the_other_pipelines_go_on(
    tmp_path: Path, content: str, line: int, found: str
) -> None:
    sound = _write(tmp_path / "a.yaml", "a")
    broken = tmp_path / "b.yaml"
    broken.write_text(content, encoding="utf-8")
    loaded = read_pipelines([broken, sound])
    assert {path: settings.pipeline for path, settings in loaded.settings.items()} == {sound: "a"}
    assert list(loaded.errors) == [broken]
    told = loaded.errors[broken].found
    assert f"{broken}:{line}: " in told
    assert found in told
    assert len(told.splitlines()) <= 101
    assert len(told) <= 101 * (1_000 + len(str(broken)) + 20)


def test_a_name_that_may_be_a_secret_is_shown_nowhere(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.yaml", "../../etc/passwd")
    with pytest.raises(ConfigError) as caught:
        load_pipelines([path])
    assert "passwd" not in str(caught.value)


def test_a_pipe_among_the_files_is_a_fault_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    sound = _write(tmp_path / "b.yaml", "b")
    loaded = read_pipelines(pipeline_paths(tmp_path, environment={}))
    assert list(loaded.settings) == [sound]
    assert "something that is not a regular file" in loaded.errors[tmp_path / "a.yaml"].found
    assert find_pipeline("b", tmp_path).pipeline == "b"


def test_a_pattern_that_may_take_for_ever_is_left_to_the_plan(tmp_path: Path) -> None:
    one = _write(tmp_path / "a.yaml", "a", kafka="{pattern: '(a+)+$'}")
    other = _write(tmp_path / "b.yaml", "b", kafka=f"{{topics: [{'a' * 240}-]}}")
    assert len(load_pipelines([one, other])) == 2


def test_loading_many_files_tells_the_faults_of_all(tmp_path: Path) -> None:
    paths = [_write(tmp_path / f"{name}.yaml", name) for name in ("A", "ok", "B")]
    with pytest.raises(ConfigError, match="2 of 3 pipeline files have faults") as caught:
        load_pipelines(paths)
    assert [line.split(": ")[0] for line in caught.value.found.splitlines()] == [f"{paths[0]}:1", f"{paths[2]}:1"]


def test_sound_files_are_loaded_in_their_order(tmp_path: Path) -> None:
    paths = [_write(tmp_path / f"{name}.yaml", name, target=f"{{table: s.{name}}}") for name in ("b", "a")]
    assert [settings.pipeline for settings in load_pipelines(paths)] == ["b", "a"]


def test_two_files_with_one_name_are_both_broken_and_name_each_other(tmp_path: Path) -> None:
    one = _write(tmp_path / "a.yaml", "orders")
    other = _write(tmp_path / "b.yaml", "orders", target="{table: shop.other}")
    errors = read_pipelines([one, other]).errors
    assert errors[one].found == f"{one}:1: pipeline: expected a name of its own; found orders, as in {other}:1"
    assert errors[other].found == f"{other}:1: pipeline: expected a name of its own; found orders, as in {one}:1"


@pytest.mark.parametrize(
    ("kafka", "place", "shared"),
    [
        ("{topics: [x, orders]}", "kafka.topics", "orders"),
        ("{pattern: 'ord.*'}", "kafka.pattern", "orders"),
    ],
)
def test_two_pipelines_that_load_a_topic_into_a_table_are_both_broken(
    tmp_path: Path, kafka: str, place: str, shared: str
) -> None:
    one = _write(tmp_path / "a.yaml", "a")
    other = _write(tmp_path / "b.yaml", "b", kafka=kafka)
    errors = read_pipelines([one, other]).errors
    words = f"expected one pipeline for a topic and a table; found {shared} into shop.orders, as in"
    assert errors[one].found == f"{one}:3: kafka.topics: {words} {other}:3"
    assert errors[other].found == f"{other}:3: {place}: {words} {one}:3"


def test_the_same_pattern_into_the_same_table_is_a_fault(tmp_path: Path) -> None:
    paths = [_write(tmp_path / f"{name}.yaml", name, kafka="{pattern: 'ord.*'}") for name in ("a", "b")]
    errors = read_pipelines(paths).errors
    assert len(errors) == 2
    assert "found the pattern ord.* into shop.orders" in errors[paths[0]].found


@pytest.mark.parametrize(
    ("kafka", "target"),
    [
        ("{topics: [other]}", "{table: shop.orders}"),
        ("{topics: [orders]}", "{table: shop.other}"),
        ("{topics: [orders]}", "{table: shop.orders, connection: another}"),
        ("{topics: [orders], connection: another}", "{table: shop.orders}"),
        ("{pattern: 'other.*'}", "{table: shop.orders}"),
    ],
)
def test_pipelines_that_differ_in_topic_table_or_connection_go_together(
    tmp_path: Path, kafka: str, target: str
) -> None:
    paths = [_write(tmp_path / "a.yaml", "a"), _write(tmp_path / "b.yaml", "b", kafka=kafka, target=target)]
    assert len(load_pipelines(paths)) == 2


def test_a_pipeline_is_found_by_its_name_whatever_its_file_is_called(tmp_path: Path) -> None:
    _write(tmp_path / "a.yaml", "orders_2")
    _write(tmp_path / "b.yaml", "orders")
    assert find_pipeline("orders", tmp_path).pipeline == "orders"


def test_faults_of_another_file_do_not_matter_to_find_a_pipeline(tmp_path: Path) -> None:
    _write(tmp_path / "a.yaml", "orders")
    (tmp_path / "b.yaml").write_text("orders: [", encoding="utf-8")
    assert find_pipeline("orders", tmp_path).pipeline == "orders"


def test_a_pipeline_without_a_file_is_told_with_the_command_that_lists_them(tmp_path: Path) -> None:
    _write(tmp_path / "a.yaml", "orders")
    with pytest.raises(ConfigError, match="there is no pipeline order") as caught:
        find_pipeline("order", tmp_path)
    assert "check-config" in caught.value.next_command


def test_a_pipeline_with_a_broken_file_is_told_its_faults(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.yaml", "orders", target="{table: orders}")
    with pytest.raises(ConfigError) as caught:
        find_pipeline("orders", tmp_path)
    assert caught.value.found.startswith(f"{path}:6: target.table: expected a table name with its schema")


def test_a_name_in_two_files_finds_neither(tmp_path: Path) -> None:
    for name in ("a", "b"):
        _write(tmp_path / f"{name}.yaml", "orders", target=f"{{table: s.{name}}}")
    with pytest.raises(ConfigError) as caught:
        find_pipeline("orders", tmp_path)
    assert str(tmp_path / "a.yaml") in caught.value.found
    assert str(tmp_path / "b.yaml") in caught.value.found


def test_each_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []

    def parse_and_count(content: bytes) -> YamlDocument:
        parsed.append(content)
        return parse_yaml(content)

    monkeypatch.setattr("kafka_ingest.pipeline_files.files.parse_yaml", parse_and_count)
    paths = [_write(tmp_path / f"p{n}.yaml", f"p{n}", target=f"{{table: s.t{n}}}") for n in range(5)]
    assert len(load_pipelines(paths)) == 5
    assert len(parsed) == 5

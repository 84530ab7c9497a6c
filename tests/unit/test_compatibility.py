"""What README.md claims of versions is what ``make compat`` has run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import compat
from tools.compat import FAILED, NOT_HAD, PASSED, ROOT, TESTS, Combination, Result

MATRIX = {combination.name: combination for combination in compat.read_matrix()}
RESULTS = compat.read_results()
#: ``| name | oldest to newest | …`` below README's heading.
_ROW = re.compile(r"^\| (\w+) \| ([^|]+?) \|", re.M)


def result(name: str, outcome: str, **versions: str) -> Result:
    older = {"Python": "3.11.2", "Airflow": "3.9.0", "Spark": "4.0.0", "Java": "17.0.9", "Kafka": "3.0.2"}
    return Result(name, "2026-01-01", older | {"PostgreSQL": "14.2"} | versions, {"load": outcome}, {"load": 7})


def program(folder: Path, name: str, version: str) -> Path:
    folder.mkdir()
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "{name} {version} (a build)"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_table_of_versions_claims_what_ran_and_passed() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Versions\n")[1].split("\n## ")[0]
    assert dict(_ROW.findall(section)) == compat.claimed(RESULTS)


@pytest.mark.parametrize("kept", RESULTS, ids=lambda kept: kept.name)
def test_a_result_is_of_the_versions_and_the_runs_that_the_matrix_asks_for(kept: Result) -> None:
    wanted: Combination = MATRIX[kept.name]
    assert set(kept.outcomes) == set(wanted.runs) <= set(TESTS)
    services = {"Python": wanted.python, "Java": wanted.java, "Kafka": wanted.kafka, "PostgreSQL": wanted.postgres}
    assert {axis: f"{kept.versions[axis]}.".startswith(f"{text}.") for axis, text in services.items()} == dict.fromkeys(
        services, True
    )


@pytest.mark.parametrize("test", [test for run in TESTS.values() for test in run])
def test_the_tests_that_are_run_exist(test: str) -> None:
    path, _, name = test.partition("::")
    assert (ROOT / path).exists()
    assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_what_failed_or_was_not_had_is_not_claimed() -> None:
    claimed = compat.claimed([result("a", PASSED), result("b", NOT_HAD, PostgreSQL="99", Java="8")])
    assert (claimed["Java"], claimed["PostgreSQL"]) == ("17", "14")
    # Any part of what failed may be the reason.
    assert set(compat.claimed([result("a", PASSED), result("b", FAILED)]).values()) == {"none"}


def test_versions_are_compared_as_numbers() -> None:
    assert compat.claimed([result("a", PASSED, Airflow="3.10.0"), result("b", PASSED)])["Airflow"] == "3.9 to 3.10"


def test_the_page_names_what_was_not_had() -> None:
    missing = Result("old", "2026-01-01", {"Java": "8"}, {"load": NOT_HAD}, {}, "java 8: nowhere")
    page = compat.page([missing, result("new", PASSED)])
    assert "old: not had: java 8: nowhere." in page
    assert "| new | 3.11.2 | 3.9.0 | 4.0.0 | 17.0.9 | 3.0.2 | 14.2 |  | passed, 7 s |  | 2026-01-01 |" in page


def test_lower_bounds_become_pins(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        """
        [project]
        dependencies = ["one>=1.2"]
        optional-dependencies = {airflow = ["two>=3"], spark = ["three>=4.0,<5"], registry = ["four>=1"]}
        """,
        encoding="utf-8",
    )
    assert compat.lower_bounds(tmp_path / "pyproject.toml") == ["one==1.2", "two==3", "three==4.0"]


def test_a_program_is_taken_by_its_version_and_not_by_the_beginning_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twenty_one, two = program(tmp_path / "a", "java", "21.0.2"), program(tmp_path / "b", "java", "2.1")
    monkeypatch.setenv(compat.PATH_VARIABLE, f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    assert (compat.find_program("java", "21"), compat.find_program("java", "2")) == (twenty_one, two)
    with pytest.raises(compat.NotHad, match="java 1: in no folder"):
        compat.find_program("java", "1")

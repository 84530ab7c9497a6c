"""The packages that a load needs, and how an interpreter tells what it has of them."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_ingest.spark.packages import (
    OLDEST_PACKAGES,
    OLDEST_PYTHON,
    InterpreterFacts,
    read_report,
    this_interpreter,
    write_report,
)

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_oldest_versions_are_those_that_the_package_asks_for() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    found = dict(re.findall(r"([\w-]+)>=([\d.]+)", " ".join(asked)))
    modules = {"psycopg2-binary": "psycopg2"}
    assert {modules.get(name, name.replace("-", "_")): version for name, version in found.items()} == OLDEST_PACKAGES
    assert project["requires-python"] == f">={OLDEST_PYTHON}"


def test_this_interpreter_has_what_the_tests_run_with() -> None:
    own = this_interpreter()
    assert [name for name, _ in own.versions] == list(OLDEST_PACKAGES)
    assert own.python == ".".join(str(part) for part in sys.version_info[:3])
    assert own.faults == ()


def test_a_package_that_cannot_be_imported_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert this_interpreter().faults == (("msgspec", "import of msgspec halted; None in sys.modules"),)


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert read_report(path) is None
    driver = InterpreterFacts("driver", "3.11.7", (("pyarrow", "26.0.1"),))
    found = [driver, replace(driver, faults=(("msgspec", "gone"),))]
    write_report(path, found)
    assert read_report(path) == found

"""Documents that name a test as evidence name one that exists, and reports list every test that is named for them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
GUARANTEES = CHECKOUT / "docs" / "guarantees.md"


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def reports() -> dict[str, set[str]]:
    """Return the tests that are listed for each public report."""
    text = GUARANTEES.read_text(encoding="utf-8")
    section = text.split("## Public bug reports that must not happen here\n")[1].split("\n## ")[0]
    parts = re.split(r"^\*\*(C\d\d)\. ", section, flags=re.MULTILINE)[1:]
    return {
        case: set(re.findall(r"`tests/\S+::(\w+)`", listed))
        for case, listed in zip(parts[::2], parts[1::2], strict=True)
    }


def test_every_test_that_a_document_names_exists() -> None:
    named = [
        (document.name, path, test)
        for document in (CHECKOUT / "docs").glob("*.md")
        for path, test in re.findall(r"`(tests/\S+\.py)::(\w+)`", document.read_text(encoding="utf-8"))
    ]
    assert len(named) > 50
    assert [entry for entry in named if entry[2] not in names_of_tests(CHECKOUT / entry[1])] == []


def test_every_test_that_is_named_for_a_report_is_listed_there() -> None:
    listed = reports()
    missing = [
        (case, test)
        for path in (CHECKOUT / "tests").rglob("test_*.py")
        for test in names_of_tests(path)
        for case in (number.upper() for number in re.findall(r"(?<=_)c\d\d(?=_)", test))
        if case in listed and test not in listed[case]
    ]
    assert missing == []

"""The model, its cuts and its page name the same guards. Whether each is needed is for ``make model`` to find out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from model.check import guards
from model.cuts import CUTS

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "protocol-model.md"
MODEL = CHECKOUT / "model"


def rows_of_the_page() -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_every_guard_of_the_model_has_one_row_in_the_page_and_every_row_a_guard() -> None:
    assert sorted(rows_of_the_page()) == sorted(guards())


def test_every_guard_is_taken_out_by_a_cut_and_every_cut_takes_out_guards_that_exist() -> None:
    assert {guard for cut in CUTS for guard in cut.guards} == set(guards())


def test_the_page_names_no_guard_that_does_not_exist() -> None:
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+|HOLD|REPLACE|GENERATION)`", PAGE.read_text(encoding="utf-8")))
    assert named == set(guards())


@pytest.mark.parametrize("guard", guards())
def test_a_guard_is_used_in_the_model(guard: str) -> None:
    names = ("ledger.pml", "attempt.pml", "operator.pml", "world.pml")
    steps = "".join((MODEL / name).read_text(encoding="utf-8") for name in names)
    assert re.search(rf"\b{guard}\b", steps)


@pytest.mark.parametrize("guard", guards())
def test_a_guard_can_be_switched_off_and_says_where_the_code_has_it(guard: str) -> None:
    text = (MODEL / "guards.pml").read_text(encoding="utf-8")
    block = rf"/\* .+\((.+)\)\. \*/\n#ifdef NO_{guard}\n#define {guard} false\n#else\n#define {guard} true\n#endif\n"
    assert re.search(block, text)

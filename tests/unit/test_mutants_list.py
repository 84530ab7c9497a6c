from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutants import ROOT, Guard, read_guards

GUARDS = read_guards()


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_can_be_removed_where_the_list_says(guard: Guard) -> None:
    for edit in guard.edits:
        assert (ROOT / edit.file).read_text(encoding="utf-8").count(edit.text) == 1, edit.file
        assert edit.text != edit.becomes


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_names_tests_that_exist(guard: Guard) -> None:
    assert guard.tests
    for command in guard.tests:
        assert Path(ROOT / command.split()[0].split("::")[0]).is_file(), command


def test_names_of_guards_are_distinct() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)

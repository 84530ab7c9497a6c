"""The random changes of a table are the same for the same seed, and of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pytest

from tests.random_dml import Kind, Statement, transactions

SEEDS = range(20)


def first_statements(count: int, seed: int, *, kinds: Sequence[Kind] = tuple(Kind)) -> list[Statement]:
    """Return the first statements, of whatever transaction."""
    return list(islice((one for statements in transactions(seed, kinds=kinds) for one in statements), count))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_draws_the_same_transactions(seed: int) -> None:
    assert list(islice(transactions(seed), 100)) == list(islice(transactions(seed), 100))


def test_another_seed_draws_other_statements() -> None:
    assert first_statements(300, 1) != first_statements(300, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_occurs_within_300_statements(seed: int) -> None:
    assert {statement.kind for statement in first_statements(300, seed)} == set(Kind)


@pytest.mark.parametrize("seed", SEEDS)
def test_long_and_short_notes_and_nulls_occur_within_300_statements(seed: int) -> None:
    texts = [statement.text for statement in first_statements(300, seed)]
    assert any("rpad(" in text for text in texts)
    assert any("NULL" in text for text in texts)
    assert any("'note " in text and "rpad(" not in text for text in texts)


def test_a_key_is_inserted_deleted_and_inserted_in_one_transaction() -> None:
    found = next(one for one in transactions(1) if any(statement.kind is Kind.REINSERT for statement in one))
    verbs = [statement.text.split()[0] for statement in found if statement.kind is Kind.REINSERT]
    assert verbs[:3] == ["INSERT", "DELETE", "INSERT"]


def test_kinds_that_are_left_out_do_not_occur() -> None:
    kinds = [Kind.INSERT, Kind.DELETE]
    assert {statement.kind for statement in first_statements(300, 1, kinds=kinds)} == set(kinds)


def test_a_table_full_of_rows_is_changed_without_inserts() -> None:
    drawn = first_statements(300, 1, kinds=[Kind.INSERT, Kind.UPDATE])
    # There are 40 keys, and nothing deletes.
    assert sum(statement.kind is Kind.INSERT for statement in drawn) == 40

"""What a soak expects in the database follows from publications, roll-backs and position changes, in their order."""

from __future__ import annotations

import pytest

from sandbox.ledger_history import CountedRange, LedgerHistory, Spans, cut, holds, joined, played


@pytest.mark.parametrize(
    ("spans", "added", "expected"),
    [
        ((), (5, 9), ((5, 9),)),
        (((0, 5),), (5, 9), ((0, 9),)),
        (((0, 4), (6, 8), (20, 30)), (3, 7), ((0, 8), (20, 30))),
        (((0, 4), (20, 30)), (10, 12), ((0, 4), (10, 12), (20, 30))),
        (((0, 40),), (10, 12), ((0, 40),)),
    ],
)
def test_spans_that_touch_become_one(spans: Spans, added: tuple[int, int], expected: Spans) -> None:
    assert joined(spans, *added) == expected


@pytest.mark.parametrize(
    ("spans", "taken", "expected"),
    [
        (((0, 9),), (5, 9), ((0, 5),)),
        (((0, 9),), (3, 5), ((0, 3), (5, 9))),
        (((0, 4), (6, 8), (20, 30)), (2, 25), ((0, 2), (25, 30))),
        (((0, 4),), (4, 9), ((0, 4),)),
    ],
)
def test_what_is_rolled_back_is_cut_out(spans: Spans, taken: tuple[int, int], expected: Spans) -> None:
    assert cut(spans, *taken) == expected


def test_an_offset_lies_in_a_span_from_its_begin_to_before_its_end() -> None:
    assert [offset for offset in range(10) if holds(((2, 4), (7, 8)), offset)] == [2, 3, 7]


def test_a_later_publication_loads_what_a_roll_back_took_but_not_what_a_skip_passed_over() -> None:
    loaded = played([(0, 0, 100, True), (0, 60, 100, False), (0, 80, 120, True), (1, 0, 5, True)])
    assert loaded == {0: ((0, 60), (80, 120)), 1: ((0, 5),)}


def test_given_up_is_what_a_change_passed_over_and_nothing_loaded() -> None:
    """After a reset backwards rows stay: passing over 20 to 40 gives up only what lies above the rows at 30."""
    history = LedgerHistory(loaded={0: ((0, 30), (40, 50))}, given_up={0: ((20, 40),)})
    assert [offset for offset in range(60) if history.is_given_up(0, offset)] == list(range(30, 40))
    assert not history.is_given_up(1, 30)


def test_every_range_is_asked_for_its_tombstones_however_often_they_were_read() -> None:
    counted = (
        CountedRange(0, 0, 10, 2),
        CountedRange(0, 5, 10, 1),
        CountedRange(0, 10, 20, 1),
        CountedRange(1, 0, 5, 0),
    )
    history = LedgerHistory(loaded={0: ((0, 20),)}, given_up={}, counted=counted)
    assert history.miscounted({0: [3, 9, 10]}) == 0
    assert history.miscounted({0: [3, 4, 10], 1: [0]}) == 2


def test_a_tombstone_that_no_range_read_is_uncounted_unless_it_was_given_up() -> None:
    history = LedgerHistory(loaded={0: ((0, 10),)}, given_up={0: ((10, 15),)})
    assert history.uncounted({0: [9, 12, 17], 1: [0]}) == 2

"""The progress in which the moments of a soak's faults are measured."""

from __future__ import annotations

import pytest

from sandbox.soak.progress import Piece, Progress, Sighting, Usual

SECONDS = {Piece.PLAN: 2.0, Piece.START: 4.0, Piece.OPEN: 1.0, Piece.STAGE: 1.0, Piece.PUBLISH: 0.5, Piece.END: 1.0}


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def seen(state: str = "planned", *, claim: int = 0, staged: int = 0, publishing: bool = False) -> Sighting:
    return Sighting("b1", state, claim, 1000, staged, publishing)


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def progress(clock: Hands) -> Progress:
    return Progress(Usual(dict(SECONDS), bytes_per_offset=200.0), clock=clock)


def test_time_counts_until_the_batch_is_planned_and_never_reaches_the_next_piece(
    progress: Progress, clock: Hands
) -> None:
    assert progress.take_in(None) == 0
    clock.seconds += 1.0
    assert progress.take_in(None) == pytest.approx(0.075)  # half of the usual 2 s, of a piece that ends at 0.15
    clock.seconds += 60.0
    assert progress.take_in(None) < 0.15


def test_staged_bytes_count_while_rows_are_copied(progress: Progress) -> None:
    progress.take_in(seen())
    # 1000 offsets of 200 bytes are expected; half of them is half of the piece from 0.45 to 0.70.
    assert progress.take_in(seen(claim=1, staged=100_000)) == pytest.approx(0.575)


def test_each_step_of_the_ledger_begins_its_piece(progress: Progress) -> None:
    steps = [seen(), seen(claim=1), seen(claim=1, staged=1), seen(claim=1, staged=9, publishing=True)]
    begins = [progress.take_in(step) for step in [*steps, seen("committed", claim=1)]]
    assert begins == pytest.approx([0.15, 0.30, 0.45, 0.70, 0.90], abs=0.001)


def test_progress_never_goes_back(progress: Progress) -> None:
    assert progress.take_in(seen(claim=1, publishing=True)) == pytest.approx(0.70)
    assert progress.take_in(None) == pytest.approx(0.70)
    assert progress.take_in(seen(claim=1, staged=10)) == pytest.approx(0.70)


def test_the_claim_of_an_older_attempt_is_not_this_attempt_s(clock: Hands) -> None:
    progress = Progress(Usual(dict(SECONDS)), seen(claim=1), clock=clock)
    assert progress.take_in(seen(claim=1)) == pytest.approx(0.15)
    assert progress.take_in(seen(claim=2)) == pytest.approx(0.30)


def test_what_is_usual_follows_the_runs(clock: Hands) -> None:
    usual = Usual(dict(SECONDS))
    progress = Progress(usual, clock=clock)
    clock.seconds += 4.0
    progress.take_in(seen())
    assert usual.seconds[Piece.PLAN] == pytest.approx(2.6)  # 2 s, and three tenths of the way to 4 s

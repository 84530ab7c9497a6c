"""What is recorded of a try, and that the record never decides how it ends."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from kafka_ingest.errors import Busy, DatabaseUnavailable, LedgerOutdated
from kafka_ingest.protocol.attempts import Attempt, AttemptOutcome, Step, recorded
from kafka_ingest.protocol.batch import Request
from tests.fakes.attempts import FakeAttempts


class Nothing(Exception):
    """What a step raises that has nothing to do."""


def attempt() -> Attempt:
    return Attempt("orders", Step.LOAD, Request("dag", "run 1"), "load_batch", 2)


def ended(error: BaseException | None, attempts: FakeAttempts | None = None) -> tuple[Attempt, list[str]]:
    """Runs a step that ends so; gives what is known of the try, and what was warned of."""
    own, warnings = attempt(), list[str]()
    store = attempts or FakeAttempts()
    step = recorded(own, lambda: store, warnings.append, skips=Nothing)
    with pytest.raises(type(error)) if error else nullcontext(), step:
        if error:
            raise error
    return own, warnings


@pytest.mark.parametrize(
    ("error", "outcome", "fault"),
    [
        (None, AttemptOutcome.SUCCEEDED, None),
        (Nothing(), AttemptOutcome.SKIPPED, None),
        (Busy("another request holds the pipeline"), AttemptOutcome.WAITING, "Busy"),
        (DatabaseUnavailable("nobody answers"), AttemptOutcome.FAILED, "DatabaseUnavailable"),
        (KeyError("s3cret"), AttemptOutcome.FAILED, "KeyError"),
        (KeyboardInterrupt(), AttemptOutcome.FAILED, "KeyboardInterrupt"),
    ],
)
def test_a_try_is_recorded_as_it_ended(error: BaseException | None, outcome: AttemptOutcome, fault: str | None) -> None:
    store = FakeAttempts()
    ended(error, store)
    [stored] = store.recorded.values()
    assert (stored.outcome, stored.fault) == (outcome, fault)


def test_a_fault_of_this_package_keeps_its_text_and_any_other_only_its_class() -> None:
    known, _ = ended(LedgerOutdated("the ledger is old", found="version 5"))
    unknown, _ = ended(ValueError("password=s3cret"))
    assert "version 5" in str(known.message)
    assert "s3cret" not in str(unknown.message)


@pytest.mark.parametrize("error", [None, LedgerOutdated("the ledger is old")])
def test_a_record_that_cannot_be_written_is_a_warning_and_changes_no_end(error: Exception | None) -> None:
    store = FakeAttempts()
    store.fault = DatabaseUnavailable("nobody answers")
    _, warnings = ended(error, store)
    assert len(warnings) == 1
    assert "nobody answers" in warnings[0]


def test_a_look_up_that_fails_in_its_own_way_hides_nothing_and_is_not_quoted() -> None:
    own, warnings = attempt(), list[str]()

    def attempts() -> FakeAttempts:
        raise ImportError("s3cret of a backend")

    with pytest.raises(LedgerOutdated), recorded(own, attempts, warnings.append):
        raise LedgerOutdated("the ledger is old")
    assert len(warnings) == 1
    assert "ImportError" in warnings[0]
    assert "s3cret" not in warnings[0]


def test_what_the_step_itself_failed_of_is_not_told_again() -> None:
    store = FakeAttempts()
    store.fault = DatabaseUnavailable("nobody answers")
    assert ended(DatabaseUnavailable("nobody answers"), store)[1] == []

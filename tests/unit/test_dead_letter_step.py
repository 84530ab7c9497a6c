"""The step that resolves dead letters, on a transaction that notes its calls and may say anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from kafka_ingest.errors import AccountingMismatch, DeadLetterReason, RecordsRefused, RefusedRecord
from kafka_ingest.protocol.dead_letters import (
    ChosenGroup,
    DeadLetterAction,
    DeadLetterChoice,
    DeadLetterOutcome,
    DeadLetterReport,
    DeadLetterRequest,
    DeadLetterView,
    RecordedDeadLetters,
    resolve_dead_letters,
)
from kafka_ingest.protocol.ledger_view import PlanView
from kafka_ingest.protocol.position import Position
from tests.builders import NOON, TOPIC_ID, pipeline_settings, position, view_of

GROUP = ChosenGroup("orders", 0, 0, TOPIC_ID, "malformed", records=3, first_offset=1, end_offset=9)
REQUEST = DeadLetterRequest("r1", "orders", DeadLetterAction.REPLAY, DeadLetterChoice(), "ada", "mended")
REFUSED = RefusedRecord("orders", 0, 4, DeadLetterReason.CHECK_VIOLATION, "CHECK is false")


@dataclass
class Transaction:
    """Port ``DeadLetterTransaction``, and ledger of it."""

    view: PlanView = field(default_factory=lambda: view_of(position(0, 10)))
    chosen: tuple[ChosenGroup, ...] = (GROUP,)
    inserted: int = 3
    outcome: DeadLetterOutcome = field(default_factory=lambda: DeadLetterOutcome(replayed=3))
    refusals: list[RecordsRefused] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    @contextmanager
    def begin_dead_letters(self, request: DeadLetterRequest) -> Iterator[Transaction]:
        self.calls.append("begin")
        yield self

    def lock(self) -> DeadLetterView:
        self.calls.append("lock")
        return DeadLetterView(self.view)

    def choose(self) -> Sequence[ChosenGroup]:
        self.calls.append("choose")
        return self.chosen

    def stage(self, chosen: Sequence[ChosenGroup]) -> None:
        self.calls.append("stage")

    def insert_rows(self) -> int:
        self.calls.append("insert_rows")
        if self.refusals:
            raise self.refusals.pop()
        return self.inserted

    def refuse(self, records: Sequence[RefusedRecord]) -> None:
        self.calls.append(f"refuse {[record.offset for record in records]}")

    def resolve(self) -> DeadLetterOutcome:
        self.calls.append("resolve")
        return self.outcome

    def discard(self) -> DeadLetterOutcome:
        self.calls.append("discard")
        return DeadLetterOutcome(discarded=self.inserted)

    def record(self, outcome: DeadLetterOutcome) -> RecordedDeadLetters:
        self.calls.append("record")
        return RecordedDeadLetters("r1", REQUEST.arguments, "ada", "mended", NOON, outcome)

    def commit(self) -> None:
        self.calls.append("commit")


def done(transaction: Transaction, request: DeadLetterRequest = REQUEST, *, apply: bool = True) -> DeadLetterReport:
    return resolve_dead_letters(pipeline_settings(), request, transaction, apply=apply)


def test_everything_is_one_transaction_in_this_order() -> None:
    transaction = Transaction()
    assert done(transaction).outcome == DeadLetterOutcome(replayed=3)
    assert transaction.calls == ["begin", "lock", "choose", "stage", "insert_rows", "resolve", "record", "commit"]
    discards = Transaction()
    done(discards, replace(REQUEST, action=DeadLetterAction.DISCARD))
    assert discards.calls == ["begin", "lock", "choose", "discard", "record", "commit"]


def test_a_preview_records_and_commits_nothing() -> None:
    transaction = Transaction()
    assert done(transaction, apply=False).recorded is None
    assert transaction.calls == ["begin", "lock", "choose", "stage", "insert_rows", "resolve"]


def test_where_nothing_is_chosen_nothing_is_staged_and_the_request_is_recorded() -> None:
    transaction = Transaction(chosen=())
    assert done(transaction).outcome == DeadLetterOutcome()
    assert transaction.calls == ["begin", "lock", "choose", "record", "commit"]


def test_what_the_target_refuses_is_taken_out_once_and_the_rest_inserted() -> None:
    refusal = RecordsRefused.naming([REFUSED], target="shop.orders", pipeline="orders", batch_id=None)
    transaction = Transaction(refusals=[refusal])
    done(transaction)
    assert transaction.calls[3:8] == ["stage", "insert_rows", "refuse [4]", "insert_rows", "resolve"]
    twice = Transaction(refusals=[refusal, refusal])
    with pytest.raises(RecordsRefused):
        done(twice)
    assert "commit" not in twice.calls


@pytest.mark.parametrize(
    ("inserted", "outcome"),
    [(2, DeadLetterOutcome(replayed=3)), (4, DeadLetterOutcome(replayed=3)), (2, DeadLetterOutcome(replayed=2))],
    ids=["fewer rows", "more rows", "a dead letter of which nothing became"],
)
def test_counts_that_do_not_add_up_stop_it_before_it_is_recorded(inserted: int, outcome: DeadLetterOutcome) -> None:
    transaction = Transaction(inserted=inserted, outcome=outcome)
    with pytest.raises(AccountingMismatch):
        done(transaction)
    assert "record" not in transaction.calls


@pytest.mark.parametrize("known", [{"topic_id": None}, {"topic_id": TOPIC_ID}])
def test_an_id_that_the_position_does_not_know_decides_nothing(known: dict[str, str | None]) -> None:
    stands: Position = replace(position(0, 10), topic_id=known["topic_id"])
    for of_range in (None, TOPIC_ID):
        done(Transaction(view=view_of(stands), chosen=(replace(GROUP, topic_id=of_range),)))


def test_every_log_that_a_position_left_is_listed() -> None:
    others = (replace(GROUP, generation=1), replace(GROUP, partition=7), replace(GROUP, topic_id="another"))
    transaction = Transaction(chosen=(GROUP, *others))
    with pytest.raises(Exception, match="3 faults") as stopped:
        done(transaction)
    assert all(text in str(stopped.value) for text in ("generation 1", "orders[7]", "no position", "another"))
    assert "stage" not in transaction.calls

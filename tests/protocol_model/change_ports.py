"""Ports of what people ask for: they stand still at every call, and tell the history what took effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from kafka_ingest.errors import CommitStateUnknown, DatabaseUnavailable, RefusedRecord
from kafka_ingest.protocol.dead_letters import (
    ChosenGroup,
    DeadLetterLedger,
    DeadLetterOutcome,
    DeadLetterRequest,
    DeadLetterTransaction,
    DeadLetterView,
    RecordedDeadLetters,
)
from kafka_ingest.protocol.decisions import ChangeRequest, ChangeView, NewChange
from kafka_ingest.protocol.ledger_view import RecordedChange
from kafka_ingest.protocol.ports import PositionLedger
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.roll_back import (
    RollBackLedger,
    RollBackPlan,
    RollBackRecord,
    RollBackRequest,
    RollBackTransaction,
    RollBackView,
    WrittenCounts,
    WrittenRange,
)
from kafka_ingest.settings import TargetSettings
from tests.protocol_model.attempts import Attempt, CommitAnswer
from tests.protocol_model.transactions import Transactions

T = TypeVar("T")


class GatedChanges:
    """Port ``PositionLedger`` of one attempt."""

    def __init__(self, ledger: PositionLedger, attempt: Attempt, transactions: Transactions) -> None:
        self._ledger = ledger
        self._attempt = attempt
        self._transactions = transactions

    def change_view(self, request: ChangeRequest, target: TargetSettings) -> ChangeView:
        return self._attempt.call("changes.change_view", lambda: self._ledger.change_view(request, target))

    def record_change(self, change: NewChange, seen: ChangeView) -> RecordedChange:
        return self._attempt.call("changes.record_change", lambda: self._record(change, seen))

    def _record(self, change: NewChange, seen: ChangeView) -> RecordedChange:
        recorded = self._ledger.record_change(change, seen)
        self._transactions.history.change(change.request.request_id, change.plan.moves)
        return recorded


class GatedRollBacks:
    """Port ``RollBackLedger`` of one attempt."""

    def __init__(self, ledger: RollBackLedger, attempt: Attempt, transactions: Transactions) -> None:
        self._ledger = ledger
        self._attempt = attempt
        self._transactions = transactions

    def roll_back_view(self, request: RollBackRequest) -> RollBackView:
        return self._attempt.call("roll_back.view", lambda: self._ledger.roll_back_view(request))

    @contextmanager
    def begin_roll_back(self, plan: RollBackPlan) -> Iterator[GatedRollBack]:
        own: list[GatedRollBack] = []
        try:
            self._attempt.call("roll_back.begin", lambda: own.append(self._open(plan)))
            yield own[0]
        finally:
            for session in own:
                session.close()

    def _open(self, plan: RollBackPlan) -> GatedRollBack:
        session = GatedRollBack(self._ledger.begin_roll_back(plan), self._attempt, self._transactions)
        self._transactions.open(session)
        return session


class GatedRollBack:
    """One transaction, statement by statement; the server can end it."""

    is_under_way = False

    def __init__(
        self, context: AbstractContextManager[RollBackTransaction], attempt: Attempt, transactions: Transactions
    ) -> None:
        self.is_open = True
        self._context = context
        self._transaction = context.__enter__()
        self._attempt = attempt
        self._transactions = transactions
        self._record: RollBackRecord | None = None

    def lock(self, seen: RollBackView) -> None:
        self._statement("lock", lambda: self._transaction.lock(seen))

    def count(self, ranges: Sequence[WrittenRange]) -> Sequence[WrittenCounts]:
        return self._statement("count", lambda: self._transaction.count(ranges))

    def delete(self) -> Mapping[TopicPartition, WrittenCounts]:
        return self._statement("delete", self._transaction.delete)

    def record(self, record: RollBackRecord) -> None:
        self._record = record
        self._statement("record", lambda: self._transaction.record(record))

    def commit(self) -> None:
        """Commits; a COMMIT that is under way is over at once."""
        self._attempt.call("roll_back.commit", self._commit)

    def close(self) -> None:
        """End the session; what was not committed is rolled back."""
        if self.is_open:
            self.is_open = False
            self._context.__exit__(None, None, None)

    def _statement(self, name: str, action: Callable[[], T]) -> T:
        return self._attempt.call(f"roll_back.{name}", lambda: self._on_living_session(action))

    def _on_living_session(self, action: Callable[[], T]) -> T:
        if not self.is_open:
            raise DatabaseUnavailable("the server ended the connection")
        return action()

    def _commit(self) -> None:
        answer = self._attempt.commit_answer
        if answer is CommitAnswer.LOST_BEFORE:
            self.close()
        if self.is_open:
            self._transaction.commit()
            assert self._record is not None
            self._transactions.history.roll_back(self._record)
        if not self.is_open or answer is not CommitAnswer.RECEIVED:
            raise CommitStateUnknown("the connection broke during COMMIT")


class GatedDeadLetterLedger:
    """Port ``DeadLetterLedger`` of one attempt."""

    def __init__(self, ledger: DeadLetterLedger, attempt: Attempt, transactions: Transactions) -> None:
        self._ledger = ledger
        self._attempt = attempt
        self._transactions = transactions

    @contextmanager
    def begin_dead_letters(self, request: DeadLetterRequest) -> Iterator[GatedDeadLetters]:
        own: list[GatedDeadLetters] = []
        try:
            self._attempt.call("dead_letters.begin", lambda: own.append(self._open(request)))
            yield own[0]
        finally:
            for session in own:
                session.close()

    def _open(self, request: DeadLetterRequest) -> GatedDeadLetters:
        context = self._ledger.begin_dead_letters(request)
        session = GatedDeadLetters(context, request, self._attempt, self._transactions)
        self._transactions.open(session)
        return session


class GatedDeadLetters:
    """One transaction, statement by statement; the server can end it."""

    is_under_way = False

    def __init__(
        self,
        context: AbstractContextManager[DeadLetterTransaction],
        request: DeadLetterRequest,
        attempt: Attempt,
        transactions: Transactions,
    ) -> None:
        self.is_open = True
        self._context = context
        self._transaction = context.__enter__()
        self._request = request
        self._attempt = attempt
        self._transactions = transactions

    def lock(self) -> DeadLetterView:
        return self._statement("lock", self._transaction.lock)

    def choose(self) -> Sequence[ChosenGroup]:
        return self._statement("choose", self._transaction.choose)

    def stage(self, chosen: Sequence[ChosenGroup]) -> None:
        self._statement("stage", lambda: self._transaction.stage(chosen))

    def insert_rows(self) -> int:
        return self._statement("insert_rows", self._transaction.insert_rows)

    def refuse(self, records: Sequence[RefusedRecord]) -> None:
        self._statement("refuse", lambda: self._transaction.refuse(records))

    def resolve(self) -> DeadLetterOutcome:
        return self._statement("resolve", self._transaction.resolve)

    def discard(self) -> DeadLetterOutcome:
        return self._statement("discard", self._transaction.discard)

    def record(self, outcome: DeadLetterOutcome) -> RecordedDeadLetters:
        return self._statement("record", lambda: self._transaction.record(outcome))

    def commit(self) -> None:
        """Commits; a COMMIT that is under way is over at once."""
        self._attempt.call("dead_letters.commit", self._commit)

    def close(self) -> None:
        """End the session; what was not committed is rolled back."""
        if self.is_open:
            self.is_open = False
            self._context.__exit__(None, None, None)

    def _statement(self, name: str, action: Callable[[], T]) -> T:
        return self._attempt.call(f"dead_letters.{name}", lambda: self._on_living_session(action))

    def _on_living_session(self, action: Callable[[], T]) -> T:
        if not self.is_open:
            raise DatabaseUnavailable("the server ended the connection")
        return action()

    def _commit(self) -> None:
        answer = self._attempt.commit_answer
        if answer is CommitAnswer.LOST_BEFORE:
            self.close()
        if self.is_open:
            self._transaction.commit()
            self._transactions.history.resolve(self._request)
        if not self.is_open or answer is not CommitAnswer.RECEIVED:
            raise CommitStateUnknown("the connection broke during COMMIT")

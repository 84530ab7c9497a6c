"""Ports that stand still before and after every call, so that a schedule can let others act, or kill, in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar, cast

from kafka_ingest.core.batch import Batch
from kafka_ingest.core.errors import CommitStateUnknown, DatabaseUnavailable
from kafka_ingest.core.outcome import BatchOutcome
from kafka_ingest.core.ports import BatchStanding, Publication, Publisher
from tests.protocol_model.attempts import COMMIT, Attempt, CommitAnswer

T = TypeVar("T")


class _Gated:
    def __init__(self, port: object, name: str, attempt: Attempt) -> None:
        self._port = port
        self._name = name
        self._attempt = attempt

    def __getattr__(self, method: str) -> Callable[..., Any]:
        action = getattr(self._port, method)
        return lambda *args, **named: self._attempt.call(f"{self._name}.{method}", partial(action, *args, **named))


def gated(port: T, name: str, attempt: Attempt) -> T:
    """Gives the port with a point of the attempt before and after each of its methods."""
    return cast("T", _Gated(port, name, attempt))


class Session:
    """One transaction of a publisher, which can outlive the process that began it, and die before it."""

    def __init__(
        self, batch: Batch, context: AbstractContextManager[Publication], *, committed: Callable[[Batch], None]
    ) -> None:
        self.batch = batch
        self.publication = context.__enter__()
        self.is_open = True
        self.is_under_way = False
        self._context = context
        self._committed = committed

    def commit(self) -> None:
        """Commits, and tells the world."""
        self.publication.commit()
        self._committed(self.batch)

    def close(self) -> None:
        """Ends the session; what was not committed is rolled back."""
        if self.is_open:
            self.is_open = False
            self._context.__exit__(None, None, None)


class GatedPublisher:
    """A publisher whose sessions the world can see.

    Args:
        publisher: The real one.
        attempt: Whose.
        sessions: Every session goes in here when it begins.
        committed: Told of each COMMIT that took effect.
    """

    def __init__(
        self,
        publisher: Publisher,
        attempt: Attempt,
        *,
        sessions: list[Session],
        committed: Callable[[Attempt, Batch], None],
    ) -> None:
        self._publisher = publisher
        self._attempt = attempt
        self._sessions = sessions
        self._committed = committed

    @contextmanager
    def begin(self, batch: Batch) -> Iterator[Publication]:
        own: list[Session] = []
        try:
            self._attempt.call("publisher.begin", lambda: own.append(self._open(batch)))
            yield GatedPublication(own[0], self._attempt)
        finally:
            for session in own:
                if not session.is_under_way:
                    session.close()

    def _open(self, batch: Batch) -> Session:
        session = Session(batch, self._publisher.begin(batch), committed=partial(self._committed, self._attempt))
        self._sessions.append(session)
        return session


class GatedPublication:
    """One transaction, statement by statement."""

    def __init__(self, session: Session, attempt: Attempt) -> None:
        self._session = session
        self._attempt = attempt

    def lock_batch(self) -> BatchStanding:
        return self._statement("lock_batch", self._session.publication.lock_batch)

    def advance_positions(self, outcome: BatchOutcome) -> int:
        return self._statement("advance_positions", lambda: self._session.publication.advance_positions(outcome))

    def insert_rows(self, outcome: BatchOutcome) -> int:
        return self._statement("insert_rows", lambda: self._session.publication.insert_rows(outcome))

    def insert_dead_letters(self, outcome: BatchOutcome) -> int:
        return self._statement("insert_dead_letters", lambda: self._session.publication.insert_dead_letters(outcome))

    def record_outcome(self, outcome: BatchOutcome) -> None:
        self._statement("record_outcome", lambda: self._session.publication.record_outcome(outcome))

    def commit(self) -> None:
        self._attempt.call(COMMIT, self._commit)

    def _statement(self, name: str, action: Callable[[], T]) -> T:
        return self._attempt.call(f"publication.{name}", lambda: self._on_living_session(action))

    def _on_living_session(self, action: Callable[[], T]) -> T:
        if not self._session.is_open:
            raise DatabaseUnavailable("the server ended the connection")
        return action()

    def _commit(self) -> None:
        answer, session = self._attempt.commit_answer, self._session
        if not session.is_open or answer is CommitAnswer.LOST_BEFORE:
            session.close()
        elif answer is CommitAnswer.UNDER_WAY:
            session.is_under_way = True
        else:
            session.commit()
        if not session.is_open or answer is not CommitAnswer.RECEIVED:
            raise CommitStateUnknown("the connection broke during COMMIT", batch_id=session.batch.batch_id)

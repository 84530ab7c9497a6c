"""Ports that stand still before and after every call, so that a schedule can let others act, or kill, in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from kafka_ingest.errors import CommitStateUnknown, DatabaseUnavailable
from kafka_ingest.protocol.accounting import AppliedChanges, Fold, Replacement
from kafka_ingest.protocol.batch import Batch, BatchOutcome, BatchStanding, BatchState, RunOptions
from kafka_ingest.protocol.log import LogIdentity, LogSnapshot, TimedOffset
from kafka_ingest.protocol.ports import Log, Publication, Publisher
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.settings import IsolationLevel, TopicSelection
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
    """Return the port with a point of the attempt before and after each of its methods."""
    return cast("T", _Gated(port, name, attempt))


class LogOfCluster:
    """Port ``Log`` as the connection of one process shows it: its cluster may be another one with the same topics."""

    def __init__(self, log: Log, cluster_id: str) -> None:
        self._log = log
        self._cluster_id = cluster_id

    def snapshot(self, topics: TopicSelection, isolation_level: IsolationLevel) -> LogSnapshot:
        return replace(self._log.snapshot(topics, isolation_level), cluster_id=self._cluster_id)

    def offsets_at(self, time_ms: int, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, TimedOffset]:
        return self._log.offsets_at(time_ms, partitions)

    def identity(self, topics: Iterable[str]) -> LogIdentity:
        return replace(self._log.identity(topics), cluster_id=self._cluster_id)

    def delete_retentions(self, topics: Iterable[str]) -> Mapping[str, int | None]:
        return self._log.delete_retentions(topics)

    def mean_offset_bytes(self, ranges: Sequence[OffsetRange]) -> int | None:
        return self._log.mean_offset_bytes(ranges)


class Session:
    """One transaction of a publisher, which can outlive the process that began it, and die before it."""

    def __init__(
        self,
        batch: Batch,
        context: AbstractContextManager[Publication],
        *,
        committing: Callable[[Batch], AbstractContextManager[None]],
    ) -> None:
        self.batch = batch
        self.publication = context.__enter__()
        self.is_open = True
        self.is_under_way = False
        self.owns_batch = False
        self._context = context
        self._committing = committing

    def commit(self) -> None:
        """Commit, before the eyes of the world."""
        with self._committing(self.batch):
            self.publication.commit()

    def close(self) -> None:
        """End the session; what was not committed is rolled back."""
        if self.is_open:
            self.is_open = False
            self._context.__exit__(None, None, None)


class GatedPublisher:
    """A publisher whose sessions the world can see.

    Args:
        publisher: The real one.
        attempt: Whose.
        sessions: Every session goes in here when it begins.
        committing: Gives the context in which an attempt commits a batch.
    """

    def __init__(
        self,
        publisher: Publisher,
        attempt: Attempt,
        *,
        sessions: list[Any],
        committing: Callable[[Attempt, Batch], AbstractContextManager[None]],
    ) -> None:
        self._publisher = publisher
        self._attempt = attempt
        self._sessions = sessions
        self._committing = committing

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
        session = Session(batch, self._publisher.begin(batch), committing=partial(self._committing, self._attempt))
        self._sessions.append(session)
        return session


class GatedPublication:
    """One transaction, statement by statement."""

    def __init__(self, session: Session, attempt: Attempt) -> None:
        self._session = session
        self._attempt = attempt

    def lock_batch(self) -> BatchStanding:
        standing = self._statement("lock_batch", self._session.publication.lock_batch)
        owned = BatchStanding(BatchState.PLANNED, self._session.batch.claim)
        self._session.owns_batch = standing == owned
        return standing

    def advance_positions(self, outcome: BatchOutcome) -> int:
        return self._write("advance_positions", lambda: self._session.publication.advance_positions(outcome))

    def replace(self, outcome: BatchOutcome, *, with_resolved: bool) -> Replacement:
        action = partial(self._session.publication.replace, outcome, with_resolved=with_resolved)
        return self._write("replace", action)

    def insert_rows(self, outcome: BatchOutcome) -> int:
        return self._write("insert_rows", lambda: self._session.publication.insert_rows(outcome))

    def fold(self, outcome: BatchOutcome, options: RunOptions, compacted: frozenset[str] = frozenset()) -> Fold:
        return self._write("fold", partial(self._session.publication.fold, outcome, options, compacted))

    def write_newest(self) -> Mapping[TopicPartition, AppliedChanges]:
        return self._write("write_newest", self._session.publication.write_newest)

    def insert_dead_letters(self, outcome: BatchOutcome) -> int:
        return self._write("insert_dead_letters", lambda: self._session.publication.insert_dead_letters(outcome))

    def record_outcome(self, outcome: BatchOutcome) -> None:
        self._write("record_outcome", lambda: self._session.publication.record_outcome(outcome))

    def commit(self) -> None:
        self._attempt.call(COMMIT, self._commit)

    def _write(self, name: str, action: Callable[[], T]) -> T:
        assert self._session.owns_batch, f"{self._attempt} does not own the batch and writes"
        return self._statement(name, action)

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

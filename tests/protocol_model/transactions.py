"""Every publishing transaction of a schedule: which are open, and what each COMMIT may have published."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from kafka_ingest.protocol.batch import Batch, BatchState, run_options_of
from kafka_ingest.settings import PROTOCOL_VERSION
from tests.protocol_model.attempts import Attempt
from tests.protocol_model.checks import identity_of
from tests.protocol_model.gated_ports import GatedPublisher
from tests.protocol_model.history import History, Published
from tests.protocol_model.observed_log import ObservedLog
from tests.protocol_model.stores import Store
from tests.protocol_model.tasks import ModelTasks, columns_of, fields_of


class OpenSession(Protocol):
    """A transaction that the server can end, or whose COMMIT it is still at."""

    is_open: bool
    is_under_way: bool

    def commit(self) -> None:
        """Commits."""

    def close(self) -> None:
        """End the session; what was not committed is rolled back."""


class Transactions:
    """Sessions of publishers, and the truth about each COMMIT that took effect.

    Attributes:
        history: What must be stored because of them.
    """

    def __init__(self, store: Store, log: ObservedLog) -> None:
        self.history = History()
        self._store = store
        self._log = log
        self._sessions: list[OpenSession] = []
        self._tasks: list[ModelTasks] = []

    @property
    def has_commits_under_way(self) -> bool:
        """Whether the server is still at a COMMIT that nobody waits for."""
        return any(session.is_under_way and session.is_open for session in self._sessions)

    def publisher_of(self, attempt: Attempt, tasks: ModelTasks) -> GatedPublisher:
        """Return the publisher of an attempt that stages with these tasks."""
        self._tasks.append(tasks)
        return GatedPublisher(self._store.publisher, attempt, sessions=self._sessions, committing=self._committing)

    def open(self, session: OpenSession) -> None:
        """Keep an eye on a session that is no publisher's."""
        self._sessions.append(session)

    def end_commits(self, *, took_effect: bool) -> None:
        """COMMITs that the server was still at end, long after whoever sent them stopped listening."""
        for session in [s for s in self._sessions if s.is_under_way]:
            if took_effect and session.is_open:
                session.commit()
            session.close()
        self._sessions[:] = [s for s in self._sessions if s.is_open]

    def end_all(self, *, commits_took_effect: bool) -> None:
        """The server ends every session."""
        self.end_commits(took_effect=commits_took_effect)
        for session in self._sessions:
            session.close()
        self._sessions.clear()

    @contextmanager
    def _committing(self, attempt: Attempt, batch: Batch) -> Iterator[None]:
        """Only the newest claim of a planned batch commits, and only in the protocol of its plan."""
        [stored] = [line for line in self._store.batches() if line.batch_id == batch.batch_id]
        assert (stored.state, stored.claim) == (BatchState.PLANNED, batch.claim), f"{attempt} is fenced and commits"
        assert batch.protocol_version == PROTOCOL_VERSION, f"{attempt} loaded a batch of another version"
        own = [r for tasks in self._tasks if tasks.attempt is attempt for r in tasks.readings]
        lost = fields_of(own) - columns_of(batch)
        assert not lost, f"{attempt} publishes no values of {lost}"
        yield
        attempt.has_committed = True
        self.history.publish(self._published(attempt, batch), self._log)

    def _published(self, attempt: Attempt, batch: Batch) -> Published:
        """Return what the COMMIT made visible.

        After a restore two attempts can hold the same claim of the same batch, and either may publish what the other
        staged: what is there now tells which.
        """
        same_claim = [tasks for tasks in self._tasks if tasks.claim == (batch.batch_id, batch.claim)]
        own_first = sorted(same_claim, key=lambda tasks: tasks.attempt is not attempt)
        may_lose = run_options_of(batch.request).reload_what_is_left
        candidates = [Published(batch.batch_id, t.readings, batch.settings.tombstones, may_lose) for t in own_first]
        if len(candidates) == 1:
            return candidates[0]
        records = (*self._store.rows(), *self._store.standing_dead_letters())
        found = {identity_of(record) for record in records if record.batch_id == batch.batch_id}
        kept = self.history.discarded
        return next((c for c in candidates if c.identities - kept == found), candidates[0])

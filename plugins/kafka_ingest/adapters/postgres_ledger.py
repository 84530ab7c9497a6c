"""The ledger in PostgreSQL: port ``Ledger``, one transaction a method.

Each has a connection of its own unless the caller keeps one: the heartbeat uses the ledger beside the load. What each
method does stands in ``postgres_plan``, ``postgres_claim`` and ``postgres_audit``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kafka_ingest.adapters.postgres_audit import Audited, audited, find_unannounced, find_violations, mark_announced
from kafka_ingest.adapters.postgres_claim import claim_batch, extend_hold, is_locked, lock_standing, release_hold
from kafka_ingest.adapters.postgres_connection import (
    SHORT_TRANSACTION,
    SNAPSHOT,
    Cursor,
    TransactionLimits,
    database_faults,
    transaction,
)
from kafka_ingest.adapters.postgres_migrations import require_current_ledger
from kafka_ingest.adapters.postgres_plan import read_plan_view, write_plan
from kafka_ingest.adapters.postgres_rows import fetch_row, fetch_rows, hold_of, is_batch_id, load_batch
from kafka_ingest.adapters.postgres_sessions import NewSessions, Sessions
from kafka_ingest.core.batch import Batch, Hold, Request
from kafka_ingest.core.dead_letters import DeadLetterGroup
from kafka_ingest.core.errors import CommitStateUnknown, LockTimeout
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.new_plan import NewPlan
from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.ports import BatchStanding, Violation
from kafka_ingest.core.settings import TargetSettings
from kafka_ingest.core.staging import StageProgress


class PostgresLedger:
    """The ledger of the pipelines that load into one database.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
        limits: Time-outs of its short transactions.
        sessions: Gives its connections; by default a new one for every call, which is safe in several threads.
    """

    def __init__(
        self,
        params: Mapping[str, object],
        limits: TransactionLimits = SHORT_TRANSACTION,
        *,
        sessions: Sessions | None = None,
    ) -> None:
        self._sessions = sessions or NewSessions(params)
        self._limits = limits

    def plan_view(self, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
        """Reads what a plan needs, at one moment."""
        with self._transaction("read the ledger", SNAPSHOT, pipeline=pipeline) as cursor:
            require_current_ledger(cursor)
            return read_plan_view(cursor, pipeline, request, target)

    def loaded_from(self, pipeline: str, since_ms: int) -> Mapping[TopicPartition, int]:
        """Gives, by partition, the lowest offset of any committed range with records at or after a time."""
        with self._transaction("read loaded ranges", SNAPSHOT, pipeline=pipeline) as cursor:
            rows = fetch_rows(cursor, "loaded_from", pipeline=pipeline, since_ms=since_ms)
            return {TopicPartition(row["topic"], row["partition"]): row["range_start"] for row in rows}

    def record_plan(self, plan: NewPlan, seen: PlanView) -> Batch:
        """Records a plan, if the ledger still stands as it was seen; durable on return.

        Raises:
            LedgerMoved: Something decisive has changed; nothing was written.
            ConfigError: Another pipeline serves one of the topics into the target; nothing was written.
            Busy: Another session has the pipeline or the batch to supersede locked; nothing was written.
        """
        try:
            with self._transaction("record the plan", pipeline=plan.pipeline) as cursor:
                return write_plan(cursor, plan, seen)
        except LockTimeout as error:
            raise is_locked(error) from error

    def batch(self, batch_id: str) -> Batch | None:
        """Reads one batch."""
        if not is_batch_id(batch_id):
            return None
        with self._transaction("read a batch", SNAPSHOT, batch_id=batch_id) as cursor:
            return load_batch(cursor, batch_id)

    def claim(self, batch_id: str, heartbeat_timeout_seconds: int) -> Batch:
        """Takes the next claim of a planned batch; gives a committed batch back as it is.

        Raises:
            Fenced: The batch is superseded or rolled back.
            Busy: Another session has the batch locked, as an attempt that publishes it.
        """
        try:
            with self._transaction("claim the batch", batch_id=batch_id) as cursor:
                require_current_ledger(cursor)
                return claim_batch(cursor, batch_id, heartbeat_timeout_seconds)
        except LockTimeout as error:
            raise is_locked(error) from error

    def heartbeat(
        self, batch_id: str, claim: int, *, step: str, progress: StageProgress, hold_seconds: int
    ) -> BatchStanding:
        """Extends the hold and stores progress while ``claim`` is the newest; gives the batch's standing."""
        with self._transaction("store a heartbeat", batch_id=batch_id) as cursor:
            return extend_hold(cursor, batch_id, claim, step=step, progress=progress, hold_seconds=hold_seconds)

    def release_hold(self, batch_id: str, claim: int) -> None:
        """Ends the hold of a batch now, while ``claim`` is the newest."""
        with self._transaction("release the hold", batch_id=batch_id) as cursor:
            release_hold(cursor, batch_id, claim)

    def settle(self, batch_id: str) -> BatchStanding:
        """Reads a batch's standing ``FOR UPDATE``: what it says is final.

        Raises:
            CommitStateUnknown: The row could not be locked in time: the COMMIT may still be under way.
        """
        try:
            with self._transaction("learn the outcome of COMMIT", batch_id=batch_id) as cursor:
                return lock_standing(cursor, batch_id)
        except LockTimeout as error:
            raise CommitStateUnknown(
                "the answer to COMMIT was lost and the batch is still locked",
                expected=f"the batch row to be free within {self._limits.lock_timeout_seconds:g} seconds",
                found=error.found,
                next_command="none: a retry finds the batch committed or loads it again",
                batch_id=batch_id,
            ) from error

    def hold(self, batch_id: str) -> Hold | None:
        """Reads the hold of a batch."""
        if not is_batch_id(batch_id):
            return None
        with self._transaction("read the hold", SNAPSHOT, batch_id=batch_id) as cursor:
            row = fetch_row(cursor, "select_hold", batch_id=batch_id)
            return hold_of(row) if row else None

    def unannounced(self, pipeline: str, request: Request) -> Sequence[Batch]:
        """Gives committed batches that nobody announced, those that ``request`` announced, and its own."""
        with self._transaction("read unannounced batches", SNAPSHOT, pipeline=pipeline) as cursor:
            return find_unannounced(cursor, pipeline, request)

    def mark_announced(self, batch_ids: Sequence[str], request: Request) -> None:
        """Stores that ``request`` announces these batches."""
        with self._transaction("store the announcement") as cursor:
            mark_announced(cursor, batch_ids, request)

    def dead_letter_groups(self, batch_id: str) -> Sequence[DeadLetterGroup]:
        """Counts the dead letters of a batch by reason, the most frequent first."""
        if not is_batch_id(batch_id):
            return []
        with self._transaction("count dead letters", SNAPSHOT, batch_id=batch_id) as cursor:
            return [
                DeadLetterGroup(
                    row["reason"], row["records"], TopicPartition(row["topic"], row["partition"]), row["offset"]
                )
                for row in fetch_rows(cursor, "count_dead_letters_by_reason", batch_id=batch_id)
            ]

    def violations(self, pipeline: str) -> Sequence[Violation]:
        """Runs every invariant for a pipeline, all at one moment; empty when all hold."""
        with self._transaction("check the invariants", SNAPSHOT, pipeline=pipeline) as cursor:
            require_current_ledger(cursor)
            return find_violations(cursor, pipeline)

    def audited(self, pipeline: str) -> Audited:
        """Says what :meth:`violations` looks at."""
        with self._transaction("read what was audited", SNAPSHOT, pipeline=pipeline) as cursor:
            return audited(cursor, pipeline)

    @contextmanager
    def _transaction(
        self,
        doing: str,
        limits: TransactionLimits | None = None,
        *,
        pipeline: str | None = None,
        batch_id: str | None = None,
    ) -> Iterator[Cursor]:
        with (
            self._sessions.use("kafka_ingest ledger") as connection,
            database_faults(doing, pipeline=pipeline, batch_id=batch_id),
            transaction(connection, limits or self._limits) as cursor,
        ):
            yield cursor

"""Dead letters that come back: port ``DeadLetterLedger``. One connection, one transaction, READ COMMITTED.

Locks: pipeline, then dead letters by (topic, generation, partition, offset), then what INSERT into the target takes.
A plan locks the pipeline first, too, and a publish needs a planned batch: so neither runs beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import uuid4

import psycopg2
from psycopg2 import sql

from kafka_ingest.errors import IngestError, RefusedRecord
from kafka_ingest.postgres import refusals
from kafka_ingest.postgres.current_state import CurrentState
from kafka_ingest.postgres.database import (
    Connection,
    Cursor,
    Row,
    TransactionLimits,
    begin,
    commit,
    connect,
    database_faults,
    fetch_row,
    fetch_rows,
    run_query,
)
from kafka_ingest.postgres.ledger_write import done_once, read_decisive
from kafka_ingest.postgres.migrations import require_current_ledger
from kafka_ingest.postgres.publisher import StagedRows
from kafka_ingest.postgres.rows import PAGE_BYTES, PAGE_RECORDS, choice_parameters, load_added_columns
from kafka_ingest.postgres.staging_tables import create_staging_tables, drop_staging_tables, staging_table
from kafka_ingest.protocol import dead_letters
from kafka_ingest.protocol.batch import Batch, BatchKind, BatchOutcome, BatchState, Request
from kafka_ingest.protocol.fold import require_one_partition
from kafka_ingest.protocol.new_columns import with_added_columns
from kafka_ingest.protocol.position import OffsetRange
from kafka_ingest.protocol.staging import staging_name
from kafka_ingest.settings import PROTOCOL_VERSION, BatchSettings

#: Stages a page of dead letters, each with its bytes, into the staging tables of a batch.
StagePage: TypeAlias = Callable[[Sequence[Row]], None]
#: Returns what stages pages in the transaction of a connection.
StagerOf: TypeAlias = Callable[[Connection, Batch], StagePage]

#: The target may be locked for longer than the ledger's rows are. Between two statements a page is decoded.
_LIMITS = TransactionLimits(lock_timeout_seconds=30, idle_timeout_seconds=1_800)
#: The one task that stages everything, and its one attempt.
TASK, ATTEMPT = 0, 0


class PostgresDeadLetterLedger:
    """The ledger and the target, as far as dead letters go.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
        settings: The pipeline's settings of today.
        stager_of: What decodes and stages.
        limits: Time-outs of the transaction.
    """

    def __init__(
        self,
        params: Mapping[str, object],
        settings: BatchSettings,
        stager_of: StagerOf,
        limits: TransactionLimits = _LIMITS,
    ) -> None:
        self._params = params
        self._settings = settings
        self._stager_of = stager_of
        self._limits = limits

    @contextmanager
    def begin_dead_letters(self, request: dead_letters.DeadLetterRequest) -> Iterator[PostgresDeadLetters]:
        """Open a transaction; leaving the context without commit rolls it back."""
        # Closing a connection rolls back what was not committed, and cannot fail on a broken one.
        with closing(connect(self._params, application_name="kafka_ingest dead letters")) as connection:
            with database_faults("begin to resolve dead letters"):
                cursor = connection.cursor()
                begin(cursor, self._limits)
            yield PostgresDeadLetters(cursor, self._settings, request, self._stager_of)


class PostgresDeadLetters:
    """The transaction of one request; see the port for the order of the methods."""

    def __init__(
        self, cursor: Cursor, settings: BatchSettings, request: dead_letters.DeadLetterRequest, stager_of: StagerOf
    ) -> None:
        self._cursor = cursor
        self._settings = settings
        self._request = request
        self._stager_of = stager_of
        self._batch = _replay(request, settings, ())
        self._state: CurrentState | None = None

    def lock(self) -> dead_letters.DeadLetterView:
        """Lock the pipeline, so that nobody plans meanwhile, and read the ledger.

        Raises:
            LockTimeout: Somebody else has it locked.
        """
        pipeline, asked = self._request.pipeline, Request("dead letters", self._request.request_id)
        with database_faults("lock the pipeline"):
            require_current_ledger(self._cursor)
            run_query(self._cursor, "lock_pipeline", pipeline=pipeline)
            # A request of dead letters plans nothing: no batch belongs to it.
            ledger = read_decisive(self._cursor, pipeline, asked, self._settings.target)
            added = load_added_columns(self._cursor, pipeline, self._settings.target)
            self._settings = with_added_columns(self._settings, added)
            return dead_letters.DeadLetterView(ledger, self._recorded())

    def choose(self) -> Sequence[dead_letters.ChosenGroup]:
        """Choose and lock the unresolved dead letters that the request is about."""
        choice = self._request.choice
        with database_faults("choose dead letters"):
            parameters = {"most": choice.limit, **choice_parameters(choice)}
            run_query(self._cursor, "choose_dead_letters", pipeline=self._request.pipeline, **parameters)
            return [dead_letters.ChosenGroup(**row) for row in fetch_rows(self._cursor, "group_chosen_dead_letters")]

    def stage(self, chosen: Sequence[dead_letters.ChosenGroup]) -> None:
        """Decode the bytes of all chosen dead letters with today's settings, and stage what becomes of each.

        Raises:
            TargetMismatch: The target does not fit the settings, or a function of it raised an error for a record.
        """
        self._batch = _replay(self._request, self._settings, chosen)
        with _as_a_replay(), database_faults("stage dead letters"):
            create_staging_tables(self._cursor, self._batch)
            stage_page = self._stager_of(self._cursor.connection, self._batch)
            for page in self._pages():
                stage_page(page)

    def _pages(self) -> Iterator[Sequence[Row]]:
        place = {"after": 0, "bytes_before": 0}
        most = {"records": PAGE_RECORDS, "bytes": PAGE_BYTES}
        pipeline = self._request.pipeline
        while page := fetch_rows(self._cursor, "read_chosen_dead_letters", pipeline=pipeline, **place, **most):
            yield page
            place = {"after": page[-1]["number"], "bytes_before": page[-1]["bytes_up_to_it"]}

    def insert_rows(self) -> int:
        """Move the staged rows into the target; return the number of rows that are there.

        In an upsert pipeline they are folded into it as a batch is; the number is that of the changes that applied.

        Raises:
            RecordsRefused: The target refused single records; all of them are named, and none was inserted.
            TargetMismatch: A constraint, trigger or rule of the target refused, dropped or altered them.
            KeyInTwoPartitions: Offsets do not order the records of a key.
        """
        self._cursor.execute("SAVEPOINT inserted")
        with _as_a_replay():
            try:
                if self._settings.upsert:
                    return self._fold()
                return StagedRows(self._cursor, self._batch, BatchOutcome((), {TASK: ATTEMPT})).insert()
            except IngestError:
                # To find every refused record, the others were inserted.
                self._cursor.execute("ROLLBACK TO SAVEPOINT inserted")
                raise

    def _fold(self) -> int:
        self._state = CurrentState(self._cursor, self._batch, {"task": [TASK], "attempt": [ATTEMPT]})
        try:
            require_one_partition(self._state.fold((), (), with_resolved=False).in_two_partitions)
            return sum(applied.rows + applied.deletes for applied in self._state.write().values())
        except psycopg2.Error as error:
            raise refusals.target_fault(error, self._batch) from None

    def refuse(self, records: Sequence[RefusedRecord]) -> None:
        """Make dead letters of staged rows that the target refuses."""
        with database_faults("keep refused dead letters"):
            run_query(
                self._cursor,
                "refuse_staged_rows",
                self._names("rows", "dead_letters"),
                topic=[record.topic for record in records],
                partition=[record.partition for record in records],
                offset=[record.offset for record in records],
                reason=[record.reason.value for record in records],
                detail=[record.detail for record in records],
            )

    def resolve(self) -> dead_letters.DeadLetterOutcome:
        """Mark as resolved what is staged as a row or as counted; give the others their new reasons."""
        by = {"pipeline": self._request.pipeline, "request_id": self._request.request_id}
        pipeline = {"pipeline": self._request.pipeline}
        with database_faults("resolve dead letters"):
            self._store(dead_letters.DeadLetterOutcome())
            if self._state:
                replayed, superseded = self._state.resolve(**by)
            else:
                replayed, superseded = run_query(self._cursor, "resolve_replayed", self._names("rows"), **by), 0
            counted = run_query(self._cursor, "resolve_counted", self._names("counted"), **by)
            stayed = fetch_rows(self._cursor, "keep_dead_letters", self._names("dead_letters"), **pipeline)
            drop_staging_tables(self._cursor, self._batch)
        groups = tuple(dead_letters.StayingGroup(**row) for row in stayed)
        return dead_letters.DeadLetterOutcome(replayed, counted, superseded=superseded, stayed=groups)

    def discard(self) -> dead_letters.DeadLetterOutcome:
        """Mark all chosen dead letters as resolved, without a row."""
        by = {"pipeline": self._request.pipeline, "request_id": self._request.request_id}
        with database_faults("discard dead letters"):
            self._store(dead_letters.DeadLetterOutcome())
            return dead_letters.DeadLetterOutcome(discarded=run_query(self._cursor, "discard_dead_letters", **by))

    def record(self, outcome: dead_letters.DeadLetterOutcome) -> dead_letters.RecordedDeadLetters:
        """Store who did it, why, and what became of the dead letters."""
        with database_faults("record what became of dead letters"):
            self._store(outcome)
            recorded = self._recorded()
        assert recorded is not None  # noqa: S101 - this transaction has just stored it
        return recorded

    def commit(self) -> None:
        """Commit; durable on return.

        Raises:
            CommitStateUnknown: The connection broke before the answer; the same request again decides.
            CommitDidNotHappen: The server answered something else than COMMIT: nothing was changed.
            TargetMismatch: A deferred constraint of the target refused it; nothing was changed.
        """
        with done_once(self._request.request_id), _as_a_replay():
            try:
                commit(self._cursor)
            except psycopg2.Error as error:
                raise refusals.target_fault(error, self._batch) from None

    def _store(self, outcome: dead_letters.DeadLetterOutcome) -> None:
        request, target = self._request, self._settings.target
        run_query(
            self._cursor,
            "record_dead_letter_request",
            pipeline=request.pipeline,
            request_id=request.request_id,
            action=request.action.value,
            arguments=request.arguments,
            who=request.who,
            why=request.why,
            replay_id=self._batch.batch_id,
            target_schema=target.schema,
            target_table=target.table,
            replayed=outcome.replayed,
            counted=outcome.counted,
            discarded=outcome.discarded,
            superseded=outcome.superseded,
            stayed=json.dumps([asdict(group) for group in outcome.stayed]),
        )

    def _recorded(self) -> dead_letters.RecordedDeadLetters | None:
        request = self._request
        asked = {"pipeline": request.pipeline, "request_id": request.request_id}
        row = fetch_row(self._cursor, "select_dead_letter_request", **asked)
        return _recorded_of(row) if row else None

    def _names(self, *parts: str) -> dict[str, sql.Composable]:
        stem, metadata = staging_name(self._batch.batch_id, self._batch.claim), self._settings.metadata
        columns = {
            "topic_column": metadata.topic,
            "generation_column": metadata.generation,
            "partition_column": metadata.partition,
            "offset_column": metadata.offset,
        }
        return {
            **{f"staged_{part}": staging_table(stem, part) for part in parts},
            **{name: sql.Identifier(column) for name, column in columns.items()},
        }


@contextmanager
def _as_a_replay() -> Iterator[None]:
    """Say of faults that loads have, too, how a replay goes on; the ledger knows no batch of the replay's id."""
    try:
        yield
    except IngestError as error:
        error.batch_id = None
        error.next_command = error.next_command.replace("clear load_batch", "ask for the replay again")
        raise


def _replay(
    request: dead_letters.DeadLetterRequest, settings: BatchSettings, chosen: Sequence[dead_letters.ChosenGroup]
) -> Batch:
    """Return what stages and inserts as a batch does: rows get its id. The ledger has no batch of it."""
    return Batch(
        batch_id=str(uuid4()),
        pipeline=request.pipeline,
        request=Request("dead letters", request.request_id),
        kind=BatchKind.RELOAD,
        state=BatchState.PLANNED,
        claim=0,
        settings=settings,
        settings_hash="",
        protocol_version=PROTOCOL_VERSION,
        cluster_id="",
        ranges=_ranges(chosen),
        planned_at=datetime.now(UTC),
    )


def _ranges(chosen: Sequence[dead_letters.ChosenGroup]) -> tuple[OffsetRange, ...]:
    """Return one range for each place, from the first chosen offset to the last."""
    places: dict[tuple[str, int, int], list[dead_letters.ChosenGroup]] = {}
    for group in chosen:
        places.setdefault((group.topic, group.generation, group.partition), []).append(group)
    return tuple(_range(groups) for groups in places.values())


def _range(groups: Sequence[dead_letters.ChosenGroup]) -> OffsetRange:
    first, end = groups[0], max(group.end_offset for group in groups)
    return OffsetRange(
        topic=first.topic,
        partition=first.partition,
        generation=first.generation,
        topic_id=first.topic_id,
        timeline=0,
        start=min(group.first_offset for group in groups),
        end=end,
        committed_before=end,
        loaded_to=end,
    )


def _recorded_of(row: Row) -> dead_letters.RecordedDeadLetters:
    stayed = tuple(dead_letters.StayingGroup(**group) for group in row["stayed"])
    resolved = {name: row[name] for name in ("replayed", "counted", "discarded", "superseded")}
    outcome = dead_letters.DeadLetterOutcome(**resolved, stayed=stayed)
    return dead_letters.RecordedDeadLetters(
        row["request_id"], row["arguments"], row["who"], row["why"], row["at"], outcome
    )

"""Dead letters come back: replay them with today's settings, or discard them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from kafka_ingest.errors import (
    AccountingMismatch,
    BatchOutstanding,
    ConfigError,
    PartitionFault,
    RecordsRefused,
    RefusedRecord,
    RequestChanged,
    TopicRecreated,
    fault_error,
    naming,
)
from kafka_ingest.protocol.ledger_view import PlanView, require_bound_settings
from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.settings import PipelineSettings

# ----------
# What somebody asks for. A request is idempotent by its id: the same id with other arguments stops.


class DeadLetterAction(StrEnum):
    """What is done with dead letters."""

    REPLAY = "replay"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True, order=True)
class DeadLetterPlace:
    """Offsets ``[start, end)`` of a topic, or of one partition of it; ``None`` leaves a bound open."""

    topic: str
    partition: int | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterChoice:
    """Which dead letters: those to which everything applies that is given.

    Attributes:
        reasons: Any of these reasons; none means all.
        places: In any of these places; none means everywhere.
        batch_id: Of one batch.
        generation: Of one generation of their topic.
        limit: At most this many, the first in the order of topic, generation, partition and offset.
    """

    reasons: tuple[str, ...] = ()
    places: tuple[DeadLetterPlace, ...] = ()
    batch_id: str | None = None
    generation: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterRequest:
    """Who wants what done with which dead letters, and why. The same request id is done once.

    Attributes:
        request_id: Identity of the request.
        pipeline: Pipeline name.
        action: What is done.
        choice: With which unresolved dead letters.
        who: Airflow user or user of the operating system.
        why: The reason, for people; never empty where something is done.
    """

    request_id: str
    pipeline: str
    action: DeadLetterAction
    choice: DeadLetterChoice
    who: str
    why: str

    @property
    def arguments(self) -> str:
        """Action and choice as canonical JSON."""
        given = {"action": self.action.value, **asdict(self.choice)}
        return json.dumps(given, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# ----------
# What the ledger says, and what became of the dead letters.


@dataclass(frozen=True, slots=True)
class ChosenGroup:
    """Chosen dead letters of one partition, of one log and with one reason; all lie in ``[first_offset, end_offset)``.

    ``topic_id`` is that of the range in which they were read; ``None`` where none is known.
    """

    topic: str
    generation: int
    partition: int
    topic_id: str | None
    reason: str
    records: int
    first_offset: int
    end_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class StayingGroup:
    """Dead letters that still do not fit, for one reason: how many, and where and why the first of them."""

    reason: str
    records: int
    topic: str
    partition: int
    offset: int
    detail: str


@dataclass(frozen=True, slots=True)
class DeadLetterOutcome:
    """What became of the chosen dead letters; together they are as many as were chosen.

    Attributes:
        replayed: Records that are rows of the target.
        counted: Tombstones that the pipeline only counts by now: resolved without a row.
        discarded: Resolved without a row, because the request says so.
        superseded: Their key has a newer version: resolved without a row. 0 for a pipeline that appends.
        stayed: Unresolved as before, with their new reasons.
    """

    replayed: int = 0
    counted: int = 0
    discarded: int = 0
    superseded: int = 0
    stayed: tuple[StayingGroup, ...] = ()

    @property
    def records(self) -> int:
        """All of them."""
        resolved = self.replayed + self.counted + self.discarded + self.superseded
        return resolved + sum(group.records for group in self.stayed)


@dataclass(frozen=True, slots=True)
class RecordedDeadLetters:
    """A request as the ledger holds it."""

    request_id: str
    arguments: str
    who: str
    why: str
    at: datetime
    outcome: DeadLetterOutcome


@dataclass(frozen=True, slots=True)
class DeadLetterView:
    """What a request sees with the pipeline locked: the ledger, and what the same request has recorded before."""

    ledger: PlanView
    recorded: RecordedDeadLetters | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterReport:
    """What a request did, or would do.

    Attributes:
        chosen: The chosen dead letters, as they were.
        outcome: What became, or would become, of them.
        recorded: Who did it, when and why; ``None`` where nothing was written.
        was_done_before: Whether an earlier call of the same request did it; what it had chosen is not known any more.
    """

    chosen: tuple[ChosenGroup, ...]
    outcome: DeadLetterOutcome
    recorded: RecordedDeadLetters | None = None
    was_done_before: bool = False


class DeadLetterTransaction(Protocol):
    """The one transaction of a request. Statements in the order of the methods."""

    def lock(self) -> DeadLetterView:
        """Lock the pipeline, so that nobody plans meanwhile, and read the ledger.

        Raises:
            LockTimeout: Somebody else has it locked.
        """

    def choose(self) -> Sequence[ChosenGroup]:
        """Choose and lock the unresolved dead letters that the request is about."""

    def stage(self, chosen: Sequence[ChosenGroup]) -> None:
        """Decode the bytes of all chosen dead letters with today's settings, and stage what becomes of each.

        Raises:
            TargetMismatch: The target does not fit the settings, or a function of it raised an error for a record.
        """

    def insert_rows(self) -> int:
        """Move the staged rows into the target; return the number of rows that are there.

        Raises:
            RecordsRefused: The target refused single records; all of them are named, and none was inserted.
            TargetMismatch: A constraint, trigger or rule of the target refused, dropped or altered them.
        """

    def refuse(self, records: Sequence[RefusedRecord]) -> None:
        """Make dead letters of staged rows that the target refuses."""

    def resolve(self) -> DeadLetterOutcome:
        """Mark as resolved what is staged as a row or as counted; give the others their new reasons."""

    def discard(self) -> DeadLetterOutcome:
        """Mark all chosen dead letters as resolved, without a row."""

    def record(self, outcome: DeadLetterOutcome) -> RecordedDeadLetters:
        """Store who did it, why, and what became of the dead letters."""

    def commit(self) -> None:
        """Commit; durable on return.

        Raises:
            CommitStateUnknown: The connection broke before the answer; the same request again decides.
        """


class DeadLetterLedger(Protocol):
    """The ledger and the target, as far as dead letters go."""

    def begin_dead_letters(self, request: DeadLetterRequest) -> AbstractContextManager[DeadLetterTransaction]:
        """Open a transaction; leaving the context without commit rolls it back."""


# ----------
# Step *dead letters*: do what a request asks for, or only show it.
#
# Everything happens in one transaction that has the pipeline locked: nobody plans meanwhile, and no batch is planned,
# so no publish writes the same records. To show what would happen it does the same, and does not commit.


def resolve_dead_letters(
    settings: PipelineSettings, request: DeadLetterRequest, ledger: DeadLetterLedger, *, apply: bool
) -> DeadLetterReport:
    """Replay or discard dead letters, or show what that would do. The same request again gives what was recorded.

    Durable on return, with ``apply``: rows, resolutions, new reasons and the request, all in one transaction.

    Args:
        settings: The pipeline as its file says today.
        request: Who asks for what, and why.
        ledger: Ledger and target.
        apply: Do it; else nothing is written.

    Raises:
        ConfigError: There is no reason, or the pipeline file differs from what binds the pipeline.
        RequestChanged: The request id was recorded with other arguments.
        StopAndCall: What else prevents it; every fault is listed, and nothing was changed.
        AccountingMismatch: What became of the dead letters does not add up to what was chosen; nothing was changed.
        CommitStateUnknown: The answer to COMMIT was lost; the same request again decides.
        RetryLater: PostgreSQL cannot be reached, or somebody else has the pipeline locked.
    """
    with naming(request.pipeline):
        if apply:
            _require_complete(request)
        with ledger.begin_dead_letters(request) as transaction:
            view = transaction.lock()
            if recorded := _recorded_before(view, request):
                return DeadLetterReport((), recorded.outcome, recorded, was_done_before=True)
            require_bound_settings(view.ledger, settings)
            _stop_at(request, _faults(request, view.ledger))
            # Not before: to choose is to lock, and a publish of the open batch may have the same dead letters locked.
            chosen = tuple(transaction.choose())
            if request.action is DeadLetterAction.REPLAY:
                _stop_at(request, _of_other_logs(request.pipeline, view.ledger, chosen))
                _stop_at(request, _of_filled_rows(settings, view.ledger, chosen))
            return _done(request, transaction, chosen, apply=apply)


def _done(
    request: DeadLetterRequest, transaction: DeadLetterTransaction, chosen: tuple[ChosenGroup, ...], *, apply: bool
) -> DeadLetterReport:
    is_replay = request.action is DeadLetterAction.REPLAY
    outcome = _replayed(transaction, chosen) if is_replay else transaction.discard()
    _require_accounted(chosen, outcome)
    if not apply:
        return DeadLetterReport(chosen, outcome)
    recorded = transaction.record(outcome)
    transaction.commit()
    return DeadLetterReport(chosen, outcome, recorded)


def _replayed(transaction: DeadLetterTransaction, chosen: tuple[ChosenGroup, ...]) -> DeadLetterOutcome:
    if not chosen:
        return DeadLetterOutcome()
    transaction.stage(chosen)
    try:
        inserted = transaction.insert_rows()
    except RecordsRefused as refusal:
        # Once is enough: all are named.
        transaction.refuse(refusal.records)
        inserted = transaction.insert_rows()
    outcome = transaction.resolve()
    if outcome.replayed != inserted:
        raise _mismatch("rows of the target and replayed dead letters", outcome.replayed, inserted)
    return outcome


def _require_accounted(chosen: Sequence[ChosenGroup], outcome: DeadLetterOutcome) -> None:
    records = sum(group.records for group in chosen)
    if outcome.records != records:
        raise _mismatch("dead letters that were chosen and what became of them", records, outcome.records)


def _mismatch(what: str, expected: int, found: int) -> AccountingMismatch:
    return AccountingMismatch(
        f"{what} are not equally many; nothing was changed", expected=str(expected), found=str(found)
    )


def _require_complete(request: DeadLetterRequest) -> None:
    if not request.why.strip():
        raise ConfigError(
            f"to {request.action.value} dead letters needs a reason: it is kept in the ledger for whoever asks later",
            expected="a reason",
            found="none",
            next_command='ask again with one: --reason "why they are resolved"',
        )


def _recorded_before(view: DeadLetterView, request: DeadLetterRequest) -> RecordedDeadLetters | None:
    recorded = view.recorded
    if recorded is not None and recorded.arguments != request.arguments:
        raise RequestChanged(
            f"request {request.request_id} about dead letters was recorded with other arguments",
            expected=recorded.arguments,
            found=request.arguments,
            next_command="ask under a new request id; what was recorded stays",
        )
    return recorded


# ----------
# What prevents it. Values, so that all of a kind are listed.


def _stop_at(request: DeadLetterRequest, faults: Iterable[PartitionFault]) -> None:
    if found := tuple(faults):
        raise fault_error(found, request.pipeline)


def _faults(request: DeadLetterRequest, view: PlanView) -> Iterator[PartitionFault]:
    """Yield what the ledger holds against a request: no plan yet, an open batch."""
    where = f"pipeline {request.pipeline}"
    if view.pipeline is None:
        yield PartitionFault(
            ConfigError,
            where,
            expected="a pipeline that has planned before",
            found="none of that name in the ledger",
            next_command="correct the name",
        )
    if view.outstanding is not None:
        batch = view.outstanding
        yield PartitionFault(
            BatchOutstanding,
            where,
            expected="a pipeline without a planned batch: its publish may write the same records",
            found=f"batch {batch.batch_id} of {batch.request}",
            next_command="wait until that run has ended (python -m kafka_ingest status "
            f"{request.pipeline}) and ask again",
        )


def _of_filled_rows(
    settings: PipelineSettings, view: PlanView, chosen: Sequence[ChosenGroup]
) -> Iterator[PartitionFault]:
    """Yield what must be read again, with all after it, where later rows may have values from before a dead letter.

    What did not travel with these rows was taken from an older one, and the dead letter may have had a newer value.
    """
    upsert = settings.batch.upsert
    if upsert is None or upsert.envelope is None:
        return
    ends = {position.topic_partition: max(position.committed_offset, position.loaded_to) for position in view.positions}
    first: dict[TopicPartition, int] = {}
    for group in chosen:
        first[group.topic_partition] = min(group.first_offset, first.get(group.topic_partition, group.first_offset))
    if not first:
        return
    spans = " ".join(
        f'--offsets "{where.topic} {where.partition} {start} {ends[where]}"' for where, start in sorted(first.items())
    )
    yield PartitionFault(
        ConfigError,
        f"pipeline {settings.pipeline}",
        expected="a reload from the first of these dead letters on: values that did not travel with later records were "
        "filled without them",
        found="a replay, which leaves later records as they are",
        next_command=f'python -m kafka_ingest run {settings.pipeline} --mode reload {spans} --reason "...", which '
        "resolves them; those that the log no longer holds: dead-letters discard",
    )


def _of_other_logs(pipeline: str, view: PlanView, chosen: Sequence[ChosenGroup]) -> Iterator[PartitionFault]:
    """Yield dead letters of a log that the position does not belong to: their offsets mean other records by now."""
    positions = {position.topic_partition: position for position in view.positions}
    records: dict[tuple[TopicPartition, int, str | None], int] = {}
    for group in chosen:
        log = (group.topic_partition, group.generation, group.topic_id)
        records[log] = records.get(log, 0) + group.records
    for (place, generation, topic_id), number in records.items():
        position = positions.get(place)
        if position is not None and _is_same_log(position, generation, topic_id):
            continue
        stands = f"generation {position.generation}, topic id {position.topic_id}" if position else "no position"
        yield PartitionFault(
            TopicRecreated,
            str(place),
            expected=f"dead letters of the log that the position belongs to: {stands}",
            found=f"{number} of generation {generation}, topic id {topic_id}",
            next_command="choose others (--generation, --only); those of a log that is gone can be discarded: "
            f"python -m kafka_ingest dead-letters discard {pipeline} --generation {generation} "
            f'--only {place.topic} {place.partition} --reason "..."',
        )


def _is_same_log(position: Position, generation: int, topic_id: str | None) -> bool:
    """Whether dead letters are of the position's log; an id that one of both does not know decides nothing."""
    is_known = topic_id is not None and position.topic_id is not None
    return generation == position.generation and (not is_known or topic_id == position.topic_id)

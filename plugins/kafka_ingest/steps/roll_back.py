"""Step *roll back*: undo the newest batches that moved the position: rows, dead letters and positions together.

Order: read the ledger in one short transaction; ask Kafka outside any transaction; choose; undo in ONE transaction that
first checks that the ledger still stands as it was read, and counts before it deletes. The same request id again finds
what was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka_ingest.core.errors import AccountingMismatch, ConfigError, LedgerMoved, RequestChanged
from kafka_ingest.core.partition_faults import fault_error
from kafka_ingest.core.roll_back import (
    RollBackLedger,
    RollBackLog,
    RollBackPlan,
    RollBackRecord,
    RollBackRequest,
    RollBackTransaction,
    RollBackView,
    WrittenCounts,
    WrittenRange,
)
from kafka_ingest.core.roll_back_choice import choose_roll_back, undone_topics
from kafka_ingest.core.settings import IsolationLevel, TopicSelection

#: How often a roll-back starts over when the ledger moves under it. Only plans and other changes of the same pipeline
#: move it, so a handful is enough.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class RollBackPorts:
    """What a roll-back needs from the world."""

    ledger: RollBackLedger
    log: RollBackLog


def preview_roll_back(request: RollBackRequest, ports: RollBackPorts) -> RollBackPlan:
    """Gives what a roll-back would do now, with its faults as values; writes nothing.

    Raises:
        BrokerUnavailable: Kafka cannot be reached.
        DatabaseUnavailable: PostgreSQL cannot be reached.
    """
    return _choose(request, ports.ledger.roll_back_view(request), ports)


def roll_back(request: RollBackRequest, ports: RollBackPorts) -> RollBackRecord:
    """Undoes the newest batches that moved the position.

    Durable on return: rows and dead letters are gone, positions lowered, batches ``rolled_back``, all in one
    transaction, and recorded as position changes. The same request again gives what was recorded.

    Raises:
        ConfigError: There is no reason, or no batch is asked for.
        RequestChanged: The request id stands for something else.
        StopAndCall: It is refused; every fault is listed, and nothing was changed.
        AccountingMismatch: Target or dead letters are not as the batches counted them; nothing was changed.
        LedgerMoved: The ledger moved again and again.
        CommitStateUnknown: The answer to COMMIT was lost; the same request again decides.
        RetryLater: Kafka or PostgreSQL cannot be reached.
    """
    _require_complete(request)
    for _ in range(_ATTEMPTS - 1):
        try:
            return _roll_back_once(request, ports)
        except LedgerMoved:
            continue
    return _roll_back_once(request, ports)


def _roll_back_once(request: RollBackRequest, ports: RollBackPorts) -> RollBackRecord:
    view = ports.ledger.roll_back_view(request)
    if recorded := _recorded(request, view):
        return recorded
    plan = _choose(request, view, ports)
    if plan.faults:
        raise fault_error(plan.faults, request.pipeline)
    with ports.ledger.begin_roll_back(plan) as transaction:
        transaction.lock(view)
        record = _undo(plan, transaction)
        transaction.commit()
    return record


def _undo(plan: RollBackPlan, transaction: RollBackTransaction) -> RollBackRecord:
    _require_counts(plan, transaction.count(plan.counted))
    record = plan.record(transaction.delete())
    transaction.record(record)
    return record


def _choose(request: RollBackRequest, view: RollBackView, ports: RollBackPorts) -> RollBackPlan:
    topics = undone_topics(request, view)
    # Log start and high watermark are looked at, and no end offset: the level decides nothing and costs least.
    snapshot = ports.log.snapshot(TopicSelection(names=topics), IsolationLevel.READ_UNCOMMITTED)
    return choose_roll_back(request, view, snapshot, ports.log.cleanup_policies(topics))


def _require_complete(request: RollBackRequest) -> None:
    faults = [
        fault
        for is_missing, fault in (
            (not request.why.strip(), "no reason"),
            (not request.who.strip(), "nobody who asks"),
            (request.batches < 1, f"{request.batches} batches"),
        )
        if is_missing
    ]
    if faults:
        raise ConfigError(
            "a roll-back needs somebody who asks, a reason, and a number of batches; nothing was changed",
            expected="a reason that tells others why, and 1 batch or more",
            found="\n".join(faults),
            next_command="ask again with a reason (--reason) and a number of batches (--batches)",
            pipeline=request.pipeline,
        )


def _recorded(request: RollBackRequest, view: RollBackView) -> RollBackRecord | None:
    """Gives what the request id stands for, or ``None`` when it is new."""
    if view.used_for is None:
        return None
    if view.recorded is not None and view.recorded.batches == request.batches:
        return view.recorded
    found = f"{view.recorded.batches} batches" if view.recorded else f"a position change, {view.used_for}"
    raise RequestChanged(
        f"the request id {request.request_id} stands for something else; nothing was changed",
        expected=found,
        found=f"{request.batches} batches to roll back",
        next_command="ask with a new request id",
        pipeline=request.pipeline,
    )


def _require_counts(plan: RollBackPlan, found: Sequence[WrittenCounts]) -> None:
    differing = list(_differing(plan.counted, found))
    if differing:
        raise AccountingMismatch(
            "the target is not as the batches left it; nothing was rolled back",
            expected="as many rows and dead letters in each range as its batch counted",
            found="\n".join(differing),
            next_command="see docs/runbook.md, section AccountingMismatch",
            pipeline=plan.request.pipeline,
        )


def _differing(counted: Sequence[WrittenRange], found: Sequence[WrittenCounts]) -> Iterator[str]:
    for written, now in zip(counted, found, strict=True):
        if written.counts != now:
            yield (
                f"{written.range}: rows {written.counts.rows}, found {now.rows};"
                f" dead letters {written.counts.dead_letters}, found {now.dead_letters}"
            )

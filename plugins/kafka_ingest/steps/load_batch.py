"""Step *load*: claim a planned batch, stage it, publish it.

Any number of attempts of one batch may run at the same time: each takes the next claim, and only the newest
can publish.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from kafka_ingest.core.accounting import account_for
from kafka_ingest.core.batch import Batch, BatchState, Hold
from kafka_ingest.core.errors import Fenced, IngestError, RetryLater, VersionSkew
from kafka_ingest.core.load_phases import LoadPhases, TaskSeconds
from kafka_ingest.core.log_identity_check import require_same_log
from kafka_ingest.core.ports import Clock, Ledger, Log, Publisher, Staging, TaskRunner
from kafka_ingest.core.settings import PROTOCOL_VERSION, HoldSettings
from kafka_ingest.core.staging import StageResult, StageTask
from kafka_ingest.core.subranges import cut_into_tasks
from kafka_ingest.steps.heartbeat import Heartbeat, LoadProgress
from kafka_ingest.steps.publish_batch import publish_batch

__all__ = ["LoadPorts", "LoadProgress", "load_batch"]

_log = logging.getLogger(__name__)

#: How often a fenced attempt looks whether the newer claim is done.
_FENCED_POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class LoadPorts:
    """What loading needs from the world."""

    ledger: Ledger
    log: Log
    staging: Staging
    runner: TaskRunner
    publisher: Publisher
    clock: Clock


def load_batch(
    batch_id: str,
    ports: LoadPorts,
    *,
    hold: HoldSettings,
    report: Callable[[LoadProgress], None],
    on_published: Callable[[LoadPhases], None] = lambda _: None,
) -> Batch:
    """Loads a batch, and gives it back committed. Running it again changes nothing.

    Durable on return: rows, dead letters, counts and positions, in one transaction, by this attempt or by a newer one.

    Args:
        batch_id: A planned or committed batch.
        ports: The world.
        hold: How long a claim holds the pipeline without a sign of life.
        report: Called every few seconds with the progress.
        on_published: Called with where the time went, when this attempt has come through its publish.

    Raises:
        Fenced: The batch was superseded or rolled back.
        RetryLater: Another attempt may succeed.
        StopAndCall: No attempt can succeed until somebody acts.
    """
    batch = ports.ledger.claim(batch_id, hold.heartbeat_timeout_seconds)
    if batch.state is BatchState.COMMITTED:
        _log.info("batch %s is committed already: nothing to do", batch_id)
        return batch
    _require_protocol(batch)
    try:
        phases = _stage_and_publish(batch, ports, hold, report)
    except Fenced as fenced:
        # The newer claim may wait for the very cores that this one holds.
        ports.runner.release()
        return _await_newer_claim(batch, ports, hold, fenced)
    on_published(phases)
    _drop_staging(batch, ports.staging)
    return _committed(batch, ports.ledger)


def _stage_and_publish(
    batch: Batch, ports: LoadPorts, hold: HoldSettings, report: Callable[[LoadProgress], None]
) -> LoadPhases:
    ports.staging.create(batch)
    times = [ports.clock.now()]
    with Heartbeat(
        batch,
        ledger=ports.ledger,
        staging=ports.staging,
        clock=ports.clock,
        hold=hold,
        report=report,
        on_fenced=ports.runner.cancel,
    ) as heartbeat:
        # Asking Spark for its parallelism starts it, which takes seconds: the heartbeat is there already.
        tasks = cut_into_tasks(batch.ranges, ports.runner.parallelism())
        times.append(ports.clock.now())
        results = _stage(batch, tasks, ports.runner, heartbeat)
        times.append(ports.clock.now())
        heartbeat.enter_step("publish")
        outcome = account_for(batch, tasks, results)
        require_same_log(batch, ports.log.identity(sorted({r.topic for r in batch.ranges})))
        publish_batch(batch, outcome, ports.publisher, ports.ledger)
    return _phases([*times, ports.clock.now()], results)


def _phases(times: Sequence[datetime], results: Sequence[StageResult]) -> LoadPhases:
    session, stage, publish = ((end - start).total_seconds() for start, end in pairwise(times))
    return LoadPhases(session, stage, publish, sum((result.seconds for result in results), TaskSeconds()))


def _stage(batch: Batch, tasks: Sequence[StageTask], runner: TaskRunner, heartbeat: Heartbeat) -> Sequence[StageResult]:
    try:
        return runner.run(batch, tasks)
    except Exception as error:
        # Cancelled tasks fail in whatever way the runner ends them; what matters then is why they were cancelled.
        if heartbeat.is_fenced:
            raise _fenced(batch) from error
        raise


def _fenced(batch: Batch) -> Fenced:
    return Fenced(
        "a newer claim or plan took the batch while it was staged",
        expected=f"claim {batch.claim} to be the newest",
        found="a newer one",
        next_command="none: the newer attempt does the work",
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )


def _await_newer_claim(batch: Batch, ports: LoadPorts, hold: HoldSettings, fenced: Fenced) -> Batch:
    """Wait while the newer claim lives and gets on: committed is success for whoever asks; else retry.

    It need not get on for as long as a plan may wait to be started: Spark may have to find it cores.
    """
    _log.info("%s", fenced)
    seen, seen_at = None, ports.clock.now()
    reached, reached_at = None, seen_at
    while True:
        current = ports.ledger.batch(batch.batch_id)
        if current is None or current.state in (BatchState.SUPERSEDED, BatchState.ROLLED_BACK):
            raise fenced
        if current.state is BatchState.COMMITTED:
            return current
        newer = ports.ledger.hold(batch.batch_id)
        if newer != seen:
            seen, seen_at = newer, ports.clock.now()
        # The hold is watched, not compared with a clock: clocks of two machines may differ by more than the time-out.
        if (ports.clock.now() - seen_at).total_seconds() > hold.heartbeat_timeout_seconds:
            raise RetryLater(
                "the newer claim of this batch gives no sign of life",
                expected=f"a heartbeat within {hold.heartbeat_timeout_seconds} seconds",
                found="none",
                next_command="none: a retry takes the next claim",
                pipeline=batch.pipeline,
                batch_id=batch.batch_id,
            )
        progress = (newer.step, newer.staged_records, newer.staged_offsets) if newer else None
        if progress != reached:
            reached, reached_at = progress, ports.clock.now()
        if (ports.clock.now() - reached_at).total_seconds() > hold.start_timeout_seconds:
            raise _stuck(batch, newer, hold)
        ports.clock.sleep(_FENCED_POLL_SECONDS)


def _stuck(batch: Batch, newer: Hold | None, hold: HoldSettings) -> RetryLater:
    at = f"step {newer.step}, {newer.staged_offsets:,} of {newer.total_offsets:,} offsets" if newer else "no hold"
    return RetryLater(
        "the newer claim of this batch lives and does not get on",
        expected=f"progress within {hold.start_timeout_seconds} seconds (hold.start_timeout_seconds)",
        found=at,
        next_command="end the other attempt of this run; a retry takes the next claim",
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )


def _drop_staging(batch: Batch, staging: Staging) -> None:
    try:
        staging.drop(batch)
    except IngestError as error:
        # The batch is committed: tables that stay are for housekeeping, not a reason to fail.
        _log.warning("staging tables of batch %s stay for housekeeping: %s", batch.batch_id, error)


def _committed(batch: Batch, ledger: Ledger) -> Batch:
    current = ledger.batch(batch.batch_id)
    if current is None or current.state is not BatchState.COMMITTED:
        raise RetryLater(
            "the batch is not committed although it was published",
            expected="state committed",
            found=f"state {current.state.value}" if current else "no such batch",
            next_command="none: a retry finds out",
            pipeline=batch.pipeline,
            batch_id=batch.batch_id,
        )
    return current


def _require_protocol(batch: Batch) -> None:
    if batch.protocol_version != PROTOCOL_VERSION:
        raise VersionSkew(
            "the batch was planned under another protocol version than this job follows",
            expected=f"protocol version {PROTOCOL_VERSION}",
            found=f"protocol version {batch.protocol_version}",
            next_command="install the same version of kafka-ingest where Airflow and Spark run, then clear plan_batch",
            pipeline=batch.pipeline,
            batch_id=batch.batch_id,
        )

"""Step *load*: claim the batch, keep its hold alive, stage it, publish it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from types import TracebackType
from typing import Self

from kafka_ingest.errors import Busy, Fenced, IngestError, LockTimeout, RecordsRefused, RetryLater, VersionSkew, naming
from kafka_ingest.protocol.accounting import account_for
from kafka_ingest.protocol.batch import Batch, BatchState, Hold, LoadPhases, TaskSeconds
from kafka_ingest.protocol.fold import compacted_topics, fills_values, reads_deletes, require_deletes_unexpired
from kafka_ingest.protocol.log_faults import require_same_log
from kafka_ingest.protocol.new_columns import most_passes, new_fields_of
from kafka_ingest.protocol.ports import Clock, Ledger, Log, Publisher, SchemaEvolution, Staging, TaskRunner
from kafka_ingest.protocol.publish import publish_batch
from kafka_ingest.protocol.staging import (
    NewField,
    StageProgress,
    StageResult,
    StageTask,
    cut_into_tasks,
    has_use_for_sizes,
    tasks_with_refused,
)
from kafka_ingest.protocol.target import AddedColumn
from kafka_ingest.settings import PROTOCOL_VERSION, HoldSettings, NewFields

__all__ = ["LoadPorts", "LoadProgress", "hold_given_back", "load_batch"]


# ----------
# The sign of life of a load: extends the hold, stores and reports progress, and notices a newer claim.

_log = logging.getLogger(__name__)

#: How often progress is reported: a person who watches a task log should see movement every few seconds.
_REPORT_INTERVAL_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a load is.

    Attributes:
        step: ``stage`` or ``publish``.
        records: Records staged so far.
        offsets: Offsets passed so far.
        total_offsets: Offsets of the batch.
        records_per_second: Average since records began to arrive; Spark's start does not count.
    """

    step: str
    records: int
    offsets: int
    total_offsets: int
    records_per_second: float


class Heartbeat:
    """A thread beside the load, used as a context manager; ``is_fenced`` tells that the attempt lost its batch.

    A heartbeat that cannot be stored is only logged: the hold then runs out, another plan may supersede the batch, and
    fencing keeps this attempt from publishing.

    Args:
        batch: The claimed batch.
        ledger: Where the hold is extended.
        staging: Tells progress.
        clock: For the rate.
        hold: Interval and length of the hold.
        report: Called every few seconds.
        on_fenced: Called once, from the thread, when a newer claim or plan owns the batch.
    """

    def __init__(
        self,
        batch: Batch,
        *,
        ledger: Ledger,
        staging: Staging,
        clock: Clock,
        hold: HoldSettings,
        report: Callable[[LoadProgress], None],
        on_fenced: Callable[[], None],
    ) -> None:
        self._batch = batch
        self._ledger = ledger
        self._staging = staging
        self._clock = clock
        self._hold = hold
        self._report = report
        self._on_fenced = on_fenced
        self._step = "stage"
        self._empty_until = clock.now()
        self._beaten_at = self._empty_until
        self._progress = StageProgress()
        self._stop = threading.Event()
        self._fenced = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def is_fenced(self) -> bool:
        """Whether a newer claim or plan owns the batch."""
        return self._fenced.is_set()

    def enter_step(self, step: str, progress: StageProgress) -> None:
        """Name the step that is reported and stored from now on, and what was staged when it began."""
        self._step, self._progress = step, progress

    def _run(self) -> None:
        interval = min(_REPORT_INTERVAL_SECONDS, float(self._hold.heartbeat_interval_seconds))
        while not self._stop.wait(interval):
            try:
                self._beat()
            except IngestError as error:
                _log.warning("heartbeat not stored, trying again: %s", error)

    def _beat(self) -> None:
        if self._step == "stage":
            progress = self._staging.progress(self._batch)
            # The next step, which may have begun meanwhile, has brought the final numbers.
            self._progress = progress if self._step == "stage" else self._progress
        self._report(self._load_progress())
        since = (self._clock.now() - self._beaten_at).total_seconds()
        if since < self._hold.heartbeat_interval_seconds - _REPORT_INTERVAL_SECONDS / 2:
            return
        standing = self._ledger.heartbeat(
            self._batch.batch_id,
            self._batch.claim,
            step=self._step,
            progress=self._progress,
            hold_seconds=self._hold.heartbeat_timeout_seconds,
        )
        self._beaten_at = self._clock.now()
        owns = standing.claim == self._batch.claim and standing.state in (BatchState.PLANNED, BatchState.COMMITTED)
        if not owns and not self._fenced.is_set():
            self._fenced.set()
            self._on_fenced()

    def _load_progress(self) -> LoadProgress:
        if not self._progress.records:
            self._empty_until = self._clock.now()
        seconds = max((self._clock.now() - self._empty_until).total_seconds(), 0.001)
        return LoadProgress(
            step=self._step,
            records=self._progress.records,
            offsets=self._progress.offsets,
            total_offsets=self._batch.span_offsets,
            records_per_second=self._progress.records / seconds,
        )


# ----------
# Claim a planned batch, stage it, publish it.
#
# Any number of attempts of one batch may run at the same time: each takes the next claim, and only the newest
# can publish.

#: How often columns are tried to be added to a table that others use, and how long those who have queued behind that
#: have the table in between: two minutes in all outlast most reports.
_LOCK_ATTEMPTS = 12
_LOCK_PAUSE_SECONDS = 5.0

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
    evolution: SchemaEvolution


def load_batch(
    batch_id: str,
    ports: LoadPorts,
    *,
    hold: HoldSettings,
    report: Callable[[LoadProgress], None],
    on_published: Callable[[LoadPhases], None] = lambda _: None,
) -> Batch:
    """Load a batch and return it, committed. Running it again changes nothing.

    Durable on return: rows, dead letters, counts and positions, in one transaction, by this attempt or by a newer one.

    Args:
        batch_id: A planned or committed batch.
        ports: The world.
        hold: How long a claim holds the pipeline without a sign of life.
        report: Called every few seconds with the progress.
        on_published: Called with where the time went, after this attempt's own publish.

    Raises:
        Fenced: The batch was superseded or rolled back.
        RetryLater: Another attempt may succeed.
        StopAndCall: No attempt can succeed until somebody acts.
    """
    batch = ports.ledger.claim(batch_id, hold.heartbeat_timeout_seconds)
    if batch.state is BatchState.COMMITTED:
        _log.info("batch %s is committed already: nothing to do", batch_id)
        return batch
    passes = _Passes(batch, ports, hold, report)
    with naming(batch.pipeline, batch.batch_id):
        try:
            phases = passes.until_published()
        except Fenced as fenced:
            # The newer claim may wait for the cores that this attempt holds.
            ports.runner.release()
            return _await_newer_claim(batch, ports, hold, fenced)
        except Exception:
            _release_hold(batch, passes.batch.claim, ports.ledger)
            raise
        on_published(phases)
        _drop_staging(passes.batch, ports.staging)
        return _committed(batch, ports.ledger)


@contextmanager
def hold_given_back(batch: Batch, ledger: Ledger) -> Iterator[None]:
    """Give back the hold of a batch when its job fails, so that the next run need not wait.

    A job gives it back itself, unless it never started or was killed. Where another attempt of the same batch is alive,
    its next heartbeat takes the hold again; until then another plan may supersede it, which costs work but no record.

    Args:
        batch: The planned batch; its claim is that of the plan, the job's is the next one, or one for each time that it
            staged.
        ledger: The ledger.
    """
    try:
        yield
    except Busy:
        raise  # another attempt publishes: the hold is its own
    except (Exception, KeyboardInterrupt):
        for claim in range(batch.claim, batch.claim + 1 + most_passes(batch.settings)):
            _release_hold(batch, claim, ledger)
        raise


def _release_hold(batch: Batch, claim: int, ledger: Ledger) -> None:
    try:
        ledger.release_hold(batch.batch_id, claim)
    except IngestError as error:
        # The first error is what matters; the hold runs out by itself.
        _log.warning("the hold of batch %s stays until its time-out: %s", batch.batch_id, error)


class _Passes:
    """Stage and publish a batch: once, and once more under a new claim each time that fields became columns.

    Attributes:
        batch: The batch under the newest claim that was taken here.
    """

    def __init__(
        self, batch: Batch, ports: LoadPorts, hold: HoldSettings, report: Callable[[LoadProgress], None]
    ) -> None:
        self.batch = batch
        self._ports = ports
        self._hold = hold
        self._report = report

    def until_published(self) -> LoadPhases:
        """Return where the time went, once the batch is published. Every further pass has added a column before."""
        is_published, phases = self._stage_and_publish()
        while not is_published:
            batch = self._ports.ledger.claim(self.batch.batch_id, self._hold.heartbeat_timeout_seconds)
            if batch.state is BatchState.COMMITTED:
                raise _fenced(self.batch)
            self.batch = batch
            is_published, more = self._stage_and_publish()
            phases += more
        return phases

    def _stage_and_publish(self) -> tuple[bool, LoadPhases]:
        batch, ports = self.batch, self._ports
        _require_protocol(batch)
        ports.staging.create(batch)
        times = [ports.clock.now()]
        with self._heartbeat() as heartbeat:
            # Asking for the parallelism starts Spark, which takes seconds: the heartbeat runs already.
            attempt = _Attempt(batch, ports, self._tasks(ports.runner.parallelism()), heartbeat)
            times.append(ports.clock.now())
            results = attempt.stage(attempt.tasks)
            times.append(ports.clock.now())
            try:
                is_published = attempt.publish(results)
            except RecordsRefused as refusal:
                results = attempt.stage_without(refusal, results)
                is_published = attempt.publish(results)
        return is_published, _phases([*times, ports.clock.now()], results)

    def _tasks(self, parallelism: int) -> Sequence[StageTask]:
        ranges = self.batch.ranges
        asks = has_use_for_sizes(ranges, parallelism)
        return cut_into_tasks(ranges, parallelism, self._ports.log.mean_offset_bytes(ranges) if asks else None)

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self.batch,
            ledger=self._ports.ledger,
            staging=self._ports.staging,
            clock=self._ports.clock,
            hold=self._hold,
            report=self._report,
            on_fenced=self._ports.runner.cancel,
        )


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One claim of a batch, and its tasks."""

    batch: Batch
    ports: LoadPorts
    tasks: Sequence[StageTask]
    heartbeat: Heartbeat

    def stage(self, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        self.heartbeat.enter_step("stage", StageProgress())
        try:
            return self.ports.runner.run(self.batch, tasks)
        except Exception as error:
            # Cancelled tasks fail in any way that the runner ends them; the reason for the cancelling is what matters.
            if self.heartbeat.is_fenced:
                raise _fenced(self.batch) from error
            raise

    def publish(self, results: Sequence[StageResult]) -> bool:
        """Publish, and tell whether that was done: the values of new fields would be lost, so these get columns first.

        What makes the batch stop anyway stops it before the table is altered.
        """
        outcome = account_for(self.batch, self.tasks, results)
        adds_columns = self.batch.settings.value.new_fields is NewFields.ADD_COLUMN
        fields = new_fields_of(results) if adds_columns else ()
        if not fields:
            self.heartbeat.enter_step("publish", StageProgress(outcome.counts.readable, self.batch.span_offsets))
        require_same_log(self.batch, self.ports.log.identity(sorted({r.topic for r in self.batch.ranges})))
        compacted = self._compacted_topics()
        if fields:
            added = self._add_columns(fields)
            _log.warning("the batch is staged once more, for new columns: %s", ", ".join(c.name for c in added))
            return False
        publish_batch(self.batch, outcome, self.ports.publisher, self.ports.ledger, compacted=compacted)
        for warning in outcome.warnings:
            _log.warning("%s", warning)
        return True

    def _compacted_topics(self) -> frozenset[str]:
        """Return them where values are filled, and stop where deletes may have been missed."""
        batch, ports = self.batch, self.ports
        has_deletes, fills = reads_deletes(batch.settings), fills_values(batch.settings)
        if not has_deletes and not fills:
            return frozenset()
        retentions_ms = ports.log.delete_retentions(sorted({r.topic for r in batch.ranges}))
        if has_deletes:
            require_deletes_unexpired(batch, retentions_ms, ports.ledger.caught_up(batch.pipeline), ports.clock.now())
        return compacted_topics(batch, retentions_ms) if fills else frozenset()

    def _add_columns(self, fields: Sequence[NewField]) -> Sequence[AddedColumn]:
        """Ask again where others use the table: all that was read would have to be read again."""
        for _ in range(_LOCK_ATTEMPTS - 1):
            try:
                return self.ports.evolution.add_columns(self.batch, fields)
            except LockTimeout as error:
                _log.warning("waiting to add columns: %s", error.found)
                self.ports.clock.sleep(_LOCK_PAUSE_SECONDS)
        return self.ports.evolution.add_columns(self.batch, fields)

    def stage_without(self, refusal: RecordsRefused, results: Sequence[StageResult]) -> Sequence[StageResult]:
        """Stage again the tasks that have read refused records; these records become dead letters now.

        A dead letter keeps the record's bytes, and only reading it again gives them. Once is enough: all are named.
        """
        again = tasks_with_refused(self.tasks, refusal.records)
        _log.warning(
            "the target refuses %d records that staging had taken: they become dead letters, and %d of %d tasks are"
            " staged again; the first is %s",
            len(refusal.records),
            len(again),
            len(self.tasks),
            refusal.records[0],
        )
        staged = {result.task_index: result for result in (*results, *self.stage(again))}
        return [staged[task.task_index] for task in self.tasks]


def _phases(times: Sequence[datetime], results: Sequence[StageResult]) -> LoadPhases:
    session, stage, publish = ((end - start).total_seconds() for start, end in pairwise(times))
    return LoadPhases(session, stage, publish, sum((result.seconds for result in results), TaskSeconds()))


def _fenced(batch: Batch) -> Fenced:
    return Fenced(
        "a newer claim or plan took the batch while it was staged",
        expected=f"claim {batch.claim} to be the newest",
        found="a newer one",
        next_command="none: the newer attempt does the work",
    )


def _await_newer_claim(batch: Batch, ports: LoadPorts, hold: HoldSettings, fenced: Fenced) -> Batch:
    """Wait while the newer claim makes progress: its commit is success for both, anything else means retry.

    It may make no progress for as long as a plan may wait for its load: Spark may have to find cores for it.
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
            )
        progress = (newer.step, newer.staged_records, newer.staged_offsets) if newer else None
        if progress != reached:
            reached, reached_at = progress, ports.clock.now()
        if (ports.clock.now() - reached_at).total_seconds() > hold.start_timeout_seconds:
            raise _stuck(newer, hold)
        ports.clock.sleep(_FENCED_POLL_SECONDS)


def _stuck(newer: Hold | None, hold: HoldSettings) -> RetryLater:
    at = f"step {newer.step}, {newer.staged_offsets:,} of {newer.total_offsets:,} offsets" if newer else "no hold"
    return RetryLater(
        "the newer claim of this batch lives and does not get on",
        expected=f"progress within {hold.start_timeout_seconds} seconds (hold.start_timeout_seconds)",
        found=at,
        next_command="end the other attempt of this run; a retry takes the next claim",
    )


def _drop_staging(batch: Batch, staging: Staging) -> None:
    try:
        staging.drop(batch)
    except IngestError as error:
        # The batch is committed: housekeeping drops tables that stay, they are no reason to fail.
        _log.warning("staging tables of batch %s stay for housekeeping: %s", batch.batch_id, error)


def _committed(batch: Batch, ledger: Ledger) -> Batch:
    current = ledger.batch(batch.batch_id)
    if current is None or current.state is not BatchState.COMMITTED:
        raise RetryLater(
            "the batch is not committed although it was published",
            expected="state committed",
            found=f"state {current.state.value}" if current else "no such batch",
            next_command="none: a retry finds out",
        )
    return current


def _require_protocol(batch: Batch) -> None:
    if batch.protocol_version != PROTOCOL_VERSION:
        raise VersionSkew(
            "the batch was planned under another protocol version than this job follows",
            expected=f"protocol version {PROTOCOL_VERSION}",
            found=f"protocol version {batch.protocol_version}",
            next_command="install the same version of kafka-ingest where Airflow and Spark run, then clear plan_batch",
        )

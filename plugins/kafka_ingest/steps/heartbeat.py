"""The sign of life of a load: extends the hold, stores and reports progress, and notices a newer claim."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kafka_ingest.core.batch import Batch, BatchState
from kafka_ingest.core.errors import IngestError
from kafka_ingest.core.ports import Clock, Ledger, Staging
from kafka_ingest.core.settings import HoldSettings
from kafka_ingest.core.staging import StageProgress

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
    """A thread beside the load. Use as a context manager; ``is_fenced`` tells that the attempt lost its batch.

    A heartbeat that cannot be stored is only logged: the hold then passes, another plan may supersede the batch, and
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

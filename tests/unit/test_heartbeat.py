from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from kafka_ingest.errors import DatabaseUnavailable, Fenced
from kafka_ingest.protocol.batch import Batch, BatchStanding, BatchState, Hold
from kafka_ingest.protocol.load import Heartbeat, LoadPorts, LoadProgress, load_batch
from kafka_ingest.protocol.staging import StageProgress, StageResult, StageTask
from kafka_ingest.settings import HoldSettings
from tests.builders import offset_range, planned_batch
from tests.fakes.database import FakeDatabase
from tests.fakes.ledger import FakeLedger
from tests.fakes.loading import FakeClock, FakeStaging
from tests.fakes.log import FakeLog
from tests.fakes.publisher import FakePublisher
from tests.fakes.schema_evolution import FakeSchemaEvolution

# The shortest interval, so that a test waits for one second at most.
HOLD = HoldSettings(heartbeat_interval_seconds=1)
BATCH = planned_batch(offset_range(0, 0, 40))
DEADLINE_SECONDS = 30


@dataclass
class BeatenLedger:
    """A ledger that only takes heartbeats, and answers with a standing or a fault."""

    answers: list[BatchStanding | DatabaseUnavailable]
    beats: list[tuple[str, StageProgress]] = field(default_factory=list)

    def heartbeat(
        self, batch_id: str, claim: int, *, step: str, progress: StageProgress, hold_seconds: int
    ) -> BatchStanding:
        assert (batch_id, claim, hold_seconds) == (BATCH.batch_id, BATCH.claim, HOLD.heartbeat_timeout_seconds)
        self.beats.append((step, progress))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, DatabaseUnavailable):
            raise answer
        return answer


class HalfStaged:
    """Staging that is half way."""

    def progress(self, batch: Batch) -> StageProgress:
        return StageProgress(records=18, offsets=20)


def heartbeat(
    ledger: BeatenLedger, reports: list[LoadProgress], fenced: threading.Event, reported: threading.Event
) -> Heartbeat:
    clock = FakeClock()

    def report(progress: LoadProgress) -> None:
        clock.time += timedelta(seconds=1)
        reports.append(progress)
        reported.set()

    return Heartbeat(
        BATCH,
        ledger=ledger,  # type: ignore[arg-type]
        staging=HalfStaged(),  # type: ignore[arg-type]
        clock=clock,
        hold=HOLD,
        report=report,
        on_fenced=fenced.set,
    )


def test_a_heartbeat_reports_progress_and_stores_it_with_the_hold() -> None:
    ledger = BeatenLedger([BatchStanding(BatchState.PLANNED, BATCH.claim)])
    reports: list[LoadProgress] = []
    reported = threading.Event()
    with heartbeat(ledger, reports, threading.Event(), reported) as beating:
        assert reported.wait(DEADLINE_SECONDS)
    assert not beating.is_fenced
    first = reports[0]
    assert (first.step, first.records, first.offsets, first.total_offsets) == ("stage", 18, 20, 40)
    assert ledger.beats[0] == ("stage", StageProgress(18, 20))


def test_the_publish_step_begins_with_the_final_numbers() -> None:
    ledger = BeatenLedger([BatchStanding(BatchState.PLANNED, BATCH.claim)])
    reports: list[LoadProgress] = []
    reported = threading.Event()
    beating = heartbeat(ledger, reports, threading.Event(), reported)
    beating.enter_step("publish", StageProgress(records=36, offsets=40))
    with beating:
        assert reported.wait(DEADLINE_SECONDS)
    assert (reports[0].step, reports[0].records, reports[0].offsets) == ("publish", 36, 40)
    assert ledger.beats[0] == ("publish", StageProgress(36, 40))


@pytest.mark.parametrize(
    "standing", [BatchStanding(BatchState.PLANNED, BATCH.claim + 1), BatchStanding(BatchState.SUPERSEDED, BATCH.claim)]
)
def test_a_newer_claim_or_plan_is_noticed_and_told(standing: BatchStanding) -> None:
    fenced = threading.Event()
    with heartbeat(BeatenLedger([standing]), [], fenced, threading.Event()) as beating:
        assert fenced.wait(DEADLINE_SECONDS)
        assert beating.is_fenced


def test_a_heartbeat_that_cannot_be_stored_is_tried_again() -> None:
    ledger = BeatenLedger([DatabaseUnavailable("down"), BatchStanding(BatchState.SUPERSEDED, BATCH.claim)])
    fenced = threading.Event()
    with heartbeat(ledger, [], fenced, threading.Event()):
        assert fenced.wait(DEADLINE_SECONDS)
    assert len(ledger.beats) >= 2


class SlowRunner:
    """Staging that does not end before it is cancelled, and then fails in its own way."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def parallelism(self) -> int:
        return 1

    def run(self, batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        assert self.cancelled.wait(DEADLINE_SECONDS), "nobody cancelled it"
        raise RuntimeError("Job 0 cancelled")

    def cancel(self) -> None:
        self.cancelled.set()

    def release(self) -> None:
        """It holds nothing."""


def test_a_fenced_attempt_is_cancelled_while_it_stages() -> None:
    database, log, runner = FakeDatabase(), FakeLog(), SlowRunner()
    ledger = FakeLedger(database)
    database.batches[BATCH.batch_id] = BATCH
    database.holds[BATCH.batch_id] = Hold(BATCH.batch_id, BATCH.request, database.now, "plan")
    clock = FakeClock()

    def report(_: LoadProgress) -> None:
        # A newer plan superseded the batch while it was staged.
        database.batches[BATCH.batch_id] = planned_batch(*BATCH.ranges, state=BatchState.SUPERSEDED)

    ports = LoadPorts(
        ledger, log, FakeStaging(database), runner, FakePublisher(database), clock, FakeSchemaEvolution(database)
    )
    with pytest.raises(Fenced):
        load_batch(BATCH.batch_id, ports, hold=HOLD, report=report)
    assert database.rows == []

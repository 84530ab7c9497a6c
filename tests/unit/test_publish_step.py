from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from kafka_ingest.core.batch import Batch, BatchState, RecordCounts
from kafka_ingest.core.errors import (
    AccountingMismatch,
    CommitDidNotHappen,
    CommitStateUnknown,
    Fenced,
    IngestError,
    StagingLost,
)
from kafka_ingest.core.outcome import BatchOutcome, PartitionOutcome
from kafka_ingest.core.ports import BatchStanding
from kafka_ingest.steps.publish_batch import publish_batch
from tests.builders import offset_range, planned_batch

BATCH = planned_batch(offset_range(0, 0, 10), offset_range(1, 0, 5))
OUTCOME = BatchOutcome(
    partitions=tuple(
        PartitionOutcome(r, counts, None, None, None, None)
        for r, counts in zip(
            BATCH.ranges, (RecordCounts(rows=9, dead_letters=1), RecordCounts(rows=4, dead_letters=1)), strict=True
        )
    ),
    winners={0: 7},
)
OURS = BatchStanding(BatchState.PLANNED, BATCH.claim)


@dataclass
class ScriptedPublication:
    """A publication that answers as a test says, and remembers what was asked of it in which order."""

    standing: BatchStanding = OURS
    moved: int = 2
    rows: int = 13
    dead_letters: int = 2
    commit_error: IngestError | None = None
    calls: list[str] = field(default_factory=list)

    @contextmanager
    def begin(self, batch: Batch) -> Iterator[ScriptedPublication]:
        assert batch is BATCH
        yield self

    def lock_batch(self) -> BatchStanding:
        self.calls.append("lock_batch")
        return self.standing

    def advance_positions(self, outcome: BatchOutcome) -> int:
        self.calls.append("advance_positions")
        return self.moved

    def insert_rows(self, outcome: BatchOutcome) -> int:
        self.calls.append("insert_rows")
        return self.rows

    def insert_dead_letters(self, outcome: BatchOutcome) -> int:
        self.calls.append("insert_dead_letters")
        return self.dead_letters

    def record_outcome(self, outcome: BatchOutcome) -> None:
        self.calls.append("record_outcome")

    def commit(self) -> None:
        self.calls.append("commit")
        if self.commit_error:
            raise self.commit_error


class SettlingLedger:
    """A ledger of which publishing may ask only how a batch stands."""

    def __init__(self, standing: BatchStanding | None = None) -> None:
        self.standing = standing

    def settle(self, batch_id: str) -> BatchStanding:
        assert batch_id == BATCH.batch_id
        assert self.standing is not None, "nothing was in doubt"
        return self.standing


def publish(publication: ScriptedPublication, settled: BatchStanding | None = None) -> None:
    publish_batch(BATCH, OUTCOME, publication, SettlingLedger(settled))  # type: ignore[arg-type]


def test_statements_come_in_the_order_of_the_protocol() -> None:
    publication = ScriptedPublication()
    publish(publication)
    assert publication.calls == [
        "lock_batch",
        "advance_positions",
        "insert_rows",
        "insert_dead_letters",
        "record_outcome",
        "commit",
    ]


def test_a_batch_that_another_attempt_committed_is_a_success_without_a_write() -> None:
    publication = ScriptedPublication(standing=BatchStanding(BatchState.COMMITTED, 9))
    publish(publication)
    assert publication.calls == ["lock_batch"]


@pytest.mark.parametrize(
    "standing",
    [
        BatchStanding(BatchState.PLANNED, BATCH.claim + 1),
        BatchStanding(BatchState.SUPERSEDED, BATCH.claim),
        BatchStanding(BatchState.ROLLED_BACK, BATCH.claim),
    ],
)
def test_an_attempt_that_lost_its_batch_is_fenced_before_it_writes(standing: BatchStanding) -> None:
    publication = ScriptedPublication(standing=standing)
    with pytest.raises(Fenced):
        publish(publication)
    assert publication.calls == ["lock_batch"]


@pytest.mark.parametrize(
    ("publication", "error"),
    [
        (ScriptedPublication(moved=1), AccountingMismatch),
        (ScriptedPublication(rows=12), StagingLost),
        (ScriptedPublication(rows=14), AccountingMismatch),
        (ScriptedPublication(dead_letters=1), StagingLost),
        (ScriptedPublication(dead_letters=3), AccountingMismatch),
    ],
    ids=["a position moved", "rows missing", "rows too many", "dead letters missing", "dead letters too many"],
)
def test_a_count_that_differs_stops_before_commit(publication: ScriptedPublication, error: type[IngestError]) -> None:
    with pytest.raises(error):
        publish(publication)
    assert "commit" not in publication.calls


def test_a_lost_answer_to_commit_is_a_success_when_the_ledger_says_committed() -> None:
    publication = ScriptedPublication(commit_error=CommitStateUnknown("connection lost"))
    publish(publication, settled=BatchStanding(BatchState.COMMITTED, BATCH.claim))


def test_a_lost_answer_to_commit_is_a_retry_when_the_ledger_says_planned() -> None:
    publication = ScriptedPublication(commit_error=CommitStateUnknown("connection lost"))
    with pytest.raises(CommitDidNotHappen):
        publish(publication, settled=OURS)


def test_a_lost_answer_to_commit_is_fenced_when_a_newer_claim_took_over_meanwhile() -> None:
    publication = ScriptedPublication(commit_error=CommitStateUnknown("connection lost"))
    with pytest.raises(Fenced):
        publish(publication, settled=BatchStanding(BatchState.PLANNED, BATCH.claim + 1))

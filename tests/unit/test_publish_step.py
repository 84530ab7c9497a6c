from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from kafka_ingest.errors import (
    AccountingMismatch,
    CommitDidNotHappen,
    CommitStateUnknown,
    Fenced,
    IngestError,
    ReloadWouldLose,
    StagingLost,
)
from kafka_ingest.protocol.accounting import KeptDeadLetters, ReplacedPartition, Replacement
from kafka_ingest.protocol.batch import (
    Batch,
    BatchOutcome,
    BatchStanding,
    BatchState,
    PartitionOutcome,
    RecordCounts,
    RunOptions,
)
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.publish import publish_batch
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
    replacement: Replacement = field(default_factory=Replacement)
    recorded: BatchOutcome | None = None
    commit_error: IngestError | None = None
    calls: list[str] = field(default_factory=list)

    @contextmanager
    def begin(self, batch: Batch) -> Iterator[ScriptedPublication]:
        assert batch.batch_id == BATCH.batch_id
        yield self

    def lock_batch(self) -> BatchStanding:
        self.calls.append("lock_batch")
        return self.standing

    def advance_positions(self, outcome: BatchOutcome) -> int:
        self.calls.append("advance_positions")
        return self.moved

    def replace(self, outcome: BatchOutcome, *, with_resolved: bool) -> Replacement:
        self.calls.append("replace" + (" with resolved" if with_resolved else ""))
        return self.replacement

    def insert_rows(self, outcome: BatchOutcome) -> int:
        self.calls.append("insert_rows")
        return self.rows

    def insert_dead_letters(self, outcome: BatchOutcome) -> int:
        self.calls.append("insert_dead_letters")
        return self.dead_letters

    def record_outcome(self, outcome: BatchOutcome) -> None:
        self.calls.append("record_outcome")
        self.recorded = outcome

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


def publish(publication: ScriptedPublication, settled: BatchStanding | None = None, batch: Batch = BATCH) -> None:
    publish_batch(batch, OUTCOME, publication, SettlingLedger(settled))  # type: ignore[arg-type]


def asked_with(options: RunOptions) -> Batch:
    return replace(BATCH, request=replace(BATCH.request, parameters=options.to_parameters()))


def test_statements_come_in_the_order_of_the_protocol() -> None:
    publication = ScriptedPublication()
    publish(publication)
    assert publication.calls == [
        "lock_batch",
        "advance_positions",
        "replace",
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


GONE = ReplacedPartition(TopicPartition("orders", 0), rows=4, dead_letters=1, missing=2, first_missing=(3, 8))


def test_rows_whose_records_are_gone_stop_the_publish_with_their_offsets() -> None:
    publication = ScriptedPublication(replacement=Replacement(replaced=(GONE,)))
    with pytest.raises(ReloadWouldLose, match=r"orders\[0\]: 2 gone, the first at 3, 8"):
        publish(publication)
    assert publication.calls[-1] == "insert_dead_letters"


def test_staging_that_a_crash_emptied_is_staged_again_and_no_loss_of_the_log() -> None:
    publication = ScriptedPublication(rows=0, dead_letters=0, replacement=Replacement(replaced=(GONE,)))
    with pytest.raises(StagingLost):
        publish(publication)


def test_rows_whose_records_are_gone_are_given_up_when_the_request_says_so() -> None:
    publication = ScriptedPublication(replacement=Replacement(replaced=(GONE,)))
    publish(publication, batch=asked_with(RunOptions(reload_what_is_left=True)))
    assert publication.calls[-1] == "commit"


def test_resolved_dead_letters_are_replaced_when_the_request_says_so() -> None:
    publication = ScriptedPublication()
    publish(publication, batch=asked_with(RunOptions(replace_resolved=True)))
    assert publication.calls[2] == "replace with resolved"


def test_what_stays_of_resolved_dead_letters_is_not_expected_again_and_is_counted_as_dead_letters() -> None:
    kept = KeptDeadLetters(TopicPartition("orders", 0), rows=3, dead_letters=1)
    publication = ScriptedPublication(rows=10, dead_letters=1, replacement=Replacement(kept=(kept,)))
    publish(publication)
    assert publication.recorded is not None
    assert [part.counts for part in publication.recorded.partitions] == [
        RecordCounts(rows=6, dead_letters=4),
        RecordCounts(rows=4, dead_letters=1),
    ]


def test_a_kept_record_counts_once_whatever_it_is_now() -> None:
    kept = KeptDeadLetters(TopicPartition("orders", 0), rows=1, dead_letters=2, tombstones=3, invisible=4)
    before = RecordCounts(rows=10, dead_letters=5, tombstones=6, invisible=7)
    assert kept.applied_to(before) == RecordCounts(rows=9, dead_letters=13, tombstones=3, invisible=3)
    assert kept.applied_to(before).offsets == before.offsets

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_ingest.errors import AccountingMismatch, DeadLetterReason
from kafka_ingest.protocol.batch import RecordCounts
from kafka_ingest.protocol.staging import DeadLetterRun, DeadLetterSample, Split
from spark_jobs.decode.values import Rejected
from spark_jobs.stage import ChunkOutcome, SplitAccount, dead_letter_run
from tests.kafka_records import Record, record_batch

SUBRANGE = Split(4, "orders", 0, 1, 10, 30)


def dead(*indices: int) -> list[Rejected]:
    return [Rejected(index, DeadLetterReason.MALFORMED, f"record {index}") for index in indices]


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ([], DeadLetterRun(records=5)),
        ([2], DeadLetterRun(5, leading=0, trailing=0, longest=1, longest_start=12)),
        ([0, 1, 3], DeadLetterRun(5, leading=2, trailing=0, longest=2, longest_start=10)),
        ([1, 3, 4], DeadLetterRun(5, leading=0, trailing=2, longest=2, longest_start=13, trailing_start=13)),
        (
            [0, 1, 2, 3, 4],
            DeadLetterRun(5, leading=5, trailing=5, longest=5, longest_start=10, trailing_start=10),
        ),
    ],
)
def test_runs_of_dead_letters_are_found_in_a_stretch(indices: list[int], expected: DeadLetterRun) -> None:
    assert dead_letter_run(pa.array([10, 11, 12, 13, 14]), indices) == expected


def test_a_run_goes_on_over_the_edge_of_a_chunk_and_over_invisible_offsets() -> None:
    account = SplitAccount(SUBRANGE)
    account.add(record_batch([Record(10), Record(11), Record(12)]), ChunkOutcome(1, dead(1, 2), 0))
    account.add(record_batch([Record(20), Record(21)]), ChunkOutcome(1, dead(0), 0))

    run = account.result(None).dead_letter_run

    assert (run.longest, run.longest_start) == (3, 11)


def test_an_account_adds_up_to_the_span() -> None:
    account = SplitAccount(SUBRANGE)
    first = record_batch([Record(12, timestamp_ms=500), Record(13, timestamp_ms=300), Record(15, timestamp_ms=900)])
    second = record_batch([Record(20, timestamp_ms=400), Record(28, timestamp_ms=None, timestamp_type=-1)])
    account.require_in_order(first)
    account.add(first, ChunkOutcome(2, dead(1), 0))
    account.require_in_order(second)
    account.add(second, ChunkOutcome(1, [], 1))

    result = account.result(7)

    # The span is 20: 5 readable records, 15 offsets without one.
    assert result.counts == RecordCounts(rows=3, dead_letters=1, tombstones=1, invisible=15)
    assert (result.index, result.end_leader_epoch) == (4, 7)
    assert (result.record_time_min_ms, result.record_time_max_ms, result.last_record_time_ms) == (300, 900, None)
    assert result.samples == (DeadLetterSample("orders", 0, 13, "malformed", "record 1"),)
    assert account.passed_offsets == 19


def test_an_empty_split_is_all_invisible() -> None:
    result = SplitAccount(SUBRANGE).result(None)

    assert result.counts == RecordCounts(invisible=20)
    assert result.last_record_time_ms is None


def test_an_impossible_record_time_is_no_time_of_the_batch() -> None:
    account = SplitAccount(SUBRANGE)
    times = [253_402_300_799_999, 253_402_300_800_000, -62_135_596_800_001, -62_135_596_800_000]
    records = record_batch([Record(10 + n, timestamp_ms=time) for n, time in enumerate(times)])
    account.add(records, ChunkOutcome(2, dead(1, 2), 0))

    result = account.result(None)

    assert (result.record_time_min_ms, result.record_time_max_ms) == (-62_135_596_800_000, 253_402_300_799_999)


def test_five_samples_are_kept_and_cut_to_what_can_be_stored() -> None:
    account = SplitAccount(SUBRANGE)
    rows = [Rejected(n, DeadLetterReason.MALFORMED, "\x00" + "d" * 600) for n in range(6)]
    account.add(record_batch([Record(10 + n) for n in range(6)]), ChunkOutcome(0, rows, 0))

    samples = account.result(None).samples

    assert [sample.offset for sample in samples] == [10, 11, 12, 13, 14]
    assert samples[0].detail == "\\u0000" + "d" * 494


@pytest.mark.parametrize(
    ("records", "what"),
    [
        ([Record(9)], "out of order or out of range"),
        ([Record(30)], "out of order or out of range"),
        ([Record(12), Record(12)], "out of order or out of range"),
        ([Record(13), Record(12), Record(14)], "out of order or out of range"),
        ([Record(12, partition=1)], "another partition"),
        ([Record(12, topic="other")], "another partition"),
    ],
)
def test_a_record_that_does_not_belong_is_refused(records: list[Record], what: str) -> None:
    with pytest.raises(AccountingMismatch, match=what):
        SplitAccount(SUBRANGE).require_in_order(record_batch(records))


def test_a_record_that_comes_again_in_a_later_chunk_is_refused() -> None:
    account = SplitAccount(SUBRANGE)
    records = record_batch([Record(12)])
    account.require_in_order(records)
    account.add(records, ChunkOutcome(1, [], 0))

    with pytest.raises(AccountingMismatch, match=r"offsets 12 to 12"):
        account.require_in_order(records)


def test_a_chunk_that_does_not_account_for_every_record_is_refused() -> None:
    with pytest.raises(AccountingMismatch, match="1 rows, 0 deletes, 0 dead letters, 0 tombstones"):
        SplitAccount(SUBRANGE).add(record_batch([Record(12), Record(13)]), ChunkOutcome(1, [], 0))

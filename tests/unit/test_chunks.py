from __future__ import annotations

import pytest

from spark_jobs.stage import chunks
from tests.kafka_records import Record, record_batch


def offsets_of(
    sizes: list[int], *, max_records: int, max_bytes: int = 1 << 30, value_bytes: int = 1
) -> list[list[int]]:
    batches, first = [], 0
    for size in sizes:
        batches.append(record_batch([Record(first + n, b"v" * value_bytes) for n in range(size)]))
        first += size
    found = chunks(batches, max_records=max_records, max_bytes=max_bytes)
    return [chunk.column("offset").to_pylist() for chunk in found]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([0], []),
        ([3], [[0, 1, 2]]),
        ([1, 0, 2], [[0, 1, 2]]),
        ([2, 2, 1], [[0, 1, 2, 3], [4]]),
        ([3, 2], [[0, 1, 2], [3, 4]]),
        ([9], [[0, 1, 2, 3], [4, 5], [6, 7, 8]]),
    ],
)
def test_chunks_hold_every_record_once_in_order(sizes: list[int], expected: list[list[int]]) -> None:
    assert offsets_of(sizes, max_records=4) == expected


def test_a_chunk_is_cut_by_its_bytes() -> None:
    # Each record is 1,000 bytes of value and less than 100 of everything else; two fit into 2,500, three do not.
    assert offsets_of([4, 1], max_records=100, max_bytes=2_500, value_bytes=1_000) == [[0, 1], [2, 3], [4]]


def test_a_record_larger_than_the_limit_is_a_chunk_of_its_own() -> None:
    assert offsets_of([2, 1], max_records=100, max_bytes=10, value_bytes=1_000) == [[0], [1], [2]]

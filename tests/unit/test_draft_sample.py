"""Where a sample looks: windows of offsets that share the records out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.kafka.sample import Window, windows_of


def test_a_large_partition_is_looked_at_in_three_places() -> None:
    assert windows_of({0: (100, 1_100)}, 30) == (
        [Window(0, 100, 595, 10)],
        [Window(0, 595, 1_090, 10)],
        [Window(0, 1_090, 1_100, 10)],
    )


def test_a_partition_with_fewer_offsets_is_read_whole_and_leaves_the_rest_to_others() -> None:
    first, middle, last = windows_of({0: (0, 4), 1: (0, 1_000), 2: (7, 7)}, 34)
    assert first == [Window(0, 0, 4, 4), Window(1, 0, 495, 10)]
    assert middle == [Window(1, 495, 990, 10)]
    assert last == [Window(1, 990, 1_000, 10)]


def test_fewer_records_than_partitions_are_still_some() -> None:
    first, middle, last = windows_of(dict.fromkeys(range(5), (0, 10)), 2)
    assert [window.most for window in first] == [1, 1]
    assert (middle, last) == ([], [])


@given(
    st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 1_000), st.integers(0, 1_000)), max_size=6),
    st.integers(1, 200),
)
def test_windows_lie_in_their_partitions_do_not_overlap_and_ask_for_no_more(
    bounds: dict[int, tuple[int, int]], most: int
) -> None:
    ends = {partition: (start, start + size) for partition, (start, size) in bounds.items()}
    passes = windows_of(ends, most)
    assert sum(window.most for windows in passes for window in windows) <= most
    for partition, (start, end) in ends.items():
        own = [window for windows in passes for window in windows if window.partition == partition]
        assert all(start <= window.start < window.end <= end for window in own)
        assert all(one.end <= other.start for one, other in pairwise(own))

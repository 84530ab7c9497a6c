"""Rebuilds of tables of current state whose log is another than it was: truncated, expired, or not read at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_ingest.errors import KeyInTwoPartitions, LogTruncated, RebuildWouldRemove
from tests.state_bench import TOPIC, Change, StateBench, state_settings


@pytest.fixture
def bench(database: Mapping[str, Any]) -> StateBench:
    return StateBench(database, state_settings)


def test_a_log_that_ends_below_what_was_loaded_stops_until_a_rebuild(bench: StateBench) -> None:
    """a@0, b@1, c@2; reset to 1; the log is cut to 1: b and c are gone, and other records will get their offsets."""
    for key in ("a", "b", "c"):
        bench.append(Change(key, (1, 1)))
    bench.live()
    bench.reset(0, 1)
    bench.log.truncate(TOPIC, 0, to=1)
    with pytest.raises(LogTruncated, match=r"--mode rebuild .* --reload-what-is-left"):
        bench.live()
    with pytest.raises(RebuildWouldRemove, match=r"2 keys, the first \{b\}, \{c\}"):
        bench.rebuild(what_is_left=False)
    assert set(bench.table()) == {"a", "b", "c"}
    bench.rebuild()
    assert set(bench.table()) == {"a"}
    bench.append(Change("c", (7, 7)))  # offset 1: below the version that the lost row of c had
    bench.live()
    assert bench.table() == {"a": (1, 0, 0, False), "c": (7, 0, 1, False)}
    assert bench.violations() == bench.state_violations() == []


def test_a_rebuild_takes_away_what_another_partition_holds_of_a_key_before_it_compares(
    database: Mapping[str, Any],
) -> None:
    """a@0 of partition 0, which retention took; a@0 of partition 1: by offset nobody could order the two."""
    bench = StateBench(database, state_settings, partitions=2)
    bench.append(Change("a", (1, 1)), partition=0)
    bench.append(Change("b", (2, 2)), partition=0)
    bench.live()
    bench.append(Change("a", (3, 3)), partition=1)
    with pytest.raises(KeyInTwoPartitions, match=r"1 key, the first \{a\}"):
        bench.live()
    bench.log.delete_records(TOPIC, 0, 1)
    bench.rebuild()
    assert bench.table() == {"a": (3, 1, 0, False), "b": (2, 0, 1, False)}
    bench.append(Change("a", (4, 4)), partition=1)
    bench.live()
    assert bench.table()["a"] == (4, 1, 1, False)


def test_a_rebuild_of_a_pipeline_that_has_loaded_nothing_loads_everything(bench: StateBench) -> None:
    bench.append(Change("a", (1, 1)))
    bench.rebuild(what_is_left=False)
    assert bench.table() == {"a": (1, 0, 0, False)}

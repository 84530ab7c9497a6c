"""Tables of current state whose log lost its end in an unclean election: stopped, and rebuilt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_ingest.errors import LogTruncated, RebuildWouldRemove
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

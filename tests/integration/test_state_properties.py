"""Whatever is cut, read again, reset, replayed or stopped: the table is the fold of what was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

import pytest

from kafka_ingest.errors import KeyInTwoPartitions, ReloadWouldLose
from kafka_ingest.protocol.dead_letters import DeadLetterAction
from kafka_ingest.settings import Deletes, OrderBy
from tests.state_bench import BAD, TOPIC, Change, StateBench, state_settings

KEYS = ("a", "b", "A", "a ", "ä")


def drawn(random: Random) -> Change:
    """Draw a record: few keys, so that they meet often; a third are deletes, some do not fit under one version."""
    notes: list[int | str] = [random.randrange(100), random.randrange(100)]
    if random.random() < 0.3:
        notes[random.randrange(2)] = BAD
    key = random.choice(KEYS[: random.choice((1, 2, 5))])
    kind = random.random()
    if kind < 0.2:
        return Change(key, None, random.randrange(4))
    return Change(key, tuple(notes), random.randrange(4), is_delete=kind < 0.35)


#: What may happen, and how often.
KINDS = {
    "append": 40,
    "live": 25,
    "reload": 15,
    "reset": 6,
    "replay": 6,
    "discard": 2,
    "version": 4,
    "compact": 3,
    "rebuild": 4,
}


class Schedule:
    """Draws what happens to a pipeline: cuts, reloads, resets, replays, other settings, compaction, rebuilds."""

    kinds = KINDS

    def __init__(self, bench: StateBench, seed: str, partitions: int) -> None:
        self.bench, self.random, self.partitions = bench, Random(seed), partitions
        self.where = 0

    def step(self) -> str:
        """Do one thing that may happen; return its name."""
        self.where = self.random.randrange(self.partitions)
        (kind,) = self.random.choices(list(self.kinds), list(self.kinds.values()))
        getattr(self, f"_{kind}")()
        return kind

    @property
    def _committed(self) -> int:
        found = self.bench.query(
            "SELECT committed_offset FROM kafka_ingest.committed_offset WHERE partition = %s", self.where
        )
        return int(found[0][0]) if found else 0

    @property
    def _high_watermark(self) -> int:
        return self.bench.log.topics[TOPIC].partitions[self.where].high_watermark

    def _append(self) -> None:
        for _ in range(self.random.randrange(1, 5)):
            change = drawn(self.random)
            self.bench.append(change, sum(change.key.encode()) % self.partitions)

    def _live(self) -> None:
        self.bench.live(self.random.choice((1, 2, 3, 1_000)))

    def _reload(self) -> None:
        if committed := self._committed:
            start = self.random.randrange(committed)
            self.bench.reload(self.where, start, self.random.randrange(start, self._high_watermark) + 1)

    def _reset(self) -> None:
        if committed := self._committed:
            self.bench.reset(self.where, self.random.randrange(committed))

    def _replay(self) -> None:
        if self.bench.open_dead_letters():
            self.bench.resolve(DeadLetterAction.REPLAY)

    def _discard(self) -> None:
        if self.bench.open_dead_letters():
            self.bench.resolve(DeadLetterAction.DISCARD)

    def _version(self) -> None:
        self.bench.version = 1 - self.bench.version

    def _compact(self) -> None:
        self.bench.compact(self.where, self.random.randrange(self._high_watermark + 1))

    def _rebuild(self) -> None:
        if self._committed:
            self.bench.rebuild(into_new_table=self.random.random() < 0.5)


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.MARK, Deletes.IGNORE])
@pytest.mark.parametrize("order", [OrderBy.OFFSET, OrderBy.RECORD_TIME, OrderBy.COLUMN])
@pytest.mark.parametrize("partitions", [1, 2])
def test_the_table_is_the_fold_of_what_was_read(
    database: Mapping[str, Any], order: OrderBy, deletes: Deletes, partitions: int
) -> None:
    settings: Callable[[int], Any] = partial(state_settings, order=order, deletes=deletes)
    bench = StateBench(database, settings, partitions)
    schedule = Schedule(bench, f"{order} {deletes} {partitions}", partitions)
    done: list[str] = []
    for _ in range(60):
        try:
            done.append(schedule.step())
        except (ReloadWouldLose, KeyInTwoPartitions) as stop:
            done.append(type(stop).__name__)
        if bench.seen:
            assert bench.table() == bench.folded(), done
            assert bench.violations() == [], done
            assert bench.state_violations() == [], done

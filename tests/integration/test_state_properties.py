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


def step(bench: StateBench, random: Random, partitions: int) -> str:
    """Do one thing that may happen; return its name."""
    where = random.randrange(partitions)
    place = bench.log.topics[TOPIC].partitions[where]
    (committed,) = bench.query(
        "SELECT coalesce(max(committed_offset), 0) FROM kafka_ingest.committed_offset WHERE partition = %s", where
    )[0]
    kind = random.choices(
        ("append", "live", "reload", "reset", "replay", "discard", "version", "compact", "rebuild"),
        (40, 25, 15, 6, 6, 2, 4, 3, 4),
    )[0]
    if kind == "append":
        for _ in range(random.randrange(1, 5)):
            change = drawn(random)
            bench.append(change, where if partitions == 1 else hash_of(change.key) % partitions)
    elif kind == "live":
        bench.live(random.choice((1, 2, 3, 1_000)))
    elif kind == "reload" and committed:
        start = random.randrange(committed)
        bench.reload(where, start, random.randrange(start, place.high_watermark) + 1)
    elif kind == "reset" and committed:
        bench.reset(where, random.randrange(committed))
    elif kind in ("replay", "discard") and bench.open_dead_letters():
        bench.resolve(DeadLetterAction(kind))
    elif kind == "compact":
        bench.compact(where, random.randrange(place.high_watermark + 1))
    elif kind == "rebuild" and committed:
        bench.rebuild()
    elif kind == "version":
        bench.version = 1 - bench.version
    return kind


def hash_of(key: str) -> int:
    return sum(key.encode())


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.MARK, Deletes.IGNORE])
@pytest.mark.parametrize("order", [OrderBy.OFFSET, OrderBy.RECORD_TIME, OrderBy.COLUMN])
@pytest.mark.parametrize("partitions", [1, 2])
def test_the_table_is_the_fold_of_what_was_read(
    database: Mapping[str, Any], order: OrderBy, deletes: Deletes, partitions: int
) -> None:
    settings: Callable[[int], Any] = partial(state_settings, order=order, deletes=deletes)
    bench = StateBench(database, settings, partitions)
    random = Random(f"{order} {deletes} {partitions}")
    done: list[str] = []
    for _ in range(60):
        try:
            done.append(step(bench, random, partitions))
        except (ReloadWouldLose, KeyInTwoPartitions) as stop:
            done.append(type(stop).__name__)
        if bench.seen:
            assert bench.table() == bench.folded(), done
            assert bench.violations() == [], done
            assert bench.state_violations() == [], done
    print(done)

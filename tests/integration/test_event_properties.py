"""Values that did not travel: whatever is cut, read again or reset, each is the one that its key had."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from kafka_ingest.errors import ConfigError, ReloadWouldLose
from kafka_ingest.settings import Deletes, Unavailable
from tests.event_bench import BAD, PLACEHOLDER, Event, EventBench
from tests.integration.test_state_properties import Schedule

KEYS = ("1", "2", "3")
KINDS = {"append": 40, "live": 25, "reload": 15, "reset": 6, "discard": 2, "rebuild": 4}


def drawn(random: Random) -> Event:
    """Draw an event: few keys, half of the updates without a value, some deletes, some dead letters."""
    key = random.choice(KEYS[: random.choice((1, 2, 3))])
    kind = random.random()
    if kind < 0.2:
        return Event(random.choice(("d", "")), key)
    note: int | str = BAD if random.random() < 0.1 else random.randrange(100)
    big, doc = (
        PLACEHOLDER if random.random() < 0.5 else random.choice((f"text {random.randrange(100)}", None))
        for _ in range(2)
    )
    return Event(random.choice("uuuucr"), key, note, big, doc)


class EventSchedule(Schedule):
    """What may happen to a pipeline of change events."""

    kinds = KINDS
    bench: EventBench

    def _reload(self) -> None:
        if committed := self._committed:
            self.bench.reload(self.where, self.random.randrange(committed), self._high_watermark)

    def _append(self) -> None:
        for _ in range(self.random.randrange(1, 5)):
            event = drawn(self.random)
            self.bench.event(event, int(event.key) % self.partitions)


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.MARK, Deletes.IGNORE])
@pytest.mark.parametrize(
    ("unavailable", "partitions"),
    [(Unavailable.DEAD_LETTER, 1), (Unavailable.DEAD_LETTER, 2), (Unavailable.WRITE_NULL, 1)],
)
def test_every_value_is_the_one_that_its_key_had(
    database: Mapping[str, Any], deletes: Deletes, unavailable: Unavailable, partitions: int
) -> None:
    bench = EventBench(database, deletes, unavailable, partitions=partitions)
    schedule = EventSchedule(bench, f"{deletes} {unavailable} {partitions}", partitions)
    done: list[str] = []
    for _ in range(40):
        try:
            done.append(schedule.step())
        except (ReloadWouldLose, ConfigError) as stop:  # a run that would end below what was loaded is refused
            done.append(type(stop).__name__)
        if bench.seen:
            assert bench.rows() == bench.expected(), done
            assert bench.violations() == [], done
            assert bench.state_violations() == [], done

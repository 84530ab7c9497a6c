"""Each invariant of a table that holds the current state finds what breaks it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from kafka_ingest.settings import Deletes
from tests.state_bench import Change, StateBench, state_settings

#: What is done to a table of the rows a@3 and c@2 and the removed key b@4, and the invariant that finds it.
STATE_BREAKS = {
    "state_rows": "DELETE FROM shop.orders WHERE id = 'a'",
    "state_rows: another version": "UPDATE shop.orders SET kafka_partition = 1 WHERE id = 'c'",
    "state_rows: twice": "INSERT INTO shop.orders SELECT 'twice', note, at, kafka_topic, kafka_generation,"
    " kafka_partition, kafka_offset, kafka_timestamp, batch_id FROM shop.orders WHERE id = 'a'",
    "state_is_of_read_records": "UPDATE shop.orders SET kafka_offset = 5, batch_id = gen_random_uuid() WHERE id = 'a'",
    "state_is_of_read_records: another generation": "UPDATE shop.orders SET kafka_generation = 1 WHERE id = 'a'",
    "state_is_of_read_records: no version": "ALTER TABLE shop.orders ALTER kafka_offset DROP NOT NULL;"
    "INSERT INTO shop.orders (id, kafka_topic, kafka_generation, kafka_partition, batch_id)"
    " VALUES ('by hand', 'orders', 0, 0, gen_random_uuid())",
    "state_is_of_read_records: removed keys": 'UPDATE kafka_ingest.removed_key SET "offset" = 5',
}


@pytest.fixture
def bench(database: Mapping[str, Any]) -> StateBench:
    bench = StateBench(database, state_settings)
    for change in (Change("a"), Change("b"), Change("c"), Change("a"), Change("b", None)):
        bench.append(change)
    bench.live()
    return bench


@pytest.mark.parametrize("what", STATE_BREAKS)
def test_an_invariant_of_current_state_finds(what: str, bench: StateBench) -> None:
    assert bench.violations() == bench.state_violations() == []
    bench.query(STATE_BREAKS[what])
    found = bench.state_violations() if what.startswith("state_is") else bench.violations()
    assert {text.split(":")[0] for text in found} == {what.split(":", maxsplit=1)[0]}


def test_marked_rows_count_as_deletes(database: Mapping[str, Any]) -> None:
    bench = StateBench(database, partial(state_settings, deletes=Deletes.MARK))
    bench.append(Change("a"))
    bench.append(Change("a", None))
    bench.live()
    assert bench.violations() == []
    bench.query("DELETE FROM shop.orders")
    assert [text.split(":")[0] for text in bench.violations()] == ["state_rows"]


def test_after_a_replay_the_rows_of_the_newest_batch_are_not_counted(database: Mapping[str, Any]) -> None:
    """A replayed dead letter may have written over one of them: a@0, a@1 does not fit, then it is replayed."""
    from kafka_ingest.protocol.dead_letters import DeadLetterAction

    bench = StateBench(database, state_settings)
    bench.append(Change("a"))
    bench.append(Change("a", ("bad", 1)))
    bench.live()
    bench.version = 1
    bench.resolve(DeadLetterAction.REPLAY)
    assert bench.table() == {"a": (1, 0, 1, False)}
    assert bench.violations() == []

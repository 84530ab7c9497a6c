"""Change events that a real connector wrote: the table here holds what the source table held.

What was done to the source tables stands in ``tests/data/debezium/README.md``: the rows below are what PostgreSQL had
then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafka_ingest.errors import TruncateFound
from kafka_ingest.protocol.dead_letters import DeadLetterAction
from kafka_ingest.settings import BatchSettings
from tests.change_events import events_settings, target_section, value_section
from tests.debezium_samples import RecordedEvent, recorded_events
from tests.integration.pipeline_under_test import FedPipeline, produced
from tests.state_bench import TOPIC, StateBench

PLAIN = "json-plain-adaptive-precise"
FIRST_NAME = 'naïve "q" \\ \U0001f600 \n'
BIG = "0123456789" * 195
NAME, LARGE, EXTRA = "{name: name, type: text}", "{name: big, type: text}", "{name: extra, type: integer}"

#: The source table before it was emptied, and after it was filled again.
BEFORE_TRUNCATION = [(4, "no day", None), (10, FIRST_NAME, BIG), (20, "second", None)]
TRUNCATION = 21


def bench_of(database: Mapping[str, Any], *settings: BatchSettings, events: Sequence[RecordedEvent]) -> StateBench:
    bench = StateBench(database, lambda version: settings[version])
    for number, event in enumerate(events):
        bench.log.append(TOPIC, event.value, partition=0, key=event.key, timestamp_ms=1_795_901_231_000 + number)
    return bench


def recorded(table: str) -> list[RecordedEvent]:
    return list(recorded_events(PLAIN)[f"a.inventory.{table}"])


def rows(bench: StateBench, columns: str = "id, name, big") -> list[tuple[Any, ...]]:
    return bench.query(f"SELECT {columns} FROM shop.orders ORDER BY 1")


@pytest.mark.parametrize("cut", [2, 5, 1_000])
def test_the_table_is_the_source_table_however_its_events_are_cut(database: Mapping[str, Any], cut: int) -> None:
    bench = bench_of(database, events_settings(NAME, LARGE), events=recorded("items_full")[:TRUNCATION])
    for _ in range(0, TRUNCATION, cut):
        bench.live(cut)
    assert rows(bench) == BEFORE_TRUNCATION
    assert bench.violations() == bench.state_violations() == []


def test_every_kind_of_column_is_what_the_source_row_has(database: Mapping[str, Any]) -> None:
    settings = events_settings(
        "{name: doc, type: jsonb, as: json_text}",
        "{name: at, type: timestamptz}",
        "{name: day, type: date, as: epoch_days}",
        "{name: uid, type: uuid}",
        "{name: raw, type: bytea}",
        "{name: tags, type: 'text[]'}",
        "{name: feel, type: text}",
        EXTRA,
    )
    bench = bench_of(database, settings, events=recorded("items_full")[:TRUNCATION])
    bench.live()
    doc = '{"a": [1, 2.50, null], "n": 12345678901234567890.10, "z": {"k": "v"}}'
    found = rows(bench, "id, doc::text, at = '2026-11-28 12:34:56.123456+02', day::text, uid::text, raw = '\\x00ff10'")
    uid = "123e4567-e89b-12d3-a456-426614174000"
    day = "2026-02-28"
    # The column day was dropped before the last update of the row 4.
    assert found == [(4, doc, True, None, uid, True), (10, doc, True, day, uid, True), (20, doc, True, day, uid, True)]
    tags = ["a", None, 'b,"c']
    # The column extra was added with a default: rows that were there got it without an event.
    assert rows(bench, "id, tags, feel, extra") == [
        (4, tags, "happy", 6),
        (10, tags, "happy", None),
        (20, tags, "happy", None),
    ]


def test_events_that_are_read_again_leave_the_table_as_it_is(database: Mapping[str, Any]) -> None:
    """So does a snapshot that is taken again, or a connector that sends the same events twice after a crash."""
    events = recorded("items_full")[:TRUNCATION]
    bench = bench_of(database, events_settings(NAME, LARGE), events=events)
    bench.live(7)
    bench.live()
    bench.reload(0, 0, TRUNCATION)
    bench.reset(0, 3)
    bench.live()
    assert rows(bench) == BEFORE_TRUNCATION
    for event in events:
        bench.log.append(TOPIC, event.value, partition=0, key=event.key)
    bench.live()
    assert rows(bench) == BEFORE_TRUNCATION
    assert bench.violations() == bench.state_violations() == []


def test_a_truncation_stops_and_a_shorter_run_loads_what_is_before_it(database: Mapping[str, Any]) -> None:
    settings = events_settings(NAME, LARGE, target="truncate: stop, deletes: remove")
    bench = bench_of(database, settings, events=recorded("items_full"))
    with pytest.raises(TruncateFound, match=rf"{TOPIC}\[0\] offset {TRUNCATION} says"):
        bench.live()
    assert bench.query("SELECT sum(committed_offset) FROM kafka_ingest.committed_offset") == [(0,)]
    bench.live(TRUNCATION)
    assert rows(bench) == BEFORE_TRUNCATION
    with pytest.raises(TruncateFound):
        bench.live()
    assert rows(bench) == BEFORE_TRUNCATION
    assert bench.violations() == []


def test_after_the_truncation_the_pipeline_goes_on_when_the_file_says_ignore(database: Mapping[str, Any]) -> None:
    stop = events_settings(NAME, LARGE, target="truncate: stop, deletes: remove")
    bench = bench_of(database, stop, events_settings(NAME, LARGE), events=recorded("items_full"))
    with pytest.raises(TruncateFound):
        bench.live()
    bench.version = 1
    batch = bench.live()
    assert rows(bench) == sorted([*BEFORE_TRUNCATION, (6, "after truncate", None)])
    assert batch.counts is not None
    assert batch.counts.tombstones == 1
    assert bench.violations() == []


@pytest.mark.parametrize("cut", [1, 2, 4, 1_000])
def test_values_that_did_not_travel_are_those_that_the_key_had(database: Mapping[str, Any], cut: int) -> None:
    bench = bench_of(database, events_settings(NAME, LARGE), events=recorded("items")[:TRUNCATION])
    for end in range(0, 4, cut):
        bench.live(min(cut, 4 - end))
    assert rows(bench) == [(1, FIRST_NAME, BIG), (2, "second", BIG), (3, None, None)]
    for _ in range(4, TRUNCATION, cut):
        bench.live(cut)
    # The value of the row 10, which was the row 1, is in no event.
    assert rows(bench) == [(4, "no day", None), (20, "second", None)]
    dead = bench.query('SELECT "offset", reason FROM kafka_ingest.dead_letter ORDER BY 1')
    assert dead == [(11, "value_did_not_travel")]
    bench.resolve(DeadLetterAction.DISCARD)
    assert bench.violations() == bench.state_violations() == []


def test_with_write_null_a_value_that_nobody_knows_is_null(database: Mapping[str, Any]) -> None:
    settings = events_settings(NAME, LARGE, value="envelope: debezium, unavailable: write_null")
    bench = bench_of(database, settings, events=recorded("items")[:TRUNCATION])
    bench.live()
    assert rows(bench) == [(4, "no day", None), (10, FIRST_NAME, None), (20, "second", None)]
    assert bench.open_dead_letters() == []


def test_a_snapshot_of_the_key_brings_a_value_that_did_not_travel(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, events_settings(NAME, LARGE), events=recorded("items")[:TRUNCATION])
    bench.live()
    first = json.loads(recorded("items")[0].value or b"")
    snapshot = {**first, "op": "r", "after": {**first["after"], "id": 10}}
    bench.log.append(TOPIC, json.dumps(snapshot).encode(), partition=0, key=b'{"id":10}')
    bench.live()
    assert rows(bench) == BEFORE_TRUNCATION


@pytest.mark.parametrize(("end", "found"), [(1, [(1, 1, "größer")]), (4, [(1, 2, "größer")]), (6, [])])
def test_a_key_of_two_columns_moves_and_goes(
    database: Mapping[str, Any], end: int, found: list[tuple[Any, ...]]
) -> None:
    bench = bench_of(database, pairs_settings(), events=recorded("pairs")[:end])
    bench.live()
    assert rows(bench, '"Order ID", line, "Größe"') == found


def pairs_settings() -> BatchSettings:
    columns = "{name: Order ID, type: integer, from: key}, {name: line, type: smallint, from: key}"
    value = value_section(f"columns: [{columns}, {{name: Größe, type: text}}]", "envelope: debezium")
    target = target_section("key: [Order ID, line], truncate: stop, deletes: remove")
    return events_settings(value=value, target=target)


def test_marked_rows_keep_their_last_values(database: Mapping[str, Any]) -> None:
    settings = events_settings(NAME, LARGE, target="truncate: ignore, deletes: mark")
    bench = bench_of(database, settings, events=recorded("items_full")[:TRUNCATION])
    bench.live(9)
    bench.live()
    assert rows(bench, "id, name, deleted_at IS NOT NULL") == [
        (1, FIRST_NAME, True),
        (2, "second", True),
        (3, None, True),
        (4, "no day", False),
        (10, FIRST_NAME, False),
        (20, "second", False),
    ]


def test_events_are_loaded_from_kafka_as_the_example_file_says(pipeline: FedPipeline) -> None:
    pipeline.open(1)
    columns = [
        {"name": "id", "type": "bigint", "from": "key"},
        {"name": "name", "type": "text"},
        {"name": "big", "type": "text"},
    ]
    target = {"table": pipeline.table, "create_table": True, "mode": "upsert", "key": ["id"], "order": "offset"}
    pipeline.write(
        pipeline.topic,
        key=None,
        headers=None,
        metadata_columns={},
        value={"format": "json", "envelope": "debezium", "columns": columns},
        target={**target, "deletes": "remove", "truncate": "stop"},
    )
    send(pipeline, recorded("items_full")[:TRUNCATION])
    pipeline.load_here()
    assert pipeline.query(f"SELECT id, name, big FROM {pipeline.table} ORDER BY id") == BEFORE_TRUNCATION
    send(pipeline, recorded("items_full")[TRUNCATION:])
    with pytest.raises(TruncateFound, match="offset 21 says that the source table was emptied"):
        pipeline.load_here()


def send(pipeline: FedPipeline, events: Sequence[RecordedEvent]) -> None:
    with produced(pipeline.make_producer()) as sender:
        for event in events:
            sender.produce(pipeline.topic, key=event.key, value=event.value, headers=list(event.headers), partition=0)

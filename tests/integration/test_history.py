"""The history beside a table of current state: a row of every change, in the same commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kafka_ingest.errors import ConfigError, KeyInTwoPartitions, ReloadWouldLose, TargetMismatch
from kafka_ingest.protocol.batch import RunOptions
from kafka_ingest.protocol.dead_letters import DeadLetterAction
from kafka_ingest.settings import BatchSettings, Deletes, OrderBy, TargetSettings
from tests.event_bench import PLACEHOLDER, Event, EventBench
from tests.integration.test_event_properties import EventSchedule
from tests.integration.test_state_attempts import Attempt
from tests.integration.test_state_properties import Schedule
from tests.state_bench import BAD, Change, StateBench, state_settings

HISTORY = "shop.orders_history"


def with_history(version: int, **choices: Any) -> BatchSettings:
    history = TargetSettings("shop", "orders_history", create_table=True)
    return replace(state_settings(version, **choices), history=history)


def bench_of(database: Mapping[str, Any], *changes: Change, **choices: Any) -> StateBench:
    bench = StateBench(database, partial(with_history, **choices))
    for change in changes:
        bench.append(change)
    return bench


def history(bench: StateBench, columns: str = "id, note") -> list[tuple[Any, ...]]:
    return bench.query(
        f"SELECT kafka_offset, kafka_change, {columns} FROM {HISTORY} ORDER BY kafka_partition, kafka_offset"
    )


def test_every_change_has_a_row_also_one_that_a_newer_one_outdoes(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, Change("a", (1, 1)), Change("a", (2, 2)), Change("b", (3, 3)), Change("b", None))
    bench.append(Change("c", (BAD, 5)))
    batch = bench.live()
    assert history(bench) == [(0, "put", "a", 1), (1, "put", "a", 2), (2, "put", "b", 3), (3, "delete", "b", None)]
    same = bench.query(f"SELECT DISTINCT batch_id::text, kafka_topic, unavailable_columns FROM {HISTORY}")
    assert same == [(batch.batch_id, "orders", None)]


def test_what_did_not_travel_is_null_and_named(database: Mapping[str, Any]) -> None:
    bench = EventBench(database, target=f", history: {HISTORY}")
    bench.event(Event("c", "1", 1, "big", '"doc"'))
    bench.event(Event("u", "1", 2, PLACEHOLDER, PLACEHOLDER))
    bench.event(Event("u", "2", 3, PLACEHOLDER, "unknown"))
    bench.live()
    assert history(bench, "note, big, doc, unavailable_columns") == [
        (0, "put", 1, "big", '"doc"', None),
        (1, "put", 2, None, None, ["big", "doc"]),
    ]
    assert bench.query("SELECT note, big FROM shop.orders") == [(2, "big")]


def test_a_record_that_is_read_again_takes_the_place_of_what_it_was(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, Change("a", (1, 10)), Change("b", (2, BAD)), Change("b", (3, 30)))
    bench.live()
    bench.version = 1
    bench.reload(0, 0, 3)
    # Nothing is deleted: what the record at 1 was is still told.
    assert history(bench) == [(0, "put", "a", 10), (1, "put", "b", 2), (2, "put", "b", 30)]
    bench.rebuild()
    assert len(history(bench)) == 3


def test_a_replayed_dead_letter_has_its_row_also_where_its_key_has_a_newer_version(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, Change("a", (BAD, 10)), Change("a", (2, 2)), Change("b", (BAD, 30)))
    bench.live()
    bench.version = 1
    outcome = bench.resolve(DeadLetterAction.REPLAY)
    assert (outcome.replayed, outcome.superseded) == (1, 1)
    assert history(bench) == [(0, "put", "a", 10), (1, "put", "a", 2), (2, "put", "b", 30)]


def test_records_that_the_log_lost_stay_in_the_history(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, Change("a", (1, 1)), Change("b", (2, 2)), Change("b", (3, 3)))
    bench.live()
    bench.compact(0, 3)
    bench.rebuild()
    assert [offset for offset, *_ in history(bench)] == [0, 1, 2]


def test_the_history_is_published_with_the_table_or_not_at_all(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, Change("a", (1, 1)), Change("a", None))
    batch = bench.plan(RunOptions())
    attempt = Attempt(bench, batch).stage()
    with attempt.publishing():
        assert history(bench) == []
    assert history(bench) == []
    attempt.publish()
    assert len(history(bench)) == 2
    attempt.publish()
    assert len(history(bench)) == 2


def test_what_a_losing_attempt_of_a_task_staged_is_not_told(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, Change("a", (1, 1)), Change("a", None))
    attempt = Attempt(bench, bench.plan(RunOptions())).stage().stage()
    attempt.publish()
    assert history(bench) == [(0, "put", "a", 1), (1, "delete", "a", None)]


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.MARK])
@pytest.mark.parametrize("order", [OrderBy.OFFSET, OrderBy.RECORD_TIME])
def test_the_history_replayed_gives_the_table(database: Mapping[str, Any], order: OrderBy, deletes: Deletes) -> None:
    """As long as the file reads each record in one way; whatever is reloaded, reset, replayed or rebuilt."""
    bench = StateBench(database, partial(with_history, order=order, deletes=deletes))
    schedule = Schedule(bench, f"history {order} {deletes}", 1)
    schedule.kinds = {kind: often for kind, often in Schedule.kinds.items() if kind not in ("version", "compact")}
    for _ in range(40):
        try:
            schedule.step()
        except (ReloadWouldLose, KeyInTwoPartitions):
            continue
        if bench.seen:
            assert replayed(bench, order) == bench.table()


def replayed(bench: StateBench, order: OrderBy) -> dict[str, tuple[Any, ...]]:
    """Fold the history as somebody would who has nothing else."""
    by = "kafka_timestamp, " * (order is OrderBy.RECORD_TIME)
    marks = bench.settings.batch.upsert.deletes is Deletes.MARK  # type: ignore[union-attr]
    found: dict[str, tuple[Any, ...]] = {}
    columns = "kafka_change, id, note, kafka_partition, kafka_offset"
    for change, key, note, *identity in bench.query(f"SELECT {columns} FROM {HISTORY} ORDER BY {by}kafka_offset"):
        if change == "put":
            found[key] = (note, *identity, False)
        elif marks:
            last = found.get(key, (None,))[0] if order is OrderBy.OFFSET else None
            found[key] = (last, *identity, True)
        else:
            found.pop(key, None)
    return found


def test_the_history_of_events_replayed_gives_the_table(database: Mapping[str, Any]) -> None:
    bench = EventBench(database, target=f", history: {HISTORY}")
    schedule = EventSchedule(bench, "history", 1)
    for _ in range(60):
        try:
            schedule.step()
        except (ReloadWouldLose, ConfigError):
            continue
        if bench.seen:
            assert replayed_events(bench) == {key: row[:3] for key, row in bench.rows().items()}


def replayed_events(bench: StateBench) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    columns = "kafka_change, id::text, note, big, doc #>> '{}', coalesce(unavailable_columns, '{}')"
    for change, key, *values, missing in bench.query(f"SELECT {columns} FROM {HISTORY} ORDER BY kafka_offset"):
        before = found.pop(key, (None,) * 3)
        if change == "put":
            names = zip(("note", "big", "doc"), values, before, strict=True)
            found[key] = tuple(old if name in missing else value for name, value, old in names)
    return found


# A table that cannot be a history, or refuses rows.

IDENTITY = (
    "kafka_topic text, kafka_generation integer, kafka_partition integer, kafka_offset bigint, "
    "kafka_timestamp timestamptz, batch_id uuid, kafka_change text, unavailable_columns text[]"
)
UNIQUE = "UNIQUE (kafka_topic, kafka_generation, kafka_partition, kafka_offset)"


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ("id text, note bigint, at integer", ["a unique index over exactly", "ADD UNIQUE"]),
        (f"id text, note bigint, {UNIQUE}", ["column at", "no such column", "ADD COLUMN"]),
        (f"id text, note bigint NOT NULL, at integer, {UNIQUE}", ["column note", "NULL allowed"]),
        (f"id text, note bigint, at integer, more text NOT NULL, {UNIQUE}", ["column more", "NULL allowed"]),
    ],
)
def test_a_table_that_cannot_hold_the_history_stops_the_plan(
    database: Mapping[str, Any], columns: str, found: list[str]
) -> None:
    bench = bench_of(database, Change("a", (1, 1)))
    bench.query(f"CREATE SCHEMA shop; CREATE TABLE {HISTORY} ({IDENTITY}, {columns})")
    with pytest.raises(TargetMismatch, match=f"the table {HISTORY} does not fit") as refused:
        bench.live()
    assert all(text in str(refused.value) for text in found)


def test_a_history_that_is_there_and_fits_is_used(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, Change("a", (1, 1)), Change("a", None))
    bench.query(
        f"CREATE SCHEMA shop; CREATE TABLE {HISTORY} ({IDENTITY}, id text NOT NULL, note bigint, at integer, {UNIQUE})"
    )
    bench.live()
    assert history(bench) == [(0, "put", "a", 1), (1, "delete", "a", None)]


@pytest.mark.parametrize(
    ("does", "found"),
    [
        ("RETURN NULL", "2 rows in the history"),
        ("RAISE EXCEPTION 'not today'", f"the target {HISTORY} refused the batch"),
    ],
)
def test_a_history_that_refuses_rows_stops_the_batch(database: Mapping[str, Any], does: str, found: str) -> None:
    bench = bench_of(database, Change("a", (1, 1)))
    bench.live()
    bench.query(
        f"CREATE FUNCTION shop.no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {does}; END$$;"
        f"CREATE TRIGGER no BEFORE INSERT ON {HISTORY} FOR EACH ROW EXECUTE FUNCTION shop.no()"
    )
    bench.append(Change("a", (2, 2)))
    bench.append(Change("b", (3, 3)))
    with pytest.raises(TargetMismatch) as refused:
        bench.live()
    assert found in str(refused.value)
    assert bench.query("SELECT id, note FROM shop.orders") == [("a", 1)]
    assert history(bench) == [(0, "put", "a", 1)]


def test_a_history_can_begin_later(database: Mapping[str, Any]) -> None:
    bench = StateBench(database, state_settings)
    bench.append(Change("a", (1, 1)))
    bench.live()
    bench._settings = with_history
    bench.append(Change("a", (2, 2)))
    bench.live()
    assert history(bench) == [(1, "put", "a", 2)]

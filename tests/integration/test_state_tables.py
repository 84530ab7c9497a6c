"""Current state in tables that others change, too: rows, columns, triggers, constraints, partitions, sessions."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from kafka_ingest.errors import IngestError, RetryLater, TargetMismatch
from kafka_ingest.postgres.database import TransactionLimits
from kafka_ingest.settings import (
    OrderBy,
    UpsertSettings,
)
from tests.deadlines import until
from tests.integration.test_state_edges import (
    ID,
    IDENTITY,
    MARK,
    NOTE,
    REMOVE,
    bench_of,
    counted,
    dead,
    made,
    notes,
    put,
    remove,
    removed,
)
from tests.state_bench import BAD, TOPIC, Change, StateBench, state_settings

# ----------
# Rows that somebody changed, and columns that are none of the pipeline's.


def test_a_row_whose_version_was_set_higher_by_hand_outdoes_records_and_one_set_lower_does_not(
    database: Mapping[str, Any],
) -> None:
    bench = bench_of(database)
    for key in ("a", "b"):
        put(bench, key, 1)
    bench.live()
    bench.query("UPDATE shop.orders SET kafka_offset = 100, note = 7 WHERE id = 'a'")
    bench.query("UPDATE shop.orders SET kafka_offset = 0, note = 7 WHERE id = 'b'")
    for key in ("a", "b"):
        put(bench, key, 2)
    batch = bench.live()
    assert dict(bench.query("SELECT id, note FROM shop.orders")) == {"a": 7, "b": 2}
    assert counted(batch, bench) == (1, 0, 1, 0, 0)


def test_a_row_that_has_lost_its_version_stops_the_batches_of_its_key_until_it_is_mended(
    database: Mapping[str, Any],
) -> None:
    bench = bench_of(database, upsert=replace(REMOVE, order=OrderBy.RECORD_TIME))
    put(bench, "a", 0)
    bench.live()
    names = ("topic", "generation", "partition", "offset", "timestamp")
    for round_, column in enumerate((f"kafka_{name}" for name in names), start=1):
        bench.query(f"ALTER TABLE shop.orders ALTER {column} DROP NOT NULL")
        bench.query(f"UPDATE shop.orders SET {column} = NULL WHERE id = 'a'")
        put(bench, "b", round_)
        bench.live()
        put(bench, "a", round_)
        with pytest.raises(TargetMismatch, match=r"do not say which record they hold[\s\S]*1 key, the first {a}"):
            bench.live()
        assert dict(bench.query("SELECT id, note FROM shop.orders")) == {"a": round_ - 1, "b": round_}
        bench.query("DELETE FROM shop.orders WHERE id = 'a'")
        bench.live()
        assert notes(bench) == {"a": round_, "b": round_}


def test_a_row_that_was_deleted_by_hand_comes_back_with_its_next_record(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    put(bench, "a", 1)
    bench.live()
    bench.query("DELETE FROM shop.orders")
    put(bench, "a", 2)
    bench.live()
    assert notes(bench) == {"a": 2}


@pytest.mark.parametrize("upsert", [REMOVE, MARK], ids=["remove", "mark"])
def test_columns_that_no_record_fills_stay_as_they_are(database: Mapping[str, Any], upsert: UpsertSettings) -> None:
    bench = bench_of(database, upsert=upsert)
    put(bench, "a", 1)
    bench.live()
    bench.query("ALTER TABLE shop.orders ADD colour text DEFAULT 'none'")
    bench.query("UPDATE shop.orders SET colour = 'red'")
    put(bench, "a", 2)
    put(bench, "b", 2)
    bench.live()
    if upsert is MARK:
        remove(bench, "a")
        bench.live()
    bench.reload(0, 1, 2)
    assert bench.query("SELECT id, note, colour FROM shop.orders ORDER BY id") == [("a", 2, "red"), ("b", 2, "none")]


def test_only_the_attempt_that_won_is_folded(database: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task runs twice, and the second attempt wins."""
    bench = bench_of(database)
    run = bench.runner.run
    monkeypatch.setattr(bench.runner, "run", lambda batch, tasks: [run(batch, tasks), run(batch, tasks)][1])
    put(bench, "a", 1)
    put(bench, "b", 1)
    remove(bench, "b")
    batch = bench.live()
    assert notes(bench) == {"a": 1}
    assert counted(batch, bench) == (1, 1, 1, 0, 0)


# ----------
# Tables with generated columns, triggers, constraints, partitions.

TABLE = f"CREATE TABLE shop.orders (id text PRIMARY KEY, note bigint, {IDENTITY})"


def test_a_generated_column_follows_every_write(database: Mapping[str, Any]) -> None:
    generated = TABLE.replace("note bigint", "note bigint, twice bigint GENERATED ALWAYS AS (2 * note) STORED")
    bench = made(database, generated)
    put(bench, "a", 1)
    bench.live()
    put(bench, "a", 2)
    bench.live()
    assert bench.query("SELECT id, twice FROM shop.orders") == [("a", 4)]


def trigger(when: str, body: str) -> tuple[str, str]:
    return (
        f"CREATE FUNCTION shop.act() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$",
        f"CREATE TRIGGER act {when} ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.act()",
    )


@pytest.mark.parametrize("upsert", [REMOVE, MARK], ids=["remove", "mark"])
def test_a_trigger_may_change_values_that_are_no_part_of_key_and_version(
    database: Mapping[str, Any], upsert: UpsertSettings
) -> None:
    body = "NEW.note := NEW.note + 100; RETURN NEW;"
    bench = bench_of(database, upsert=upsert)
    put(bench, "a", 1)
    bench.live()
    for statement in trigger("BEFORE INSERT OR UPDATE", body):
        bench.query(statement)
    put(bench, "a", 1)
    put(bench, "b", 1)
    bench.live()
    assert notes(bench) == {"a": 101, "b": 101}
    remove(bench, "a")
    remove(bench, "c")
    bench.live()
    if upsert is REMOVE:
        assert notes(bench) == {"b": 101}
    else:
        marked = "SELECT id FROM shop.orders WHERE deleted_at IS NOT NULL ORDER BY id"
        assert bench.query(marked) == [("a",), ("c",)]


UNDOING = [
    ("BEFORE INSERT", "RETURN NULL;"),
    ("BEFORE UPDATE", "RETURN NULL;"),
    ("BEFORE DELETE", "RETURN NULL;"),
    ("BEFORE INSERT", "NEW.kafka_offset := 100; RETURN NEW;"),
    ("BEFORE UPDATE", "NEW.kafka_offset := 100; RETURN NEW;"),
    ("BEFORE INSERT", "NEW.id := 'other'; RETURN NEW;"),
    ("AFTER INSERT", "DELETE FROM shop.orders WHERE id = NEW.id; RETURN NULL;"),
    ("AFTER UPDATE", "DELETE FROM shop.orders WHERE id = NEW.id; RETURN NULL;"),
    ("AFTER UPDATE", "UPDATE shop.orders SET kafka_offset = 9 WHERE kafka_offset = NEW.kafka_offset; RETURN NULL;"),
    ("AFTER DELETE", "INSERT INTO shop.orders SELECT OLD.*; RETURN NULL;"),
]


def test_a_trigger_that_undoes_what_the_newest_record_says_stops_the_batch(database: Mapping[str, Any]) -> None:
    bench = made(database, TABLE)
    for key in ("a", "b"):
        put(bench, key, 1)
    bench.live()
    put(bench, "a", 2)
    remove(bench, "b")
    put(bench, "c", 2)
    for when, body in UNDOING:
        for statement in trigger(when, f"IF pg_trigger_depth() > 1 THEN RETURN NEW; END IF; {body}"):
            bench.query(statement)
        with pytest.raises(TargetMismatch, match="triggers or rules") as caught:
            bench.live()
        # One that swallows a change is told by the number of rows, before a key is looked at.
        assert ("1 rows deleted, 1 altered, 1 inserted" in str(caught.value)) is (body == "RETURN NULL;")
        assert notes(bench) == {"a": 1, "b": 1}
        assert removed(bench) == []
        bench.query("DROP FUNCTION shop.act CASCADE")
    bench.live()
    assert notes(bench) == {"a": 2, "c": 2}


def test_a_trigger_that_keeps_rows_whose_record_is_none_any_more_stops_the_batch(database: Mapping[str, Any]) -> None:
    bench = StateBench(database, state_settings)
    bench.append(Change("a", (1, BAD)))
    bench.append(Change("b", (1, 1)))
    bench.live()
    for statement in trigger("BEFORE DELETE", "RETURN NULL;"):
        bench.query(statement)
    bench.version = 1
    with pytest.raises(TargetMismatch, match="rows whose record is none any more"):
        bench.reload(0, 0, 1, what_is_left=True)
    bench.version = 0
    bench.log.compact(TOPIC, 0, 0)
    with pytest.raises(TargetMismatch, match="rows that the log does not hold"):
        bench.rebuild()
    assert set(bench.table()) == {"a", "b"}


def test_a_foreign_key_that_refuses_a_delete_is_named_and_nothing_is_written(database: Mapping[str, Any]) -> None:
    bench = made(database, TABLE, "CREATE TABLE shop.lines (id text CONSTRAINT of_order REFERENCES shop.orders)")
    put(bench, "a", 1)
    bench.live()
    bench.query("INSERT INTO shop.lines VALUES ('a')")
    put(bench, "b", 1)
    remove(bench, "a")
    with pytest.raises(TargetMismatch, match="of_order"):
        bench.live()
    assert notes(bench) == {"a": 1}
    bench.query("DELETE FROM shop.lines")
    bench.live()
    assert notes(bench) == {"b": 1}


@pytest.mark.parametrize(
    ("refusing", "reason"),
    [
        ("ALTER TABLE shop.orders ADD CHECK (note < 100)", "check_violation"),
        ("CREATE INDEX late ON shop.orders ((1 / (note - 100)))", "refused_by_database"),
    ],
    ids=["when it is staged", "when it is written"],
)
@pytest.mark.parametrize("loaded_before", [False, True])
def test_a_refused_record_leaves_its_key_the_older_version(
    database: Mapping[str, Any], refusing: str, reason: str, loaded_before: bool
) -> None:
    """``a=1@0, a=100@1``: only the target refuses @1, and then @0 must still be there."""
    bench = made(database, TABLE, refusing)
    put(bench, "a", 1)
    if loaded_before:
        bench.live()
    put(bench, "a", 100)
    put(bench, "b", 100)
    put(bench, "b", 2)
    put(bench, "c", 100)
    bench.live()
    assert notes(bench) == {"a": 1, "b": 2}
    found = dead(bench)
    # Under the index, b's refused record is outdone before it is written.
    assert found == [(offset, reason) for offset in ((1, 2, 4) if reason == "check_violation" else (1, 4))]


def test_every_version_of_a_key_that_the_target_refuses_is_a_dead_letter_in_one_load(
    database: Mapping[str, Any],
) -> None:
    """Where the newest is refused the one before would be written, which only then is refused, too."""
    bench = made(database, TABLE, "CREATE INDEX late ON shop.orders ((1 / ((note - 100) * (note - 101))))")
    for note in (1, 100, 101, 100):
        put(bench, "a", note)
    put(bench, "b", 2)
    bench.live()
    assert notes(bench) == {"a": 1, "b": 2}
    assert dead(bench) == [(offset, "refused_by_database") for offset in (1, 2, 3)]
    assert bench.violations() == []


def test_a_value_of_a_unique_column_that_moves_between_keys_stops_with_the_constraints_name(
    database: Mapping[str, Any],
) -> None:
    bench = made(database, TABLE, "ALTER TABLE shop.orders ADD CONSTRAINT one_note UNIQUE (note)")
    put(bench, "a", 1)
    put(bench, "b", 2)
    bench.live()
    put(bench, "a", 2)
    put(bench, "b", 1)
    with pytest.raises(TargetMismatch, match="one_note"):
        bench.live()
    assert notes(bench) == {"a": 1, "b": 2}
    bench.query("ALTER TABLE shop.orders DROP CONSTRAINT one_note, ADD UNIQUE (note) DEFERRABLE")
    bench.live()
    assert notes(bench) == {"a": 2, "b": 1}


def test_a_value_of_a_unique_column_moves_from_a_removed_key_to_another(database: Mapping[str, Any]) -> None:
    bench = made(database, TABLE, "ALTER TABLE shop.orders ADD CONSTRAINT one_note UNIQUE (note)")
    put(bench, "a", 1)
    put(bench, "b", 2)
    bench.live()
    put(bench, "b", 1)
    put(bench, "c", 2)
    remove(bench, "a")
    bench.live()
    assert notes(bench) == {"b": 1, "c": 2}


def test_a_partitioned_table_is_written_in_every_partition(database: Mapping[str, Any]) -> None:
    region = replace(ID, name="region", path=("region",))
    upsert = replace(REMOVE, key=("region", "id"))
    bench = bench_of(database, region, ID, NOTE, upsert=upsert)
    bench.query("CREATE SCHEMA shop")
    bench.query(
        f"CREATE TABLE shop.orders (region text, id text, note bigint, {IDENTITY}, PRIMARY KEY (region, id)) "
        "PARTITION BY LIST (region)"
    )
    for name in ("eu", "us"):
        bench.query(f"CREATE TABLE shop.orders_{name} PARTITION OF shop.orders FOR VALUES IN ('{name}')")
    for round_ in range(3):
        for place in ("eu", "us"):
            for key in ("a", "b"):
                bench.send({"region": place, "id": key}, {"note": round_})
        bench.live()
    # The same place in the files of two partitions: only its own row goes.
    bench.send({"region": "us", "id": "a"}, None)
    bench.live()
    assert bench.query("SELECT region, id, note FROM shop.orders ORDER BY region, id") == [
        ("eu", "a", 2),
        ("eu", "b", 2),
        ("us", "b", 2),
    ]
    assert bench.violations() == []


# ----------
# Other sessions at the same rows.


@contextmanager
def other_session(bench: StateBench, statement: str) -> Iterator[Any]:
    """Yield a connection that has run a statement and not committed it."""
    with closing(psycopg2.connect(**bench.params)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        yield connection


class _Loading:
    """A load in a thread of its own."""

    def __init__(self, bench: StateBench) -> None:
        self.error: IngestError | None = None
        self._thread = threading.Thread(target=self._run, args=(bench,))
        self._bench = bench
        self._thread.start()

    def _run(self, bench: StateBench) -> None:
        try:
            bench.live()
        except IngestError as error:
            self.error = error

    def waits(self) -> bool:
        """Whether the publish waits for a lock."""
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return self._bench.query(waiting) == [(1,)]

    def end(self) -> IngestError | None:
        """Wait for its end; return what stopped it."""
        self._thread.join()
        return self.error


def loading(bench: StateBench) -> _Loading:
    """Start a load, and return when it waits for the other session."""
    found = _Loading(bench)
    until(found.waits, "the publish waits for a lock")
    return found


def test_a_row_that_somebody_else_inserts_meanwhile_is_found_by_a_retry(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    put(bench, "a", 1)
    bench.live()
    put(bench, "a", 2)
    put(bench, "b", 2)
    foreign = f"SELECT 'b', 7, '{TOPIC}', 0, 0, 0, now(), gen_random_uuid()"
    with other_session(bench, f"INSERT INTO shop.orders {foreign}") as other:
        load = loading(bench)
        other.commit()
        error = load.end()
    assert isinstance(error, RetryLater)
    assert "somebody else inserted rows" in str(error)
    assert dict(bench.query("SELECT id, note FROM shop.orders")) == {"a": 1, "b": 7}
    bench.live()
    assert notes(bench) == {"a": 2, "b": 2}


def test_a_row_that_somebody_else_has_locked_is_waited_for_and_taken_as_it_then_is(
    database: Mapping[str, Any],
) -> None:
    bench = bench_of(database)
    put(bench, "a", 0)
    bench.live()
    bench.query("ALTER TABLE shop.orders ADD colour text")
    for number, (statement, expected) in enumerate(
        [
            ("SELECT FROM shop.orders FOR UPDATE", [("a", 1, None)]),
            ("UPDATE shop.orders SET colour = 'red'", [("a", 2, "red")]),
            ("DELETE FROM shop.orders", [("a", 3, None)]),
            ("UPDATE shop.orders SET kafka_offset = 100", [("a", 3, None)]),
        ],
        start=1,
    ):
        put(bench, "a", number)
        with other_session(bench, statement) as other:
            load = loading(bench)
            other.commit()
            assert load.end() is None
        assert bench.query("SELECT id, note, colour FROM shop.orders") == expected


def test_a_row_that_stays_locked_is_tried_again_later(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    put(bench, "a", 1)
    bench.live()
    put(bench, "a", 2)
    bench.publish_limits = TransactionLimits(lock_timeout_seconds=0.1)
    with other_session(bench, "SELECT FROM shop.orders FOR UPDATE") as other:
        with pytest.raises(RetryLater):
            bench.live()
        other.rollback()
    assert notes(bench) == {"a": 1}
    bench.live()
    assert notes(bench) == {"a": 2}

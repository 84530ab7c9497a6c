"""Values that did not travel, one case at a time: where each comes from, and where nobody knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from kafka_ingest.errors import ConfigError, KeyInTwoPartitions, ReloadWouldLose, TooManyDeadLetters
from kafka_ingest.protocol.dead_letters import DeadLetterAction
from kafka_ingest.settings import Deletes, Unavailable
from tests.change_events import events_settings
from tests.event_bench import BAD, PLACEHOLDER, Event, EventBench
from tests.state_bench import TOPIC, StateBench

COLUMNS = ("{name: note, type: bigint}", "{name: big, type: text}", "{name: doc, type: jsonb}")
TABLE = """
    CREATE SCHEMA IF NOT EXISTS shop;
    CREATE TABLE shop.orders (
        id bigint PRIMARY KEY, note bigint, big text, doc jsonb,
        kafka_topic text NOT NULL, kafka_generation integer NOT NULL, kafka_partition integer NOT NULL,
        kafka_offset bigint NOT NULL, kafka_timestamp timestamptz, batch_id uuid NOT NULL
    )
"""


def full(key: str = "1", note: int | str = 0, big: str | None = "old", op: str = "u") -> Event:
    return Event(op, key, note, big, '"doc"')


def partial(key: str = "1", note: int | str = 1, op: str = "u", doc: str | None = "new") -> Event:
    """Return an update that leaves the large column alone."""
    return Event(op, key, note, PLACEHOLDER, doc)


def delete(key: str = "1") -> Event:
    return Event("d", key)


def bench_of(database: Mapping[str, Any], *events: Event, deletes: Deletes = Deletes.REMOVE) -> EventBench:
    bench = EventBench(database, deletes)
    for event in events:
        bench.event(event)
    return bench


def big_values(bench: StateBench) -> list[tuple[Any, ...]]:
    return bench.query("SELECT id, note, big FROM shop.orders ORDER BY id")


def dead(bench: StateBench) -> list[tuple[Any, ...]]:
    return bench.query('SELECT "offset", reason FROM kafka_ingest.dead_letter WHERE resolved_at IS NULL ORDER BY 1')


UNKNOWN = "value_did_not_travel"


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_delete_ends_what_is_known(database: Mapping[str, Any], cut: int) -> None:
    bench = bench_of(database, full(), delete(), partial())
    for _ in range(3):
        bench.live(cut)
    assert big_values(bench) == []
    assert dead(bench) == [(2, UNKNOWN)]
    assert bench.violations() == []


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.MARK, Deletes.IGNORE])
def test_the_first_event_of_a_row_takes_nothing_from_a_row_of_the_same_key(
    database: Mapping[str, Any], deletes: Deletes
) -> None:
    """After a change of the key only its insert follows, and the old row under that key was another one."""
    bench = bench_of(database, full("1"), full("2", big="of two"), delete("1"), deletes=deletes)
    bench.live()
    bench.event(delete("2"))
    bench.event(partial("1", op="c"))
    bench.live()
    assert dead(bench) == [(4, UNKNOWN)]
    assert bench.rows() == bench.expected()


def test_a_marked_row_tells_nothing(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, full(), delete(), deletes=Deletes.MARK)
    bench.live()
    bench.event(partial())
    bench.live()
    assert dead(bench) == [(2, UNKNOWN)]
    assert bench.query("SELECT big, deleted_at IS NOT NULL FROM shop.orders") == [("old", True)]


def test_a_value_never_comes_from_a_later_version(database: Mapping[str, Any]) -> None:
    """The row stands at @2, whose record compaction took in a log that was not compacted before."""
    bench = bench_of(database, full(), partial(), full(note=2, big="later"))
    bench.live()
    bench.log.compact(TOPIC, 0, 2)
    bench.reload(0, 1, 3)
    assert big_values(bench) == [(1, 2, "later")]
    # Outdone by the row, so nobody misses its value.
    assert dead(bench) == []
    counts = bench.query("SELECT rows, superseded, dead_letters FROM kafka_ingest.batch ORDER BY ordinal DESC LIMIT 1")
    assert counts == [(0, 1, 0)]


@pytest.mark.parametrize("is_reset", [True, False])
def test_what_is_read_again_is_read_up_to_what_was_loaded(database: Mapping[str, Any], is_reset: bool) -> None:
    """The row at @2 has the value of @1: a run that mends @1 and ends there would leave it with the old one."""
    bench = bench_of(database, full(), full(note=1, big="to be mended"), partial(note=2))
    bench.live()
    if is_reset:
        bench.reset(0, 1)
    with pytest.raises(ConfigError, match="a run that reads up to offset 3, to which was loaded") as refused:
        bench.live(1) if is_reset else bench.reload(0, 1, 2)
    assert "a run that ends at offset 2" in str(refused.value)
    bench.live() if is_reset else bench.reload(0, 1, 3)
    assert big_values(bench) == [(1, 2, "to be mended")]
    assert bench.violations() == []


@pytest.mark.parametrize("unavailable", Unavailable)
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_of_a_compacted_topic_no_value_is_filled(
    database: Mapping[str, Any], unavailable: Unavailable, policy: str
) -> None:
    """Compaction may have taken the record with the newest value before it was read, and nothing tells."""
    bench = EventBench(database, unavailable=unavailable)
    bench.log.topics[TOPIC].cleanup_policy = policy
    bench.event(full())
    batch = bench.live()
    assert any("values that did not travel are not filled" in warning for warning in batch.warnings)
    bench.event(full(big="newer"))
    bench.event(partial())
    bench.log.compact(TOPIC, 0, 1)
    bench.live()
    # The value of offset 1 is nowhere: "old" would be wrong.
    if unavailable is Unavailable.DEAD_LETTER:
        assert big_values(bench) == [(1, 0, "old")]
        assert dead(bench) == [(2, UNKNOWN)]
    else:
        assert big_values(bench) == [(1, 1, None)]
    bench.event(full(note=3, big="in one batch"))
    bench.event(partial(note=4))
    bench.event(Event("u", "1", PLACEHOLDER, PLACEHOLDER, PLACEHOLDER))
    bench.live()
    expected = (3, "in one batch") if unavailable is Unavailable.DEAD_LETTER else (None, None)
    assert big_values(bench) == [(1, *expected)]


def test_a_row_that_is_read_again_alone_keeps_what_it_had(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, full(), partial(note=1))
    bench.live()
    bench.reload(0, 1, 2)
    assert big_values(bench) == [(1, 1, "old")]
    bench.rebuild()
    assert big_values(bench) == [(1, 1, "old")]
    bench.compact(0, 2)
    bench.rebuild()
    assert big_values(bench) == [(1, 1, "old")]


def test_each_column_has_a_source_of_its_own(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, full(big="first"))
    bench.live()
    bench.event(Event("u", "1", 1, "second", PLACEHOLDER))
    bench.event(Event("u", "1", PLACEHOLDER, PLACEHOLDER, "third"))
    bench.event(Event("u", "1", 3, PLACEHOLDER, PLACEHOLDER))
    bench.event(Event("u", "1", PLACEHOLDER, PLACEHOLDER, PLACEHOLDER))
    bench.live()
    assert bench.rows() == {"1": (3, "second", "third", 0, 4, False)}


def test_null_is_a_value_that_travelled(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, full(), full(big=None), partial())
    bench.live()
    assert big_values(bench) == [(1, 1, None)]


def test_a_dead_letter_is_no_source_and_comes_back_with_all_that_follows_it(database: Mapping[str, Any]) -> None:
    """A replay alone would leave the row with the value from before the dead letter, and nobody would know."""
    bench = EventBench(database, columns=("{name: note, type: bigint, required: true}", *COLUMNS[1:]))
    bench.event(full(big="old"))
    bench.event(Event("u", "1", None, "newer", "doc"))
    bench.event(partial(note=2))
    bench.live()
    assert big_values(bench) == [(1, 2, "old")]
    assert dead(bench) == [(1, "missing_required")]
    with pytest.raises(ConfigError, match="a replay, which leaves later records as they are") as refused:
        bench.resolve(DeadLetterAction.REPLAY)
    assert 'run orders --mode reload --offsets "orders 0 1 3"' in str(refused.value)
    # Neither file nor table requires the note any more.
    bench.query("ALTER TABLE shop.orders ALTER note DROP NOT NULL")
    mended = events_settings(*COLUMNS)
    bench._settings = lambda _: mended
    bench.reload(0, 1, 3)
    assert big_values(bench) == [(1, 2, "newer")]
    assert dead(bench) == []
    assert bench.violations() == bench.state_violations() == []


def test_a_row_whose_record_is_a_dead_letter_now_is_no_source(database: Mapping[str, Any]) -> None:
    bench = EventBench(database)
    bench.event(full(big="first"))
    bench.event(Event("u", "1", None, "second", "doc"))
    bench.live()
    bench.event(partial(note=2))
    strict = events_settings("{name: note, type: bigint, required: true}", *COLUMNS[1:])
    bench._settings = lambda _: strict
    bench.reset(0, 1)
    with pytest.raises(ReloadWouldLose):
        bench.live()
    assert big_values(bench) == [(1, None, "second")]
    # With the record before it in the same run its value is known.
    bench.reload(0, 0, 3)
    assert big_values(bench) == [(1, 2, "first")]
    assert dead(bench) == [(1, "missing_required")]


def test_a_discarded_record_is_no_source(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, full(), Event("u", "1", BAD, "discarded", "doc"), partial(note=2))
    bench.live()
    bench.resolve(DeadLetterAction.DISCARD)
    bench.reset(0, 0)
    bench.live()
    assert big_values(bench) == [(1, 2, "old")]
    assert bench.violations() == []


# What the table refuses.


def made(database: Mapping[str, Any], *statements: str) -> EventBench:
    bench = EventBench(database)
    bench.query(TABLE)
    for statement in statements:
        bench.query(statement)
    return bench


def test_a_column_that_is_not_null_takes_the_value_that_the_key_had(database: Mapping[str, Any]) -> None:
    bench = made(database, "ALTER TABLE shop.orders ALTER big SET NOT NULL")
    bench.event(full())
    bench.event(partial(note=1))
    bench.live()
    bench.event(partial(note=2))
    bench.live()
    assert big_values(bench) == [(1, 2, "old")]
    assert dead(bench) == []


@pytest.mark.parametrize("cut", [1, 3])
def test_a_check_of_values_that_travelled_refuses_the_record_that_has_them(
    database: Mapping[str, Any], cut: int
) -> None:
    """So the next record does not get a value from a row that the table would never have held."""
    bench = made(
        database,
        "ALTER TABLE shop.orders ADD CHECK (doc <> '\"refused\"')",
        "ALTER TABLE shop.orders ADD CHECK (big IS NOT NULL)",
    )
    bench.event(full())
    bench.event(partial(note=1, doc="refused"))
    bench.event(Event("u", "1", 2, PLACEHOLDER, PLACEHOLDER))
    for _ in range(3):
        bench.live(cut)
    assert bench.query("SELECT note, big, doc #>> '{}' FROM shop.orders") == [(2, "old", '"doc"')]
    assert dead(bench) == [(1, "check_violation")]


def test_a_check_of_a_filled_value_refuses_every_record_that_gets_it(database: Mapping[str, Any]) -> None:
    bench = made(database, "ALTER TABLE shop.orders ADD CHECK (note < 5 OR big <> 'old')")
    bench.event(full())
    for note in (1, 7, 8, 9):
        bench.event(partial(note=note))
    bench.live()
    assert big_values(bench) == [(1, 1, "old")]
    assert dead(bench) == [(2, "check_violation"), (3, "check_violation"), (4, "check_violation")]
    assert bench.violations() == []


def test_a_trigger_sees_whole_rows(database: Mapping[str, Any]) -> None:
    bench = made(
        database,
        "CREATE TABLE shop.log (big text)",
        "CREATE FUNCTION shop.noted() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO shop.log VALUES (NEW.big); RETURN NULL; END'",
        "CREATE TRIGGER noted AFTER INSERT OR UPDATE ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.noted()",
    )
    bench.event(full())
    bench.live()
    bench.event(partial())
    bench.event(full("2", big="two"))
    bench.event(partial("2"))
    bench.live()
    assert sorted(bench.query("SELECT big FROM shop.log")) == [("old",), ("old",), ("two",)]


def test_a_key_in_two_partitions_stops_whatever_travelled(database: Mapping[str, Any]) -> None:
    bench = EventBench(database, partitions=2)
    bench.event(full(), 0)
    bench.live()
    bench.event(partial(), 1)
    with pytest.raises(KeyInTwoPartitions):
        bench.live()
    assert big_values(bench) == [(1, 0, "old")]


# Sizes.


def test_a_large_value_that_an_update_leaves_alone_is_not_written_again(database: Mapping[str, Any]) -> None:
    bench = made(database)
    large = Random(1).randbytes(100_000).hex()  # no compression makes it small
    bench.event(full(big=large))
    bench.live()
    size = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'shop.orders'::regclass"
    ((before,),) = bench.query(size)
    assert before > len(large)
    for note in range(1, 4):
        bench.event(partial(note=note))
        bench.live()
    assert big_values(bench) == [(1, 3, large)]
    assert bench.query(size) == [(before,)]


def test_of_many_updates_of_a_key_only_the_newest_is_filled(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, full(), *(partial(note=note) for note in range(2_000)))
    bench.live(5_000)
    assert big_values(bench) == [(1, 1_999, "old")]
    counts = bench.query("SELECT rows, superseded FROM kafka_ingest.batch ORDER BY ordinal DESC LIMIT 1")
    assert counts == [(1, 2_000)]


def test_more_unknown_values_than_the_limit_stop_the_batch(database: Mapping[str, Any]) -> None:
    settings = events_settings(*COLUMNS, dead_letters="{max_count: 3}")
    bench = EventBench(database)
    bench._settings = lambda _: settings
    for number in range(4):
        bench.event(partial(str(number)))
    with pytest.raises(TooManyDeadLetters, match=r"(?s)at most 3 dead letters.*4 dead letters.*offset 0: value_did"):
        bench.live()
    assert big_values(bench) == dead(bench) == []


HOSTILE = "a\"b'c\\d,{e}"


def test_columns_of_any_name_are_filled(database: Mapping[str, Any]) -> None:
    name = HOSTILE.replace("'", "''")
    settings = events_settings(f"{{name: '{name}', type: text, path: $.big}}", "{name: note, type: bigint}")
    bench = EventBench(database)
    bench._settings = lambda _: settings
    bench.event(full())
    bench.live()
    bench.event(partial())
    bench.event(partial(note=2))
    bench.live()
    column = HOSTILE.replace('"', '""')
    assert bench.query(f'SELECT "{column}", note FROM shop.orders') == [("old", 2)]


def test_a_large_batch_of_unknown_values_keeps_every_record_with_its_bytes(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, *(partial(str(number)) for number in range(50)))
    bench.live()
    found = bench.query("SELECT count(*), count(DISTINCT convert_from(key, 'UTF8')) FROM kafka_ingest.dead_letter")
    assert found == [(50, 50)]
    value = bench.query(
        "SELECT convert_from(value, 'UTF8')::jsonb #>> '{after,big}' FROM kafka_ingest.dead_letter LIMIT 1"
    )
    assert value == [(PLACEHOLDER,)]
    assert bench.violations() == []


# Read again.


def test_a_rebuild_takes_nothing_from_a_row_that_it_did_not_read(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, full())
    bench.live()
    bench.event(partial())
    bench.log.compact(TOPIC, 0, 0)
    bench.rebuild()
    assert big_values(bench) == []
    assert dead(bench) == [(1, UNKNOWN)]
    assert bench.violations() == bench.state_violations() == []


def test_a_row_that_nobody_could_fill_gives_a_marked_row_no_values(database: Mapping[str, Any]) -> None:
    """Read again it is outdone by the marked row, so it is no dead letter any more, and still tells nothing."""
    bench = bench_of(database, partial(note=7), delete(), deletes=Deletes.MARK)
    bench.live()
    bench.reload(0, 0, 2)
    assert bench.rows() == {"1": (None, None, None, 0, 1, True)}


def test_a_marked_row_keeps_what_it_had_when_its_last_records_are_read_again(database: Mapping[str, Any]) -> None:
    """What it was filled with lies before the span; with ``write_null`` the update alone would be NULL."""
    bench = EventBench(database, Deletes.MARK, Unavailable.WRITE_NULL)
    for event in (full(), partial(note=7), delete()):
        bench.event(event)
    bench.live()
    bench.reload(0, 1, 3)
    assert bench.rows() == {"1": (7, "old", "new", 0, 2, True)}


def test_a_marked_row_has_the_null_of_its_last_record_whenever_that_is_read(database: Mapping[str, Any]) -> None:
    bench = EventBench(database, Deletes.MARK, Unavailable.WRITE_NULL)
    for event in (full(), delete(), partial(note=7), delete()):
        bench.event(event)
    reads: list[Callable[[], Any]] = [bench.live, lambda: bench.reload(0, 2, 4), bench.rebuild]
    for read in reads:
        read()
        assert bench.rows() == {"1": (7, None, "new", 0, 3, True)}


def test_a_marked_row_keeps_values_that_travelled_before(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, full(), partial(note=7), delete(), deletes=Deletes.MARK)
    bench.live()
    assert bench.rows() == {"1": (7, "old", "new", 0, 2, True)}
    bench.event(full(note=8, big="again"))
    bench.live()
    bench.event(partial(note=9))
    bench.event(delete())
    bench.live()
    assert bench.rows() == {"1": (9, "again", "new", 0, 5, True)}


def test_a_record_that_was_discarded_stays_out_when_it_is_read_again(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, partial())
    bench.live()
    bench.resolve(DeadLetterAction.DISCARD)
    bench.event(full(note=2))
    bench.reset(0, 0)
    bench.live()
    assert big_values(bench) == [(1, 2, "old")]
    assert bench.query("SELECT resolution FROM kafka_ingest.dead_letter") == [("discarded",)]
    assert bench.violations() == bench.state_violations() == []

"""A rebuild that fills a new table, which takes the name of the old one in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_ingest.errors import ConfigError, RebuildWouldRemove, ReloadWouldLose, TargetMismatch
from kafka_ingest.forms.run import run_options
from kafka_ingest.protocol.batch import RunMode, RunOptions
from kafka_ingest.settings import Deletes, OrderBy
from tests.event_bench import PLACEHOLDER, Event, EventBench
from tests.integration.test_state_traces import bench_of, delete, notes, put, removed
from tests.state_bench import BAD, Change, StateBench

KEPT = "SELECT relname FROM pg_class WHERE relname ~ '^orders_before_' AND relkind = 'r' ORDER BY oid"
ANEW = RunOptions(RunMode.REBUILD, into_new_table=True, reload_what_is_left=True, reason="a test")


def loaded(database: Mapping[str, Any], **settings: Any) -> StateBench:
    bench = bench_of(database, **settings)
    for change in (put("a", 1), put("b", 2), delete("b"), put("c", 3), put("a", 4)):
        bench.append(change)
    bench.live()
    return bench


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.MARK])
@pytest.mark.parametrize("order", [OrderBy.OFFSET, OrderBy.RECORD_TIME])
def test_the_new_table_has_what_a_rebuild_in_place_gives(
    database: Mapping[str, Any], order: OrderBy, deletes: Deletes
) -> None:
    bench = loaded(database, order=order, deletes=deletes)
    before, keys = bench.table(), removed(bench)
    ((oid,),) = bench.query("SELECT 'shop.orders'::regclass::oid::bigint")
    bench.query("UPDATE shop.orders SET note = 77 WHERE id = 'a'; DELETE FROM shop.orders WHERE id = 'c'")
    batch = bench.rebuild(into_new_table=True)
    assert bench.table() == bench.folded() == before
    assert removed(bench) == keys
    assert bench.query("SELECT 'shop.orders'::regclass::oid::bigint") != [(oid,)]
    # The old one is kept as it was, and the batch says where.
    ((kept,),) = bench.query(KEPT)
    assert bench.query(f"SELECT id, note FROM shop.{kept} WHERE id <> 'b'") == [("a", 77)]
    [warning] = [text for text in batch.warnings if "is kept" in text]
    assert f'DROP TABLE "shop"."{kept}"' in warning
    assert bench.violations() == bench.state_violations() == []


def test_loads_go_on_and_another_rebuild_keeps_another_table(database: Mapping[str, Any]) -> None:
    bench = loaded(database)
    bench.rebuild(into_new_table=True)
    bench.append(put("d", 5))
    bench.append(delete("a"))
    bench.live()
    assert notes(bench) == {"c": 3, "d": 5}
    bench.rebuild(into_new_table=True)
    assert notes(bench) == {"c": 3, "d": 5}
    assert len(bench.query(KEPT)) == 2
    assert bench.violations() == bench.state_violations() == []


def test_the_new_table_has_the_names_rights_and_settings_of_the_old_one(database: Mapping[str, Any]) -> None:
    bench = loaded(database)
    bench.query(
        """
        CREATE INDEX "by note" ON shop.orders (note DESC, id) WHERE note > 0;
        CREATE INDEX by_both ON shop.orders (at);
        ALTER TABLE shop.orders ADD CONSTRAINT positive CHECK (note > 0), ALTER at SET DEFAULT 7, SET (fillfactor = 70);
        ALTER TABLE shop.orders ADD twice bigint GENERATED ALWAYS AS (note * 2) STORED;
        COMMENT ON TABLE shop.orders IS 'one''s orders'; COMMENT ON COLUMN shop.orders.note IS 'a note';
        CREATE ROLE reader_of_orders;
        GRANT SELECT ON shop.orders TO reader_of_orders WITH GRANT OPTION; GRANT SELECT ON shop.orders TO PUBLIC
        """
    )
    try:
        facts = """
            SELECT array(SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = c.oid ORDER BY 1),
                   array(SELECT conname || pg_get_constraintdef(oid)
                         FROM pg_constraint WHERE conrelid = c.oid ORDER BY 1),
                   reloptions, obj_description(oid, 'pg_class'), col_description(oid, 2),
                   array(SELECT a::text FROM unnest(relacl) a ORDER BY 1), relowner::text,
                   array(SELECT attname || format_type(atttypid, atttypmod) || attnotnull || attgenerated::text
                         FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 ORDER BY attnum)
              FROM pg_class c WHERE oid = 'shop.orders'::regclass
        """
        before = bench.query(facts)
        bench.rebuild(into_new_table=True)
        assert bench.query(facts) == before
        assert bench.query("SELECT id, note, twice FROM shop.orders ORDER BY 1") == [("a", 4, 8), ("c", 3, 6)]
    finally:
        bench.query("DROP OWNED BY reader_of_orders; DROP ROLE reader_of_orders")


def test_what_a_rebuild_would_remove_or_lose_stops_it_as_in_place(database: Mapping[str, Any]) -> None:
    bench = loaded(database)
    bench.log.compact("orders", 0, 3)
    with pytest.raises(RebuildWouldRemove, match=r"1 key, the first \{c\}"):
        bench.rebuild(what_is_left=False, into_new_table=True)
    assert notes(bench) == {"a": 4, "c": 3}
    assert removed(bench)
    assert bench.query(KEPT) == []
    bench.rebuild(into_new_table=True)
    assert notes(bench) == {"a": 4}
    ((kept,),) = bench.query(KEPT)
    assert bench.query(f"SELECT id, note FROM shop.{kept} ORDER BY 1") == [("a", 4), ("c", 3)]


def test_a_row_whose_record_is_none_any_more_stops_it_as_in_place(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    bench.append(Change("a", (1, BAD)))
    bench.live()
    bench.version = 1
    with pytest.raises(ReloadWouldLose):
        bench.rebuild(what_is_left=False, into_new_table=True)
    assert notes(bench) == {"a": 1}
    bench.rebuild(into_new_table=True)
    assert notes(bench) == {}


def test_the_new_table_forgets_removed_keys_that_the_log_does_not_hold(database: Mapping[str, Any]) -> None:
    """Their older put is in no log, either; one that is written now must not lose against the memory."""
    bench = loaded(database)
    bench.query('UPDATE kafka_ingest.removed_key SET "offset" = 99')
    bench.log.compact("orders", 0, 2)
    bench.rebuild(into_new_table=True)
    assert bench.query("SELECT id, note FROM shop.orders ORDER BY 1") == [("a", 4), ("b", 2), ("c", 3)]
    assert removed(bench) == []


def test_records_that_the_new_table_refuses_are_dead_letters(database: Mapping[str, Any]) -> None:
    bench = loaded(database)
    bench.query("UPDATE shop.orders SET note = 5; CREATE INDEX late ON shop.orders ((1 / (note - 3)))")
    bench.rebuild(into_new_table=True)
    assert bench.query("SELECT id, note FROM shop.orders") == [("a", 4)]
    assert bench.open_dead_letters() == [(0, 3)]
    assert bench.violations() == bench.state_violations() == []


def test_a_value_that_only_the_old_table_knows_is_not_taken_from_there(database: Mapping[str, Any]) -> None:
    bench = EventBench(database)
    bench.event(Event("c", "1", 1, "big", '"doc"'))
    bench.event(Event("u", "1", 2, PLACEHOLDER, '"doc"'))
    bench.live()
    bench.rebuild(into_new_table=True)
    assert bench.query("SELECT note, big FROM shop.orders") == [(2, "big")]
    bench.log.compact("orders", 0, 0)
    with pytest.raises(ReloadWouldLose, match=r"1 key, the first \{1\}"):
        bench.rebuild(what_is_left=False, into_new_table=True)
    bench.rebuild(what_is_left=False)  # in place the row keeps what it has
    assert bench.query("SELECT note, big FROM shop.orders") == [(2, "big")]


OBSTACLES = {
    "CREATE VIEW shop.seen AS SELECT id FROM shop.orders": "shop.seen: expected no view",
    "CREATE TABLE shop.lines (id text REFERENCES shop.orders)": "foreign key lines_id_fkey: expected no foreign key",
    "ALTER TABLE shop.orders ADD more text": "column more: expected no columns but those that the pipeline writes",
    "GRANT SELECT (note) ON shop.orders TO PUBLIC": "column note: expected no rights on single columns",
    "CREATE PUBLICATION told FOR TABLE shop.orders": "publication told: expected none that names the table",
    "ALTER TABLE shop.orders REPLICA IDENTITY FULL": "replica identity: expected the default",
    "CREATE FUNCTION shop.all_of() RETURNS SETOF shop.orders LANGUAGE sql AS 'SELECT * FROM shop.orders'":
        "shop.all_of(): expected no function",
    "CREATE FUNCTION shop.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; "
    "CREATE TRIGGER watch BEFORE UPDATE ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.f()":
        "trigger watch: expected no trigger",
    "CREATE RULE told AS ON UPDATE TO shop.orders DO ALSO NOTHING": "rule told: expected no rule",
    "ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY": "row security: expected none",
}  # fmt: skip


@pytest.mark.parametrize("statement", OBSTACLES)
def test_what_a_new_table_could_not_stand_for_is_named_by_the_plan_and_looked_for_again(
    database: Mapping[str, Any], statement: str
) -> None:
    bench = loaded(database)
    batch = bench.plan(ANEW)
    bench.query(statement)
    # It came after the plan.
    with pytest.raises(TargetMismatch, match="cannot be replaced by a new one") as late:
        bench.load(batch)
    with pytest.raises(TargetMismatch, match="cannot be replaced by a new one") as refused:
        bench.plan(ANEW)
    assert all(OBSTACLES[statement] in str(error.value) for error in (late, refused))
    assert notes(bench) == {"a": 4, "c": 3}
    assert bench.query(KEPT) == []
    bench.rebuild()  # in place it goes on
    assert notes(bench) == {"a": 4, "c": 3}


def test_a_partitioned_table_is_not_replaced(database: Mapping[str, Any]) -> None:
    bench = loaded(database)
    bench.query("CREATE TABLE shop.child () INHERITS (shop.orders); ALTER TABLE shop.child NO INHERIT shop.orders")
    bench.rebuild(into_new_table=True)
    bench.query("CREATE TABLE shop.parent (id text); ALTER TABLE shop.orders INHERIT shop.parent")
    with pytest.raises(TargetMismatch, match="the table: expected a plain table; found partitions, or inheritance"):
        bench.plan(ANEW)


def test_only_a_rebuild_fills_a_new_table() -> None:
    with pytest.raises(ConfigError, match=r"Into a new table: expected nothing but in a rebuild \(Mode rebuild\?\)"):
        run_options({"into_new_table": True}, zone="UTC", pipeline="orders")
    form = {"mode": "rebuild", "into_new_table": True, "reason": "it grew"}
    assert run_options(form, zone="UTC", pipeline="orders").into_new_table

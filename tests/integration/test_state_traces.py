"""Sequences that an earlier design of current state got wrong: what is read again, reset, replayed.

``a=1@0`` is a put of key a at offset 0, ``del a@1`` a delete, ``bad`` a record that is a dead letter under one version
of the settings. One partition unless said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kafka_ingest.errors import (
    KeyInTwoPartitions,
    LogTruncated,
    ReloadWouldLose,
    TargetMismatch,
    TopicRecreated,
)
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from kafka_ingest.protocol.dead_letters import DeadLetterAction
from kafka_ingest.protocol.decisions import AcceptRecreation
from kafka_ingest.settings import BatchSettings, Deletes, OrderBy
from tests.state_bench import BAD, TOPIC, Change, StateBench, state_settings

REPLAY, DISCARD = DeadLetterAction.REPLAY, DeadLetterAction.DISCARD


def bench_of(
    database: Mapping[str, Any],
    *,
    order: OrderBy = OrderBy.OFFSET,
    deletes: Deletes = Deletes.REMOVE,
    partitions: int = 1,
    topics: tuple[str, ...] = (TOPIC,),
) -> StateBench:
    settings = partial(state_settings, order=order, deletes=deletes)
    return StateBench(database, settings, partitions, topics=topics)


def put(key: str, *notes: int | str, at: int = 0) -> Change:
    """A put that both versions of the settings read alike, or the second as the second note says."""
    return Change(key, (notes[0], notes[-1]), at)


def delete(key: str, at: int = 0) -> Change:
    return Change(key, None, at)


def notes(bench: StateBench) -> dict[str, Any]:
    """Return the note of each key that is not marked, and require the fold and every invariant."""
    table = bench.table()
    assert table == bench.folded()
    require_sound(bench)
    return {key: note for key, (note, *_, is_marked) in table.items() if not is_marked}


def require_sound(bench: StateBench) -> None:
    assert bench.violations() == []
    assert bench.state_violations() == []


def removed(bench: StateBench) -> list[str]:
    """Return the removed keys."""
    return [key[0] for (key,) in bench.query("SELECT key FROM kafka_ingest.removed_key ORDER BY key")]


def counts(bench: StateBench) -> tuple[int, ...]:
    """Return rows, deletes, superseded and dead letters of the newest batch."""
    newest = "FROM kafka_ingest.batch ORDER BY planned_at DESC LIMIT 1"
    (found,) = bench.query(f"SELECT rows, deletes, superseded, dead_letters {newest}")
    return found


def resolutions(bench: StateBench) -> dict[int, str | None]:
    """Return what became of each dead letter, by offset."""
    return dict(bench.query('SELECT "offset", resolution FROM kafka_ingest.dead_letter'))


# ----------
# Silent wrong tables.


def test_a_tombstone_deletes_also_where_compaction_took_the_delete_before_it(database: Mapping[str, Any]) -> None:
    """``a@0, d a@1, tombstone a@2``: read [0,1); compaction takes the d; read the rest."""
    bench = bench_of(database)
    bench.append(put("a", 1))
    bench.append(Change("a", (1, 1), is_delete=True))
    bench.append(delete("a"))
    bench.live(1)
    bench.log.compact(TOPIC, 0, 1)
    bench.live()
    assert notes(bench) == {}


@pytest.mark.parametrize("order", list(OrderBy))
def test_a_reload_writes_the_same_version_again(database: Mapping[str, Any], order: OrderBy) -> None:
    """``a@0``: read; the conversion is mended; reload [0,1): the row has the mended value."""
    bench = bench_of(database, order=order)
    bench.append(put("a", 1, 2))
    bench.live()
    bench.version = 1
    bench.reload(0, 0, 1)
    assert notes(bench) == {"a": 2}
    assert counts(bench) == (1, 0, 0, 0)


def test_a_removed_row_stays_away_after_a_reset_and_a_reload(database: Mapping[str, Any]) -> None:
    """``a=0@0, a=1@1, del a@2``: read to 3; reset to 1; reload [0,1)."""
    bench = bench_of(database)
    for change in (put("a", 0), put("a", 1), delete("a")):
        bench.append(change)
    bench.live()
    bench.reset(0, 1)
    bench.reload(0, 0, 1)
    assert notes(bench) == {}
    assert counts(bench) == (0, 0, 1, 0)
    assert removed(bench) == ["a"]


def test_a_removed_row_stays_away_after_a_run_that_ends_below_what_was_loaded(database: Mapping[str, Any]) -> None:
    """The same log; reset to 0; a live run that a limit, an interval or an open transaction ends at 1."""
    bench = bench_of(database)
    for change in (put("a", 0), put("a", 1), delete("a")):
        bench.append(change)
    bench.live()
    bench.reset(0, 0)
    for _ in range(2):
        bench.live(1)
        assert notes(bench) == {}
    bench.live()
    assert notes(bench) == {}


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.MARK])
def test_an_older_delete_that_is_read_again_takes_nothing(database: Mapping[str, Any], deletes: Deletes) -> None:
    """``del a@0, a=1@1, del b@2, del b@3``: reload [0,1), then [2,3): a is there, and b's entry is of @3."""
    bench = bench_of(database, deletes=deletes)
    for change in (delete("a"), put("a", 1), delete("b"), delete("b")):
        bench.append(change)
    bench.live()
    for start in (0, 2):
        bench.reload(0, start, start + 1)
        assert counts(bench) == (0, 0, 1, 0)
        assert notes(bench) == {"a": 1}
    offsets = 'SELECT "offset" FROM kafka_ingest.removed_key'
    assert bench.query(offsets) == ([(3,)] if deletes is Deletes.REMOVE else [])


def test_a_removed_key_stays_where_compaction_took_its_delete(database: Mapping[str, Any]) -> None:
    """``a=1@0, del a@1, b@2``: the tombstone is gone; reload [0,3): a stays away."""
    bench = bench_of(database)
    for change in (put("a", 1), delete("a"), put("b", 1)):
        bench.append(change)
    bench.live()
    bench.log.compact(TOPIC, 0, 1)
    bench.reload(0, 0, 3)
    assert notes(bench) == {"b": 1}
    assert removed(bench) == ["a"]


@pytest.mark.parametrize("by_reload", [False, True], ids=["replay", "reload"])
def test_a_dead_letter_that_fits_now_does_not_bring_a_removed_row_back(
    database: Mapping[str, Any], by_reload: bool
) -> None:
    """``a bad@0, del a@1``: read; mended; the dead letter is replayed, or read again."""
    bench = bench_of(database)
    bench.append(put("a", BAD, 1))
    bench.append(delete("a"))
    bench.live()
    bench.version = 1
    if by_reload:
        bench.reset(0, 1)
        bench.reload(0, 0, 1)
    else:
        assert bench.resolve(REPLAY).superseded == 1
        assert resolutions(bench) == {0: "superseded"}
    assert notes(bench) == {}


def test_a_removed_key_that_comes_from_another_partition_stops_the_batch(database: Mapping[str, Any]) -> None:
    """``p1: a=0@0, del a@1``, ``p0: a=0@0``: p1 is read, then p0."""
    bench = bench_of(database, partitions=2)
    bench.append(put("a", 0), 1)
    bench.append(delete("a"), 1)
    bench.live()
    bench.append(put("a", 0), 0)
    bench.append(put("b", 0), 0)
    with pytest.raises(KeyInTwoPartitions, match=r"1 key, the first \{a\}"):
        bench.live()
    assert bench.table() == {}
    assert removed(bench) == ["a"]


@pytest.mark.parametrize("second", [put("a", 1), delete("a")], ids=["put", "delete"])
@pytest.mark.parametrize("cut", [1, 10], ids=["against the table", "in the batch"])
def test_a_key_in_two_partitions_stops_the_batch_under_offsets(
    database: Mapping[str, Any], second: Change, cut: int
) -> None:
    bench = bench_of(database, partitions=2)
    bench.append(put("a", 0), 0)
    bench.append(put("b", 0), 0)
    if cut == 1:
        bench.live()
    bench.append(second, 1)
    before = bench.table() if cut == 1 else {}
    with pytest.raises(KeyInTwoPartitions, match="record_time"):
        bench.live()
    assert (bench.table() if cut == 1 else {}) == before


def test_a_replay_of_a_key_in_another_partition_stops_too(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, partitions=2)
    bench.append(put("a", 0), 0)
    bench.append(put("a", BAD, 1), 1)
    bench.live()
    bench.version = 1
    with pytest.raises(KeyInTwoPartitions):
        bench.resolve(REPLAY)
    bench.version = 0
    assert notes(bench) == {"a": 0}
    assert resolutions(bench) == {0: None}


@pytest.mark.parametrize("order", [OrderBy.RECORD_TIME, OrderBy.COLUMN])
@pytest.mark.parametrize("cut", [1, 10])
def test_under_times_a_key_may_be_in_two_partitions_and_equal_times_have_one_order(
    database: Mapping[str, Any], order: OrderBy, cut: int
) -> None:
    """Equal times: the higher partition wins, then the higher offset, in whatever order they are read."""
    bench = bench_of(database, order=order, partitions=2)
    bench.append(put("a", 1, at=5), 1)
    bench.append(put("a", 2, at=5), 0)
    bench.append(put("a", 3, at=5), 0)
    bench.append(put("b", 1, at=5), 0)
    bench.append(put("b", 2, at=4), 1)
    bench.append(put("c", 1, at=5), 0)
    bench.append(put("c", 2, at=5), 0)
    for _ in range(7):
        bench.live(cut)
    assert notes(bench) == {"a": 1, "b": 1, "c": 2}


# The older version does not come back.


@pytest.mark.parametrize("order", list(OrderBy))
def test_a_row_whose_record_is_none_any_more_goes_only_where_the_run_holds_what_was_before(
    database: Mapping[str, Any], order: OrderBy
) -> None:
    """``b@0, a=1@1, a=2@2``: under new settings @2 is bad; reload [2,3) would lose a; [1,3) finds a=1."""
    bench = bench_of(database, order=order)
    for change in (put("b", 0), put("a", 1, at=1), put("a", 2, BAD, at=2)):
        bench.append(change)
    bench.live()
    bench.version = 1
    with pytest.raises(ReloadWouldLose, match=r"1 key, the first \{a\}"):
        bench.reload(0, 2, 3)
    assert bench.table()["a"][0] == 2
    if order is OrderBy.OFFSET:
        bench.reload(0, 1, 3)
        assert notes(bench) == {"b": 0, "a": 1}
    else:  # an older record need not be the newest of the older ones
        with pytest.raises(ReloadWouldLose):
            bench.reload(0, 1, 3)
    bench.reload(0, 2, 3, what_is_left=True)
    assert ("a" in bench.table()) == (order is OrderBy.OFFSET)


def test_under_times_a_newer_record_of_the_run_stands_in(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, order=OrderBy.RECORD_TIME)
    bench.append(put("a", 1, BAD, at=1))
    bench.live()
    bench.append(put("a", 3, at=2))
    bench.version = 1
    bench.reload(0, 0, 2)
    assert notes(bench) == {"a": 3}


def test_under_times_an_older_record_of_the_run_does_not_stand_in(database: Mapping[str, Any]) -> None:
    """``a(time 2)@0, a(time 1)@1, a(time 3)@2``: @2 is bad later; [1,3) holds only time 1, and @0 is right."""
    bench = bench_of(database, order=OrderBy.RECORD_TIME)
    for change in (put("a", 2, at=2), put("a", 1, at=1), put("a", 3, BAD, at=3)):
        bench.append(change)
    bench.live()
    bench.version = 1
    with pytest.raises(ReloadWouldLose):
        bench.reload(0, 1, 3)


def test_where_marked_rows_keep_values_a_delete_does_not_stand_in_and_a_put_does(database: Mapping[str, Any]) -> None:
    """``a=0@0, del a@1, a=2@2``: @2 is bad later; [1,3) holds the delete, but not the values of @0."""
    bench = bench_of(database, deletes=Deletes.MARK)
    for change in (put("a", 0), delete("a"), put("a", 2, BAD)):
        bench.append(change)
    bench.live()
    bench.version = 1
    with pytest.raises(ReloadWouldLose):
        bench.reload(0, 1, 3)
    bench.reload(0, 0, 3)
    assert notes(bench) == {}
    assert bench.table() == {"a": (0, 0, 1, True)}


def moving_settings(version: int, *, deletes: Deletes = Deletes.REMOVE) -> BatchSettings:
    """Settings that read the key of each record from another member in each version."""
    settings = state_settings(deletes=deletes)
    id_, *others = settings.value.columns
    columns = (replace(id_, path=(f"id{version}",)), *others)
    return replace(settings, value=replace(settings.value, columns=columns))


def test_a_removed_key_whose_record_is_of_another_key_now_is_not_given_up_silently(
    database: Mapping[str, Any],
) -> None:
    """``a=0@0, a=1@1, del a@2``: later @2 reads as a delete of b; reload [2,3) does not know what a was."""
    bench = StateBench(database, moving_settings)
    for note in (0, 1):
        bench.send({"id0": "a", "id1": "a"}, {"note0": note})
    bench.send({"id0": "a", "id1": "b"}, None)
    bench.live()
    assert removed(bench) == ["a"]
    bench.version = 1
    with pytest.raises(ReloadWouldLose, match=r"1 key, the first \{a\}"):
        bench.reload(0, 2, 3)
    assert removed(bench) == ["a"]
    bench.reload(0, 1, 3)
    assert bench.query("SELECT id, note FROM shop.orders") == [("a", 1)]
    assert removed(bench) == ["b"]
    require_sound(bench)


def test_a_row_whose_record_is_of_another_key_now_moves_there(database: Mapping[str, Any]) -> None:
    """``a@0, a@1``: later @1 reads as b; reload [0,2): @0 is a again, and @1 is b."""
    bench = StateBench(database, moving_settings)
    bench.send({"id0": "a", "id1": "a"}, {"note0": 0})
    bench.send({"id0": "a", "id1": "b"}, {"note0": 1})
    bench.live()
    bench.version = 1
    with pytest.raises(ReloadWouldLose):
        bench.reload(0, 1, 2)
    bench.reload(0, 0, 2)
    assert bench.query("SELECT id, note, kafka_offset FROM shop.orders ORDER BY id") == [("a", 0, 0), ("b", 1, 1)]
    require_sound(bench)


# Marked rows are the same however the log is cut.


@pytest.mark.parametrize("order", list(OrderBy))
def test_a_marked_row_is_the_same_however_the_log_is_cut(database: Mapping[str, Any], order: OrderBy) -> None:
    """``a=0@0, a=1@1, del a@2, del b@3``: by offset a keeps its newest value, else it has none; b is a row."""
    bench = bench_of(database, order=order, deletes=Deletes.MARK)
    kept = 1 if order is OrderBy.OFFSET else None
    for number, cuts in enumerate(((4,), (1, 1, 1, 1), (1, 3), (2, 2))):
        a, b = f"a{number}", f"b{number}"
        bench.append(put(a, 0))
        bench.append(put(a, 1, at=1))
        bench.append(Change(a, (2, 2), 2, is_delete=True))
        bench.append(Change(b, (2, 2), 2, is_delete=True))
        for cut in cuts:
            bench.live(cut)
        notes(bench)
        assert bench.table()[a] == (kept, 0, 4 * number + 2, True)
        assert bench.table()[b] == (None, 0, 4 * number + 3, True)


def test_the_time_of_a_delete_is_the_records_and_goes_with_the_next_put(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, deletes=Deletes.MARK)
    bench.append(put("a", 1))
    bench.append(delete("a", at=7))
    bench.live()
    same = "SELECT deleted_at = kafka_timestamp, kafka_offset FROM shop.orders"
    assert bench.query(same) == [(True, 1)]
    bench.append(put("a", 2))
    bench.live()
    assert bench.query(same) == [(None, 2)]


def test_a_late_create_does_not_bring_a_marked_key_back(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, order=OrderBy.RECORD_TIME, deletes=Deletes.MARK)
    bench.append(delete("a", at=5))
    bench.live()
    bench.append(put("a", 1, at=4))
    bench.live()
    assert notes(bench) == {}
    assert counts(bench) == (0, 0, 1, 0)


# Generations, topics, partitions.


def test_a_higher_generation_wins_from_any_partition_and_other_keys_stay(database: Mapping[str, Any]) -> None:
    """Generation 0 has a and b in partition 0 at high offsets; the topic is created again with two partitions."""
    bench = bench_of(database)
    for key in ("x", "x", "x", "a", "b", "c"):
        bench.append(put(key, 0))
    bench.append(delete("c"))
    bench.live()
    bench.log.recreate_topic(TOPIC, 2)
    bench.change(AcceptRecreation())
    bench.append(put("a", 1), 1)
    bench.append(put("c", 1), 1)
    bench.live()
    rows = "SELECT id, note, kafka_generation, kafka_partition, kafka_offset FROM shop.orders ORDER BY id"
    assert bench.query(rows) == [("a", 1, 1, 1, 0), ("b", 0, 0, 0, 4), ("c", 1, 1, 1, 1), ("x", 0, 0, 0, 2)]
    assert removed(bench) == []
    bench.append(put("a", 2), 0)
    with pytest.raises(KeyInTwoPartitions):
        bench.live()


def test_a_dead_letter_of_an_older_generation_is_not_replayed(database: Mapping[str, Any]) -> None:
    """The same offset is another record now."""
    bench = bench_of(database)
    for key in ("x", "a"):
        bench.append(put(key, BAD, 1))
    bench.live()
    bench.log.recreate_topic(TOPIC)
    bench.change(AcceptRecreation())
    bench.append(put("a", 2))
    bench.live()
    bench.version = 1
    with pytest.raises(TopicRecreated, match="generation 0"):
        bench.resolve(REPLAY)
    assert bench.query("SELECT id, note, kafka_generation FROM shop.orders") == [("a", 2, 1)]


def test_offsets_of_two_topics_are_never_compared(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, topics=(TOPIC, "returns"))
    bench.send({"id": "a"}, {"note0": 1})
    bench.send({"id": "b"}, {"note0": 1}, topic="returns")
    bench.live()
    bench.send({"id": "a"}, {"note0": 2}, topic="returns")
    with pytest.raises(KeyInTwoPartitions):
        bench.live()
    assert bench.query("SELECT id, note FROM shop.orders ORDER BY id") == [("a", 1), ("b", 1)]


def test_two_topics_of_one_batch_hold_a_key_in_vain_too(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, topics=(TOPIC, "returns"))
    for topic in (TOPIC, "returns"):
        bench.send({"id": "a"}, {"note0": 1}, topic=topic)
    with pytest.raises(KeyInTwoPartitions):
        bench.live()


def test_after_partitions_were_added_only_keys_that_move_stop(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    for key in ("a", "b"):
        bench.append(put(key, 1))
    bench.live()
    bench.log.add_partitions(TOPIC, 2)
    bench.append(put("a", 2), 0)
    bench.append(put("c", 2), 1)
    bench.live()
    assert notes(bench) == {"a": 2, "b": 1, "c": 2}
    bench.append(put("b", 2), 1)
    with pytest.raises(KeyInTwoPartitions, match=r"the first \{b\}"):
        bench.live()


def test_rows_without_a_version_are_refused_by_the_first_plan(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    bench.append(put("a", 1))
    identity = "kafka_topic text, kafka_generation integer, kafka_partition integer, kafka_offset bigint"
    bench.query("CREATE SCHEMA shop")
    bench.query(
        f"CREATE TABLE shop.orders (id text PRIMARY KEY, note bigint, at integer, {identity}, "
        "kafka_timestamp timestamptz, batch_id uuid)"
    )
    bench.query("INSERT INTO shop.orders (id) VALUES ('a'), ('b')")
    with pytest.raises(TargetMismatch, match="2 rows without a version"):
        bench.live()
    bench.query("DELETE FROM shop.orders")
    bench.live()
    assert notes(bench) == {"a": 1}


# ----------
# Interplay with dead letters, and with logs that have lost records.


def test_rows_and_dead_letters_that_compaction_took_stay_under_a_reload(database: Mapping[str, Any]) -> None:
    """``a=1@0, b bad@1, a=2@2, b=2@3``: compaction takes @0 and @1; reload [0,4) is no loss."""
    bench = bench_of(database)
    for change in (put("a", 1), put("b", BAD, 1), put("c", BAD, 2)):
        bench.append(change)
    bench.live()
    bench.log.compact(TOPIC, 0, 0, 1)
    bench.version = 1
    bench.reload(0, 0, 3)
    assert notes(bench) == {"a": 1, "c": 2}
    assert resolutions(bench) == {1: None}


def test_a_dead_letter_that_a_newer_record_has_outdone_is_superseded_without_a_row(
    database: Mapping[str, Any],
) -> None:
    bench = bench_of(database)
    for change in (put("a", BAD, 1), put("a", 2)):
        bench.append(change)
    bench.live()
    bench.log.compact(TOPIC, 0, 0)
    bench.version = 1
    outcome = bench.resolve(REPLAY)
    assert (outcome.replayed, outcome.superseded) == (0, 1)
    assert resolutions(bench) == {0: "superseded"}
    assert notes(bench) == {"a": 2}


def test_a_replay_of_several_dead_letters_of_a_key_writes_the_newest_and_supersedes_the_others(
    database: Mapping[str, Any],
) -> None:
    bench = bench_of(database)
    for change in (put("a", BAD, 1), put("a", BAD, 2), put("b", BAD, 1), put("a", BAD, 3)):
        bench.append(change)
    bench.live()
    bench.version = 1
    outcome = bench.resolve(REPLAY)
    assert (outcome.replayed, outcome.superseded) == (2, 2)
    assert resolutions(bench) == {0: "superseded", 1: "superseded", 2: "replayed", 3: "replayed"}
    assert notes(bench) == {"a": 3, "b": 1}


def test_a_replayed_dead_letter_is_a_record_like_any_other_under_a_reload(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    bench.append(put("a", BAD, 1))
    bench.append(put("b", 0))
    bench.live()
    bench.version = 1
    bench.resolve(REPLAY)
    bench.reload(0, 0, 1)
    assert notes(bench) == {"a": 1, "b": 0}
    assert resolutions(bench) == {}
    bench.version = 0
    with pytest.raises(ReloadWouldLose):
        bench.reload(0, 0, 1)


def test_a_discarded_dead_letter_stays_out_unless_resolved_ones_are_replaced(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    bench.append(put("a", BAD, 1))
    bench.append(put("b", 0))
    bench.live()
    bench.resolve(DISCARD)
    bench.version = 1
    bench.reload(0, 0, 2)
    assert notes(bench) == {"b": 0}
    assert resolutions(bench) == {0: "discarded"}
    assert counts(bench) == (1, 0, 0, 1)
    spans = (OffsetSpan(TOPIC, 0, 0, 2),)
    bench.run(RunOptions(RunMode.RELOAD, offsets=spans, replace_resolved=True))
    assert notes(bench) == {"a": 1, "b": 0}
    assert resolutions(bench) == {}


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.IGNORE])
def test_a_discarded_delete_stays_out_too(database: Mapping[str, Any], deletes: Deletes) -> None:
    """A delete whose key does not fit under one version is a dead letter there."""
    bench = StateBench(database, partial(moving_settings, deletes=deletes))
    bench.send({"id0": "a", "id1": "a"}, {"note0": 1})
    bench.send({"id1": "a"}, {"gone": True})
    bench.live()
    bench.resolve(DISCARD)
    bench.version = 1
    bench.reload(0, 0, 2)
    assert bench.query("SELECT id FROM shop.orders") == [("a",)]
    assert (removed(bench), resolutions(bench), counts(bench)) == ([], {1: "discarded"}, (1, 0, 0, 1))


def test_deletes_count_where_they_hit_nothing_and_the_rest_is_superseded(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    for change in (put("a", 1), put("a", 2), delete("b"), put("c", BAD, 1), delete("c")):
        bench.append(change)
    bench.live()
    assert counts(bench) == (1, 2, 1, 1)
    bench.reload(0, 0, 1)
    assert counts(bench) == (0, 0, 1, 0)
    notes(bench)


def test_a_log_that_ends_below_what_was_loaded_is_truncated(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    for key in ("a", "b", "c"):
        bench.append(put(key, 1))
    bench.live()
    bench.reset(0, 0)
    bench.log.truncate(TOPIC, 0, 2)
    with pytest.raises(LogTruncated):
        bench.live()

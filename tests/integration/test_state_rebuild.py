"""Deletes that expire unread, and the rebuild of a table from its whole log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from kafka_ingest.errors import ConfigError, DeletesMayBeLost, RebuildWouldRemove
from kafka_ingest.protocol.batch import RunOptions
from kafka_ingest.protocol.dead_letters import DeadLetterAction
from kafka_ingest.settings import Deletes
from tests.integration.test_state_traces import bench_of, delete, notes, put, removed, resolutions
from tests.state_bench import BAD, TOPIC, StateBench


def compacted(database: Mapping[str, Any], **settings: Any) -> StateBench:
    """A bench over a compacted topic, whose tombstones stay for a day."""
    bench = bench_of(database, **settings)
    bench.log.topics[TOPIC].cleanup_policy = "compact,delete"
    return bench


def caught_up_before(bench: StateBench, hours: int) -> None:
    """Let the last plan that reached the end of the log have been so long ago."""
    ago = f"{hours} hours"
    bench.query("UPDATE kafka_ingest.committed_offset SET caught_up_at = clock_timestamp() - %s::interval", ago)


def test_a_load_that_comes_later_than_tombstones_stay_stops_and_writes_nothing(database: Mapping[str, Any]) -> None:
    """``a=0@0``, read; ``del a@1``; a pause of more than a day, in which compaction drops the delete."""
    bench = compacted(database)
    bench.append(put("a", 1))
    bench.live()
    bench.append(delete("a"))
    bench.log.compact(TOPIC, 0, 0, 1)
    bench.append(put("b", 1))
    caught_up_before(bench, hours=25)
    with pytest.raises(DeletesMayBeLost, match=rf"(?s){TOPIC}.*86,400,000.*--mode rebuild"):
        bench.live()
    assert bench.query("SELECT id FROM shop.orders") == [("a",)]
    # The way out: the log no longer knows a.
    bench.rebuild()
    assert notes(bench) == {"b": 1}
    bench.append(put("c", 1))
    bench.live()
    assert notes(bench) == {"b": 1, "c": 1}


def test_a_load_within_the_day_passes_and_so_do_topics_without_compaction_and_deletes_without_effect(
    database: Mapping[str, Any],
) -> None:
    bench = compacted(database)
    bench.append(put("a", 1))
    bench.live()
    bench.append(put("a", 2))
    caught_up_before(bench, hours=23)
    bench.live()
    bench.append(put("a", 3))
    caught_up_before(bench, hours=25)
    bench.log.topics[TOPIC].cleanup_policy = "delete"
    bench.live()
    assert notes(bench) == {"a": 3}


def test_deletes_that_are_ignored_cannot_be_lost(database: Mapping[str, Any]) -> None:
    bench = compacted(database, deletes=Deletes.IGNORE)
    bench.append(put("a", 1))
    bench.live()
    bench.append(put("a", 2))
    caught_up_before(bench, hours=1_000)
    bench.live()
    assert notes(bench) == {"a": 2}


def test_the_own_plan_of_a_batch_does_not_count_for_it(database: Mapping[str, Any]) -> None:
    """The plan comes after the pause: what it reads may lack deletes already."""
    bench = compacted(database)
    bench.append(put("a", 1))
    bench.live()
    caught_up_before(bench, hours=25)
    bench.append(put("a", 2))
    batch = bench.plan(RunOptions())
    for _ in range(2):
        with pytest.raises(DeletesMayBeLost):
            bench.load(batch)


def test_only_a_plan_that_reaches_the_end_counts(database: Mapping[str, Any]) -> None:
    bench = compacted(database)
    bench.append(put("a", 1))
    bench.live()
    for note in (2, 3, 4):
        bench.append(put("a", note))
    caught_up_before(bench, hours=23)
    bench.live(1)
    bench.clock.ahead = timedelta(hours=2)
    with pytest.raises(DeletesMayBeLost):
        bench.live(1)
    bench.clock.ahead = timedelta()
    bench.live()
    bench.append(put("a", 5))
    bench.clock.ahead = timedelta(hours=23)
    bench.live()
    assert notes(bench) == {"a": 5}


def test_a_plan_that_finds_nothing_new_counts(database: Mapping[str, Any]) -> None:
    bench = compacted(database)
    bench.append(put("a", 1))
    bench.live()
    caught_up_before(bench, hours=23)
    bench.live()
    bench.append(put("a", 2))
    bench.clock.ahead = timedelta(hours=2)
    bench.live()
    assert notes(bench) == {"a": 2}


def test_a_first_load_counts_from_its_first_plan(database: Mapping[str, Any]) -> None:
    """In several limited runs, none of which reaches the end of the log."""
    bench = compacted(database)
    for note in (1, 2, 3, 4):
        bench.append(put("a", note))
    bench.live(1)
    age = "UPDATE kafka_ingest.committed_offset SET caught_up_at = caught_up_at - interval '{} hours'"
    bench.query(age.format(23))
    bench.live(1)
    bench.query(age.format(2))
    with pytest.raises(DeletesMayBeLost):
        bench.live(1)


def test_a_topic_whose_settings_nobody_tells_stops_the_load(
    database: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = compacted(database)
    bench.append(put("a", 1))
    monkeypatch.setattr(bench.log, "delete_retentions", lambda topics: {})
    with pytest.raises(ConfigError, match="DescribeConfigs"):
        bench.live()


def test_a_rebuild_that_takes_longer_than_tombstones_stay_stops_too(database: Mapping[str, Any]) -> None:
    bench = compacted(database)
    bench.append(put("a", 1))
    bench.live()
    caught_up_before(bench, hours=1_000)
    bench.clock.ahead = timedelta(hours=25)
    with pytest.raises(DeletesMayBeLost, match=r"raise delete\.retention\.ms"):
        bench.rebuild()
    bench.clock.ahead = timedelta(hours=23)
    bench.rebuild()
    assert notes(bench) == {"a": 1}


# ----------
# The rebuild.


def test_a_rebuild_stops_with_the_number_of_keys_that_it_would_remove_and_then_removes_them(
    database: Mapping[str, Any],
) -> None:
    bench = bench_of(database)
    for key in ("a", "b", "c"):
        bench.append(put(key, 1))
    bench.append(delete("d"))
    bench.append(put("e", BAD))
    bench.live()
    bench.log.compact(TOPIC, 0, 0, 1, 3, 4)
    with pytest.raises(RebuildWouldRemove, match=r"2 keys, the first \{a\}, \{b\}"):
        bench.rebuild(what_is_left=False)
    assert set(bench.table()) == {"a", "b", "c"}
    assert removed(bench) == ["d"]
    assert resolutions(bench) == {4: None}
    bench.rebuild()
    assert notes(bench) == {"c": 1}
    assert removed(bench) == []
    assert resolutions(bench) == {4: "superseded"}


def test_a_rebuild_leaves_discarded_dead_letters_what_they_are(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    for change in (put("a", BAD), put("b", BAD), put("c", 1)):
        bench.append(change)
    bench.live()
    bench.resolve(DeadLetterAction.DISCARD)
    bench.log.compact(TOPIC, 0, 0)
    bench.rebuild()
    assert notes(bench) == {"c": 1}
    assert resolutions(bench) == {0: "discarded", 1: "discarded"}


def test_a_rebuild_that_removes_nothing_asks_nobody(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    for change in (put("a", 1, 2), put("b", 1), delete("b"), put("c", BAD, 1)):
        bench.append(change)
    bench.live()
    bench.version = 1
    bench.rebuild(what_is_left=False)
    assert notes(bench) == {"a": 2, "c": 1}
    assert removed(bench) == ["b"]


def test_a_row_whose_key_the_log_still_holds_is_no_loss_to_a_rebuild(database: Mapping[str, Any]) -> None:
    """``a=1@0``: a newer a@1 came, and compaction took @0: the rebuild writes a, and nobody is asked."""
    bench = bench_of(database)
    bench.append(put("a", 1))
    bench.live()
    bench.append(put("a", 2))
    bench.append(delete("a"))
    bench.append(put("a", 3))
    bench.log.compact(TOPIC, 0, 0)
    bench.rebuild(what_is_left=False)
    assert notes(bench) == {"a": 3}


def test_a_rebuild_brings_a_lower_version_in_where_the_higher_one_is_gone(database: Mapping[str, Any]) -> None:
    """A row set higher by hand, and a removed key whose delete is gone: the log alone tells what stands."""
    bench = bench_of(database)
    for change in (put("a", 1), put("b", 1), delete("b")):
        bench.append(change)
    bench.live()
    bench.query("UPDATE shop.orders SET kafka_offset = 100 WHERE id = 'a'")
    bench.log.compact(TOPIC, 0, 2)
    bench.rebuild(what_is_left=False)
    assert bench.query("SELECT id, kafka_offset FROM shop.orders ORDER BY id") == [("a", 0), ("b", 1)]
    assert removed(bench) == []


def test_a_rebuild_reads_all_partitions_or_none(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, partitions=2)
    bench.append(put("a", 1), 0)
    bench.append(put("b", 1), 1)
    bench.live()
    bench.log.topics[TOPIC].partitions[1].has_leader = False
    with pytest.raises(Exception, match=r"orders\[1\]"):
        bench.rebuild()
    assert set(bench.table()) == {"a", "b"}
    bench.log.topics[TOPIC].partitions[1].has_leader = True
    bench.rebuild(what_is_left=False)
    assert notes(bench) == {"a": 1, "b": 1}


def test_a_rebuild_reads_also_what_was_not_read_yet(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    bench.append(put("a", 1))
    bench.append(put("a", 2))
    bench.live(1)
    bench.rebuild(what_is_left=False)
    assert notes(bench) == {"a": 2}
    bench.live()
    assert notes(bench) == {"a": 2}

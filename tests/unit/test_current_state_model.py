"""The model of current state: its fold, its steps, one search, and that each rule is taken away somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from model.current_state.publication import Stopped
from model.current_state.records import Kind, Log, Partition, Produced, Record, Row, Version, fold
from model.current_state.report import counterexample
from model.current_state.rules import Deletes, Order, Pipeline, Rule
from model.current_state.scenarios import CUTS, SCENARIOS, TWO_ATTEMPTS
from model.current_state.search import Checked, Scenario, fold_of, search
from model.current_state.steps import May, Setting, steps
from model.current_state.world import World, first_world

PAGE = Path(__file__).parents[2] / "docs" / "protocol-model.md"
PUT_A = Record(Kind.PUT, "a", 1)
TOMBSTONE_A = Record(Kind.TOMBSTONE, "a")
MENDED_A = Produced(Record(Kind.PUT, "a", 1), Record(Kind.PUT, "a", 2))
BY_TIME = Pipeline(order=Order.TIME)


def p0(offset: int) -> Version:
    return Version(0, 0, offset)


def one_partition(*records: Record | Produced) -> Log:
    produced = (record if isinstance(record, Produced) else Produced(record) for record in records)
    return Log((Partition(0, tuple(produced)),))


def may(*what: May) -> frozenset[May]:
    return frozenset(what)


def follow(setting: Setting, *names: str) -> World:
    """Take the named steps from the first world."""
    world = first_world(setting.log)
    for name in names:
        world = dict(steps(world, setting))[name]()
    return world


def in_version_order(log: Log, pipeline: Pipeline) -> list[tuple[Version, Record]]:
    return [(one, log.records[one].first) for one in sorted(log.records, key=lambda one: log.rank(one, pipeline))]


def test_an_insert_a_delete_and_an_insert_of_a_key_fold_to_the_last_insert() -> None:
    changes = [(p0(0), PUT_A), (p0(1), TOMBSTONE_A), (p0(2), Record(Kind.PUT, "a", 3))]
    folded = fold(changes, Pipeline())
    assert folded.rows == {"a": Row(p0(2), 3)}
    assert folded.removed == {}


def test_a_tombstone_for_an_unknown_key_leaves_its_version_and_no_row() -> None:
    folded = fold([(p0(0), TOMBSTONE_A)], Pipeline())
    assert folded.rows == {}
    assert folded.removed == {"a": p0(0)}


def test_a_tombstone_that_marks_writes_a_row_for_an_unknown_key() -> None:
    folded = fold([(p0(0), TOMBSTONE_A)], Pipeline(deletes=Deletes.MARK))
    assert folded.rows == {"a": Row(p0(0), None, None, is_deleted=True)}


@pytest.mark.parametrize(("order", "value"), [(Order.OFFSET, 1), (Order.TIME, None)])
def test_a_marked_row_keeps_its_values_only_where_offsets_order(order: Order, value: int | None) -> None:
    folded = fold([(p0(0), PUT_A), (p0(1), TOMBSTONE_A)], Pipeline(order=order, deletes=Deletes.MARK))
    assert folded.rows == {"a": Row(p0(1), value, None, is_deleted=True)}


def test_a_greater_record_time_wins_over_a_higher_offset() -> None:
    log = one_partition(Produced(PUT_A, time=8), Produced(Record(Kind.PUT, "a", 2), time=7))
    assert fold(in_version_order(log, BY_TIME), BY_TIME).rows == {"a": Row(p0(0), 1)}


def test_of_equal_record_times_the_higher_partition_wins_and_then_the_higher_offset() -> None:
    first = Partition(0, tuple(Produced(Record(Kind.PUT, "a", value), time=7) for value in (1, 2)))
    second = Partition(1, (Produced(Record(Kind.PUT, "a", 3), time=7),))
    two = Log((first, second))
    assert fold(in_version_order(two, BY_TIME), BY_TIME).rows == {"a": Row(Version(0, 1, 0), 3)}
    one = Log((first,))
    assert fold(in_version_order(one, BY_TIME), BY_TIME).rows == {"a": Row(p0(1), 2)}


def test_a_value_that_did_not_travel_is_the_newest_known_one_and_a_delete_ends_it() -> None:
    sent, not_sent = Record(Kind.PUT, "a", 1, "long"), Record(Kind.PUT, "a", 2, "not sent")
    pipeline = Pipeline(may_not_travel=True)
    assert fold([(p0(0), sent), (p0(1), not_sent)], pipeline).rows == {"a": Row(p0(1), 2, "long")}
    after_delete = fold([(p0(0), sent), (p0(1), TOMBSTONE_A), (p0(2), not_sent)], pipeline)
    assert after_delete.rows == {}
    assert after_delete.dead == {p0(2)}


def small(what: frozenset[May] = may(May.LIVE, May.RELOAD, May.RESET)) -> Scenario:
    return Scenario("small", lambda: [one_partition(PUT_A, TOMBSTONE_A)], what, depth=4)


def test_the_smallest_scenario_holds_and_loads_its_log() -> None:
    found = search(small())
    assert found.broken == ""
    assert found.stuck == ""


def test_without_removed_keys_a_reload_brings_a_removed_row_back() -> None:
    found = search(small(), frozenset({Rule.REMOVED_KEYS}))
    assert found.story == ("live run of p0 [0, 2)", "reload of p0 [0, 1)")
    assert found.log == "p0: @0 put a=1, @1 tombstone a"
    assert found.broken == "the table is a=1 (by p0@0), the fold empty"


def test_a_log_that_no_trace_loads_is_found() -> None:
    found = search(small(may(May.RELOAD)))  # a reload reads nothing above the position
    assert found.stuck == "p0: @0 put a=1, @1 tombstone a"


def test_a_key_in_two_partitions_stops_also_when_its_row_was_removed() -> None:
    log = Log((Partition(0, (Produced(PUT_A),)), Partition(1, (Produced(TOMBSTONE_A),))))
    setting = Setting(log, Pipeline(), may(May.LIVE))
    removed = follow(setting, "live run of p1 [0, 1)")
    assert removed.removed == (("a", Version(0, 1, 0)),)
    with pytest.raises(Stopped, match="KeyInTwoPartitions"):
        dict(steps(removed, setting))["live run of p0 [0, 1)"]()


def test_a_reload_that_would_lose_a_row_stops() -> None:
    log = one_partition(PUT_A, Produced(Record(Kind.PUT, "a", 2), Record(Kind.UNREADABLE, "a")))
    setting = Setting(log, Pipeline(), may(May.LIVE, May.RELOAD, May.SETTINGS))
    world = follow(setting, "live run of p0 [0, 2)", "new settings")
    with pytest.raises(Stopped, match="ReloadWouldLose"):
        dict(steps(world, setting))["reload of p0 [1, 2)"]()
    assert dict(steps(world, setting))["reload of p0 [0, 2)"]().table == (("a", Row(p0(0), 1)),)


def test_a_tombstone_expires_after_the_retention_and_its_late_reader_stops() -> None:
    setting = Setting(one_partition(PUT_A, TOMBSTONE_A), Pipeline(), may(May.LIVE, May.COMPACT, May.TICK))
    cleaned = ("live run of p0 [0, 1)", "compaction of p0 below 2")
    kept = follow(setting, *cleaned, "time passes", "compaction of p0 below 2")
    assert kept.kept == (frozenset({1}),)
    gone = follow(setting, *cleaned, "time passes", "time passes", "compaction of p0 below 2")
    assert gone.kept == (frozenset(),)
    with pytest.raises(Stopped, match="DeletesMayBeLost"):
        dict(steps(gone, setting))["live run of p0 [1, 2)"]()


ATTEMPTS = Setting(one_partition(MENDED_A), Pipeline(), may(May.ATTEMPT, May.LOSE_ANSWER))
PLANNED_AND_STAGED = (
    "batch 1 is planned: live run of p0 [0, 1)",
    "attempt 1 claims batch 1",
    "attempt 1 of batch 1 stages 0",
)


def test_what_an_attempt_has_staged_is_nothing_until_it_is_published() -> None:
    staged = follow(ATTEMPTS, *PLANNED_AND_STAGED)
    assert staged.attempts[0].staged == (p0(0),)
    assert staged.table == ()
    assert fold_of(staged, ATTEMPTS).rows == {}


def test_a_publish_that_is_repeated_after_a_lost_answer_changes_nothing() -> None:
    once = follow(ATTEMPTS, *PLANNED_AND_STAGED, "attempt 1 of batch 1 publishes")
    again = dict(steps(once, ATTEMPTS))["attempt 1 of batch 1 publishes again, as it had no answer"]()
    assert once.table == again.table == (("a", Row(p0(0), 1)),)
    assert again.batches[0].effects == 1


def test_an_attempt_is_fenced_by_a_newer_claim() -> None:
    world = follow(ATTEMPTS, *PLANNED_AND_STAGED, "attempt 2 claims batch 1")
    with pytest.raises(Stopped, match="fenced"):
        dict(steps(world, ATTEMPTS))["attempt 1 of batch 1 publishes"]()


STALE = (
    "live run of p0 [0, 1)",
    "batch 1 is planned: reload of p0 [0, 1)",
    "attempt 1 claims batch 1",
    "attempt 1 of batch 1 stages 0",
    "attempt 2 claims batch 1",
    "attempt 2 of batch 1 stages 0",
    "attempt 2 of batch 1 publishes",
    "new settings",
    "reload of p0 [0, 1)",
    "attempt 1 of batch 1 publishes",
)


def two_attempts(*without: Rule) -> Setting:
    return Setting(one_partition(MENDED_A), Pipeline(without=frozenset(without)), TWO_ATTEMPTS.may)


def test_without_the_checks_of_claim_and_state_a_stale_attempt_writes_over_a_newer_one() -> None:
    setting = two_attempts(Rule.CLAIM_CHECK, Rule.STATE_CHECK)
    world = follow(setting, *STALE)
    assert world.table == (("a", Row(p0(0), 1)),)
    assert fold_of(world, setting).rows == {"a": Row(p0(0), 2)}
    assert len(search(TWO_ATTEMPTS, setting.pipeline.without, Checked.PROMISE).story) == len(STALE)


def test_the_check_of_the_state_or_the_check_of_the_claim_keeps_a_stale_attempt_out() -> None:
    kept = follow(two_attempts(Rule.CLAIM_CHECK), *STALE)
    assert kept.table == (("a", Row(p0(0), 2)),)
    with pytest.raises(Stopped, match="fenced"):
        follow(two_attempts(Rule.STATE_CHECK), *STALE)


def test_a_counterexample_is_searched_where_the_rules_are_missed() -> None:
    assert counterexample(frozenset({Rule.NEVER_OLDER})).story == ("live run of p0 [0, 2)", "reload of p0 [0, 1)")


def test_every_rule_is_taken_away_by_a_cut_in_a_scenario_that_holds_with_it() -> None:
    assert {rule for cut in CUTS for rule in cut.rules} == set(Rule)
    assert {cut.scenario.name for cut in CUTS} <= {scenario.name for scenario in SCENARIOS}


def test_every_rule_has_one_row_in_the_page_and_every_row_a_rule() -> None:
    rows = re.findall(r"^\| `([a-z]+(?:-[a-z]+)+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(rows) == sorted(Rule)

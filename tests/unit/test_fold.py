"""What stops the fold of an upsert pipeline, and what its records count as."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from kafka_ingest.errors import (
    AccountingMismatch,
    ConfigError,
    DeletesMayBeLost,
    IngestError,
    KeyInTwoPartitions,
    LogTruncated,
    RebuildWouldRemove,
    ReloadWouldLose,
    StagingLost,
)
from kafka_ingest.protocol.accounting import AppliedChanges, Fold, KeptDeadLetters, Keys
from kafka_ingest.protocol.batch import (
    Batch,
    BatchOutcome,
    BatchStanding,
    BatchState,
    PartitionOutcome,
    RecordCounts,
    Request,
    RunMode,
    RunOptions,
)
from kafka_ingest.protocol.fold import reads_deletes, require_deletes_unexpired, with_dangers
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.publish import publish_batch
from kafka_ingest.protocol.ranges import LogTimes, choose_ranges
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSettings,
    Deletes,
    OrderBy,
    PartitionFaultPolicy,
    UpsertSettings,
    ValueFormat,
    ValueSettings,
)
from tests.builders import (
    NOON,
    batch_settings,
    offset_range,
    partition_state,
    pipeline_settings,
    planned_batch,
    position,
    snapshot,
    view_of,
)

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
SETTINGS = replace(batch_settings(), upsert=UpsertSettings(("id",), OrderBy.OFFSET, Deletes.REMOVE))
KEYS = Keys(2, ("{a}", "{b}"))


def batch_of(options: RunOptions | None = None) -> Batch:
    request = Request("orders", "run-1", parameters=(options or RunOptions()).to_parameters())
    batch = planned_batch(offset_range(0, 0, 10), offset_range(1, 0, 6), request=request)
    return replace(batch, settings=SETTINGS)


#: Partition 0: 6 puts, 3 deletes, a dead letter. Partition 1: 4 puts, a delete, a dead letter.
OUTCOME = BatchOutcome(
    tuple(
        PartitionOutcome(r, RecordCounts(rows=rows, deletes=deletes, dead_letters=1), None, None, None, None)
        for r, rows, deletes in zip(batch_of().ranges, (6, 4), (3, 1), strict=True)
    ),
    winners={0: 7},
)
STAGED = Fold(staged_rows=10, staged_deletes=4)


@dataclass
class ScriptedFold:
    """A publication that has folded as a test says, and remembers whether it wrote anything."""

    found: Fold = STAGED
    dead_letters: int = 2
    applied: Mapping[TopicPartition, AppliedChanges] = field(default_factory=dict)
    was_asked: list[Any] = field(default_factory=list)
    is_written: bool = False
    recorded: BatchOutcome | None = None

    @contextmanager
    def begin(self, batch: Batch) -> Iterator[ScriptedFold]:
        yield self

    def lock_batch(self) -> BatchStanding:
        return BatchStanding(BatchState.PLANNED, 1)

    def advance_positions(self, outcome: BatchOutcome) -> int:
        return len(outcome.partitions)

    def fold(self, outcome: BatchOutcome, options: RunOptions, compacted: frozenset[str] = frozenset()) -> Fold:
        self.was_asked = [options.replace_resolved, options.mode is RunMode.REBUILD]
        return self.found

    def insert_dead_letters(self, outcome: BatchOutcome) -> int:
        return self.dead_letters

    def write_newest(self) -> Mapping[TopicPartition, AppliedChanges]:
        self.is_written = True
        return self.applied

    def record_outcome(self, outcome: BatchOutcome) -> None:
        self.recorded = outcome

    def commit(self) -> None:
        assert self.recorded is not None


def publish(publication: ScriptedFold, options: RunOptions | None = None) -> None:
    publish_batch(batch_of(options), OUTCOME, publication, ledger=None)  # type: ignore[arg-type]


def recorded(publication: ScriptedFold) -> list[RecordCounts]:
    publish(publication)
    assert publication.recorded is not None
    return [part.counts for part in publication.recorded.partitions]


# ----------
# What records count as.


def test_what_was_staged_and_did_not_apply_is_superseded() -> None:
    applied = {P0: AppliedChanges(rows=2, deletes=1), P1: AppliedChanges(deletes=1)}
    assert recorded(ScriptedFold(applied=applied)) == [
        RecordCounts(rows=2, deletes=1, superseded=6, dead_letters=1),
        RecordCounts(rows=0, deletes=1, superseded=4, dead_letters=1),
    ]


def test_a_partition_whose_changes_are_all_outdone_counts_them_as_superseded() -> None:
    assert recorded(ScriptedFold())[0] == RecordCounts(superseded=9, dead_letters=1)


def test_resolved_dead_letters_that_stay_count_as_dead_letters_and_not_as_superseded() -> None:
    kept = (KeptDeadLetters(P0, rows=1, deletes=1),)
    applied = {P0: AppliedChanges(rows=5, deletes=2), P1: AppliedChanges(rows=4, deletes=1)}
    fold = Fold(staged_rows=9, staged_deletes=3, kept=kept)
    assert recorded(ScriptedFold(fold, applied=applied)) == [
        RecordCounts(rows=5, deletes=2, dead_letters=3),
        RecordCounts(rows=4, deletes=1, dead_letters=1),
    ]


# ----------
# What stops it.


@pytest.mark.parametrize(
    ("publication", "error", "what"),
    [
        (ScriptedFold(Fold(9, 4)), StagingLost, "10 rows"),
        (ScriptedFold(Fold(10, 3)), StagingLost, "4 deletes"),
        (ScriptedFold(dead_letters=1), StagingLost, "2 dead letters"),
        (ScriptedFold(Fold(11, 4)), AccountingMismatch, "number of rows"),
        (ScriptedFold(Fold(10, 5)), AccountingMismatch, "number of deletes"),
        (ScriptedFold(dead_letters=3), AccountingMismatch, "number of dead letters"),
        (ScriptedFold(Fold(10, 4, (KeptDeadLetters(P0, rows=1),))), AccountingMismatch, "number of rows"),
        (ScriptedFold(Fold(10, 4, (KeptDeadLetters(P0, deletes=1),))), AccountingMismatch, "number of deletes"),
        (ScriptedFold(Fold(10, 4, (KeptDeadLetters(P0, dead_letters=1),))), AccountingMismatch, "dead letters"),
        (ScriptedFold(replace(STAGED, in_two_partitions=KEYS)), KeyInTwoPartitions, "2 keys, the first {a}, {b}"),
        (ScriptedFold(replace(STAGED, lost=KEYS)), ReloadWouldLose, "2 keys, the first {a}, {b}"),
        (ScriptedFold(replace(STAGED, unread=KEYS)), RebuildWouldRemove, "2 keys, the first {a}, {b}"),
    ],
)
def test_a_fold_stops_before_anything_is_written(
    publication: ScriptedFold, error: type[IngestError], what: str
) -> None:
    with pytest.raises(error) as caught:
        publish(publication)
    assert what in str(caught.value)
    assert not publication.is_written
    assert publication.recorded is None


def test_a_run_of_what_is_left_gives_up_lost_and_unread_keys_and_still_stops_for_two_partitions() -> None:
    left = RunOptions(reload_what_is_left=True)
    publish(ScriptedFold(replace(STAGED, lost=KEYS, unread=KEYS)), left)
    with pytest.raises(KeyInTwoPartitions):
        publish(ScriptedFold(replace(STAGED, in_two_partitions=KEYS)), left)


def test_only_a_rebuild_takes_away_what_it_did_not_read() -> None:
    for options, expected in (
        (RunOptions(), [False, False]),
        (RunOptions(replace_resolved=True), [True, False]),
        (RunOptions(RunMode.REBUILD, reason="r"), [False, True]),
    ):
        publication = ScriptedFold()
        publish(publication, options)
        assert publication.was_asked == expected


def test_keys_of_two_kinds_are_told_together_five_by_name() -> None:
    assert Keys(3, ("{a}", "{b}", "{c}")) + Keys(4, ("{d}", "{e}", "{f}")) == Keys(
        7, ("{a}", "{b}", "{c}", "{d}", "{e}")
    )
    assert str(Keys(1, ("{a}",))) == "1 key, the first {a}"
    assert str(Keys(1_000, ("{a}", "{b}"))) == "1,000 keys, the first {a}, {b}"


# ----------
# Deletes that expire unread.

HOUR_MS = 3_600_000
HOUR = timedelta(hours=1)


def unexpired(
    *,
    now_hours: float,
    caught_up_hours: Mapping[TopicPartition, float] | None = None,
    options: RunOptions | None = None,
) -> Callable[[], None]:
    """A batch planned at hour 0, of a topic whose tombstones stay for an hour."""
    since = {where: NOON + hours * HOUR for where, hours in (caught_up_hours or {}).items()}
    return lambda: require_deletes_unexpired(batch_of(options), {"orders": HOUR_MS}, since, NOON + now_hours * HOUR)


def test_deletes_expire_when_the_retention_has_passed_since_the_log_was_read_to_its_end() -> None:
    unexpired(now_hours=0.5, caught_up_hours={P0: -0.5, P1: 0})()
    with pytest.raises(DeletesMayBeLost) as caught:
        unexpired(now_hours=0.51, caught_up_hours={P0: -0.5, P1: 0})()
    assert "orders[0]" in caught.value.found
    assert "orders[1]" not in caught.value.found


def test_a_first_load_counts_from_its_plan() -> None:
    unexpired(now_hours=1)()
    with pytest.raises(DeletesMayBeLost):
        unexpired(now_hours=1.1)()


def test_a_rebuild_counts_from_its_own_plan_whatever_was_read_before() -> None:
    rebuild = RunOptions(RunMode.REBUILD, reason="r")
    unexpired(now_hours=1, caught_up_hours={P0: -50, P1: -50}, options=rebuild)()
    with pytest.raises(DeletesMayBeLost):
        unexpired(now_hours=1.1, caught_up_hours={P0: 1, P1: 1}, options=rebuild)()


def test_topics_without_compaction_lose_no_deletes_and_unknown_ones_stop() -> None:
    late = NOON + 1_000 * HOUR
    require_deletes_unexpired(batch_of(), {"orders": None}, {}, late)
    with pytest.raises(ConfigError, match="none on orders"):
        require_deletes_unexpired(batch_of(), {"returns": None}, {}, NOON)


@pytest.mark.parametrize(
    ("deletes", "expected"),
    [
        (Deletes.REMOVE, True),
        (Deletes.MARK, True),
        (Deletes.IGNORE, False),
        (Deletes.DEAD_LETTER, False),
        (None, False),
    ],
)
def test_only_deletes_that_change_rows_can_be_missed(deletes: Deletes | None, expected: bool) -> None:
    upsert = UpsertSettings(("id",), OrderBy.OFFSET, deletes) if deletes else None
    assert reads_deletes(replace(batch_settings(), upsert=upsert)) is expected


# ----------
# Ranges.


def chosen_faults(
    batch: BatchSettings, *, loaded_to: int, options: RunOptions | None = None
) -> list[type[IngestError]]:
    """Return the faults of a plan at offset 5 of a log that ends at 10."""
    view = view_of(replace(position(0, 5), loaded_to=loaded_to))
    log = snapshot({"orders": [partition_state(0, 0, 10)]})
    settings = pipeline_settings(batch=batch)
    choice = choose_ranges(settings, view, log, options=options or RunOptions(), times=LogTimes())
    return [fault.error for fault in choice.faults]


def test_the_log_of_a_state_must_reach_what_was_loaded_and_that_of_rows_the_position() -> None:
    assert chosen_faults(SETTINGS, loaded_to=11) == [LogTruncated]
    assert chosen_faults(SETTINGS, loaded_to=10) == []
    assert chosen_faults(batch_settings(), loaded_to=11) == []


def test_a_rebuild_is_of_a_state_and_reads_from_the_log_start_to_the_end() -> None:
    rebuild = RunOptions(RunMode.REBUILD, reason="r")
    assert chosen_faults(batch_settings(), loaded_to=5, options=rebuild) == [ConfigError]
    view, log = view_of(position(0, 5)), snapshot({"orders": [partition_state(0, 2, 10)]})
    choice = choose_ranges(pipeline_settings(batch=SETTINGS), view, log, options=rebuild, times=LogTimes())
    assert [(r.start, r.end) for r in choice.ranges] == [(2, 10)]


def test_a_rebuild_leaves_no_partition_out() -> None:
    view = view_of(position(0, 5), position(1, 5))
    expired = snapshot({"orders": [partition_state(0, 0, 10), partition_state(1, 6, 10)]})
    settings = pipeline_settings(batch=SETTINGS)
    settings = replace(settings, plan=replace(settings.plan, on_partition_fault=PartitionFaultPolicy.LEAVE_OUT))
    live = choose_ranges(settings, view, expired, options=RunOptions(), times=LogTimes())
    assert (len(live.faults), len(live.left_out)) == (0, 1)
    rebuild = choose_ranges(settings, view, expired, options=RunOptions(RunMode.REBUILD), times=LogTimes())
    assert (len(rebuild.faults), len(rebuild.left_out)) == (1, 0)


KEYED = replace(
    SETTINGS,
    value=ValueSettings(
        ValueFormat.JSON_COLUMNS,
        (ColumnSettings("id", "bigint", ("id",), from_key=True), ColumnSettings("of_value", "text", ("of_value",))),
    ),
)


def dangers(
    batch: BatchSettings, *, retention_ms: int | None = None, needs_rebuild: str = ""
) -> tuple[list[type[IngestError]], tuple[str, ...]]:
    """Return faults and warnings of a plan of a topic that has gained a partition."""
    view = replace(view_of(position(0, 5)), needs_rebuild=needs_rebuild)
    log, settings = snapshot({"orders": [partition_state(n, 0, 10) for n in (0, 1)]}), pipeline_settings(batch=batch)
    choice = choose_ranges(settings, view, log, options=RunOptions(), times=LogTimes())
    choice = with_dangers(choice, settings, view, {"orders": retention_ms})
    return [fault.error for fault in choice.faults], choice.warnings


def with_key(*names: str, order: OrderBy = OrderBy.OFFSET) -> BatchSettings:
    return replace(KEYED, upsert=UpsertSettings(names, order, Deletes.REMOVE))


def test_a_compacted_topic_needs_a_key_from_the_records_key() -> None:
    """Compaction keeps the newest record of each record's key, and of no other."""
    assert dangers(with_key("id"), retention_ms=1)[0] == []
    assert dangers(with_key("id", "of_value"), retention_ms=1)[0] == [ConfigError]
    assert dangers(with_key("of_value"))[0] == []


def test_a_partition_that_joins_is_told_where_offsets_order() -> None:
    (warning,) = dangers(with_key("id"))[1]
    assert warning.startswith("orders[1] joined: keys may have moved to it")
    assert dangers(with_key("id", order=OrderBy.RECORD_TIME))[1] == ()


def test_the_need_of_a_rebuild_is_told_with_the_command() -> None:
    told = dangers(with_key("id", order=OrderBy.RECORD_TIME), needs_rebuild="reset, at noon")[1]
    command = 'python -m kafka_ingest run orders --mode rebuild --reason "..."'
    assert told == (f"the table may miss deletes or rows since a reset, at noon: {command}",)

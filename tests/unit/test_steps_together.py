"""Plan, load and audit on fakes of every port."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from kafka_ingest.errors import (
    BatchNotCommitted,
    BrokerUnavailable,
    Busy,
    CommitDidNotHappen,
    Fenced,
    LockTimeout,
    RecordsRefused,
    RetryLater,
    SchemaChangeRefused,
    StagingLost,
    TopicRecreated,
    VersionSkew,
)
from kafka_ingest.protocol.audit import AuditReport, audit_batch, record_announcement
from kafka_ingest.protocol.batch import Batch, BatchState, LoadPhases, RecordCounts, Request, TaskSeconds
from kafka_ingest.protocol.load import LoadPorts, LoadProgress, hold_given_back, load_batch
from kafka_ingest.protocol.plan import PlanPorts, plan_batch, preview_plan
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.staging import NewField, StageProgress, StageResult, StageTask
from kafka_ingest.protocol.target import AddedColumn
from kafka_ingest.report import batch_summary, load_summary
from kafka_ingest.settings import (
    ColumnSettings,
    HoldSettings,
    NewFields,
    OffsetLimit,
    PipelineSettings,
    ValueFormat,
    ValueSettings,
    WatchSettings,
)
from tests.builders import NOON, pipeline_settings
from tests.fakes.database import FakeDatabase
from tests.fakes.ledger import FakeLedger
from tests.fakes.loading import FakeClock, FakeRunner, FakeRunStates, FakeStaging, FakeTarget
from tests.fakes.log import FakeLog
from tests.fakes.publisher import CommitAnswer, FakePublisher
from tests.fakes.schema_evolution import FakeSchemaEvolution

HOLD = HoldSettings()
FIRST, SECOND = Request("orders", "run-1"), Request("orders", "run-2")


@dataclass
class World:
    settings: PipelineSettings
    log: FakeLog
    database: FakeDatabase
    ledger: FakeLedger
    runner: FakeRunner
    publisher: FakePublisher
    runs: FakeRunStates
    clock: FakeClock
    evolution: FakeSchemaEvolution

    def plan(self, request: Request, settings_hash: str = "hash-1") -> Batch:
        ports = PlanPorts(self.ledger, self.log, FakeTarget(), self.runs)
        return plan_batch(self.settings, request, ports, settings_hash=settings_hash)

    def load(
        self,
        batch: Batch,
        report: Callable[[LoadProgress], None] = lambda _: None,
        on_published: Callable[[LoadPhases], None] = lambda _: None,
    ) -> Batch:
        ports = LoadPorts(
            self.ledger, self.log, FakeStaging(self.database), self.runner, self.publisher, self.clock, self.evolution
        )
        return load_batch(batch.batch_id, ports, hold=HOLD, report=report, on_published=on_published)

    def audit(self, batch: Batch, request: Request) -> AuditReport:
        return audit_batch(batch.batch_id, request, self.ledger)

    def run(self, request: Request) -> Batch:
        batch = self.plan(request)
        loaded = batch if batch.state is BatchState.COMMITTED else self.load(batch)
        self.audit(loaded, request)
        return loaded

    def stored_offsets(self) -> list[tuple[int, int]]:
        return sorted((r.partition, r.offset) for r in [*self.database.rows, *self.database.dead_letters])


@pytest.fixture
def world() -> World:
    log, database = FakeLog(), FakeDatabase()
    log.create_topic("orders", partitions=2)
    return World(
        settings=pipeline_settings(),
        log=log,
        database=database,
        ledger=FakeLedger(database),
        runner=FakeRunner(database, log),
        publisher=FakePublisher(database),
        runs=FakeRunStates(),
        clock=FakeClock(),
        evolution=FakeSchemaEvolution(database),
    )


def test_a_plan_compares_the_log_with_what_the_plan_before_it_saw(world: World) -> None:
    world.settings = replace(world.settings, watch=WatchSettings(min_headroom_offsets=1))
    world.log.append("orders", b"1", b"2", b"3")
    assert world.run(FIRST).warnings == ()
    world.log.begin("orders", b"4")
    world.log.delete_records("orders", 0, before=3)
    batch = world.plan(SECOND)
    assert [text.partition(":")[0] for text in batch.warnings] == ["orders[0]", "orders[0]"]
    assert [text.split()[1] for text in batch.warnings] == ["retention", "an"]
    [seen] = [found for found in world.database.observations.values() if found.partition == 0]
    assert (seen.log_start_offset, seen.rate_from_offset, seen.end_offset, seen.high_watermark) == (3, 0, 3, 4)


def test_new_fields_are_a_warning_of_the_batch_and_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    batch = world.settings.batch
    warning = replace(batch, value=replace(batch.value, new_fields=NewFields.WARN))
    world.settings = replace(world.settings, batch=warning)
    world.runner.fields = (NewField(("a",), "jsonb"),)
    world.log.append("orders", b"1")
    expected = "fields of the value that no column reads: $.a"
    assert world.run(FIRST).warnings == (expected,)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [expected]


def test_a_run_stores_every_record_once_and_moves_the_position(world: World) -> None:
    world.log.append("orders", b"a", b"bad", b"c")
    world.log.append("orders", b"d", partition=1)
    batch = world.run(FIRST)
    assert batch.counts == RecordCounts(rows=3, dead_letters=1)
    assert world.stored_offsets() == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert [p.committed_offset for p in world.database.positions_of("orders")] == [3, 1]


def test_only_tasks_that_have_read_refused_records_are_staged_again_and_make_dead_letters_of_them(world: World) -> None:
    world.log.append("orders", *[b"a"] * 30_000)
    world.log.append("orders", *[b"b"] * 30_001, partition=1)
    world.publisher.refused_offsets = {30_000: "not_that"}
    staged: list[int] = []
    run = world.runner.run

    def watched(batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        staged.append(len(tasks))
        return run(batch, tasks)

    world.runner.run = watched  # type: ignore[method-assign]
    assert world.run(FIRST).counts == RecordCounts(rows=60_000, dead_letters=1)
    assert staged == [2, 1]
    [dead] = world.database.dead_letters
    assert (dead.partition, dead.offset, dead.reason) == (1, 30_000, "check_violation")
    assert len(world.database.rows) == 60_000


def test_records_that_are_refused_a_second_time_stop_the_load(world: World) -> None:
    world.log.append("orders", b"a", b"b")
    world.publisher.refused_offsets = {0: "not_that"}
    run = world.runner.run

    def watched(batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        results = run(batch, tasks)
        world.publisher.refused_offsets = {0: "not_that"} if not tasks[0].refused else {1: "not_that_either"}
        return results

    world.runner.run = watched  # type: ignore[method-assign]
    batch = world.plan(FIRST)
    with pytest.raises(RecordsRefused, match="not_that_either"):
        world.load(batch)
    assert world.stored_offsets() == []


def test_running_every_task_of_a_run_again_changes_nothing(world: World) -> None:
    world.log.append("orders", b"a", b"b")
    first = world.run(FIRST)
    world.log.append("orders", b"c")
    assert world.run(FIRST) == world.ledger.batch(first.batch_id)
    assert world.stored_offsets() == [(0, 0), (0, 1)]


def test_the_next_run_continues_where_the_last_one_ended(world: World) -> None:
    world.log.append("orders", b"a", b"b")
    world.run(FIRST)
    world.log.append("orders", b"c")
    batch = world.run(SECOND)
    assert [(r.partition, r.start, r.end) for r in batch.ranges] == [(0, 2, 3)]
    assert world.stored_offsets() == [(0, 0), (0, 1), (0, 2)]


def test_nothing_to_read_is_a_committed_batch_and_still_records_first_positions(world: World) -> None:
    batch = world.run(FIRST)
    assert (batch.state, batch.ranges, batch.counts) == (BatchState.COMMITTED, (), RecordCounts())
    world.log.append("orders", b"a")
    assert world.run(SECOND).counts == RecordCounts(rows=1)


def test_a_second_run_waits_for_a_live_holder_and_takes_over_from_a_dead_one(world: World) -> None:
    world.log.append("orders", b"a")
    abandoned = world.plan(FIRST)
    with pytest.raises(Busy):
        world.plan(SECOND)
    world.database.advance(HOLD.start_timeout_seconds + 1)
    world.run(SECOND)
    superseded = world.ledger.batch(abandoned.batch_id)
    assert superseded is not None
    assert superseded.state is BatchState.SUPERSEDED
    with pytest.raises(Fenced):
        world.load(abandoned)
    assert world.stored_offsets() == [(0, 0)]


def test_a_superseded_request_is_planned_anew(world: World) -> None:
    world.log.append("orders", b"a")
    abandoned = world.plan(FIRST)
    world.runs.finished.add(FIRST)
    world.run(SECOND)
    world.log.append("orders", b"b")
    again = world.run(FIRST)
    assert again.batch_id != abandoned.batch_id
    assert world.stored_offsets() == [(0, 0), (0, 1)]


def test_a_changed_file_makes_a_new_plan_of_a_batch_that_was_not_loaded(world: World) -> None:
    world.log.append("orders", b"a")
    before = world.plan(FIRST)
    after = world.plan(FIRST, settings_hash="hash-2")
    assert after.batch_id != before.batch_id
    with pytest.raises(Fenced):
        world.load(before)
    world.load(after)
    assert world.stored_offsets() == [(0, 0)]


def test_a_zombie_that_staged_before_a_newer_claim_committed_is_fenced_and_ends_green(world: World) -> None:
    world.log.append("orders", b"a", b"b")
    batch = world.plan(FIRST)

    def newer_attempt() -> None:
        world.runner.before_result = lambda: None
        world.load(batch)

    world.runner.before_result = newer_attempt
    loaded = world.load(batch)
    assert loaded.state is BatchState.COMMITTED
    assert world.stored_offsets() == [(0, 0), (0, 1)]


def test_a_fault_of_a_load_names_its_pipeline_and_batch(world: World) -> None:
    world.log.append("orders", b"a")
    batch = world.plan(FIRST)
    newer: list[Batch] = []
    world.runner.before_result = lambda: newer.append(world.ledger.claim(batch.batch_id, 60))
    with pytest.raises(RetryLater) as fault:
        world.load(batch)
    assert (fault.value.pipeline, fault.value.batch_id) == ("orders", batch.batch_id)


def test_a_zombie_asks_for_a_retry_when_the_newer_claim_gives_no_sign_of_life(world: World) -> None:
    world.log.append("orders", b"a")
    batch = world.plan(FIRST)
    newer: list[Batch] = []
    world.runner.before_result = lambda: newer.append(world.ledger.claim(batch.batch_id, 60))
    with pytest.raises(RetryLater, match="no sign of life"):
        world.load(batch)
    assert world.stored_offsets() == []
    world.runner.before_result = lambda: None
    world.load(batch)
    assert world.stored_offsets() == [(0, 0)]


def test_a_fenced_attempt_gives_its_cluster_back_before_it_waits(world: World) -> None:
    world.log.append("orders", b"a")
    batch = world.plan(FIRST)
    world.runner.before_result = lambda: (world.ledger.claim(batch.batch_id, 60), None)[1]
    released: list[bool] = []
    world.clock.on_sleep = lambda: released.append(world.runner.is_released)
    with pytest.raises(RetryLater):
        world.load(batch)
    assert set(released) == {True}


def test_a_zombie_does_not_wait_for_ever_for_a_newer_claim_that_lives_and_does_not_get_on(world: World) -> None:
    world.log.append("orders", b"a")
    batch = world.plan(FIRST)
    newer: list[Batch] = []
    world.runner.before_result = lambda: newer.append(world.ledger.claim(batch.batch_id, 60))
    began = world.clock.now()

    def beat() -> None:
        assert world.clock.now() - began < timedelta(days=1), "it waits for ever"
        world.database.advance(2)
        world.ledger.heartbeat(batch.batch_id, newer[0].claim, step="stage", progress=StageProgress(), hold_seconds=60)

    world.clock.on_sleep = beat
    with pytest.raises(RetryLater, match="does not get on") as caught:
        world.load(batch)
    assert "0 of 1 offsets" in caught.value.found
    waited = (world.clock.now() - began).total_seconds()
    assert HOLD.start_timeout_seconds < waited < HOLD.start_timeout_seconds + 10


def test_a_zombie_waits_while_the_newer_claim_lives(world: World) -> None:
    world.log.append("orders", b"a")
    batch = world.plan(FIRST)
    newer: list[Batch] = []
    world.runner.before_result = lambda: newer.append(world.ledger.claim(batch.batch_id, 60))
    beats = 0

    def beat_and_at_last_commit() -> None:
        nonlocal beats
        beats += 1
        world.database.advance(30)
        world.ledger.heartbeat(
            batch.batch_id,
            newer[0].claim,
            step="stage",
            progress=FakeStaging(world.database).progress(newer[0]),
            hold_seconds=60,
        )
        if beats == 100:
            world.runner.before_result = lambda: None
            world.load(batch)

    world.clock.on_sleep = beat_and_at_last_commit
    assert world.load(batch).state is BatchState.COMMITTED
    assert world.stored_offsets() == [(0, 0)]


def test_rows_of_losing_task_attempts_are_not_published(world: World) -> None:
    world.log.append("orders", b"a", b"bad")
    world.runner.losers = 2
    world.run(FIRST)
    assert world.stored_offsets() == [(0, 0), (0, 1)]


@pytest.mark.parametrize("answer", [CommitAnswer.LOST_BEFORE_COMMIT, CommitAnswer.LOST_AFTER_COMMIT])
def test_a_lost_answer_to_commit_ends_with_one_copy(world: World, answer: CommitAnswer) -> None:
    world.log.append("orders", b"a")
    batch = world.plan(FIRST)
    world.publisher.answer = answer
    if answer is CommitAnswer.LOST_BEFORE_COMMIT:
        with pytest.raises(CommitDidNotHappen):
            world.load(batch)
    world.load(batch)
    assert world.stored_offsets() == [(0, 0)]


def test_staging_emptied_between_stage_and_publish_is_staged_again(world: World) -> None:
    world.log.append("orders", b"a", b"b")
    batch = world.plan(FIRST)
    world.runner.before_result = lambda: world.database.staged.update({(batch.batch_id, 1): []})
    with pytest.raises(StagingLost):
        world.load(batch)
    world.runner.before_result = lambda: None
    world.load(batch)
    assert world.stored_offsets() == [(0, 0), (0, 1)]


def test_a_topic_recreated_while_it_is_read_is_not_published(world: World) -> None:
    world.log.append("orders", b"a", b"b")
    batch = world.plan(FIRST)
    world.runner.before_result = lambda: world.log.recreate_topic("orders", partitions=2)
    with pytest.raises(TopicRecreated):
        world.load(batch)
    assert world.stored_offsets() == []


def test_partitions_added_after_the_plan_are_read_from_their_beginning_by_the_next_run(world: World) -> None:
    world.log.append("orders", b"a")
    batch = world.plan(FIRST)
    world.log.add_partitions("orders", 3)
    world.log.append("orders", b"x", b"y", partition=2)
    world.load(batch)
    world.run(SECOND)
    assert world.stored_offsets() == [(0, 0), (2, 0), (2, 1)]


def test_a_range_of_nothing_but_invisible_offsets_moves_the_position_to_its_end(world: World) -> None:
    transaction = world.log.begin("orders", b"a", b"b")
    transaction.abort()
    batch = world.run(FIRST)
    assert batch.counts == RecordCounts(invisible=3)
    assert world.database.positions_of("orders")[0].committed_offset == 3


def test_the_limit_leaves_the_rest_to_the_next_run(world: World) -> None:
    world.log.append("orders", b"a", b"b", b"c")
    plan = replace(world.settings.plan, limit=OffsetLimit(2))
    world.settings = replace(world.settings, plan=plan)
    assert world.run(FIRST).counts == RecordCounts(rows=2)
    assert world.run(SECOND).counts == RecordCounts(rows=1)
    assert world.stored_offsets() == [(0, 0), (0, 1), (0, 2)]


def test_a_batch_of_another_protocol_version_is_not_loaded(world: World) -> None:
    world.log.append("orders", b"a")
    batch = world.plan(FIRST)
    world.database.batches[batch.batch_id] = replace(batch, protocol_version=batch.protocol_version + 1)
    with pytest.raises(VersionSkew):
        world.load(batch)


def test_a_preview_writes_nothing_and_names_the_ranges(world: World) -> None:
    world.log.append("orders", b"a", b"b")
    ports = PlanPorts(world.ledger, world.log, FakeTarget(), world.runs)
    preview = preview_plan(world.settings, FIRST, ports)
    assert [(r.start, r.end) for r in preview.choice.ranges] == [(0, 2)]
    assert (world.database.batches, world.database.positions) == ({}, {})


def test_kafka_is_asked_after_the_ledger_was_read_and_before_the_plan_is_recorded(world: World) -> None:
    world.log.append("orders", b"a")
    world.run(FIRST)
    assert world.log.questions == ["snapshot", "identity"]


def test_large_records_are_cut_into_as_many_tasks_as_run_at_once(world: World) -> None:
    world.log.append("orders", *[b"x" * 1_000_000] * 20)
    assert world.run(FIRST).counts == RecordCounts(rows=20)
    assert world.runner.cuts == [2]


@pytest.mark.parametrize("values", [[b"x" * 1_000_000] * 15, [b"x" * 300] * 60])
def test_few_and_small_records_stay_one_task(world: World, values: list[bytes]) -> None:
    world.log.append("orders", *values)
    assert world.run(FIRST).counts == RecordCounts(rows=len(values))
    assert world.runner.cuts == [1]


def test_a_load_whose_records_cannot_be_sampled_is_cut_by_offsets_and_succeeds(world: World) -> None:
    world.log.append("orders", *[b"x" * 1_000_000] * 20)
    batch = world.plan(FIRST)
    world.log.failure = BrokerUnavailable("no answer")

    def answer_again() -> None:
        world.log.failure = None

    world.runner.before_result = answer_again
    assert world.load(batch).counts == RecordCounts(rows=20)
    assert world.runner.cuts == [1]
    assert "mean_offset_bytes" in world.log.questions


def test_an_audit_announces_its_own_batch_first_and_then_those_nobody_announced(world: World) -> None:
    world.log.append("orders", b"a")
    orphan = world.load(world.plan(FIRST))
    world.log.append("orders", b"b")
    own = world.load(world.plan(SECOND))
    report = world.audit(own, SECOND)
    assert [b.batch_id for b in report.announced] == [own.batch_id, orphan.batch_id]
    assert [b.batch_id for b in world.audit(own, SECOND).announced] == [own.batch_id, orphan.batch_id]
    record_announcement(report, world.ledger)
    assert [b.batch_id for b in world.ledger.unannounced("orders", Request("orders", "a later run"))] == []


def test_an_audit_by_itself_stores_no_announcement(world: World) -> None:
    world.log.append("orders", b"a")
    own = world.load(world.plan(FIRST))
    world.audit(own, FIRST)
    assert [b.batch_id for b in world.ledger.unannounced("orders", SECOND)] == [own.batch_id]


def test_a_load_marked_successful_by_hand_does_not_pass_the_audit(world: World) -> None:
    world.log.append("orders", b"a")
    batch = world.plan(FIRST)
    with pytest.raises(BatchNotCommitted):
        world.audit(batch, FIRST)


def test_a_load_says_where_its_time_went(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def taking(seconds: int, call: Callable[..., Any]) -> Callable[..., Any]:
        def later(*args: object, **kwargs: object) -> Any:
            world.clock.time += timedelta(seconds=seconds)
            return call(*args, **kwargs)

        return later

    def timed(batch: Batch, tasks: Sequence[StageTask]) -> list[StageResult]:
        return [replace(result, seconds=TaskSeconds(1.0, 2.0, 3.5)) for result in run(batch, tasks)]

    world.log.append("orders", b"a")
    run = taking(7, world.runner.run)
    monkeypatch.setattr(world.runner, "parallelism", taking(3, world.runner.parallelism))
    monkeypatch.setattr(world.runner, "run", timed)
    monkeypatch.setattr(world.log, "identity", taking(2, world.log.identity))
    published: list[LoadPhases] = []
    batch = world.load(world.plan(FIRST), on_published=published.append)
    assert published == [LoadPhases(session=3, stage=7, publish=2, tasks=TaskSeconds(1.0, 2.0, 3.5))]
    assert load_summary(batch, published[0])["phases"] == {
        "session": 3,
        "stage": 7,
        "publish": 2,
        "tasks": {"read": 1.0, "decode": 2.0, "copy": 3.5},
    }
    assert load_summary(batch, None) == {**batch_summary(batch), "phases": None}


def test_a_batch_that_was_committed_before_says_nothing_of_time(world: World) -> None:
    world.log.append("orders", b"a")
    batch = world.run(FIRST)
    published: list[LoadPhases] = []
    world.load(batch, on_published=published.append)
    assert published == []


def test_a_summary_is_small_and_json_safe(world: World) -> None:
    world.log.append("orders", b"a", b"b", partition=1)
    summary = batch_summary(world.run(FIRST))
    assert summary["ranges"] == {"orders": {"1": [0, 2]}}
    assert summary["committed_offsets"] == {"orders": {"1": 2}}
    zero = dict.fromkeys(("deletes", "superseded", "dead_letters", "tombstones", "filtered", "invisible"), 0)
    assert summary["counts"] == {"rows": 2, **zero}


def test_the_position_holds_the_leader_epoch_of_what_ended_the_range(world: World) -> None:
    world.log.append("orders", b"a")
    world.log.partition(TopicPartition("orders", 0)).leader_epoch = 4
    world.run(FIRST)
    assert world.database.positions_of("orders")[0].leader_epoch == 4


def test_a_load_that_fails_gives_its_hold_back_and_the_next_run_does_not_wait(world: World) -> None:
    def fail() -> None:
        raise BrokerUnavailable("the broker is away")

    world.log.append("orders", b"a")
    first = world.plan(FIRST)
    world.runner.before_result = fail
    with pytest.raises(BrokerUnavailable):
        world.load(first)
    world.runner.before_result = lambda: None
    assert world.run(SECOND).state is BatchState.COMMITTED
    assert world.database.batches[first.batch_id].state is BatchState.SUPERSEDED


def test_a_fenced_load_leaves_the_hold_to_the_newer_claim(world: World) -> None:
    world.log.append("orders", b"a")
    batch = world.plan(FIRST)

    def lose_and_fail() -> None:
        world.ledger.claim(batch.batch_id, 60)
        raise BrokerUnavailable("the broker is away")

    world.runner.before_result = lose_and_fail
    with pytest.raises(BrokerUnavailable):
        world.load(batch)
    with pytest.raises(Busy):
        world.plan(SECOND)


@pytest.mark.parametrize("claims", [0, 1])
def test_a_job_that_never_started_or_was_killed_has_its_hold_given_back(world: World, claims: int) -> None:
    world.log.append("orders", b"a")
    batch = world.plan(FIRST)

    def interrupted() -> None:
        with hold_given_back(batch, world.ledger):
            for _ in range(claims):
                world.ledger.claim(batch.batch_id, 60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert world.plan(SECOND).batch_id != batch.batch_id


# Fields that no column reads, where the pipeline adds columns for them.

TOTAL, NOTE = NewField(("order", "total"), "jsonb"), NewField(("note",), "jsonb")


@pytest.fixture
def evolving(world: World) -> World:
    """A pipeline that adds columns, with records that have two fields which no column reads."""
    value = ValueSettings(
        ValueFormat.JSON_COLUMNS, (ColumnSettings("id", "bigint", ("id",)),), new_fields=NewFields.ADD_COLUMN
    )
    world.settings = pipeline_settings(batch=replace(world.settings.batch, value=value))
    world.runner.fields = (NOTE, TOTAL)
    world.log.append("orders", b"a", b"bad", b"c")
    return world


def test_a_batch_with_new_fields_is_staged_once_more_with_their_columns_and_only_then_published(
    evolving: World,
) -> None:
    batch = evolving.run(FIRST)
    assert evolving.runner.passes == [(1, ("id",)), (2, ("id", "note", "order_total"))]
    assert (batch.claim, batch.counts) == (2, RecordCounts(rows=2, dead_letters=1))
    assert evolving.stored_offsets() == [(0, 0), (0, 1), (0, 2)]
    assert {name: type_ for name, type_ in evolving.database.tables["shop", "orders"].items() if name[0] in "no"} == {
        "note": "jsonb",
        "order_total": "jsonb",
    }
    assert evolving.database.staged == {}


def test_the_next_batch_reads_added_columns_from_the_beginning(evolving: World) -> None:
    evolving.run(FIRST)
    evolving.log.append("orders", b"d")
    evolving.run(SECOND)
    assert evolving.runner.passes[2:] == [(1, ("id", "note", "order_total"))]


def test_an_added_column_changes_no_plan_and_no_hash(evolving: World) -> None:
    first = evolving.run(FIRST)
    evolving.log.append("orders", b"d")
    second = evolving.plan(SECOND)
    assert (first.settings, first.settings_hash) == (second.settings, second.settings_hash)
    assert evolving.plan(SECOND).batch_id == second.batch_id


def test_a_batch_that_meets_new_fields_in_a_later_pass_is_staged_again_and_again(evolving: World) -> None:
    evolving.runner.fields = (NOTE,)

    def another_appears() -> None:
        number = len(evolving.runner.passes)
        evolving.runner.fields = (*evolving.runner.fields, NewField((f"f{number}",), "jsonb"))[:3]

    evolving.runner.before_result = another_appears
    batch = evolving.run(FIRST)
    assert [claim for claim, _ in evolving.runner.passes] == [1, 2, 3, 4]
    assert evolving.runner.passes[-1][1] == ("id", "note", "f1", "f2")
    assert batch.counts == RecordCounts(rows=2, dead_letters=1)


def test_fields_that_never_end_stop_the_batch_after_ten_columns(evolving: World) -> None:
    def another_appears() -> None:
        number = len(evolving.runner.passes)
        evolving.runner.fields = (*evolving.runner.fields, NewField((f"f{number}",), "jsonb"))

    evolving.runner.fields = (NOTE,)
    evolving.runner.before_result = another_appears
    with pytest.raises(SchemaChangeRefused, match="at most 10 are added for one batch"):
        evolving.run(FIRST)
    assert len(evolving.runner.passes) == 11
    assert evolving.stored_offsets() == []


@pytest.mark.parametrize("policy", [NewFields.IGNORE, NewFields.WARN, NewFields.DEAD_LETTER])
def test_no_other_policy_adds_a_column(evolving: World, policy: NewFields) -> None:
    batch = evolving.settings.batch
    evolving.settings = pipeline_settings(batch=replace(batch, value=replace(batch.value, new_fields=policy)))
    before = dict(evolving.database.tables["shop", "orders"])
    assert evolving.run(FIRST).claim == 1
    assert evolving.database.tables["shop", "orders"] == before


def test_a_batch_that_stops_anyway_alters_nothing(evolving: World) -> None:
    evolving.runner.before_result = lambda: evolving.log.recreate_topic("orders", partitions=2)
    batch = evolving.plan(FIRST)
    with pytest.raises(TopicRecreated):
        evolving.load(batch)
    assert evolving.database.added == {}


def test_fields_that_appear_when_refused_records_are_staged_again_are_not_published_without_a_column(
    evolving: World,
) -> None:
    evolving.runner.fields = ()
    evolving.publisher.refused_offsets = {2: "not_that"}

    def field_appears() -> None:
        evolving.runner.fields = (NOTE,)

    evolving.runner.before_result = field_appears
    batch = evolving.run(FIRST)
    assert batch.counts == RecordCounts(rows=1, dead_letters=2)
    # Staged, the refused records once more, with the column, the refused records once more.
    assert evolving.runner.passes == [(1, ("id",)), (1, ("id",)), (2, ("id", "note")), (2, ("id", "note"))]


def test_an_attempt_that_was_fenced_while_it_staged_adds_no_column(evolving: World) -> None:
    batch = evolving.plan(FIRST)

    def newer_attempt() -> None:
        evolving.runner.before_result = lambda: None
        evolving.runner.fields = ()
        evolving.load(batch)

    run = evolving.runner.run

    def watched(batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        results = run(batch, tasks)
        return [replace(result, new_fields=(NOTE,)) for result in results] if batch.claim == 1 else results

    evolving.runner.run = watched  # type: ignore[method-assign]
    evolving.runner.before_result = newer_attempt
    assert evolving.load(batch).state is BatchState.COMMITTED
    assert evolving.database.added == {}
    assert evolving.stored_offsets() == [(0, 0), (0, 1), (0, 2)]


def test_a_load_that_fails_in_its_second_pass_gives_back_the_hold_of_its_second_claim(evolving: World) -> None:
    def fail_later() -> None:
        if len(evolving.runner.passes) == 2:
            raise BrokerUnavailable("the broker is away")

    batch = evolving.plan(FIRST)
    evolving.runner.before_result = fail_later
    with pytest.raises(BrokerUnavailable):
        evolving.load(batch)
    evolving.runner.before_result = lambda: None
    later = evolving.run(SECOND)
    assert later.state is BatchState.COMMITTED
    assert evolving.runner.passes[-1] == (1, ("id", "note", "order_total"))


def test_a_job_that_was_killed_in_its_second_pass_has_its_hold_given_back(evolving: World) -> None:
    batch = evolving.plan(FIRST)

    def interrupted() -> None:
        with hold_given_back(batch, evolving.ledger):
            evolving.ledger.claim(batch.batch_id, 60)
            evolving.ledger.claim(batch.batch_id, 60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert evolving.plan(SECOND).batch_id != batch.batch_id


def test_the_heartbeat_of_a_pass_has_ended_before_the_next_claim(evolving: World) -> None:
    claim, beating = evolving.ledger.claim, []

    def watched(batch_id: str, seconds: int) -> Batch:
        beating.append([thread.name for thread in threading.enumerate() if thread.name == "heartbeat"])
        return claim(batch_id, seconds)

    evolving.ledger.claim = watched  # type: ignore[method-assign, assignment]
    evolving.run(FIRST)
    assert beating == [[], []]


def test_a_batch_that_another_attempt_published_before_the_second_claim_is_done(evolving: World) -> None:
    batch, add_columns = evolving.plan(FIRST), evolving.evolution.add_columns

    def then_another_attempt(claimed: Batch, fields: Sequence[NewField]) -> Sequence[AddedColumn]:
        added = add_columns(claimed, fields)
        evolving.load(batch)
        return added

    evolving.evolution.add_columns = then_another_attempt  # type: ignore[method-assign, assignment]
    assert evolving.load(batch).state is BatchState.COMMITTED
    assert [claim for claim, _ in evolving.runner.passes] == [1, 2]
    assert evolving.stored_offsets() == [(0, 0), (0, 1), (0, 2)]


def test_a_table_that_others_use_is_asked_for_again_before_all_is_read_again(evolving: World) -> None:
    add_columns, refusals = evolving.evolution.add_columns, [LockTimeout("somebody reads"), LockTimeout("and another")]

    def busy_table(batch: Batch, fields: Sequence[NewField]) -> Sequence[AddedColumn]:
        if refusals:
            raise refusals.pop()
        return add_columns(batch, fields)

    evolving.evolution.add_columns = busy_table  # type: ignore[method-assign]
    began = evolving.clock.now()
    assert evolving.run(FIRST).counts == RecordCounts(rows=2, dead_letters=1)
    assert len(evolving.runner.passes) == 2
    assert evolving.clock.now() - began == timedelta(seconds=10)


def test_a_table_that_others_never_leave_ends_the_load_for_a_retry(evolving: World) -> None:
    def busy_table(batch: Batch, fields: Sequence[NewField]) -> Sequence[AddedColumn]:
        raise LockTimeout("somebody reads")

    evolving.evolution.add_columns = busy_table  # type: ignore[method-assign]
    batch = evolving.plan(FIRST)
    with pytest.raises(LockTimeout):
        evolving.load(batch)
    assert evolving.clock.now() - NOON == timedelta(seconds=55)

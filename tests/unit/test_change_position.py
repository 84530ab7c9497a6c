"""The step over a ledger and a log in memory: preview, apply, once for each request id, and never under a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import (
    BatchOutstanding,
    BrokerUnavailable,
    ConfigError,
    LedgerMoved,
    RequestChanged,
    StopAndCall,
)
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.changes import ChangePorts, apply_change, preview_change
from kafka_ingest.protocol.decisions import (
    AcceptLoss,
    AcceptRecreation,
    Change,
    ChangeRequest,
    ChangeView,
    LogPlace,
    NewChange,
    RenamePipeline,
    ResetBy,
    ResetToPlace,
    ResetToTime,
    RetireTopic,
)
from kafka_ingest.protocol.ledger_view import PipelineRecord, RecordedChange, ServedTopic
from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.settings import FirstRun, FirstRunKind, IsolationLevel
from tests.builders import offset_range, pipeline_settings, planned_batch
from tests.fakes.database import FakeDatabase
from tests.fakes.ledger import FakePositionLedger
from tests.fakes.log import FakeLog

SETTINGS = pipeline_settings()
P0 = TopicPartition("orders", 0)


class World:
    """Pipeline orders: partition 0 of ten records is loaded to 6, partition 1 of four records to 4."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.log.create_topic("orders", 2)
        self.log.append("orders", *([b"x"] * 10))
        self.log.append("orders", *([b"y"] * 4), partition=1)
        self.database = FakeDatabase()
        self.database.pipelines["orders"] = PipelineRecord(
            "orders",
            "shop",
            "orders",
            self.log.cluster_id,
            IsolationLevel.READ_COMMITTED,
            FirstRun(FirstRunKind.EARLIEST),
            SETTINGS.batch.metadata.identity,
        )
        served = ServedTopic("orders", self.log.cluster_id, "orders")
        self.database.served["shop", "orders", self.log.cluster_id, "orders"] = served
        for number, committed in ((0, 6), (1, 4)):
            topic_id = self.log.topics["orders"].topic_id
            found = Position("orders", number, 0, topic_id, self.log.cluster_id, committed, committed)
            self.database.positions["orders", found.topic_partition] = found
        self.ports = ChangePorts(FakePositionLedger(self.database), self.log)

    def offsets(self) -> list[int]:
        return [position.committed_offset for position in self.database.positions_of("orders")]

    def plan(self) -> Batch:
        batch = planned_batch(offset_range(0, 6, 10))
        self.database.batches[batch.batch_id] = batch
        return batch


@pytest.fixture
def world() -> World:
    return World()


def asked(change: Change, request_id: str = "r1", *, supersede: bool = False, why: str = "because") -> ChangeRequest:
    return ChangeRequest("orders", request_id, change, "ada", why, supersede)


EARLIEST = ResetToPlace(LogPlace.EARLIEST)


def test_a_preview_shows_the_change_and_writes_nothing(world: World) -> None:
    preview = preview_change(SETTINGS, asked(EARLIEST, why=""), world.ports)
    assert [(c.partition, c.read_again) for c in preview.plan.positions] == [(0, (0, 6)), (1, (0, 4))]
    assert (preview.outstanding, preview.recorded) == (None, None)
    assert (world.offsets(), world.database.changes) == ([6, 4], {})


def test_a_preview_gives_faults_and_the_outstanding_batch_as_values(world: World) -> None:
    batch = world.plan()
    preview = preview_change(SETTINGS, asked(RetireTopic("misspelt")), world.ports)
    assert [fault.where for fault in preview.plan.faults] == ["topic misspelt"]
    assert preview.outstanding == batch


def test_a_change_is_made_and_recorded(world: World) -> None:
    recorded = apply_change(SETTINGS, asked(EARLIEST), world.ports)
    assert (recorded.kind, recorded.who, recorded.why, len(recorded.positions)) == ("reset", "ada", "because", 2)
    assert [(p.committed_offset, p.timeline, p.loaded_to) for p in world.database.positions_of("orders")] == [
        (0, 1, 6),
        (0, 1, 4),
    ]


def test_a_time_is_asked_of_the_log(world: World) -> None:
    # Records are a millisecond apart: the third of partition 0 is two after the first.
    first = world.log.partition(P0).entries[0].timestamp_ms
    apply_change(SETTINGS, asked(ResetToTime(first + 2)), world.ports)
    assert world.offsets() == [2, 0]
    assert world.log.questions == ["snapshot", "offsets_at"]


def test_the_same_request_again_gives_what_was_recorded_and_moves_nothing(world: World) -> None:
    first = apply_change(SETTINGS, asked(ResetBy(-2)), world.ports)
    assert apply_change(SETTINGS, asked(ResetBy(-2)), world.ports) == first
    assert preview_change(SETTINGS, asked(ResetBy(-2)), world.ports).recorded == first
    assert world.offsets() == [4, 2]


def test_the_same_request_with_other_arguments_stops(world: World) -> None:
    apply_change(SETTINGS, asked(ResetBy(-2)), world.ports)
    for run in (apply_change, preview_change):
        with pytest.raises(RequestChanged, match="other arguments"):
            run(SETTINGS, asked(ResetBy(-3)), world.ports)
    assert world.offsets() == [4, 2]


def test_another_request_is_another_change(world: World) -> None:
    for request_id in ("r1", "r2"):
        apply_change(SETTINGS, asked(ResetBy(-2), request_id), world.ports)
    assert world.offsets() == [2, 0]


@pytest.mark.parametrize("why", ["", "  \n"])
def test_a_change_needs_a_reason(world: World, why: str) -> None:
    with pytest.raises(ConfigError, match="reason"):
        apply_change(SETTINGS, asked(EARLIEST, why=why), world.ports)
    assert world.offsets() == [6, 4]


def test_a_change_is_refused_while_a_batch_is_outstanding(world: World) -> None:
    batch = world.plan()
    with pytest.raises(BatchOutstanding) as refused:
        apply_change(SETTINGS, asked(EARLIEST), world.ports)
    assert refused.value.batch_id == batch.batch_id
    assert world.offsets() == [6, 4]


def test_a_change_that_is_told_to_supersedes_the_outstanding_batch(world: World) -> None:
    batch = world.plan()
    recorded = apply_change(SETTINGS, asked(EARLIEST, supersede=True), world.ports)
    assert recorded.superseded == batch.batch_id
    assert world.offsets() == [0, 0]


def test_faults_stop_a_change_all_at_once(world: World) -> None:
    world.log.recreate_topic("orders", 1)
    with pytest.raises(StopAndCall, match="orders"):
        apply_change(SETTINGS, asked(EARLIEST), world.ports)
    assert world.offsets() == [6, 4]


def test_a_change_of_what_binds_needs_no_kafka(world: World) -> None:
    world.log.failure = BrokerUnavailable("away")
    apply_change(SETTINGS, asked(RetireTopic("orders")), world.ports)
    assert [s.is_retired for s in world.database.served.values()] == [True]
    renamed = ChangeRequest("sales", "r2", RenamePipeline("orders"), "ada", "because")
    apply_change(replace(SETTINGS, pipeline="sales"), renamed, world.ports)
    assert list(world.database.pipelines) == ["sales"]
    with pytest.raises(BrokerUnavailable):
        apply_change(SETTINGS, asked(EARLIEST, "r3"), ChangePorts(FakePositionLedger(World().database), world.log))


class MovingLedger(FakePositionLedger):
    """Somebody else loads partition 0 on between the first view and the change."""

    def __init__(self, database: FakeDatabase, *, times: int) -> None:
        super().__init__(database)
        self.left = times

    def record_change(self, change: NewChange, seen: ChangeView) -> RecordedChange:
        if self.left:
            self.left -= 1
            key = ("orders", P0)
            read = self.database.positions[key]
            offset = read.committed_offset + 1
            self.database.positions[key] = replace(read, committed_offset=offset, loaded_to=offset)
        return super().record_change(change, seen)


def test_a_change_starts_over_from_where_the_ledger_stands_now(world: World) -> None:
    ports = ChangePorts(MovingLedger(world.database, times=2), world.log)
    recorded = apply_change(SETTINGS, asked(ResetBy(-2)), ports)
    assert world.offsets() == [6, 2]
    assert [c.before.offset for c in recorded.positions if c.before] == [8, 4]


def test_a_ledger_that_never_stands_still_is_left_for_later(world: World) -> None:
    with pytest.raises(LedgerMoved):
        apply_change(SETTINGS, asked(ResetBy(-2)), ChangePorts(MovingLedger(world.database, times=99), world.log))


def test_accepted_loss_and_recreation_follow_the_log(world: World) -> None:
    world.log.delete_records("orders", 0, 9)
    lost = apply_change(SETTINGS, asked(AcceptLoss(), "loss"), world.ports)
    assert ([c.given_up for c in lost.positions], world.offsets()) == ([(6, 9)], [9, 4])
    world.log.recreate_topic("orders", 1)
    world.log.append("orders", b"new")
    recreated = apply_change(SETTINGS, asked(AcceptRecreation(), "new"), world.ports)
    assert [(c.partition, c.after.generation if c.after else None) for c in recreated.positions] == [(0, 1), (1, None)]
    assert [(p.partition, p.committed_offset) for p in world.database.positions_of("orders")] == [(0, 0)]

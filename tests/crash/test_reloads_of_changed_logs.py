"""What was loaded is no longer what the log, the rule or the position says: nothing is lost without being told."""

from __future__ import annotations

import signal

import pytest

from kafka_ingest.cli.command import world_of
from kafka_ingest.errors import ReloadWouldLose
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from kafka_ingest.protocol.changes import apply_change
from kafka_ingest.protocol.decisions import ChangeRequest, ResetToOffsets
from kafka_ingest.settings import PartitionOffset
from sandbox.kafka import KafkaBroker
from tests.crash.changing_topics import ChangingTopic
from tests.crash.eventful_run import EventfulRun
from tests.crash.instructions import Instructions
from tests.crash.mixed_topic import PARTITIONS
from tests.crash.pipeline_at_risk import SECTIONS, PipelineAtRisk
from tests.crash.reloads import WHOLE
from tests.integration.pipeline_under_test import PipelineUnderTest
from tests.services import TopicFactory


def killed_at(pipeline: PipelineAtRisk, event: str, run_id: str, parameters: str = "{}") -> None:
    killed = pipeline.start(Instructions(pipeline.name, run_id, parameters, stop_at=event))
    assert killed.end() == -signal.SIGKILL, killed.output


def test_tombstones_that_were_dead_letters_and_are_counted_by_now_are_no_loss_when_a_reload_is_killed(
    pipeline: PipelineAtRisk,
) -> None:
    sections = {**SECTIONS, "limit": {"offsets_per_run": WHOLE.loaded_offsets}}
    pipeline.files.write(pipeline.topic.name, **{**sections, "tombstones": "dead_letter"})
    pipeline.run("before")
    before = pipeline.owners()
    # 20 values and two tombstones in each partition.
    assert before.total() == 3 * 22
    pipeline.files.write(pipeline.topic.name, **sections)
    parameters = WHOLE.parameters(pipeline.topic.name)
    killed_at(pipeline, "load.publication.replace:after", "reload", parameters)
    assert pipeline.owners() == before
    batch = pipeline.run("reload", parameters)
    assert batch.counts is not None
    assert batch.counts.tombstones == 3 * 2
    assert pipeline.owners() == WHOLE.owners_after(before, pipeline, batch.batch_id) - before
    pipeline.require_every_record_once()


def test_records_that_compaction_took_stop_a_reload_with_the_table_untouched_until_told_that_they_may_go(
    raw_pipeline: PipelineUnderTest, kafka_broker: KafkaBroker, topic: TopicFactory
) -> None:
    """12 values of four keys are loaded; then the log holds the last one of each key, offsets 8 to 11."""
    changing = ChangingTopic(kafka_broker.bootstrap, topic())
    raw_pipeline.write(changing.name)
    for number in range(12):
        changing.produce([b"%d" % number], key=b"%d" % (number % 4))
    old = EventfulRun("events").run("before").batch_id
    changing.compact(below=12, left=4)

    def asked(*, is_left: bool) -> str:
        span = OffsetSpan(changing.name, 0, 0, 12)
        return RunOptions(RunMode.RELOAD, offsets=(span,), reload_what_is_left=is_left, reason="test").to_parameters()

    def rows() -> list[tuple[object, ...]]:
        return raw_pipeline.rows("kafka_offset, payload, batch_id::text")

    for _ in range(2):
        with pytest.raises(ReloadWouldLose, match=r"8 gone, the first at 0, 1, 2, 3, 4"):
            EventfulRun("events", parameters=asked(is_left=False)).run("reload")
        assert rows() == [(offset, b"%d" % offset, old) for offset in range(12)]
    new = EventfulRun("events", parameters=asked(is_left=True)).run("reload what is left").batch_id
    assert rows() == [(offset, b"%d" % offset, new) for offset in range(8, 12)]
    EventfulRun("events").run("goes on")
    assert raw_pipeline.rows("kafka_offset, payload")[:4] == [(offset, b"%d" % offset) for offset in range(8, 12)]
    assert raw_pipeline.command("audit", "events")[:2] == (0, [])


@pytest.mark.parametrize("event", ["load.publication.replace:after", "load.publication.commit:after"])
def test_live_runs_after_a_backward_reset_replace_once_when_they_are_killed(
    pipeline: PipelineAtRisk, event: str
) -> None:
    """Everything was loaded, 29 offsets of each partition; a reset to offset 5 leaves 24 of each to read again."""
    before = WHOLE.load_before(pipeline)
    pipeline.files.write(pipeline.topic.name, **{**SECTIONS, "limit": {"offsets_per_run": 40}})
    set_back(pipeline, to=5)
    assert pipeline.owners() == before
    killed_at(pipeline, event, "live")
    pipeline.require_invariants()
    assert (pipeline.owners() == before) is (event == "load.publication.replace:after")

    batch = pipeline.run("live")
    # 40 of 72 offsets, a third of them in each partition: 14, 13 and 13.
    assert sorted((r.start, r.end, r.loaded_to, r.timeline) for r in batch.ranges) == [
        (5, 18, 29, 1),
        (5, 18, 29, 1),
        (5, 19, 29, 1),
    ]
    ends = {r.partition: r.end for r in batch.ranges}
    assert {(p, o) for p, o, owner in pipeline.owners() if owner == batch.batch_id} == {
        (p, o) for p, o, _ in pipeline.topic.records if 5 <= o < ends[p]
    }
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_value_once()
    old = {owner for _, _, owner in before}
    assert {(o, owner in old) for _, o, owner in pipeline.owners()} == {
        (o, o < 5) for _, o, _ in pipeline.topic.records
    }


def set_back(pipeline: PipelineAtRisk, *, to: int) -> None:
    """Sets every position of the mixed topic to an offset below it."""
    settings = find_pipeline(pipeline.name)
    offsets = tuple(PartitionOffset(pipeline.topic.name, number, to) for number in range(PARTITIONS))
    request = ChangeRequest(pipeline.name, "set back", ResetToOffsets(offsets), who="test", why="a crash test")
    apply_change(settings, request, world_of(settings).change_ports())

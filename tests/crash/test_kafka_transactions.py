"""Producer transactions of every ending at every place of a range, through the whole load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from sandbox.kafka import KafkaBroker
from tests.crash.changing_topics import ChangingTopic
from tests.crash.eventful_run import EventfulRun
from tests.integration.pipeline_under_test import PipelineUnderTest
from tests.services import KAFKA_SECONDS, ProducerFactory, TopicFactory

#: Who writes: records without a transaction.
PLAIN = "plain"
#: ``(who, 3)`` writes three records, ``(who, "commit")`` or ``(who, "abort")`` ends the transaction of that producer.
Step = tuple[str, int | str]


@dataclass
class Writers:
    """Producers of one topic, by name; each but :data:`PLAIN` has a transaction of its own."""

    topic: ChangingTopic
    factory: Callable[..., Any]
    open: dict[str, Any] = field(default_factory=dict)

    def write(self, steps: Sequence[Step]) -> None:
        for who, what in steps:
            if who == PLAIN:
                self.topic.produce([b"x"] * int(what))
            elif isinstance(what, int):
                self._send(who, what)
            elif what == "commit":
                self.open.pop(who).commit_transaction(KAFKA_SECONDS)
            else:
                self.open.pop(who).abort_transaction(KAFKA_SECONDS)

    def abort_all(self) -> None:
        for producer in self.open.values():
            producer.abort_transaction(KAFKA_SECONDS)

    def _send(self, who: str, count: int) -> None:
        if who not in self.open:
            self.open[who] = self.factory(transactional_id=f"{self.topic.name}-{who}")
            self.open[who].init_transactions(KAFKA_SECONDS)
            self.open[who].begin_transaction()
        for _ in range(count):
            self.open[who].produce(self.topic.name, value=b"x", partition=0)
        # What was not sent would be thrown away by an abort.
        assert self.open[who].flush(KAFKA_SECONDS) == 0


@pytest.fixture
def writers(
    kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory, raw_pipeline: PipelineUnderTest
) -> Iterator[Writers]:
    found = Writers(ChangingTopic(kafka_broker.bootstrap, topic()), producer)
    raw_pipeline.write(found.topic.name)
    yield found
    found.abort_all()


def run(pipeline: PipelineUnderTest, run_id: str) -> tuple[list[int], int, int]:
    """Runs once; gives all offsets in the table, the position, and how many offsets of the run had no record."""
    batch = EventfulRun(pipeline.name).run(run_id)
    offsets = [offset for (offset,) in pipeline.rows("kafka_offset")]
    [(position,)] = pipeline.query("SELECT committed_offset FROM kafka_ingest.committed_offset")
    assert pipeline.command("audit", pipeline.name)[:2] == (0, [])
    return offsets, position, batch.counts.invisible if batch.counts else 0


@pytest.mark.parametrize(
    ("steps", "offsets", "position", "invisible"),
    [
        pytest.param([("a", 3), ("a", "abort"), (PLAIN, 2)], [4, 5], 6, 4, id="aborted at the head"),
        pytest.param(
            [(PLAIN, 2), ("a", 3), ("a", "abort"), (PLAIN, 2)], [0, 1, 6, 7], 8, 4, id="aborted in the middle"
        ),
        pytest.param([(PLAIN, 2), ("a", 3), ("a", "abort")], [0, 1], 6, 4, id="aborted at the tail"),
        pytest.param([("a", 3), ("a", "abort")], [], 4, 4, id="nothing but aborted"),
        pytest.param([("a", 1), ("a", "abort"), ("b", 1), ("b", "abort")], [], 4, 4, id="aborted again and again"),
        pytest.param([("a", 3), ("a", "commit")], [0, 1, 2], 4, 1, id="committed"),
        # a 0, a 1, b 2, b 3, a 4, marker of b 5, plain 6, marker of a 7
        pytest.param(
            [("a", 2), ("b", 2), ("a", 1), ("b", "abort"), (PLAIN, 1), ("a", "commit")],
            [0, 1, 4, 6],
            8,
            4,
            id="aborted inside a committed one",
        ),
        pytest.param([(PLAIN, 2), ("a", 3)], [0, 1], 2, 0, id="open at the tail"),
        pytest.param([(PLAIN, 2), ("a", 3), (PLAIN, 2)], [0, 1], 2, 0, id="open in the middle"),
        pytest.param([("a", 3), (PLAIN, 2)], [], 0, 0, id="open at the head"),
        # a 0, b 1, marker of b 2: committed, but behind an open one
        pytest.param([("a", 1), ("b", 1), ("b", "commit")], [], 0, 0, id="open before a committed one"),
    ],
)
def test_c16_a_range_ends_at_its_planned_end_whatever_transactions_lie_in_it(
    raw_pipeline: PipelineUnderTest,
    writers: Writers,
    steps: list[Step],
    offsets: list[int],
    position: int,
    invisible: int,
) -> None:
    writers.write(steps)
    assert run(raw_pipeline, "first") == (offsets, position, invisible)
    assert run(raw_pipeline, "nothing new") == (offsets, position, 0)


@pytest.mark.parametrize(
    ("ending", "offsets"),
    [("commit", [0, 1, 2, 3, 4, 5, 6]), ("abort", [0, 1, 5, 6])],
)
def test_c29_what_waited_for_an_open_transaction_is_loaded_once_when_it_ends(
    raw_pipeline: PipelineUnderTest, writers: Writers, ending: str, offsets: list[int]
) -> None:
    """Plain 0 and 1, the transaction's 2 to 4, plain 5 and 6; its marker will be 7."""
    writers.write([(PLAIN, 2), ("a", 3), (PLAIN, 2)])
    assert run(raw_pipeline, "while it is open") == ([0, 1], 2, 0)
    writers.write([("a", ending)])
    assert run(raw_pipeline, "after it has ended") == (offsets, 8, 6 - (len(offsets) - 2))


@pytest.mark.parametrize(
    ("limit", "steps", "runs"),
    [
        # The second range is the marker alone with what follows.
        (3, [("a", 3), ("a", "commit"), (PLAIN, 1)], [([0, 1, 2], 3, 0), ([0, 1, 2, 4], 5, 1)]),
        (1, [("a", 1), ("a", "commit")], [([0], 1, 0), ([0], 2, 1)]),
        # The second range begins inside the aborted transaction.
        (2, [("a", 3), ("a", "abort"), (PLAIN, 1)], [([], 2, 2), ([], 4, 2), ([4], 5, 0)]),
    ],
    ids=["begins on a marker", "is a marker", "begins and ends inside an aborted transaction"],
)
def test_c16_a_limit_may_cut_a_range_anywhere_in_a_transaction(
    raw_pipeline: PipelineUnderTest,
    writers: Writers,
    limit: int,
    steps: list[Step],
    runs: list[tuple[list[int], int, int]],
) -> None:
    raw_pipeline.write(writers.topic.name, limit={"offsets_per_run": limit})
    writers.write(steps)
    assert [run(raw_pipeline, f"run {number}") for number in range(len(runs))] == runs


def test_c01_plan_and_read_share_one_isolation_level(raw_pipeline: PipelineUnderTest, writers: Writers) -> None:
    """Five plain, five aborted, five committed, five open; then the open ones are committed."""
    writers.write([(PLAIN, 5), ("a", 5), ("a", "abort"), ("b", 5), ("b", "commit"), ("c", 5)])
    committed = [*range(5), *range(11, 16)]
    assert run(raw_pipeline, "first") == (committed, 17, 7)
    writers.write([("c", "commit")])
    assert run(raw_pipeline, "second") == ([*committed, *range(17, 22)], 23, 1)


def test_c29_a_transaction_that_hangs_is_told_by_every_plan_while_runs_load_nothing(
    raw_pipeline: PipelineUnderTest, writers: Writers, caplog: pytest.LogCaptureFixture
) -> None:
    """200 were loaded; a transaction is open from 200 on, and the high watermark climbs to 1663."""
    writers.write([(PLAIN, 200)])
    assert run(raw_pipeline, "before") == (list(range(200)), 200, 0)
    writers.write([("a", 1)])
    for number, held_back in enumerate((462, 963, 1463)):
        writers.write([(PLAIN, 200 + held_back - high_watermark(raw_pipeline))])
        caplog.clear()
        assert run(raw_pipeline, f"stalled {number}") == (list(range(200)), 200, 0)
        warning = (
            f"{writers.topic.name}[0]: an open producer transaction holds back {held_back} offsets: readable up to 200"
        )
        assert [line[: len(warning)] for line in caplog.messages if "open producer" in line] == [warning]
        # Since the first plan that saw it, at which 462 offsets waited.
        assert (f"the high watermark climbed by {held_back - 462};" in caplog.text) is (number > 0)
        code, preview, _ = raw_pipeline.command("plan", "events", "--dry-run")
        assert (code, [text[: len(warning)] for text in preview["warnings"]]) == (0, [warning])
    writers.write([("a", "commit")])
    assert run(raw_pipeline, "after") == (list(range(1663)), 1664, 1)
    assert raw_pipeline.command("plan", "events", "--dry-run")[1]["warnings"] == []


def high_watermark(pipeline: PipelineUnderTest) -> int:
    [lag] = pipeline.command("lag", "events")[1]
    return int(lag["end_offset"] + lag["open_transaction_offsets"])

"""Reloads of the mixed topic: what they are asked for, and whose every record is afterwards."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from tests.crash.crash_points import RELOAD_EVERYTHING
from tests.crash.mixed_topic import PARTITIONS
from tests.crash.pipeline_at_risk import SECTIONS, Owners, PipelineAtRisk


@dataclass(frozen=True)
class Reload:
    """One reload, of the same offsets ``[start, end)`` in each partition.

    Attributes:
        name: For the ids of tests.
        start: The first offset.
        end: The first offset that is not read.
        loaded_offsets: How many offsets of the topic a run loads before it.
        is_by_times: Whether its span is one of times, from before the first record on.
    """

    name: str
    start: int
    end: int
    loaded_offsets: int
    is_by_times: bool = False

    def parameters(self, topic: str) -> str:
        """Return the parameters of a run that asks for it."""
        if self.is_by_times:
            return RELOAD_EVERYTHING
        spans = tuple(OffsetSpan(topic, number, self.start, self.end) for number in range(PARTITIONS))
        return RunOptions(RunMode.RELOAD, offsets=spans, reason="a crash test").to_parameters()

    def load_before(self, pipeline: PipelineAtRisk) -> Owners:
        """Loads what is there before, and gives whose every record is."""
        sections = {**SECTIONS, "limit": {"offsets_per_run": self.loaded_offsets}}
        pipeline.files.write(pipeline.topic.name, **sections)
        pipeline.run("before")
        return pipeline.owners()

    def owners_after(self, before: Owners, pipeline: PipelineAtRisk, batch_id: str) -> Owners:
        """Return whose every record is when this batch has reloaded its span: in it all new, beside it all old."""
        kept = {owner: copies for owner, copies in before.items() if not self.start <= owner[1] < self.end}
        read = ((p, o, batch_id) for p, o, _ in pipeline.topic.records.elements() if self.start <= o < self.end)
        return Counter(kept) + Counter(read)


#: Each partition has 29 offsets. All of them were loaded, and are replaced.
WHOLE = Reload("below the position", 0, 29, loaded_offsets=3 * 29, is_by_times=True)
#: A run of 40 offsets leaves positions at 13 and 14: what lies below is replaced, the rest moves the position to 25.
MIXED = Reload("across the position", 5, 25, loaded_offsets=40)

"""What one run is asked to do: the form of a manual run, the interval of a backfill, the options of the command line.

Options are part of the request: they are stored with its batch as canonical JSON, and the same request with other
options stops. Times are milliseconds since 1970 UTC, spans half-open ``[start, end)``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from kafka_ingest.core.batch import BatchKind, Request
from kafka_ingest.core.offsets import TopicPartition


class RunMode(StrEnum):
    """What a run does with the log."""

    LIVE = "live"
    RELOAD = "reload"
    PLAN_ONLY = "plan_only"


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Records from the first one at or after ``start_ms`` up to the first one at or after ``end_ms``.

    By offsets: late records in between belong to it, whatever their time. ``end_ms`` of ``None`` is the end of the log.
    """

    start_ms: int
    end_ms: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class OffsetSpan:
    """Offsets ``[start, end)`` of one partition; ``end`` of ``None`` is the end of the log."""

    topic: str
    partition: int
    start: int
    end: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run.

    Attributes:
        mode: ``live`` goes on from the position, ``reload`` reads a span again, ``plan_only`` shows what ``live`` would
            read (or ``reload``, where a span is given) and writes nothing.
        until_ms: A live run stops before the first record at or after this time; ``None`` reads to the end of the log.
        times: Span of a reload by times.
        offsets: Span of a reload by offsets, ordered; partitions that are not listed are left alone.
        limit_offsets: Limit of a live run instead of that of the pipeline file.
        reload_what_is_left: Goes on where the log no longer holds all of what is to be read again: rows of records that
            compaction or retention took are deleted or stay as the log gives them, instead of stopping the run.
        replace_resolved: A reload replaces dead letters that are marked as resolved, and their rows, too.
        reason: Why, for people.
    """

    mode: RunMode = RunMode.LIVE
    until_ms: int | None = None
    times: TimeSpan | None = None
    offsets: tuple[OffsetSpan, ...] = ()
    limit_offsets: int | None = None
    reload_what_is_left: bool = False
    replace_resolved: bool = False
    reason: str = ""

    @property
    def kind(self) -> BatchKind:
        """Kind of the batch that a run with these options plans."""
        return BatchKind.RELOAD if self.times is not None or self.offsets else BatchKind.LIVE

    def to_parameters(self) -> str:
        """Gives canonical JSON of what differs from the defaults; ``{}`` for a plain run."""
        plain, given = asdict(RunOptions()), asdict(self)
        changed = {key: value for key, value in given.items() if value != plain[key]}
        return json.dumps(changed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def run_options_of(request: Request) -> RunOptions:
    """Reads the options that :meth:`RunOptions.to_parameters` wrote into a request."""
    stored: Mapping[str, Any] = json.loads(request.parameters)
    values = dict(stored)
    if "mode" in values:
        values["mode"] = RunMode(values["mode"])
    if "times" in values:
        values["times"] = TimeSpan(**values["times"])
    if "offsets" in values:
        values["offsets"] = tuple(OffsetSpan(**span) for span in values["offsets"])
    return RunOptions(**values)

"""Cutting the ranges of a batch into tasks: large partitions are split, small ones share a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil

from kafka_ingest.core.dead_letters import RefusedRecord
from kafka_ingest.core.offsets import OffsetRange
from kafka_ingest.core.staging import StageTask, Subrange

#: Below this many offsets another task costs more than it saves: a consumer and two database connections take some
#: tenths of a second, in which one task reads about this much.
MIN_TASK_OFFSETS = 25_000

#: Above this many offsets a task is cut further, so that a lost executor costs seconds and not the whole batch.
MAX_TASK_OFFSETS = 1_000_000


def cut_into_tasks(ranges: Sequence[OffsetRange], parallelism: int) -> tuple[StageTask, ...]:
    """Cuts ranges into disjoint subranges that cover them, grouped into tasks of about equal span.

    Offsets are not records: compacted or aborted stretches make some tasks lighter than planned.

    Args:
        ranges: The batch's ranges.
        parallelism: Tasks that can run at once, at least 1.

    Returns:
        Tasks numbered from 0. Within a task subranges stand in (topic, partition, start) order; their indexes number
        the batch's subranges in that same order.
    """
    total = sum(r.span_offsets for r in ranges)
    if not total:
        return ()
    count = _task_count(total, parallelism)
    subranges = _cut(ranges, max_span=ceil(total / count))
    return tuple(
        StageTask(number, tuple(sorted(group, key=lambda s: s.index)))
        for number, group in enumerate(_pack(subranges, count))
    )


def tasks_with_refused(tasks: Sequence[StageTask], refused: Sequence[RefusedRecord]) -> tuple[StageTask, ...]:
    """Gives the tasks that have read refused records, told which these are; the others stay as they were staged."""
    told = (
        replace(task, refused=tuple(r for r in refused if any(subrange.holds(r) for subrange in task.subranges)))
        for task in tasks
    )
    return tuple(task for task in told if task.refused)


def _task_count(total_offsets: int, parallelism: int) -> int:
    useful = max(1, min(parallelism, total_offsets // MIN_TASK_OFFSETS))
    rounds = ceil(total_offsets / (useful * MAX_TASK_OFFSETS))
    return useful * rounds


def _cut(ranges: Sequence[OffsetRange], max_span: int) -> list[Subrange]:
    subranges: list[Subrange] = []
    for r in sorted(ranges, key=lambda r: (r.topic, r.partition)):
        for start, end in pairwise(_edges(r, max_span)):
            subranges.append(
                Subrange(
                    index=len(subranges),
                    topic=r.topic,
                    partition=r.partition,
                    generation=r.generation,
                    start=start,
                    end=end,
                    leader_epoch=r.leader_epoch if start == r.committed_before else None,
                    replaced_to=r.replaced_to,
                )
            )
    return subranges


def _edges(r: OffsetRange, max_span: int) -> list[int]:
    """Gives where subranges begin and end; one begins at the committed offset, whose leader epoch is checked."""
    pieces = ceil(r.span_offsets / max_span)
    edges = {r.start + r.span_offsets * i // pieces for i in range(pieces + 1)}
    return sorted(edges | ({r.committed_before} if r.committed_before < r.end else set()))


def _pack(subranges: list[Subrange], count: int) -> list[list[Subrange]]:
    """Longest first into the task with the least to do (Graham's LPT rule: at most 4/3 of the best packing)."""
    groups: list[list[Subrange]] = [[] for _ in range(count)]
    loads = [0] * count
    for subrange in sorted(subranges, key=lambda s: (-s.span_offsets, s.index)):
        lightest = loads.index(min(loads))
        groups[lightest].append(subrange)
        loads[lightest] += subrange.span_offsets
    return [group for group in groups if group]

"""What the ledger says of one topic: which offsets are loaded now, which were given up, what each range counted.

Publications and roll-backs are played in the order in which PostgreSQL committed them. A position change moves no rows:
a forward one only says which offsets may be missing, unless something loaded them before or after.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg2

#: Disjoint half-open spans ``(start, end)`` of offsets, in order.
Spans = tuple[tuple[int, int], ...]

# Both times are taken by the server's clock while the transaction holds the locks on the positions that it changes.
_EVENTS = """
    SELECT r.partition, r.range_start, r.range_end, true AS is_loaded, b.committed_at AS at
      FROM kafka_ingest.batch_partition r JOIN kafka_ingest.batch b USING (batch_id)
     WHERE r.topic = %(topic)s AND r.published
    UNION ALL
    SELECT partition, to_offset, from_offset, false, at
      FROM kafka_ingest.position_change
     WHERE topic = %(topic)s AND kind = 'rolled_back'
     ORDER BY at
"""
_GIVEN_UP = """
    SELECT partition, (details->'given_up'->>0)::bigint, (details->'given_up'->>1)::bigint
      FROM kafka_ingest.position_change
     WHERE topic = %(topic)s AND jsonb_array_length(coalesce(details->'given_up', '[]')) = 2
"""
_COUNTED = """
    SELECT partition, range_start, range_end, tombstones
      FROM kafka_ingest.batch_partition WHERE topic = %(topic)s AND published
"""

_INTERVENTIONS = """
    SELECT CASE kind WHEN 'reset' THEN CASE WHEN details ? 'given_up' THEN 'resets forwards' ELSE 'resets backwards' END
                     WHEN 'lag_skipped' THEN 'lag skips' WHEN 'rolled_back' THEN 'roll-backs' ELSE kind END AS what,
           count(DISTINCT request_id)
      FROM kafka_ingest.position_change WHERE kind <> 'initialised' GROUP BY what
    UNION ALL
    SELECT CASE parameters::jsonb ->> 'mode' WHEN 'rebuild' THEN 'rebuilds' ELSE 'reloads' END, count(*)
      FROM kafka_ingest.batch WHERE kind = 'reload' AND rows IS NOT NULL GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class CountedRange:
    """A range that was published, even if it was rolled back later, and the number of tombstones counted in it."""

    partition: int
    start: int
    end: int
    tombstones: int


@dataclass(frozen=True, slots=True)
class LedgerHistory:
    """What became of the offsets of a topic, by partition.

    Attributes:
        loaded: Offsets whose records are in the target, in dead letters or counted now.
        given_up: Offsets that a position change passed over, loaded or not.
        counted: Every published range.
    """

    loaded: Mapping[int, Spans]
    given_up: Mapping[int, Spans]
    counted: tuple[CountedRange, ...] = ()

    def is_given_up(self, partition: int, offset: int) -> bool:
        """Tell whether the record of an offset is in no table because a position change gave it up."""
        loaded, given_up = self.loaded.get(partition, ()), self.given_up.get(partition, ())
        return holds(given_up, offset) and not holds(loaded, offset)

    def miscounted(self, tombstones: Mapping[int, list[int]]) -> int:
        """Return the number of ranges that hold more or fewer tombstones than were counted.

        Args:
            tombstones: Their offsets in the topic by partition, in order.
        """
        return sum(r.tombstones != _between(tombstones.get(r.partition, []), r.start, r.end) for r in self.counted)

    def uncounted(self, tombstones: Mapping[int, list[int]]) -> int:
        """Return the number of tombstones that are in no loaded range, although nobody gave them up."""
        return sum(
            not holds(self.loaded.get(partition, ()), offset) and not self.is_given_up(partition, offset)
            for partition, offsets in tombstones.items()
            for offset in offsets
        )


def read_history(postgres: Mapping[str, Any], topic: str) -> LedgerHistory:
    """Read what the ledger says of a topic that was never re-created, for the one pipeline that loads it.

    Args:
        postgres: Keyword arguments for ``psycopg2.connect``.
        topic: The topic.
    """
    events, given_up, counted = (_fetched(postgres, query, topic) for query in (_EVENTS, _GIVEN_UP, _COUNTED))
    return LedgerHistory(
        loaded=played((partition, start, end, is_loaded) for partition, start, end, is_loaded, _ in events),
        given_up=played((partition, start, end, True) for partition, start, end in given_up),
        counted=tuple(CountedRange(*row) for row in counted),
    )


def count_interventions(postgres: Mapping[str, Any]) -> Counter[str]:
    """Count the position changes by kind, each request once, and the batches that reloaded."""
    return Counter({what: count for what, count in _fetched(postgres, _INTERVENTIONS) if count})


def played(events: Iterable[tuple[int, int, int, bool]]) -> Mapping[int, Spans]:
    """Return what is loaded after ``(partition, start, end, is_loaded)``, in order; not loaded means rolled back."""
    spans: dict[int, Spans] = {}
    for partition, start, end, is_loaded in events:
        before = spans.get(partition, ())
        spans[partition] = joined(before, start, end) if is_loaded else cut(before, start, end)
    return spans


def joined(spans: Spans, start: int, end: int) -> Spans:
    """Return the spans with ``[start, end)``; spans that touch become one."""
    touching = [(a, b) for a, b in spans if a <= end and start <= b]
    one = (min([start, *(a for a, _ in touching)]), max([end, *(b for _, b in touching)]))
    return tuple(sorted([*(span for span in spans if span not in touching), one]))


def cut(spans: Spans, start: int, end: int) -> Spans:
    """Return the spans without ``[start, end)``."""
    parts = [part for a, b in spans for part in ((a, min(b, start)), (max(a, end), b))]
    return tuple((a, b) for a, b in parts if a < b)


def holds(spans: Spans, offset: int) -> bool:
    """Tell whether an offset is in one of the spans."""
    number = bisect_right(spans, offset, key=lambda span: span[0])
    return number > 0 and offset < spans[number - 1][1]


def _fetched(postgres: Mapping[str, Any], query: str, topic: str = "") -> list[tuple[Any, ...]]:
    with closing(psycopg2.connect(**dict[str, Any](postgres))) as connection, connection.cursor() as cursor:
        cursor.execute(query, {"topic": topic})
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _between(offsets: list[int], start: int, end: int) -> int:
    return bisect_left(offsets, end) - bisect_left(offsets, start)

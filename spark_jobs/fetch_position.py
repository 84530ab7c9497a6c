"""Progress that gives no record: the fetch position in librdkafka's statistics."""

from __future__ import annotations

import json

from kafka_ingest.core.staging import Subrange


class FetchPosition:
    """Takes librdkafka's statistics as ``stats_cb`` and tells whether the followed partition's position moves.

    A large aborted transaction gives no record and no event for a long time while it is fetched; ``next_offset`` of
    the partition (STATISTICS.md of librdkafka) moves all the same.
    """

    def __init__(self) -> None:
        self._latest = ""
        self._topic = ""
        self._partition = -1
        self._seen: int | None = None

    def __call__(self, statistics: str) -> None:
        """Takes one document; it is parsed only when someone waits."""
        self._latest = statistics

    def follow(self, subrange: Subrange) -> None:
        """Follows the partition of ``subrange`` from now on."""
        self._topic, self._partition = subrange.topic, subrange.partition
        self._seen = None

    def has_moved(self) -> bool:
        """Whether the position differs from the one at the last question; the first one seen is no movement."""
        latest, self._latest = self._latest, ""
        if not latest:
            return False
        position = json.loads(latest).get("topics", {}).get(self._topic, {}).get("partitions", {})
        offset = position.get(str(self._partition), {}).get("next_offset")
        before, self._seen = self._seen, offset
        return before is not None and offset != before

"""Housekeeping in memory: port ``Housekeeper``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from kafka_ingest.protocol.batch import BatchState
from kafka_ingest.protocol.housekeeping import StagingTable
from kafka_ingest.protocol.staging import staging_name
from tests.fakes.database import FakeDatabase, FakePort


class FakeHousekeeper(FakePort):
    """Every staging of an attempt is one table.

    Attributes:
        in_use: Names of staging tables that somebody reads, and of indexes that are being vacuumed.
        unsummarized: Page ranges that each BRIN index has not summarised.
    """

    def __init__(self, database: FakeDatabase | None = None) -> None:
        super().__init__(database)
        self.in_use: set[str] = set()
        self.unsummarized: dict[str, int] = {}
        #: How many days ago each try of a step began.
        self.attempt_days: list[int] = []

    def staging_tables(self) -> Sequence[StagingTable]:
        return [self._table(*attempt) for attempt in sorted(self.database.staged)]

    def drop_staging_table(self, name: str) -> str:
        if name in self.in_use:
            return "canceling statement due to lock timeout"
        staged = self.database.staged
        for attempt in [attempt for attempt in staged if self._table(*attempt).name == name]:
            del staged[attempt]
        return ""

    def delete_superseded_ranges(self, older_than_days: int, *, is_dry_run: bool) -> int:
        batches, latest = self.database.batches, self.database.now - timedelta(days=older_than_days)
        found = [b for b in batches.values() if b.state is BatchState.SUPERSEDED and b.planned_at <= latest]
        if not is_dry_run:
            batches.update({b.batch_id: replace(b, ranges=()) for b in found})
        return sum(len(b.ranges) for b in found)

    def delete_old_attempts(self, older_than_days: int, *, is_dry_run: bool) -> int:
        old = [age for age in self.attempt_days if age >= older_than_days]
        if not is_dry_run:
            self.attempt_days = [age for age in self.attempt_days if age not in old]
        return len(old)

    def brin_indexes(self) -> Sequence[str]:
        return sorted(self.unsummarized)

    def summarize(self, index: str) -> int | str:
        if index in self.in_use:
            return "canceling statement due to lock timeout"
        count, self.unsummarized[index] = self.unsummarized[index], 0
        return count

    def _table(self, batch_id: str, claim: int) -> StagingTable:
        batch = self.database.batches.get(batch_id)
        return StagingTable(
            name=f"{staging_name(batch_id, claim)}_rows",
            batch_id=batch_id,
            claim=claim,
            batch_state=batch.state if batch else None,
            batch_claim=batch.claim if batch else 0,
        )

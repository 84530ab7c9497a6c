"""Step *housekeeping*: find what killed attempts left behind, and delete it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kafka_ingest.protocol.batch import BatchState

# What may go, what was done about it, and the port that does it.

#: A quarter of a year: questions why a batch was superseded come sooner. No decision needs what goes after it.
OLDER_THAN_DAYS = 90
#: A hundred years: PostgreSQL's calendar has room for it.
MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class StagingTable:
    """A staging table and the batch that its name tells.

    Attributes:
        name: Name in the staging schema.
        batch_id: The batch.
        claim: The claim whose attempt made the table.
        batch_state: The batch's state now; ``None`` where the ledger does not know the batch.
        batch_claim: The batch's newest claim; 0 where the ledger does not know the batch.
    """

    name: str
    batch_id: str
    claim: int
    batch_state: BatchState | None
    batch_claim: int

    @property
    def is_leftover(self) -> bool:
        """Whether no attempt can ever publish from it.

        Once true it stays true: a batch never becomes planned again, and its claim never falls. The newest claim of a
        planned batch counts as alive, however long it has been silent: its attempt may only be slow.
        """
        return self.batch_state is not BatchState.PLANNED or self.claim < self.batch_claim


class Chore(StrEnum):
    """Kinds of housekeeping."""

    DROP_STAGING_TABLE = "drop staging table"
    DELETE_SUPERSEDED_RANGES = "delete ranges of superseded batches"
    DELETE_OLD_ATTEMPTS = "delete old attempts"
    SUMMARIZE_INDEX = "summarise BRIN index"


class Outcome(StrEnum):
    """What became of a chore."""

    DONE = "done"
    WOULD_BE_DONE = "would be done"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class ChoreReport:
    """What became of one chore on one table or index.

    Attributes:
        chore: What kind.
        thing: Table or index.
        outcome: What became of it.
        count: Rows deleted, or page ranges summarised; ``None`` where nothing is counted or not done.
        reason: Why it was left; empty otherwise.
    """

    chore: Chore
    thing: str
    outcome: Outcome
    count: int | None = None
    reason: str = ""


class Housekeeper(Protocol):
    """What tidies one database; every method is durable on return and harmless to run twice."""

    def staging_tables(self) -> Sequence[StagingTable]:
        """List all staging tables with what the ledger says of their batches, by name."""

    def drop_staging_table(self, name: str) -> str:
        """Drop a table; return the reason why it stays, or an empty text."""

    def delete_superseded_ranges(self, older_than_days: int, *, is_dry_run: bool) -> int:
        """Delete the ranges of superseded batches of that age and return how many; a dry run only counts them."""

    def delete_old_attempts(self, older_than_days: int, *, is_dry_run: bool) -> int:
        """Delete what became of tries of that age and return how many; a dry run only counts them."""

    def brin_indexes(self) -> Sequence[str]:
        """List the BRIN indexes of all targets, as quoted names."""

    def summarize(self, index: str) -> int | str:
        """Summarise an index; return the number of page ranges, or the reason why it was left."""


# The step.

_RANGES, _ATTEMPTS = "kafka_ingest.batch_partition", "kafka_ingest.attempt"


def keep_house(housekeeper: Housekeeper, *, older_than_days: int, is_dry_run: bool = False) -> tuple[ChoreReport, ...]:
    """Tidy one target database, and return what was done, or in a dry run would be done.

    Leftover staging tables go, never those of a live claim. Of the ledger, ranges of superseded batches go, and what
    became of old tries: no position, row or decision depends on them. Everything else stays for good
    (docs/operating.md, "Housekeeping"). What is in use, or belongs to another role, stays and is named. Each chore is
    durable by itself, so running it again goes on where it stopped; with nothing to do it does nothing.

    Args:
        housekeeper: The database.
        older_than_days: Age of a superseded batch, by the database's clock, from which its ranges go, and of a try.
        is_dry_run: Change nothing.

    Raises:
        DatabaseUnavailable: The server cannot be reached.
        LedgerOutdated: The ledger is missing, or is not the one of this package.
    """

    def ranges() -> int:
        return housekeeper.delete_superseded_ranges(older_than_days, is_dry_run=is_dry_run)

    def attempts() -> int:
        return housekeeper.delete_old_attempts(older_than_days, is_dry_run=is_dry_run)

    return (
        *_drop_staging(housekeeper, is_dry_run),
        *_deleted(Chore.DELETE_SUPERSEDED_RANGES, _RANGES, ranges, is_dry_run),
        *_deleted(Chore.DELETE_OLD_ATTEMPTS, _ATTEMPTS, attempts, is_dry_run),
        *_summarize(housekeeper, is_dry_run),
    )


def _drop_staging(housekeeper: Housekeeper, is_dry_run: bool) -> Iterator[ChoreReport]:
    for table in housekeeper.staging_tables():
        if not table.is_leftover:
            continue
        if is_dry_run:
            yield ChoreReport(Chore.DROP_STAGING_TABLE, table.name, Outcome.WOULD_BE_DONE)
            continue
        reason = housekeeper.drop_staging_table(table.name)
        outcome = Outcome.LEFT if reason else Outcome.DONE
        yield ChoreReport(Chore.DROP_STAGING_TABLE, table.name, outcome, reason=reason)


def _deleted(chore: Chore, table: str, delete: Callable[[], int], is_dry_run: bool) -> Iterator[ChoreReport]:
    count = delete()
    if count:
        yield ChoreReport(chore, table, Outcome.WOULD_BE_DONE if is_dry_run else Outcome.DONE, count)


def _summarize(housekeeper: Housekeeper, is_dry_run: bool) -> Iterator[ChoreReport]:
    for index in housekeeper.brin_indexes():
        if is_dry_run:
            yield ChoreReport(Chore.SUMMARIZE_INDEX, index, Outcome.WOULD_BE_DONE)
            continue
        summarized = housekeeper.summarize(index)
        if isinstance(summarized, str):
            yield ChoreReport(Chore.SUMMARIZE_INDEX, index, Outcome.LEFT, reason=summarized)
        else:
            yield ChoreReport(Chore.SUMMARIZE_INDEX, index, Outcome.DONE, summarized)

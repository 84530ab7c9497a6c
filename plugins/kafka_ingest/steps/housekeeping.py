"""Step *housekeeping*: drop what crashes left, delete old details of the ledger, keep BRIN indexes summarised."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_ingest.core.housekeeping import Chore, ChoreReport, Housekeeper, Outcome

_RANGES = "kafka_ingest.batch_partition"


def keep_house(housekeeper: Housekeeper, *, older_than_days: int, is_dry_run: bool = False) -> tuple[ChoreReport, ...]:
    """Tidies one target database, and says what it did, or in a dry run would do.

    Leftover staging tables go, never those of a live claim. Of the ledger, ranges of superseded batches go: no
    position, row or decision rests on them. Everything else stays for good (docs/operating.md, "Housekeeping"). What
    is in use, or belongs to another role, is left and named. Each chore is durable by itself, so running it again goes
    on where it stopped; with nothing to do it does nothing.

    Args:
        housekeeper: The database.
        older_than_days: Age of a superseded batch, by the database's clock, from which its ranges go.
        is_dry_run: Change nothing.

    Raises:
        DatabaseUnavailable: The server cannot be reached.
        LedgerOutdated: The ledger is missing, or is not the one of this package.
    """
    return (
        *_drop_staging(housekeeper, is_dry_run),
        *_delete_ranges(housekeeper, older_than_days, is_dry_run),
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


def _delete_ranges(housekeeper: Housekeeper, older_than_days: int, is_dry_run: bool) -> Iterator[ChoreReport]:
    count = housekeeper.delete_superseded_ranges(older_than_days, is_dry_run=is_dry_run)
    if count:
        outcome = Outcome.WOULD_BE_DONE if is_dry_run else Outcome.DONE
        yield ChoreReport(Chore.DELETE_SUPERSEDED_RANGES, _RANGES, outcome, count)


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

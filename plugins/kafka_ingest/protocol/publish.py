"""Step *publish*: make a staged batch visible in ONE transaction: rows, dead letters, counts and positions together.

Every check comes before COMMIT, so a failure leaves the database as it was.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest.errors import AccountingMismatch, CommitDidNotHappen, CommitStateUnknown, Fenced, StagingLost
from kafka_ingest.protocol.accounting import require_nothing_lost
from kafka_ingest.protocol.batch import Batch, BatchOutcome, BatchStanding, BatchState, run_options_of
from kafka_ingest.protocol.fold import (
    divided,
    require_no_key_lost,
    require_nothing_unread,
    require_one_partition,
    without_unknown,
)
from kafka_ingest.protocol.ports import Ledger, Publication, Publisher
from kafka_ingest.protocol.target import kept_table, quoted_table


def publish_batch(
    batch: Batch,
    outcome: BatchOutcome,
    publisher: Publisher,
    ledger: Ledger,
    *,
    compacted: frozenset[str] = frozenset(),
) -> None:
    """Publish a claimed batch. Running it again after it was committed changes nothing.

    Durable on return: everything, or (where another attempt had committed before) everything of that attempt.

    Args:
        batch: The claimed batch.
        outcome: What was staged, accounted for.
        publisher: Opens the transaction.
        ledger: Decides a COMMIT whose answer was lost.
        compacted: Topics whose compaction may have taken values that later records leave out.

    Raises:
        Fenced: A newer claim or plan owns the batch.
        Busy: Another session has the batch row locked.
        AccountingMismatch: Positions or counts differ from what was planned and staged.
        StagingLost: Staged rows are missing.
        TargetMismatch: A constraint of the target refused the batch.
        ReloadWouldLose: What would be replaced is no longer in the log.
        CommitStateUnknown: The outcome of COMMIT cannot be learnt yet.
    """
    try:
        with publisher.begin(batch) as publication:
            if not owns(publication.lock_batch(), batch):
                return
            _write(batch, outcome, publication, compacted)
            publication.commit()
    except CommitStateUnknown:
        _settle(batch, ledger)


def _write(batch: Batch, outcome: BatchOutcome, publication: Publication, compacted: frozenset[str]) -> None:
    moved = publication.advance_positions(outcome)
    if moved != len(outcome.partitions):
        raise _mismatch("positions that still stand as planned", len(outcome.partitions), moved)
    if batch.settings.upsert:
        outcome = _fold(batch, outcome, publication, compacted)
    else:
        outcome = _append(batch, outcome, publication)
    publication.record_outcome(outcome)


def _append(batch: Batch, outcome: BatchOutcome, publication: Publication) -> BatchOutcome:
    """Write every staged row, in the place of what was loaded before; return what became of the records."""
    options = run_options_of(batch.request)
    replacement = publication.replace(outcome, with_resolved=options.replace_resolved)
    counts, (kept_rows, kept_dead_letters) = outcome.counts, replacement.staged_but_kept
    _require_staged("rows", counts.rows - kept_rows, publication.insert_rows(outcome))
    dead_letters = counts.dead_letters - kept_dead_letters
    _require_staged("dead letters", dead_letters, publication.insert_dead_letters(outcome))
    # Last: a crash that empties staging loses staged records, which is not the same as records that the log lost.
    if not options.reload_what_is_left:
        require_nothing_lost(replacement.replaced)
    return replacement.outcome_of(outcome)


def _fold(batch: Batch, outcome: BatchOutcome, publication: Publication, compacted: frozenset[str]) -> BatchOutcome:
    """Write the newest staged change of each key, unless what stands is newer; return what became of the records."""
    options = run_options_of(batch.request)
    fold = publication.fold(outcome, options, compacted)
    outcome = without_unknown(batch, outcome, fold)
    counts = outcome.counts
    _require_staged("rows", counts.rows - sum(k.rows for k in fold.kept), fold.staged_rows)
    _require_staged("deletes", counts.deletes - sum(k.deletes for k in fold.kept), fold.staged_deletes)
    dead_letters = counts.dead_letters - sum(k.dead_letters for k in fold.kept)
    _require_staged("dead letters", dead_letters, publication.insert_dead_letters(outcome))
    require_one_partition(fold.in_two_partitions)
    if not options.reload_what_is_left:
        require_no_key_lost(fold.lost)
    require_nothing_unread(fold.unread, is_shown=options.reload_what_is_left)
    outcome = divided(outcome, fold, publication.write_newest())
    if options.into_new_table:
        kept = quoted_table(kept_table(batch.settings.target, batch.batch_id))
        warning = f"the table before the rebuild is kept: DROP TABLE {kept}; frees its space"
        outcome = replace(outcome, warnings=(*outcome.warnings, warning))
    return outcome


def owns(standing: BatchStanding, batch: Batch) -> bool:
    """Tell whether this claim may change the target; ``False`` when the batch is committed already.

    Raises:
        Fenced: It may not.
    """
    if standing.state is BatchState.COMMITTED:
        return False
    if standing.state is BatchState.PLANNED and standing.claim == batch.claim:
        return True
    raise Fenced(
        "this attempt no longer owns the batch and changes nothing",
        expected=f"state planned, claim {batch.claim}",
        found=f"state {standing.state.value}, claim {standing.claim}",
        next_command="none: the newer attempt or plan does the work",
    )


def _settle(batch: Batch, ledger: Ledger) -> None:
    if owns(ledger.settle(batch.batch_id), batch):
        raise CommitDidNotHappen(
            "the connection broke during COMMIT and nothing was committed",
            expected="state committed",
            found="state planned",
            next_command="none: a retry loads the same batch again",
        )


def _require_staged(what: str, expected: int, found: int) -> None:
    if found < expected:
        raise StagingLost(
            f"staged {what} are missing: a crash of PostgreSQL empties unlogged tables",
            expected=f"{expected} {what}",
            found=str(found),
            next_command="none: a retry stages the batch again",
        )
    if found > expected:
        raise _mismatch(what, expected, found)


def _mismatch(what: str, expected: int, found: int) -> AccountingMismatch:
    return AccountingMismatch(
        f"the number of {what} is not the one that the batch accounts for; nothing was published",
        expected=str(expected),
        found=str(found),
    )

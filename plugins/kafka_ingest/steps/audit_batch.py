"""Step *audit*: check the invariants, and choose the committed batches that are to be announced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_ingest.core.batch import Batch, BatchState, Request
from kafka_ingest.core.errors import AccountingMismatch, BatchNotCommitted
from kafka_ingest.core.ports import Ledger, Violation


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The audited batch and every batch that this request announces: its own first, then those of dead runs."""

    batch: Batch
    announced: tuple[Batch, ...]

    @property
    def has_news(self) -> bool:
        """Whether any of the batches loaded something; an empty batch changes nothing for a consumer."""
        return any(batch.ranges for batch in self.announced)


def audit_batch(batch_id: str, request: Request, ledger: Ledger) -> AuditReport:
    """Check every invariant of the pipeline, and choose the batches that this request announces.

    Nothing is stored: whoever has announced them says so by :func:`record_announcement`, and not before, since a run
    that dies in between must leave them to the next one. So announcing is at least once; consumers tell by batch id.

    Args:
        batch_id: The request's batch.
        request: Who asks.
        ledger: The ledger.

    Raises:
        BatchNotCommitted: There is nothing to audit.
        AccountingMismatch: Lists the invariants that do not hold.
    """
    batch = ledger.batch(batch_id)
    if batch is None or batch.state is not BatchState.COMMITTED:
        raise BatchNotCommitted(
            "the batch to audit is not committed",
            expected="state committed",
            found=f"state {batch.state.value}" if batch else "no such batch in the ledger",
            next_command="clear load_batch of this run (Airflow: task load_batch, Clear)",
            batch_id=batch_id,
        )
    require_invariants(batch.pipeline, ledger.violations(batch.pipeline))
    others = [b for b in ledger.unannounced(batch.pipeline, request) if b.batch_id != batch_id]
    return AuditReport(batch, (batch, *others))


def record_announcement(report: AuditReport, ledger: Ledger) -> None:
    """Store that the batches of a report were announced: consumers know of them, or there is nothing to know.

    Durable on return. A batch without ranges counts, too: it needs no announcement, and no later audit looks at it.
    """
    ledger.mark_announced([b.batch_id for b in report.announced], report.batch.request)


def require_invariants(pipeline: str, violations: Sequence[Violation]) -> None:
    """Stops when an invariant returned rows.

    Raises:
        AccountingMismatch: Lists them, the first ten rows at most.
    """
    if violations:
        raise AccountingMismatch(
            "invariants of the ledger do not hold",
            expected="no rows from any query in sql/invariants",
            found="".join(f"\n    {v.invariant}: {v.row}" for v in violations[:10]),
            next_command="see docs/runbook.md, section AccountingMismatch",
            pipeline=pipeline,
        )

"""What the page inside Airflow asks the ledger: read only, in few statements, each with a time-out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime

from kafka_ingest.postgres.database import (
    Cursor,
    Row,
    TransactionLimits,
    connect,
    database_faults,
    fetch_row,
    fetch_rows,
    run_query,
    transaction,
)
from kafka_ingest.postgres.migrations import require_current_ledger
from kafka_ingest.postgres.reports import PostgresReports, ReportRow
from kafka_ingest.postgres.rows import is_batch_id, position_of
from kafka_ingest.protocol.dead_letters import DeadLetterChoice, DeadLetterPlace
from kafka_ingest.protocol.log import Headroom, LogObservation, headrooms
from kafka_ingest.protocol.position import Position
from kafka_ingest.settings import WatchSettings

#: A reader waits for one statement; the page's questions take hundredths of it on a ledger of 5 million rows.
STATEMENT_SECONDS = 5.0
#: The page's own, whatever the connection says: a server that is gone is told of within seconds.
_NETWORK = {"connect_timeout": "3", "tcp_user_timeout": "8000"}
#: More are told as "more than": counting millions takes longer than anybody waits.
MOST_COUNTED = 100_000
_BATCHES, _ATTEMPTS, _CHANGES = 50, 20, 20


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition of a pipeline.

    Attributes:
        position: Where it stands.
        seen: What the newest plan saw of its log; ``None`` where it saw nothing, or another topic of the name.
        batch_id: The batch that last published it.
        is_retired: Whether its topic is read no more.
    """

    position: Position
    seen: Headroom | None
    batch_id: str | None
    is_retired: bool

    @property
    def is_short(self) -> bool:
        """Whether its records may soon be lost, or are."""
        return self.seen is not None and (self.seen.offsets < 0 or self.seen.is_short(WatchSettings()))


@dataclass(frozen=True, slots=True)
class PipelineRows:
    """One pipeline: its row of the overview, partitions (the worst first), and what happened lately."""

    summary: ReportRow
    partitions: Sequence[PartitionRow]
    batches: Sequence[ReportRow]
    attempts: Sequence[ReportRow]
    changes: Sequence[ReportRow]


@dataclass(frozen=True, slots=True)
class BatchRows:
    """One batch: its row, its ranges, its attempts, and its dead letters by reason."""

    batch: ReportRow
    ranges: Sequence[ReportRow]
    attempts: Sequence[ReportRow]
    reasons: Sequence[ReportRow]


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a dead letter's record was."""

    topic: str
    generation: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Which dead letters a page shows: ``is_resolved`` and ``reason`` may be ``None`` for all.

    ``before`` is time and place of the last one of the page before.
    """

    is_resolved: bool | None = False
    reason: str | None = None
    before: tuple[datetime, RecordPlace] | None = None
    limit: int = 50


class PostgresOverview:
    """Questions of the page. Every method is one read-only transaction, which a standby answers, too.

    Each raises ``DatabaseUnavailable`` when no server answers, ``LedgerOutdated`` when the schema is not the one of
    this package, ``RetryLater`` when the server takes too long, and ``ConfigError`` when a right is missing.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.
        statement_seconds: How long one statement may take.
    """

    def __init__(self, params: Mapping[str, object], statement_seconds: float = STATEMENT_SECONDS) -> None:
        self._params = {**params, **_NETWORK}
        self._limits = TransactionLimits(is_snapshot=True, statement_timeout_seconds=statement_seconds)

    def pipelines(self, named: Sequence[str]) -> list[ReportRow]:
        """Return a row for each pipeline of the ledger, and for those named that it does not know yet, by name."""
        with self._snapshot() as cursor:
            return _summaries(cursor, named, only=None)

    def pipeline(self, name: str, most_partitions: int | None) -> PipelineRows:
        """Return what there is of one pipeline; a name that the ledger does not know has a row of NULLs.

        Args:
            name: Its name.
            most_partitions: No more of them are returned; ``None``: all.
        """
        with self._snapshot() as cursor:
            [summary] = _summaries(cursor, [name], only=[name])
            # The first plan of a wide topic writes thousands of rows, of which there are no statistics for a minute:
            # with nested loops 10,000 partitions took 4 seconds, without them 0.1 (PostgreSQL 18).
            run_query(cursor, "prefer_hash_joins", is_wanted=True)
            partitions = fetch_rows(cursor, "overview_partitions", pipeline=name, limit=most_partitions)
            run_query(cursor, "prefer_hash_joins", is_wanted=False)
            return PipelineRows(
                summary,
                [_partition_of(row) for row in partitions],
                fetch_rows(cursor, "overview_batches", pipeline=name, batch_id=None, limit=_BATCHES),
                fetch_rows(cursor, "overview_attempts", pipeline=name, batch_id=None, limit=_ATTEMPTS),
                fetch_rows(cursor, "overview_changes", pipeline=name, limit=_CHANGES),
            )

    def batch(self, batch_id: str) -> BatchRows | None:
        """Return one batch; ``None`` where the ledger has none of this id."""
        if not is_batch_id(batch_id):
            return None
        with self._snapshot() as cursor:
            owner = fetch_row(cursor, "overview_batch", batch_id=batch_id)
            if owner is None:
                return None
            asked = {"pipeline": owner["pipeline"], "batch_id": batch_id}
            [batch] = fetch_rows(cursor, "overview_batches", **asked, limit=1)
            return BatchRows(
                {**batch, "newest_dag_id": owner["dag_id"]},
                fetch_rows(cursor, "overview_ranges", batch_id=batch_id),
                fetch_rows(cursor, "overview_attempts", **asked, limit=_ATTEMPTS),
                fetch_rows(cursor, "count_dead_letters_by_reason", batch_id=batch_id),
            )

    def dead_letters(self, pipeline: str, page: DeadLetterPage) -> tuple[list[ReportRow], list[ReportRow]]:
        """Return counts by reason (of at most :data:`MOST_COUNTED`), and the dead letters of a page, newest first."""
        at, place = page.before or (None, RecordPlace("", 0, 0, 0))
        asked = {"pipeline": pipeline, "is_resolved": page.is_resolved}
        with self._snapshot() as cursor:
            counts = fetch_rows(cursor, "overview_dead_letter_counts", **asked, most=MOST_COUNTED)
            letters = fetch_rows(
                cursor,
                "overview_dead_letters",
                **asked,
                reason=page.reason,
                before_at=at,
                before_topic=place.topic,
                before_generation=place.generation,
                before_partition=place.partition,
                before_offset=place.offset,
                limit=page.limit,
            )
        return counts, letters

    def dead_letter(self, pipeline: str, place: RecordPlace, excerpt: int) -> ReportRow | None:
        """Return one dead letter with the beginning of its bytes; ``None`` where there is none."""
        found = DeadLetterPlace(place.topic, place.partition, place.offset, place.offset + 1)
        choice = DeadLetterChoice(places=(found,), generation=place.generation, limit=1)
        rows = self._reports().dead_letters(pipeline, choice, is_resolved=None, excerpt=excerpt)
        return rows[0] if rows else None

    def all_dead_letters(self, pipeline: str, page: DeadLetterPage) -> Iterator[ReportRow]:
        """Yield dead letters with their original bytes, whole, as ``dead-letters export`` does."""
        choice = DeadLetterChoice(reasons=(page.reason,) if page.reason else ())
        return self._reports().all_dead_letters(pipeline, choice, is_resolved=page.is_resolved)

    def _reports(self) -> PostgresReports:
        return PostgresReports(self._params, self._limits)

    @contextmanager
    def _snapshot(self) -> Iterator[Cursor]:
        with (
            closing(connect(self._params, application_name="kafka_ingest page", read_only=True)) as connection,
            database_faults("read the ledger"),
            transaction(connection, self._limits) as cursor,
        ):
            require_current_ledger(cursor)
            yield cursor


def _partition_of(row: Row) -> PartitionRow:
    position = position_of(row)
    seen = next(iter(headrooms([position], [_observation_of(row)])), None) if row["seen_at"] else None
    return PartitionRow(position, seen, row["batch_id"], row["is_retired"])


def _observation_of(row: Row) -> LogObservation:
    return LogObservation(
        topic=row["topic"],
        partition=row["partition"],
        topic_id=row["seen_topic_id"],
        seen_at=row["seen_at"],
        log_start_offset=row["log_start_offset"],
        end_offset=row["end_offset"],
        high_watermark=row["high_watermark"],
        rate_from_at=row["rate_from_at"],
        rate_from_offset=row["rate_from_offset"],
        next_rate_from_at=row["next_rate_from_at"],
        next_rate_from_offset=row["next_rate_from_offset"],
    )


def _summaries(cursor: Cursor, named: Sequence[str], only: Sequence[str] | None) -> list[Row]:
    return fetch_rows(
        cursor,
        "overview_pipelines",
        named=list(named),
        only=None if only is None else list(only),
        # Pipeline files are not in the ledger: what they warn of by default.
        short_seconds=WatchSettings().min_headroom_seconds,
        most_dead_letters=MOST_COUNTED + 1,
    )

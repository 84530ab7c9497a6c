"""What preflight asks of the target's database: catalog and ledger are read, one transaction a question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from kafka_ingest.adapters.postgres_connection import Cursor, connect, database_faults, transaction
from kafka_ingest.adapters.postgres_migrations import migrations, require_current_ledger
from kafka_ingest.adapters.postgres_rows import fetch_rows
from kafka_ingest.adapters.target_catalog import read_loaded_rows, read_table
from kafka_ingest.adapters.target_checks import Mismatch, missing_table, table_mismatches, weaknesses
from kafka_ingest.core.preflight_facts import Finding, ServerFacts, TargetFacts
from kafka_ingest.core.settings import BatchSettings


class PostgresPreflight:
    """The port ``DatabaseProbe`` on PostgreSQL.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.
    """

    def __init__(self, params: Mapping[str, object]) -> None:
        self._params = params

    def server(self) -> ServerFacts:
        """Describes server, database and role; see the port."""
        with self._transaction("read the server's version") as cursor:
            (row,) = fetch_rows(cursor, "server_version")
            return ServerFacts(row["version"], row["version_number"], row["database"], row["role"], row["encoding"])

    def ledger_version(self) -> str:
        """Gives the name of the ledger's newest migration; see the port."""
        with self._transaction("read the ledger's version") as cursor:
            require_current_ledger(cursor)
            return migrations()[-1].name

    def missing_rights(self, settings: BatchSettings) -> Sequence[Finding]:
        """Lists rights that the role lacks outside the target table; see the port."""
        target = settings.target
        with self._transaction("read the role's rights") as cursor:
            creates_table = target.create_table and read_table(cursor, target) is None
            rows = fetch_rows(cursor, "missing_rights", schema=target.schema, creates_table=creates_table)
            return [Finding(f"{row['privilege']} on {row['thing']}: not granted", row["fix"]) for row in rows]

    def old_leftovers(self, days: int) -> int:
        """Count the staging tables that housekeeping should have dropped; see the port."""
        with self._transaction("count leftover staging tables") as cursor:
            require_current_ledger(cursor)
            (row,) = fetch_rows(cursor, "count_old_leftovers", days=days)
            return int(row["tables"])

    def target(self, settings: BatchSettings) -> TargetFacts:
        """Compares the target table with the pipeline; see the port."""
        with self._transaction(f"read the table {settings.target}") as cursor:
            table = read_table(cursor, settings.target)
            # Without a ledger, or without rights on it, other checks fail; this one says what it can.
            is_readable = fetch_rows(cursor, "ledger_is_readable")[0]["is_readable"]
            loaded = read_loaded_rows(cursor, settings, table) if is_readable else ()
        if table is None:
            return TargetFacts(False, (_finding(missing_table(settings, loaded)),), is_lost=bool(loaded))
        return TargetFacts(
            is_there=True,
            faults=tuple(map(_finding, table_mismatches(settings, table, loaded))),
            weaknesses=tuple(map(_finding, weaknesses(settings, table))),
        )

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[Cursor]:
        with (
            closing(connect(self._params, application_name="kafka_ingest preflight")) as connection,
            database_faults(doing),
            transaction(connection) as cursor,
        ):
            yield cursor


def _finding(mismatch: Mismatch) -> Finding:
    found = f"{mismatch.subject}: expected {mismatch.expected}; found {mismatch.found}"
    return Finding(found, mismatch.fix)

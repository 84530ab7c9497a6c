"""Preflight of PostgreSQL: version, rights, target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from kafka_ingest.postgres.catalog import read_loaded_rows, read_table
from kafka_ingest.postgres.database import Cursor, connect, database_faults, transaction
from kafka_ingest.postgres.migrations import migrations, require_current_ledger
from kafka_ingest.postgres.rows import fetch_rows
from kafka_ingest.postgres.target import Mismatch, missing_table, table_mismatches, weaknesses
from kafka_ingest.preflight.facts import CheckResult, Finding, ServerFacts, TargetFacts, Verdict
from kafka_ingest.settings import BatchSettings, TargetSettings

# ----------
# Judges the target's database: server, ledger, rights, target table.

#: Statements of this package need 14; newer ones than the last have not been tried (README.md, "Versions").
OLDEST_VERSION = 14
NEWEST_TRIED_VERSION = 18
_USE_UTF8 = "load into a database in UTF8: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
#: Housekeeping runs once a day: what two of its runs have left behind, it does not reach.
LEFTOVER_DAYS = 2


def server_result(server: ServerFacts) -> CheckResult:
    """Judges the server's version."""
    found = f"PostgreSQL {server.version}, database {server.database}, role {server.role}"
    major = server.version_number // 10_000
    if major < OLDEST_VERSION:
        return CheckResult("postgresql", Verdict.FAIL, found, f"upgrade to PostgreSQL {OLDEST_VERSION} or newer")
    if major > NEWEST_TRIED_VERSION:
        return CheckResult("postgresql", Verdict.WARN, f"{found}: newer than what was tried ({NEWEST_TRIED_VERSION})")
    if server.encoding != "UTF8":
        return CheckResult("postgresql", Verdict.WARN, f"{found}: {_encoding_weakness(server.encoding)}", _USE_UTF8)
    return CheckResult("postgresql", Verdict.PASS, found)


def _encoding_weakness(encoding: str) -> str:
    if encoding == "SQL_ASCII":
        return "SQL_ASCII checks no encoding, counts bytes as characters, and jsonb takes no escapes beyond ASCII"
    return f"records with text that {encoding} cannot hold become dead letters"


def ledger_result(version: str) -> CheckResult:
    """Says that the ledger is the one of this package."""
    return CheckResult("ledger", Verdict.PASS, f"up to date: {version}")


def right_results(missing: Sequence[Finding]) -> Iterator[CheckResult]:
    """Judges the rights on ledger, staging and database."""
    for finding in missing:
        yield CheckResult("privileges", Verdict.FAIL, finding.found, finding.fix)
    if not missing:
        yield CheckResult(
            "privileges", Verdict.PASS, "no right is missing on what is there of ledger, staging, database"
        )


def housekeeping_result(old_leftovers: int, connection: str) -> CheckResult:
    """Judge by what is left over whether housekeeping runs at all: Airflow may have its DAG paused."""
    if not old_leftovers:
        found = f"no staging table is left over from a batch that was planned more than {LEFTOVER_DAYS} days ago"
        return CheckResult("housekeeping", Verdict.PASS, found)
    return CheckResult(
        "housekeeping",
        Verdict.WARN,
        f"{old_leftovers} staging tables are left over from batches that were planned more than {LEFTOVER_DAYS} days "
        "ago: housekeeping does not run, or may not drop them",
        f"unpause the DAG kafka_ingest_housekeeping, or: python -m kafka_ingest housekeeping --connection {connection}",
    )


def target_results(target: TargetSettings, facts: TargetFacts) -> Iterator[CheckResult]:
    """Judges the target table: a line for every mismatch and every weakness."""
    if not facts.is_there and target.create_table and not facts.is_lost:
        yield CheckResult("target table", Verdict.PASS, f"{target} is not there yet: the first plan creates it")
        return
    for fault in facts.faults:
        yield CheckResult("target table", Verdict.FAIL, fault.found, fault.fix)
    for weakness in facts.weaknesses:
        yield CheckResult("target table", Verdict.WARN, weakness.found, weakness.fix)
    if not facts.faults and not facts.weaknesses:
        yield CheckResult("target table", Verdict.PASS, f"{target} fits the pipeline")


# ----------
# What preflight asks of the target's database: catalog and ledger are read, one transaction a question.


class PostgresPreflight:
    """The port ``DatabaseProbe`` on PostgreSQL.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.
    """

    def __init__(self, params: Mapping[str, object]) -> None:
        self._params = params

    def server(self) -> ServerFacts:
        """Describe server, database and role; see the port."""
        with self._transaction("read the server's version") as cursor:
            (row,) = fetch_rows(cursor, "server_version")
            return ServerFacts(row["version"], row["version_number"], row["database"], row["role"], row["encoding"])

    def ledger_version(self) -> str:
        """Return the name of the ledger's newest migration; see the port."""
        with self._transaction("read the ledger's version") as cursor:
            require_current_ledger(cursor)
            return migrations()[-1].name

    def missing_rights(self, settings: BatchSettings) -> Sequence[Finding]:
        """List rights that the role lacks outside the target table; see the port."""
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
        """Compare the target table with the pipeline; see the port."""
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

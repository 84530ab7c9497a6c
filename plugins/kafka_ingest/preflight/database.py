"""Preflight of PostgreSQL: version, rights, target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from kafka_ingest.errors import IngestError
from kafka_ingest.postgres.catalog import Mismatch, read_loaded_rows, read_table
from kafka_ingest.postgres.database import Cursor, connect, database_faults, fetch_rows, transaction
from kafka_ingest.postgres.migrations import migrations, require_current_ledger
from kafka_ingest.postgres.rights import LOAD_RIGHTS
from kafka_ingest.postgres.target import missing_table, table_mismatches, weaknesses
from kafka_ingest.preflight.checks import CheckResult, Verdict, answered
from kafka_ingest.protocol.target import history_settings
from kafka_ingest.settings import BatchSettings, TargetSettings

#: Statements of this package need 14; newer ones than the last have not been tried (README.md, "Versions").
OLDEST_VERSION = 14
NEWEST_TRIED_VERSION = 18
#: Housekeeping runs once a day: what two of its runs have left behind, it does not reach.
LEFTOVER_DAYS = 2

_USE_UTF8 = "load into a database in UTF8: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"

# ----------
# Facts: what the database says.


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A PostgreSQL server that has answered.

    ``version_number`` is ``server_version_num``: 140005 is version 14.5; ``encoding`` is the database's.
    """

    version: str
    version_number: int
    database: str
    role: str
    encoding: str = "UTF8"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it must or should be, and the statement that makes it so."""

    found: str
    fix: str


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """The target table against the pipeline.

    Attributes:
        is_there: Whether the table exists.
        faults: Why the pipeline cannot load into it.
        weaknesses: Why reloads would be slow, or would fail, or batches may.
        is_lost: The table is not there, but the ledger has rows in it: it must not be created.
    """

    is_there: bool
    faults: tuple[Finding, ...] = ()
    weaknesses: tuple[Finding, ...] = ()
    is_lost: bool = False


# ----------
# The probe asks: it reads the catalog and the ledger.


class PostgresPreflight:
    """The target's database; one transaction a question.

    Every question raises ``DatabaseUnavailable`` or ``ConfigError`` where it gets no answer.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.
    """

    def __init__(self, params: Mapping[str, object]) -> None:
        self._params = params

    def server(self) -> ServerFacts:
        """Describe server, database and role."""
        with self._transaction("read the server's version") as cursor:
            (row,) = fetch_rows(cursor, "server_version")
            return ServerFacts(row["version"], row["version_number"], row["database"], row["role"], row["encoding"])

    def ledger_version(self) -> str:
        """Return the name of the ledger's newest migration.

        Raises:
            LedgerOutdated: The ledger is missing, older or newer than this package.
        """
        with self._transaction("read the ledger's version") as cursor:
            require_current_ledger(cursor)
            return migrations()[-1].name

    def missing_rights(self, settings: BatchSettings) -> Sequence[Finding]:
        """List rights that the role lacks on ledger, staging and database, and to create the table where it must."""
        target = settings.target
        with self._transaction("read the role's rights") as cursor:
            creates_table = target.create_table and read_table(cursor, target) is None
            wanted = [(table, right) for table, rights in LOAD_RIGHTS.items() for right in rights.split(", ")]
            rows = fetch_rows(
                cursor,
                "missing_rights",
                schema=target.schema,
                creates_table=creates_table,
                tables=[table for table, _ in wanted],
                rights=[right for _, right in wanted],
            )
            return [Finding(f"{row['privilege']} on {row['thing']}: not granted", row["fix"]) for row in rows]

    def old_leftovers(self, days: int) -> int:
        """Count the staging tables of batches that were planned N days ago and are planned no more.

        Raises:
            LedgerOutdated: The ledger is missing, older or newer than this package.
        """
        with self._transaction("count leftover staging tables") as cursor:
            require_current_ledger(cursor)
            (row,) = fetch_rows(cursor, "count_old_leftovers", days=days)
            return int(row["tables"])

    def target(self, settings: BatchSettings) -> TargetFacts:
        """Compare the target table, and the role's rights on it, with the pipeline."""
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


# ----------
# The judge says what the facts mean.


def database_results(settings: BatchSettings, probe: PostgresPreflight) -> Iterator[CheckResult]:
    """Ask and judge in a stable order: a server that does not answer is asked nothing more."""
    yield server_result(probe.server())
    yield from answered("ledger", lambda: [ledger_result(probe.ledger_version())])
    yield from answered("privileges", lambda: right_results(probe.missing_rights(settings)))
    yield from answered("target table", lambda: target_results(settings.target, probe.target(settings)))
    if history := settings.history:
        of_history = history_settings(settings)
        yield from answered("history", lambda: target_results(history, probe.target(of_history), check="history"))
    with suppress(IngestError):  # who cannot read the ledger is told so by the lines above
        yield housekeeping_result(probe.old_leftovers(LEFTOVER_DAYS), settings.target_connection)


def server_result(server: ServerFacts) -> CheckResult:
    """Judge the server's version and the database's encoding."""
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
    """Say that the ledger is the one of this package."""
    return CheckResult("ledger", Verdict.PASS, f"up to date: {version}")


def right_results(missing: Iterable[Finding]) -> list[CheckResult]:
    """Judge the rights on ledger, staging and database: a line for every right that is missing."""
    sound = "no right is missing on what is there of ledger, staging, database"
    return _lines("privileges", Verdict.FAIL, missing) or [CheckResult("privileges", Verdict.PASS, sound)]


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


def target_results(target: TargetSettings, facts: TargetFacts, *, check: str = "target table") -> list[CheckResult]:
    """Judge the target table, or the history: a line for every mismatch and every weakness."""
    if not facts.is_there and target.create_table and not facts.is_lost:
        return [CheckResult(check, Verdict.PASS, f"{target} is not there yet: the next plan creates it")]
    concerns = [*_lines(check, Verdict.FAIL, facts.faults), *_lines(check, Verdict.WARN, facts.weaknesses)]
    return concerns or [CheckResult(check, Verdict.PASS, f"{target} fits the pipeline")]


def _lines(check: str, verdict: Verdict, findings: Iterable[Finding]) -> list[CheckResult]:
    return [CheckResult(check, verdict, finding.found, finding.fix) for finding in findings]

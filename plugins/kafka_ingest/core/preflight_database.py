"""Judges the target's database: server, ledger, rights, target table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_ingest.core.preflight import CheckResult, Verdict
from kafka_ingest.core.preflight_facts import Finding, ServerFacts, TargetFacts
from kafka_ingest.core.settings import TargetSettings

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

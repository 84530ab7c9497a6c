"""The ledger's schema: bring it to the version of this package, and check that it is there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from kafka_ingest.errors import LedgerOutdated
from kafka_ingest.postgres.database import (
    MIGRATE,
    Cursor,
    TransactionLimits,
    connect,
    database_faults,
    run_query,
    sql_names,
    sql_text,
    transaction,
)

#: Another migration may be running: wait for it rather than fail.
_MIGRATION_LIMITS = TransactionLimits(lock_timeout_seconds=60)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of ``sql/migrations``: ``<number>_<what>.sql``."""

    number: int
    name: str
    sha256: str


def migrations() -> list[Migration]:
    """List the migrations of this package in order."""
    return [_migration(name) for name in sql_names("migrations")]


def _migration(name: str) -> Migration:
    text = sql_text(f"migrations/{name}")
    return Migration(int(name.split("_", 1)[0]), name, hashlib.sha256(text.encode()).hexdigest())


def migrate(params: Mapping[str, object]) -> list[str]:
    """Apply the migrations that are missing, all in one transaction under an advisory lock.

    Running it twice, or by two processes at once, applies each migration once.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.

    Returns:
        Names of the migrations that were applied, in order.

    Raises:
        LedgerOutdated: The ledger is newer than this package, or a migration was changed after it was applied.
        ConfigError: The role may not create the schemas or tables.
    """
    with (
        closing(connect(params, application_name="kafka_ingest migrate")) as connection,
        database_faults("migrate the ledger"),
        transaction(connection, _MIGRATION_LIMITS) as cursor,
    ):
        run_query(cursor, "lock_migrations")
        pending = _pending(_applied(cursor))
        for migration in pending:
            _apply(cursor, migration)
    return [migration.name for migration in pending]


def _apply(cursor: Cursor, migration: Migration) -> None:
    cursor.execute(sql_text(f"migrations/{migration.name}"))
    run_query(cursor, "record_migration", number=migration.number, name=migration.name, sha256=migration.sha256)


def require_current_ledger(cursor: Cursor) -> None:
    """Check that the ledger has exactly the migrations of this package.

    Raises:
        LedgerOutdated: The ledger is missing, older, newer, or was made by other files.
    """
    pending = _pending(_applied(cursor))
    if pending:
        raise LedgerOutdated(
            "the ledger is missing or older than this package",
            expected=f"migrations up to {pending[-1].name}",
            found=f"not applied: {', '.join(migration.name for migration in pending)}",
            next_command=MIGRATE,
        )


def _applied(cursor: Cursor) -> list[Migration]:
    run_query(cursor, "ledger_exists")
    row = cursor.fetchone()
    if row is None or not row[0]:
        return []
    run_query(cursor, "applied_migrations")
    return [Migration(*row) for row in cursor.fetchall()]


def _pending(applied: list[Migration]) -> list[Migration]:
    known = migrations()
    for ours, theirs in zip(known, applied, strict=False):
        if ours != theirs:
            raise LedgerOutdated(
                "a migration differs from the one that made this ledger",
                expected=f"{ours.name} with sha256 {ours.sha256}",
                found=f"{theirs.name} with sha256 {theirs.sha256}",
                next_command="install the package version that migrated this database; migrations never change",
            )
    if len(applied) > len(known):
        raise LedgerOutdated(
            "the ledger is newer than this package",
            expected=f"migrations up to {known[-1].name}",
            found=f"applied: {applied[-1].name}",
            next_command="install the package version that migrated this database",
        )
    return known[len(applied) :]

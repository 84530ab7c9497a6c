"""Reads the target table from PostgreSQL's catalog, as values that can be compared with the settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kafka_ingest.adapters.sql_files import sql_text
from kafka_ingest.core.settings import BatchSettings, TargetSettings
from kafka_ingest.core.target_shape import CheckConstraint

#: Kinds of relation that rows can be loaded into (``pg_class.relkind``), and the names of the others.
TABLE_KINDS = frozenset({"r", "p"})
KIND_NAMES = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index"}


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column of an existing table.

    Attributes:
        name: Name without quotes.
        type: Type as ``format_type`` spells it.
        is_not_null: Whether NULL is refused, by the column or by its domain.
        default: Expression of the default; ``None`` without one.
        is_generated: Whether PostgreSQL computes the column from others.
        identity: ``""``, ``"a"`` (always) or ``"d"`` (by default).
        domain_over: Type under a domain; ``None`` where the type is no domain.
    """

    name: str
    type: str
    is_not_null: bool
    default: str | None = None
    is_generated: bool = False
    identity: str = ""
    domain_over: str | None = None

    @property
    def is_filled_by_postgres(self) -> bool:
        """Whether a row without a value for the column is accepted."""
        return not self.is_not_null or self.default is not None or self.is_generated or bool(self.identity)


@dataclass(frozen=True, slots=True)
class CatalogIndex:
    """A usable index over all rows: whether it is unique, and its key columns (expressions left out)."""

    is_unique: bool
    columns: tuple[str, ...]
    key_count: int


@dataclass(frozen=True, slots=True)
class Rights:
    """What the connected role may do."""

    role: str
    database: str
    row_security_applies: bool = False
    use_schema: bool = True
    select: bool = True
    insert: bool = True
    delete: bool = True
    make_temporary_tables: bool = True
    use_staging_schema: bool = True


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The relation under the target's name.

    Attributes:
        kind: ``pg_class.relkind``.
        persistence: ``pg_class.relpersistence``: ``"p"``, ``"u"`` (unlogged) or ``"t"`` (temporary).
        rights: What the connected role may do.
        columns: Columns in the table's order.
        checks: Enforced CHECK constraints.
        indexes: Usable indexes without a condition.
    """

    kind: str
    persistence: str
    rights: Rights
    columns: tuple[CatalogColumn, ...] = ()
    checks: tuple[CheckConstraint, ...] = ()
    indexes: tuple[CatalogIndex, ...] = ()

    def column(self, name: str) -> CatalogColumn | None:
        """Gives a column by its exact name."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """The newest batch of a pipeline that committed rows into the table, as the ledger has it."""

    pipeline: str
    batch_id: str
    rows: int
    committed_at: datetime

    def __str__(self) -> str:
        at = self.committed_at.isoformat(timespec="seconds")
        return f"pipeline {self.pipeline}, last at {at}: {self.rows} rows of batch {self.batch_id}"


def read_loaded_rows(cursor: Any, settings: BatchSettings, table: CatalogTable | None) -> tuple[LoadedRows, ...]:
    """Reads who has loaded rows that can no longer be found: the table, or a column that identifies them, is gone.

    Empty where nothing is gone, and where nothing was loaded.
    """
    identity = settings.metadata.identity
    wanted = {identity.topic, identity.generation, identity.partition, identity.offset}
    if table is not None and wanted <= {column.name for column in table.columns}:
        return ()
    names = {"schema": settings.target.schema, "table": settings.target.table}
    cursor.execute(sql_text("queries/given_up_at"), names)
    bound = dict(cursor.fetchall())
    parameters = {**names, "pipeline": list(bound), "given_up_at": list(bound.values())}
    cursor.execute(sql_text("queries/find_loaded_rows"), parameters)
    return tuple(LoadedRows(*row) for row in cursor.fetchall())


def read_table(cursor: Any, target: TargetSettings) -> CatalogTable | None:
    """Reads the relation under the target's name; ``None`` when there is none.

    Expressions of CHECKs are written with every name outside ``pg_catalog`` qualified, so that they mean the same in
    every session. The caller's transaction keeps its ``search_path`` from here on: ``pg_catalog`` only.
    """
    cursor.execute(sql_text("queries/qualify_every_name"))
    cursor.execute(sql_text("queries/target_relation"), {"schema": target.schema, "table": target.table})
    found = cursor.fetchone()
    if found is None:
        return None
    relation, kind, persistence, row_security, role, database, *rights = found
    return CatalogTable(
        kind=kind,
        persistence=persistence,
        rights=Rights(role, database, row_security, *rights),
        columns=_columns(cursor, relation),
        checks=_checks(cursor, relation),
        indexes=_indexes(cursor, relation),
    )


def _columns(cursor: Any, relation: int) -> tuple[CatalogColumn, ...]:
    cursor.execute(sql_text("queries/target_columns"), {"relation": relation})
    return tuple(
        CatalogColumn(name, type_, not_null, default, bool(generated), identity, base)
        for name, type_, not_null, default, generated, identity, base in cursor.fetchall()
    )


def _checks(cursor: Any, relation: int) -> tuple[CheckConstraint, ...]:
    cursor.execute(sql_text("queries/target_checks"), {"relation": relation})
    return tuple(CheckConstraint(name, expression) for name, expression in cursor.fetchall())


def _indexes(cursor: Any, relation: int) -> tuple[CatalogIndex, ...]:
    cursor.execute(sql_text("queries/target_indexes"), {"relation": relation})
    return tuple(CatalogIndex(unique, tuple(columns), count) for unique, columns, count in cursor.fetchall())

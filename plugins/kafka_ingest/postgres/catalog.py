"""The target table in PostgreSQL's catalog, as values that can be compared with the settings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg2
from psycopg2 import sql

from kafka_ingest.errors import TargetMismatch
from kafka_ingest.postgres.database import run_query
from kafka_ingest.protocol.target import CheckConstraint
from kafka_ingest.settings import BatchSettings, IdentityColumns, TargetSettings

#: Kinds of relation that can be loaded into (``pg_class.relkind``), and the names of the others.
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
        domain_over: Type under a domain, and under the domains below it; ``None`` where the type is no domain.
        text_like: ``"enum"`` or ``"citext"``, for a type (or one under a domain) that is written as text.
        can_insert: Whether the role may INSERT into the column, where it may not INSERT into the whole table.
        reads: Columns that the expression of a generated column reads.
    """

    name: str
    type: str
    is_not_null: bool
    default: str | None = None
    is_generated: bool = False
    identity: str = ""
    domain_over: str | None = None
    text_like: str | None = None
    can_insert: bool = False
    reads: tuple[str, ...] = ()

    @property
    def is_filled_by_postgres(self) -> bool:
        """Whether a row without a value for the column is accepted."""
        return not self.is_not_null or self.default is not None or self.is_generated or bool(self.identity)

    @property
    def is_numbered(self) -> bool:
        """Whether a sequence gives the value of a row that has none."""
        return bool(self.identity) or (self.default is not None and "nextval(" in self.default)


@dataclass(frozen=True, slots=True)
class CatalogIndex:
    """A usable index over all rows: whether it is unique, and its key columns (expressions left out)."""

    is_unique: bool
    columns: tuple[str, ...]
    key_count: int


@dataclass(frozen=True, slots=True)
class TargetHook:
    """A trigger or rule that acts when rows of the table are inserted or deleted.

    Attributes:
        kind: ``trigger`` or ``rule``.
        name: Name without quotes.
        relation: The table that has it, quoted where needed: the target, or a partition of it.
        on_insert: Whether INSERT sets it off.
        on_delete: Whether DELETE does.
        changes_rows: Whether it is a BEFORE INSERT trigger for each row, which can change or drop the row.
        is_instead: Whether it is a rule that replaces the statement.
    """

    kind: str
    name: str
    relation: str
    on_insert: bool
    on_delete: bool
    changes_rows: bool = False
    is_instead: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.name} on {self.relation}"


@dataclass(frozen=True, slots=True)
class Dependent:
    """A foreign key of another table with an action on DELETE: its name, that table (quoted), and the action."""

    name: str
    relation: str
    action: str


@dataclass(frozen=True, slots=True)
class Rights:
    """What the connected role may do.

    ``row_security_applies``: policies can hide rows from the role, or refuse them.
    """

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
        hooks: Triggers and rules.
        unlogged_parts: Partitions and inheritance children that a crash empties, quoted where needed.
        forbidden_sequences: Column, and the sequence of its default that the role may not use, quoted where needed.
        foreign_parts: Table or partition that the role does not own, quoted where needed, and its owner.
        undeletable_parts: Table or partition without replica identity, and the publication that asks for one.
        dependents: Foreign keys with rows that a reload deletes or changes, too.
    """

    kind: str
    persistence: str
    rights: Rights
    columns: tuple[CatalogColumn, ...] = ()
    checks: tuple[CheckConstraint, ...] = ()
    indexes: tuple[CatalogIndex, ...] = ()
    hooks: tuple[TargetHook, ...] = ()
    unlogged_parts: tuple[str, ...] = ()
    forbidden_sequences: tuple[tuple[str, str], ...] = ()
    foreign_parts: tuple[tuple[str, str], ...] = ()
    undeletable_parts: tuple[tuple[str, str], ...] = ()
    dependents: tuple[Dependent, ...] = ()

    @property
    def changes_rows(self) -> bool:
        """Whether a trigger may fill or change any column before the table's constraints are checked."""
        return any(hook.changes_rows for hook in self.hooks)

    def columns_without_value(self, written: Collection[str]) -> frozenset[str]:
        """Return the columns whose value only the table itself knows: staging can neither fill nor check them.

        Args:
            written: Columns that the pipeline fills.
        """
        unwritten = [column for column in self.columns if column.name not in written]
        if self.changes_rows:
            return frozenset(column.name for column in unwritten)
        numbered = {column.name for column in unwritten if column.is_numbered}
        # A generated column reads no other generated column (CREATE TABLE, PostgreSQL 18).
        return frozenset(numbered | {column.name for column in unwritten if numbered & set(column.reads)})

    def column(self, name: str) -> CatalogColumn | None:
        """Return a column by its exact name."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """The newest batch of a pipeline that committed rows into the table, according to the ledger."""

    pipeline: str
    batch_id: str
    rows: int
    committed_at: datetime

    def __str__(self) -> str:
        at = self.committed_at.isoformat(timespec="seconds")
        return f"pipeline {self.pipeline}, last at {at}: {self.rows} rows of batch {self.batch_id}"


def read_loaded_rows(cursor: Any, settings: BatchSettings, table: CatalogTable | None) -> tuple[LoadedRows, ...]:
    """Read who has loaded rows that can no longer be found because the table, or an identity column of it, is gone.

    Empty where nothing is gone, and where nothing was loaded.
    """
    identity = settings.metadata.identity
    wanted = {identity.topic, identity.generation, identity.partition, identity.offset}
    if table is not None and wanted <= {column.name for column in table.columns}:
        return ()
    names = {"schema": settings.target.schema, "table": settings.target.table}
    bound = dict(_listed(cursor, "given_up_at", **names))
    loaded = _listed(cursor, "find_loaded_rows", **names, pipeline=list(bound), given_up_at=list(bound.values()))
    return tuple(LoadedRows(*row) for row in loaded)


def read_table(cursor: Any, target: TargetSettings) -> CatalogTable | None:
    """Read the relation under the target's name; ``None`` when there is none.

    Expressions of CHECKs are written with every name outside ``pg_catalog`` qualified, so that they mean the same in
    every session. The caller's transaction keeps its ``search_path`` from here on: ``pg_catalog`` only.
    """
    run_query(cursor, "qualify_every_name")
    found = _listed(cursor, "target_relation", schema=target.schema, table=target.table)
    if not found:
        return None
    relation, kind, persistence, row_security, role, database, *rights = found[0]
    return CatalogTable(
        kind=kind,
        persistence=persistence,
        rights=Rights(role, database, row_security, *rights),
        columns=_columns(cursor, relation),
        checks=_checks(cursor, relation),
        indexes=_indexes(cursor, relation),
        hooks=read_hooks(cursor, target),
        unlogged_parts=tuple(name for (name,) in _listed(cursor, "target_unlogged_parts", relation=relation)),
        forbidden_sequences=_listed(cursor, "target_sequences", relation=relation),
        foreign_parts=_listed(cursor, "target_foreign_parts", relation=relation),
        undeletable_parts=_listed(cursor, "target_undeletable_parts", relation=relation),
        dependents=tuple(Dependent(*row) for row in _listed(cursor, "target_dependents", relation=relation)),
    )


def read_hooks(cursor: Any, target: TargetSettings) -> tuple[TargetHook, ...]:
    """Read the triggers and rules of INSERT and DELETE; none where there is no such table."""
    found = _listed(cursor, "target_hooks", schema=target.schema, table=target.table)
    return tuple(TargetHook(*row) for row in found)


def _listed(cursor: Any, query: str, **parameters: object) -> tuple[tuple[Any, ...], ...]:
    run_query(cursor, query, **parameters)
    return tuple(cursor.fetchall())


def _columns(cursor: Any, relation: int) -> tuple[CatalogColumn, ...]:
    found = _listed(cursor, "target_columns", relation=relation)
    return tuple(
        CatalogColumn(name, type_, not_null, default, bool(generated), identity, base, like, may_insert, tuple(reads))
        for name, type_, not_null, default, generated, identity, base, like, may_insert, reads in found
    )


def _checks(cursor: Any, relation: int) -> tuple[CheckConstraint, ...]:
    found = _listed(cursor, "target_checks", relation=relation)
    return tuple(CheckConstraint(name, text, tuple(columns)) for name, text, columns in found)


def _indexes(cursor: Any, relation: int) -> tuple[CatalogIndex, ...]:
    found = _listed(cursor, "target_indexes", relation=relation)
    return tuple(CatalogIndex(unique, tuple(columns), count) for unique, columns, count in found)


# ----------
# The target in statements, and in the error of one that does not find it.


def target_identifiers(target: TargetSettings, identity: IdentityColumns) -> dict[str, sql.Composable]:
    """Return the identifiers of the target and of the columns that tell a row's identity, for an SQL file."""
    return {
        "target": sql.Identifier(target.schema, target.table),
        "topic": sql.Identifier(identity.topic),
        "generation": sql.Identifier(identity.generation),
        "partition": sql.Identifier(identity.partition),
        "offset_column": sql.Identifier(identity.offset),
    }


def target_is_gone(error: psycopg2.Error, target: TargetSettings, pipeline: str) -> TargetMismatch:
    """Return the error of a table, or of a column that identifies its rows, that is not there."""
    return TargetMismatch(
        "the target table no longer fits the batches that were loaded into it",
        expected=f"table {target} with its metadata columns",
        found=error.diag.message_primary or "",
        next_command="restore the table or the column, then run python -m kafka_ingest audit",
        pipeline=pipeline,
    )

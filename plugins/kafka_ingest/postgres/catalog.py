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


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference: where it is, what was expected, what is there, and the statement that removes it."""

    subject: str
    expected: str
    found: str
    fix: str

    def __str__(self) -> str:
        return f"{self.subject}: expected {self.expected}; found {self.found}; {self.fix}"


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
        can_update: Whether the role may UPDATE the column, where it may not UPDATE the whole table.
        loose_collation: Collation that takes different texts for equal, quoted where needed; ``None`` for any other.
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
    can_update: bool = False
    loose_collation: str | None = None

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
    """An index.

    Attributes:
        is_unique: Whether it is unique.
        columns: Key columns, expressions left out.
        key_count: Number of its keys, expressions included.
        other_collations: Columns that it compares by another collation than their own.
        other_operators: Columns that it compares by another operator class than the default of their type.
        name: Name with its schema, quoted where needed.
        keys: Its keys as they are defined, separated by commas.
        constraint: Name without quotes of the unique or primary key constraint that it belongs to.
        is_valid: Whether it has every row: one that CREATE INDEX CONCURRENTLY left unfinished has not.
        is_partial: Whether it is over the rows of a condition only.
        is_immediate: Whether a second row is refused at once: that of a deferrable constraint waits.
        method: Access method.
    """

    is_unique: bool
    columns: tuple[str, ...]
    key_count: int
    other_collations: tuple[str, ...] = ()
    other_operators: tuple[str, ...] = ()
    name: str = ""
    keys: str = ""
    constraint: str | None = None
    is_valid: bool = True
    is_partial: bool = False
    is_immediate: bool = True
    method: str = "btree"

    @property
    def has_all_rows(self) -> bool:
        """Whether every row of the table is in it."""
        return self.is_valid and not self.is_partial

    @property
    def has_expressions(self) -> bool:
        """Whether a key is computed from columns."""
        return len(self.columns) < self.key_count

    def is_over(self, columns: Collection[str]) -> bool:
        """Tell whether its keys are exactly these columns, in any order."""
        return self.key_count == len(columns) and set(self.columns) == set(columns)


@dataclass(frozen=True, slots=True)
class TargetHook:
    """A trigger or rule that acts when rows of the table are inserted, updated or deleted.

    Attributes:
        kind: ``trigger`` or ``rule``.
        name: Name without quotes.
        relation: The table that has it, quoted where needed: the target, or a partition of it.
        on_insert: Whether INSERT sets it off.
        on_delete: Whether DELETE does.
        changes_rows: Whether it is a BEFORE INSERT or UPDATE trigger for each row, which can change or drop the row.
        is_instead: Whether it is a rule that replaces the statement.
        on_update: Whether UPDATE sets it off.
    """

    kind: str
    name: str
    relation: str
    on_insert: bool
    on_delete: bool
    changes_rows: bool = False
    is_instead: bool = False
    on_update: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.name} on {self.relation}"


@dataclass(frozen=True, slots=True)
class Dependent:
    """A foreign key of another table with an action on DELETE: its name, that table (quoted), and the action."""

    name: str
    relation: str
    action: str


@dataclass(frozen=True, slots=True)
class UnidentifiedPart:
    """A table or partition without replica identity, quoted where needed.

    Attributes:
        name: The table or partition.
        deletes: Publication that publishes deletes, so that nothing can be deleted; ``None``: none does.
        updates: Publication that publishes updates, so that nothing can be updated; ``None``: none does.
    """

    name: str
    deletes: str | None = None
    updates: str | None = None


@dataclass(frozen=True, slots=True)
class Rights:
    """What the connected role may do.

    ``row_security_applies``: policies can hide rows from the role that it reads or deletes, or refuse new ones;
    ``row_security_of_updates``: they can hide rows that it updates, or refuse what it makes of them.
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
    update: bool = True
    row_security_of_updates: bool = False


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The relation under the target's name.

    Attributes:
        kind: ``pg_class.relkind``.
        persistence: ``pg_class.relpersistence``: ``"p"``, ``"u"`` (unlogged) or ``"t"`` (temporary).
        rights: What the connected role may do.
        columns: Columns in the table's order.
        checks: Enforced CHECK constraints.
        indexes: Indexes, usable or not, by name.
        hooks: Triggers and rules.
        unlogged_parts: Partitions and inheritance children that a crash empties, quoted where needed.
        missing_rights: What the role lacks on what the table itself uses: column whose default it is, or ``None`` where
            every row needs it, then the right, and on what.
        foreign_parts: Table or partition that the role does not own, quoted where needed, and its owner.
        unidentified_parts: Parts without replica identity, and the publications that ask for one.
        dependents: Foreign keys with rows that a reload deletes or changes, too.
        children: Tables that inherit from the table and are no partitions, quoted where needed.
    """

    kind: str
    persistence: str
    rights: Rights
    columns: tuple[CatalogColumn, ...] = ()
    checks: tuple[CheckConstraint, ...] = ()
    indexes: tuple[CatalogIndex, ...] = ()
    hooks: tuple[TargetHook, ...] = ()
    unlogged_parts: tuple[str, ...] = ()
    missing_rights: tuple[tuple[str | None, str, str], ...] = ()
    foreign_parts: tuple[tuple[str, str], ...] = ()
    unidentified_parts: tuple[UnidentifiedPart, ...] = ()
    dependents: tuple[Dependent, ...] = ()
    children: tuple[str, ...] = ()

    @property
    def changes_rows(self) -> bool:
        """Whether a trigger may fill or change any column of a new row before the table's constraints are checked.

        Triggers of UPDATE alone do not count: whether a record fits must not depend on whether its key has a row yet.
        """
        return any(hook.changes_rows and hook.on_insert for hook in self.hooks)

    def columns_without_value(self, written: Collection[str], *, may_stand: bool = False) -> frozenset[str]:
        """Return the columns whose value only the table itself knows: staging can neither fill nor check them.

        Args:
            written: Columns that the pipeline fills.
            may_stand: Whether a row may stand already, with values of its own in the other columns.
        """
        unwritten = [column for column in self.columns if column.name not in written]
        if self.changes_rows or may_stand:
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
        missing_rights=_listed(cursor, "target_missing_rights", relation=relation),
        foreign_parts=_listed(cursor, "target_foreign_parts", relation=relation),
        unidentified_parts=_unidentified_parts(cursor, relation),
        dependents=tuple(Dependent(*row) for row in _listed(cursor, "target_dependents", relation=relation)),
        children=tuple(name for (name,) in _listed(cursor, "target_children", relation=relation)),
    )


def read_hooks(cursor: Any, target: TargetSettings) -> tuple[TargetHook, ...]:
    """Read the triggers and rules of INSERT, UPDATE and DELETE; none where there is no such table."""
    found = _listed(cursor, "target_hooks", schema=target.schema, table=target.table)
    return tuple(TargetHook(*row) for row in found)


def _listed(cursor: Any, query: str, **parameters: object) -> tuple[tuple[Any, ...], ...]:
    run_query(cursor, query, **parameters)
    return tuple(cursor.fetchall())


def _columns(cursor: Any, relation: int) -> tuple[CatalogColumn, ...]:
    found = _listed(cursor, "target_columns", relation=relation)
    return tuple(
        CatalogColumn(
            name, type_, null, default, bool(generated), identity, base, like, may_insert, tuple(reads), *more
        )
        for name, type_, null, default, generated, identity, base, like, may_insert, reads, *more in found
    )


def _checks(cursor: Any, relation: int) -> tuple[CheckConstraint, ...]:
    found = _listed(cursor, "target_checks", relation=relation)
    return tuple(CheckConstraint(name, text, tuple(columns)) for name, text, columns in found)


def _indexes(cursor: Any, relation: int) -> tuple[CatalogIndex, ...]:
    found = _listed(cursor, "target_indexes", relation=relation)
    return tuple(
        CatalogIndex(unique, tuple(columns), count, tuple(collations), tuple(operators), *more)
        for unique, columns, count, collations, operators, *more in found
    )


def _unidentified_parts(cursor: Any, relation: int) -> tuple[UnidentifiedPart, ...]:
    return tuple(UnidentifiedPart(*row) for row in _listed(cursor, "target_unidentified_parts", relation=relation))


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

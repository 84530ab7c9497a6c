"""What each role needs in the database, and the statements that grant it: to migrate, to load, to look, to change.

One list of rights: ``roles`` prints it, preflight compares it with what its role has, and errors name what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_ingest.protocol.target import history_settings, quoted, quoted_table, written_columns
from kafka_ingest.settings import BatchSettings, NewFields

_WRITE = "SELECT, INSERT, UPDATE, DELETE"
#: What plans, loads, audits and housekeeping need on each table of the ledger. A row is locked with UPDATE.
LOAD_RIGHTS: Mapping[str, str] = {
    "attempt": _WRITE,
    "batch": "SELECT, INSERT, UPDATE",
    "batch_hold": _WRITE,
    "batch_partition": _WRITE,
    "committed_offset": _WRITE,
    "dead_letter": _WRITE,
    "dead_letter_request": "SELECT",
    "log_observation": "SELECT, INSERT, UPDATE",
    "pipeline": "SELECT, INSERT, UPDATE",
    "position_change": "SELECT, INSERT",
    "removed_key": _WRITE,
    "schema_change": "SELECT, INSERT",
    "schema_migration": "SELECT",
    "served_topic": "SELECT, INSERT",
}
#: What changes of positions, roll-backs, replays and discards need.
CHANGE_RIGHTS: Mapping[str, str] = {
    "attempt": "SELECT, UPDATE",
    "batch": "SELECT, UPDATE",
    "batch_hold": "SELECT, DELETE",
    "batch_partition": "SELECT",
    "committed_offset": _WRITE,
    "dead_letter": "SELECT, UPDATE, DELETE",
    "dead_letter_request": "SELECT, INSERT, UPDATE",
    "pipeline": "SELECT, UPDATE",
    "position_change": "SELECT, INSERT",
    "removed_key": _WRITE,
    "schema_change": "SELECT",
    "schema_migration": "SELECT",
    "served_topic": "SELECT, INSERT, UPDATE",
}
#: Columns that say where and why, and hold nothing of a record: what a reader sees who may not see the topic.
_WITHOUT_PAYLOAD: Mapping[str, str] = {
    "attempt": "attempt_number, pipeline, step, batch_id, dag_id, run_id, task_id, map_index, try_number, started_at, "
    "ended_at, outcome, fault, session_seconds, stage_seconds, publish_seconds, spark_application_id, spark_ui_url",
    "dead_letter": 'pipeline, topic, generation, partition, "offset", record_time, reason, batch_id, created_at, '
    "resolved_at, resolution",
    "removed_key": 'pipeline, topic, generation, partition, "offset", batch_id',
}


def ledger_rights(table: str) -> str:
    """Return all that a role needs on a table of the ledger that loads and changes."""
    wanted = {*LOAD_RIGHTS[table].split(", "), *CHANGE_RIGHTS.get(table, "").split(", ")}
    return ", ".join(right for right in _WRITE.split(", ") if right in wanted)


@dataclass(frozen=True, slots=True)
class Roles:
    """Names of roles; several may be one.

    Attributes:
        owner: Migrates, and owns the ledger.
        loader: Loads: the role of the pipelines' connection.
        reader: Looks at the ledger and at the tables.
        operator: Changes positions, rolls back, replays; empty where the loader does.
        reads_payload: Whether the reader may see dead letters, removed keys and the tables.
    """

    owner: str
    loader: str
    reader: str
    operator: str = ""
    reads_payload: bool = True

    @property
    def writers(self) -> tuple[str, ...]:
        """The roles that write the tables of the pipelines."""
        return tuple(dict.fromkeys((self.loader, self.operator or self.loader)))

    @property
    def all(self) -> tuple[str, ...]:
        """Every role, once."""
        return tuple(dict.fromkeys((self.owner, *self.writers, self.reader)))


def role_statements(roles: Roles, database: str, pipelines: Sequence[BatchSettings]) -> str:
    """Return the SQL that makes the roles and grants them what they need, and no more; it may be run again.

    Args:
        roles: Who does what.
        database: Name of the target database.
        pipelines: The pipelines whose tables are in it.
    """
    parts = [
        _comment(f"Database {database}, as an administrator: before migrate, after it, and after each later one."),
        _block("\n".join(_role(name) for name in roles.all)),
        *_on_database(roles, quoted(database)),
        _guarded("to_regnamespace('kafka_ingest')", "the ledger: migrate as its owner", [*_on_ledger(roles)]),
    ]
    for settings in pipelines:
        parts += _on_target(roles, settings)
        if settings.history:
            parts += _on_target(roles, history_settings(settings))
    return "\n".join(dict.fromkeys(filter(None, parts))) + "\n"


def _role(name: str) -> str:
    return f"IF to_regrole({_literal(quoted(name))}) IS NULL THEN CREATE ROLE {quoted(name)} LOGIN; END IF;"


def _on_database(roles: Roles, database: str) -> Iterator[str]:
    yield f"GRANT CONNECT ON DATABASE {database} TO {_names(roles.all)};"
    yield f"GRANT CREATE ON DATABASE {database} TO {quoted(roles.owner)};"
    yield f"GRANT TEMPORARY ON DATABASE {database} TO {_names(roles.writers)};"


def _on_ledger(roles: Roles) -> Iterator[str]:
    """Yield the grants on the ledger. Its owner needs none, and must not lose what it has."""
    granted = [name for name in roles.all if name != roles.owner]
    if not granted:
        return
    later = f"ALTER DEFAULT PRIVILEGES FOR ROLE {quoted(roles.owner)} IN SCHEMA kafka_ingest"
    yield f"REVOKE ALL ON ALL TABLES IN SCHEMA kafka_ingest FROM {_names(granted)};"
    yield f"{later} REVOKE ALL ON TABLES FROM {_names(granted)};"
    yield f"GRANT USAGE ON SCHEMA kafka_ingest TO {_names(granted)};"
    for writer in (name for name in roles.writers if name in granted):
        yield f"GRANT USAGE, CREATE ON SCHEMA kafka_ingest_staging TO {quoted(writer)};"
        yield f"{later} GRANT {_WRITE} ON TABLES TO {quoted(writer)};"
        for table, rights in _rights(roles, writer).items():
            yield f"GRANT {rights} ON kafka_ingest.{table} TO {quoted(writer)};"
    if roles.reader in granted:
        yield from _looks_at_ledger(roles, later)


def _rights(roles: Roles, writer: str) -> Mapping[str, str]:
    if len(roles.writers) == 1:
        return {table: ledger_rights(table) for table in LOAD_RIGHTS}
    return CHANGE_RIGHTS if writer == roles.operator else LOAD_RIGHTS


def _looks_at_ledger(roles: Roles, later: str) -> Iterator[str]:
    reader = quoted(roles.reader)
    if roles.reads_payload:
        yield f"GRANT SELECT ON ALL TABLES IN SCHEMA kafka_ingest TO {reader};"
        yield f"{later} GRANT SELECT ON TABLES TO {reader};"
        return
    for table in LOAD_RIGHTS:
        columns = f" ({_WITHOUT_PAYLOAD[table]})" if table in _WITHOUT_PAYLOAD else ""
        yield f"GRANT SELECT{columns} ON kafka_ingest.{table} TO {reader};"


def _on_target(roles: Roles, settings: BatchSettings) -> Iterator[str]:
    """Yield the grants on a table, and on its schema where loads create it: the loader then owns it."""
    target, schema = settings.target, quoted(settings.target.schema)
    readers = (roles.reader,) if roles.reads_payload else ()
    granted = dict.fromkeys(name for name in (*roles.writers, *readers) if not _owns(roles, settings, name))
    usage = [f"GRANT USAGE ON SCHEMA {schema} TO {_names([*granted])};"] if granted else []
    if settings.value.new_fields is NewFields.ADD_COLUMN and not target.create_table:
        owned = f"ALTER TABLE {quoted_table(target)} OWNER TO {quoted(roles.loader)};"
        yield _comment(f"{target} gets columns (new_fields: add_column), which only its owner can do: {owned}")
    if target.create_table:
        yield f"CREATE SCHEMA IF NOT EXISTS {schema};"
        yield f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {quoted(roles.loader)};"
        new = f"ALTER DEFAULT PRIVILEGES FOR ROLE {quoted(roles.loader)} IN SCHEMA {schema} GRANT"
        yield from usage
        yield from (f"{new} {_on_whole_table(roles, settings, name)} ON TABLES TO {quoted(name)};" for name in granted)
    else:
        yield _guarded(f"to_regnamespace({_literal(schema)})", "", usage)
    statements = [statement for name in granted for statement in _on_table(roles, settings, name)]
    missing = "" if target.create_table else f"{target}: create it"
    yield _guarded(f"to_regclass({_literal(quoted_table(target))})", missing, statements)


def _owns(roles: Roles, settings: BatchSettings, role: str) -> bool:
    return settings.target.create_table and role == roles.loader


def _on_whole_table(roles: Roles, settings: BatchSettings, role: str) -> str:
    """Return what a role needs on a table whose columns are not there yet."""
    if role not in roles.writers:
        return "SELECT"
    return f"SELECT, INSERT{', UPDATE' if settings.upsert else ''}{'' if _is_history(settings) else ', DELETE'}"


def _on_table(roles: Roles, settings: BatchSettings, role: str) -> Iterator[str]:
    table, to = quoted_table(settings.target), f"TO {quoted(role)};"
    yield f"GRANT SELECT ON {table} {to}"
    if role not in roles.writers:
        return
    columns = _names([column.name for column in written_columns(settings)])
    yield f"GRANT INSERT ({columns}) ON {table} {to}"
    if settings.upsert:
        yield f"GRANT UPDATE ({columns}) ON {table} {to}"
    if not _is_history(settings):
        yield f"GRANT DELETE ON {table} {to}"


def _is_history(settings: BatchSettings) -> bool:
    """Tell whether the table is a history, from which nothing is ever deleted: each record is a key of its own."""
    metadata = settings.metadata
    identity = (metadata.topic, metadata.generation, metadata.partition, metadata.offset)
    return settings.upsert is not None and settings.upsert.key == identity


def _guarded(exists: str, missing: str, statements: Sequence[str]) -> str:
    """Return a block that runs statements where a thing exists, and else tells what is to be done first."""
    if not statements:
        return ""
    notice = _literal(f"not there yet: {missing}, then run this again")
    told = f"\nELSE\n    RAISE NOTICE '%', {notice};" if missing else ""
    indented = "".join(f"\n    {statement}" for statement in statements)
    return _block(f"IF {exists} IS NOT NULL THEN{indented}{told}\nEND IF;")


def _comment(text: str) -> str:
    return f"-- {' '.join(text.split())}"  # a name may hold what ends a line


def _block(body: str) -> str:
    tag = "$roles$"
    while tag in body:  # in the name of a role or table
        tag = f"{tag[:-1]}_$"
    return f"DO {tag} BEGIN\n{body}\nEND {tag};"


def _names(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

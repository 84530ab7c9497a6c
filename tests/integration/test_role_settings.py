"""Settings of a role change nothing of what a load, a reload and a roll-back do."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from psycopg2 import sql

from kafka_ingest.errors import ConfigError
from kafka_ingest.postgres.database import SESSION_SETTINGS, connect, database_faults, transaction
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from sandbox.kafka import KafkaBroker
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest, set_connections

PASSWORD = "A-password-1"

#: Each changes what some statement means or says, or ends it, unless the transaction sets it back.
HOSTILE = {
    "array_nulls": "off",
    "bytea_output": "escape",
    "client_min_messages": "debug1",
    "datestyle": "SQL, DMY",
    "intervalstyle": "iso_8601",
    "timezone": "Asia/Kathmandu",
    "extra_float_digits": "-3",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "backslash_quote": "off",
    "xmlbinary": "hex",
    "check_function_bodies": "off",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "exit_on_error": "on",
    "gin_fuzzy_search_limit": "1",
    "row_security": "off",
    "search_path": "nowhere",
    "synchronous_commit": "off",
    # Not so short that they end the statement that sets them back.
    "statement_timeout": "2s",
    "lock_timeout": "1ms",
    "transaction_timeout": "2s",
    "idle_in_transaction_session_timeout": "1s",
    "idle_session_timeout": "1s",
    "enable_seqscan": "off",
    "constraint_exclusion": "off",
    "plan_cache_mode": "force_generic_plan",
}

COLUMNS = [
    {"name": "t", "type": "text", "path": "$.t"},
    {"name": "numbers", "type": "integer[]", "path": "$.numbers"},
    {"name": "at", "type": "timestamptz", "path": "$.at"},
    {"name": "f", "type": "double precision", "path": "$.f"},
]


@pytest.fixture
def role(
    database: dict[str, Any], kafka_broker: KafkaBroker, pipeline: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """Parameters for ``psycopg2.connect`` of the loader's role, which the pipeline's connection uses."""
    name = f"hostile_{secrets.token_hex(6)}"
    with closing(psycopg2.connect(**database)) as owner:
        owner.autocommit = True
        cursor = owner.cursor()
        identifier = sql.Identifier(name)
        for statement in (
            f"CREATE ROLE {{}} LOGIN PASSWORD '{PASSWORD}'",
            "GRANT USAGE ON SCHEMA kafka_ingest TO {}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kafka_ingest TO {}",
            "GRANT USAGE, CREATE ON SCHEMA kafka_ingest_staging TO {}",
            "CREATE SCHEMA shop AUTHORIZATION {}",
        ):
            cursor.execute(sql.SQL(statement).format(identifier))
        params = {**database, "user": name, "password": PASSWORD}
        set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=params)
        yield params
        cursor.execute(sql.SQL("DROP OWNED BY {0} CASCADE; DROP ROLE {0}").format(identifier))


def let(params: dict[str, Any], owner: dict[str, Any], settings: dict[str, str]) -> None:
    """Return the role settings, as far as the server knows them."""
    with closing(psycopg2.connect(**owner)) as connection, connection, connection.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute("SELECT current_setting(%s, true) IS NOT NULL", [name])
            if cursor.fetchone() == (True,):
                statement = sql.SQL("ALTER ROLE {} SET {} = {}")
                role, setting = sql.Identifier(params["user"]), sql.Identifier(name)
                cursor.execute(statement.format(role, setting, sql.Literal(value)))


def test_a_load_a_reload_and_a_roll_back_do_not_depend_on_settings_of_the_role(
    pipeline: FedPipeline, role: dict[str, Any], database: dict[str, Any]
) -> None:
    let(role, database, HOSTILE)
    name = pipeline.open(value={"format": "json", "columns": COLUMNS})
    value = {"t": r"a\'b\\ 'c'", "numbers": [1, None, 3], "at": "2026-03-04T05:06:07Z", "f": 0.1}
    pipeline.send(json.dumps(value))
    pipeline.send(b"{broken", headers=[("h", b"\xff")])
    pipeline.send(json.dumps({**value, "numbers": []}))

    pipeline.load_here()
    expected = [
        (0, value["t"], [1, None, 3], "2026-03-04 05:06:07", 0.1),
        (2, value["t"], [], "2026-03-04 05:06:07", 0.1),
    ]
    loaded = "kafka_offset, t, numbers, (at AT TIME ZONE 'UTC')::text, f"
    assert pipeline.rows(loaded) == expected
    assert pipeline.dead_letters('"offset", value, header_names') == [(1, b"{broken", ["h"])]

    pipeline.load_here(RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(name, 0, 0, 3),)))
    assert pipeline.rows(loaded) == expected

    pipeline.send(json.dumps(value))
    pipeline.load_here()
    code, record, notes = pipeline.command("roll-back", "events", "--batches", "1", "--reason", "why", "--apply")
    assert code == 0, notes
    assert [span["counts"] for span in record["spans"]] == [{"rows": 1, "dead_letters": 0}]
    assert pipeline.rows(loaded) == expected


def test_every_setting_that_statements_depend_on_is_set_in_the_transaction_only(
    role: dict[str, Any], database: dict[str, Any]
) -> None:
    let(role, database, HOSTILE)
    with closing(connect(role, application_name="test")) as connection:
        with transaction(connection) as cursor:
            cursor.execute("SELECT name, current_setting(name, true) FROM unnest(%s) AS s (name)", [_names()])
            inside = dict(cursor.fetchall())
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('bytea_output'), current_setting('array_nulls')")
            assert cursor.fetchall() == [("escape", "off")]
    assert inside == {s.name: s.value if inside[s.name] is not None else None for s in SESSION_SETTINGS}


def _names() -> list[str]:
    return [setting.name for setting in SESSION_SETTINGS]


def test_a_setting_that_the_role_cannot_set_back_is_a_configuration_error_that_says_how(
    role: dict[str, Any], database: dict[str, Any]
) -> None:
    let(role, database, {"session_replication_role": "replica"})
    with (
        closing(connect(role, application_name="test")) as connection,
        pytest.raises(ConfigError) as refused,
        database_faults("load"),
        transaction(connection),
    ):
        pass
    assert refused.value.found == 'permission denied to set parameter "session_replication_role"'
    assert "ALTER ROLE … RESET session_replication_role" in refused.value.next_command

"""What PostgreSQL refuses ends as a package error in its own words, never as a trace, and never with a record in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
import pytest

from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest

ID = {"format": "json", "columns": [{"name": "id", "type": "bigint"}]}
STOPPED = 78


def require_a_message(code: int, notes: str, *parts: str) -> None:
    assert code == STOPPED, notes
    assert "Traceback" not in notes
    assert "left no error" not in notes
    error = json.loads(notes.strip().splitlines()[-1])["error"]
    message = " ".join(str(value) for value in error.values())
    for part in parts:
        assert part in message


@contextmanager
def frozen_ddl(pipeline: PipelineUnderTest) -> Iterator[None]:
    with closing(psycopg2.connect(**pipeline.database)) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute(
            "CREATE FUNCTION public.no_ddl() RETURNS event_trigger LANGUAGE plpgsql AS"
            " $$BEGIN RAISE EXCEPTION 'DDL is frozen'; END$$;"
            "CREATE EVENT TRIGGER frozen ON ddl_command_start EXECUTE FUNCTION public.no_ddl()"
        )
        try:
            yield
        finally:
            cursor.execute("DROP EVENT TRIGGER frozen; DROP FUNCTION public.no_ddl()")


def test_c88_an_event_trigger_that_refuses_ddl_is_told_in_its_own_words_by_plan_and_load(pipeline: FedPipeline) -> None:
    pipeline.open(value=ID)
    pipeline.send(b'{"id": 1}')
    with frozen_ddl(pipeline):
        code, _, notes = pipeline.command("run", "events", "--runner", "in-process")
    require_a_message(code, notes, "could not prepare the table shop.events", "DDL is frozen (SQLSTATE P0001)")

    pipeline.load_here()
    pipeline.send(b'{"id": 2}')
    with frozen_ddl(pipeline):
        code, _, notes = pipeline.command("run", "events", "--runner", "in-process", "--run-id", "frozen")
    require_a_message(code, notes, "could not create staging tables", "DDL is frozen (SQLSTATE P0001)")
    code, _, notes = pipeline.command("run", "events", "--runner", "in-process", "--run-id", "frozen")
    assert code == 0, notes
    assert pipeline.rows("id") == [(1,), (2,)]


def test_a_function_of_the_target_that_raises_while_staging_is_told_without_the_record(pipeline: FedPipeline) -> None:
    name = pipeline.open(value={"format": "json", "columns": [{"name": "t", "type": "text"}]})
    pipeline.load_here()
    pipeline.query(
        "CREATE FUNCTION shop.judge(t text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
        " $$BEGIN RAISE EXCEPTION 'not today' USING DETAIL = t, HINT = t; END$$"
    )
    pipeline.query("ALTER TABLE shop.events ADD CONSTRAINT judged CHECK (shop.judge(t))")
    pipeline.send(b'{"t": "card 4111"}')
    code, _, notes = pipeline.command("run", "events", "--runner", "in-process")
    require_a_message(code, notes, f"{name}[0] offset 0", "function shop.judge(text)", "P0001")
    assert "4111" not in notes


@pytest.mark.parametrize(
    ("extra", "found", "advice"),
    [
        ({"keepalives_idle": "abc"}, 'invalid integer value "abc" for connection option "keepalives_idle"', "extra"),
        ({"sslmode": "verify_full"}, 'invalid sslmode value: "verify_full"', "extra"),
        ({"sslmode": "require"}, "server does not support SSL", "sslmode"),
        ({"channel_binding": "require"}, "channel binding", "extra"),
    ],
)
def test_c86_a_fault_of_the_connections_extra_is_a_configuration_error_at_once(
    pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch, extra: dict[str, str], found: str, advice: str
) -> None:
    pipeline.open(value=ID)
    database: dict[str, Any] = dict(pipeline.database)
    connection = {
        "conn_type": "postgres",
        "host": database["host"],
        "port": database["port"],
        "login": database["user"],
        "password": database["password"],
        "schema": database["dbname"],
        "extra": extra,
    }
    monkeypatch.setenv("AIRFLOW_CONN_POSTGRES_DEFAULT", json.dumps(connection))
    code, _, notes = pipeline.command("run", "events", "--runner", "in-process")
    by = "by the Airflow connection postgres_default"
    require_a_message(code, notes, "ConfigError", by, found, advice, "python -m kafka_ingest preflight")
    assert str(database["password"]) not in notes

"""A database in another encoding than UTF8: what it cannot hold is a dead letter, and those can be stored."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from kafka_ingest.postgres.migrations import migrate
from kafka_ingest.preflight.database import PostgresPreflight
from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer
from tests.integration.pipeline_under_test import FedPipeline, set_connections


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def encoded(
    request: pytest.FixtureRequest,
    postgres_server: PostgresServer,
    kafka_broker: KafkaBroker,
    pipeline: FedPipeline,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[FedPipeline]:
    """The pipeline in a database of that encoding, which the migrations are applied to."""
    name = f"encoded_{uuid.uuid4().hex[:16]}"
    with closing(psycopg2.connect(**postgres_server.params())) as server:
        server.autocommit = True
        cursor = server.cursor()
        locale = "TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        cursor.execute(f"CREATE DATABASE {name} ENCODING '{request.param}' {locale}")
        try:
            params: dict[str, Any] = {**pipeline.database, "dbname": name, "client_encoding": "UTF8"}
            migrate(params)
            set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=params)
            yield replace(pipeline, database=params)
        finally:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_c71_text_that_the_database_cannot_hold_becomes_a_dead_letter_that_can_be_stored(encoded: FedPipeline) -> None:
    columns = [{"name": "id", "type": "bigint"}, {"name": "t", "type": "text"}]
    encoded.open(value={"format": "json", "columns": columns})
    encoded.send('{"id": 1, "t": "ü"}', '{"id": 2, "t": "日"}', '{"id": "日"}')
    encoded.send(b'{"id": "x"}', headers=[("ключ", b"1")])
    encoded.send(b'{"id": 5, "t": "a"}')

    encoded.load_here()

    encoding = PostgresPreflight(encoded.database).server().encoding
    dead = encoded.dead_letters('"offset", reason, value, header_names')
    rows = encoded.rows("kafka_offset, id")
    if encoding == "LATIN1":
        assert rows == [(0, 1), (4, 5)]
        assert dead.pop(0) == (1, "refused_by_database", '{"id": 2, "t": "日"}'.encode(), [])
        assert dead[1][3] == [r"\u043a\u043b\u044e\u0447"]
    else:  # it keeps whatever bytes it is given
        assert rows == [(0, 1), (1, 2), (4, 5)]
    assert [letter[:3] for letter in dead] == [
        (2, "wrong_type", '{"id": "日"}'.encode()),
        (3, "wrong_type", b'{"id": "x"}'),
    ]
    details = dict(encoded.dead_letters('"offset", detail'))
    assert ("\\u65e5" if encoding == "LATIN1" else "日") in details[2]
    if encoding == "LATIN1":
        assert "a header name is stored with all but ASCII as escapes" in details[3]

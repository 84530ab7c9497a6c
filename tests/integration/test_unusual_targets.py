"""Targets that PostgreSQL allows and few people make: names that need quotes, types of their own, rights in parts."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from psycopg2 import sql

from kafka_ingest.errors import TargetMismatch
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from sandbox.kafka import KafkaBroker
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest, set_connections
from tests.staging_bench import METADATA_COLUMNS

#: PostgreSQL allows each of them in quotes.
NAMES = ["order id", "a-b", "a.b", "1st", "Upper", 'quo"te', "semi;colon", "{brace}", "ключ", "back\\slash", "select"]


def send(pipeline: FedPipeline, *documents: Any) -> None:
    pipeline.send(*map(json.dumps, documents))


def reload_all(pipeline: PipelineUnderTest, name: str) -> None:
    pipeline.load_here(RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(name, 0, 0),)))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def test_column_names_that_need_quotes_are_loaded_and_reloaded_and_a_dot_is_no_path(pipeline: FedPipeline) -> None:
    columns = [{"name": column, "type": "integer", "required": True} for column in NAMES]
    metadata = {"offset": "the offset", "timestamp_type": "Kind.of-time"}
    name = pipeline.open(
        value={"format": "json", "columns": columns},
        key=None,
        headers={"column": "the headers"},
        metadata_columns=metadata,
        tombstones="dead_letter",
    )
    document = {column: number for number, column in enumerate(NAMES)}
    nested = {**{column: 0 for column in NAMES if column != "a.b"}, "a": {"b": 1}}
    send(pipeline, document, nested)

    pipeline.load_here()
    reload_all(pipeline, name)

    listed = ", ".join(map(quoted, NAMES))
    assert pipeline.query(f"SELECT {listed} FROM shop.events") == [tuple(range(len(NAMES)))]
    assert pipeline.dead_letters('"offset", reason') == [(1, "missing_required")]
    send(pipeline, document)
    pipeline.load_here()
    code, _, notes = pipeline.command("roll-back", "events", "--batches", "1", "--reason", "why", "--apply")
    assert code == 0, notes
    assert pipeline.query('SELECT "the offset" FROM shop.events') == [(0,)]


def test_what_a_domain_or_enum_refuses_is_a_dead_letter(pipeline: FedPipeline) -> None:
    pipeline.query(
        "CREATE SCHEMA shop; CREATE TYPE shop.mood AS ENUM ('good', 'bad');"
        "CREATE DOMAIN shop.amount AS bigint NOT NULL CONSTRAINT above_zero CHECK (value > 0);"
        "CREATE DOMAIN shop.small_amount AS shop.amount CONSTRAINT below_ten CHECK (value < 10);"
        f"CREATE TABLE shop.events (mood shop.mood, amount shop.small_amount, {METADATA_COLUMNS})"
    )
    columns = [{"name": "mood", "type": "text"}, {"name": "amount", "type": "integer"}]
    name = pipeline.open(
        value={"format": "json", "columns": columns},
        key=None,
        headers=None,
        metadata_columns=None,
        target={"table": "shop.events"},
    )
    documents = [("good", 1), ("ugly", 2), ("bad", 0), ("bad", 10), ("bad", None), (None, 9)]
    send(pipeline, *[{"mood": mood, "amount": amount} for mood, amount in documents])

    pipeline.load_here()
    reload_all(pipeline, name)

    assert pipeline.rows("kafka_offset, mood::text, amount") == [(0, "good", 1), (5, None, 9)]
    assert pipeline.dead_letters('"offset", reason') == [
        (1, "refused_by_database"),
        (2, "check_violation"),
        (3, "check_violation"),
        (4, "not_null_violation"),
    ]


@pytest.fixture
def loader(
    database: dict[str, Any], kafka_broker: KafkaBroker, pipeline: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The role of the pipeline's connection, which owns nothing; gives its quoted name."""
    name, password = f"loader_{secrets.token_hex(6)}", "A-password-1"
    with closing(psycopg2.connect(**database)) as owner:
        owner.autocommit = True
        cursor = owner.cursor()
        role = sql.Identifier(name)
        for statement in (
            f"CREATE ROLE {{}} LOGIN PASSWORD '{password}'",
            "GRANT USAGE ON SCHEMA kafka_ingest TO {}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kafka_ingest TO {}",
            "GRANT USAGE, CREATE ON SCHEMA kafka_ingest_staging TO {}",
            "CREATE SCHEMA shop",
            "GRANT USAGE ON SCHEMA shop TO {}",
            f"CREATE TABLE shop.events (id bigint, note text, {METADATA_COLUMNS})",
            "GRANT SELECT, DELETE ON shop.events TO {}",
        ):
            cursor.execute(sql.SQL(statement).format(role) if "{}" in statement else statement)
        set_connections(
            monkeypatch,
            bootstrap=kafka_broker.bootstrap,
            database={**database, "user": name, "password": password},
        )
        yield quoted(name)
        cursor.execute(sql.SQL("DROP OWNED BY {0} CASCADE; DROP ROLE {0}").format(role))


WRITTEN = "id, kafka_topic, kafka_generation, kafka_partition, kafka_offset, kafka_timestamp, batch_id"


def open_ids(pipeline: FedPipeline) -> str:
    return pipeline.open(
        value={"format": "json", "columns": [{"name": "id", "type": "bigint"}]},
        key=None,
        headers=None,
        metadata_columns=None,
        target={"table": "shop.events"},
    )


def test_insert_on_the_written_columns_is_enough_to_load_and_reload(pipeline: FedPipeline, loader: str) -> None:
    pipeline.query(f"GRANT INSERT ({WRITTEN}) ON shop.events TO {loader}")
    name = open_ids(pipeline)
    send(pipeline, {"id": 1}, {"id": 2})
    pipeline.load_here()
    reload_all(pipeline, name)
    assert pipeline.rows("id") == [(1,), (2,)]


ALL_ROWS = "CREATE POLICY everything ON shop.events TO {} USING (true)"


@pytest.mark.parametrize(
    ("policies", "allows"),
    [
        ([ALL_ROWS], True),
        (["CREATE POLICY everything ON shop.events USING (true)"], True),
        (
            [
                "CREATE POLICY seen ON shop.events FOR SELECT TO {} USING (true)",
                "CREATE POLICY made ON shop.events FOR INSERT TO {} WITH CHECK (true)",
                "CREATE POLICY gone ON shop.events FOR DELETE TO {} USING (true)",
            ],
            True,
        ),
        ([ALL_ROWS, "CREATE POLICY more ON shop.events AS RESTRICTIVE FOR UPDATE TO {} USING (id > 1)"], True),
        ([ALL_ROWS, "CREATE POLICY less ON shop.events AS RESTRICTIVE TO {} USING (id > 1)"], False),
        ([ALL_ROWS, "CREATE POLICY less ON shop.events AS RESTRICTIVE FOR DELETE USING (id > 1)"], False),
        ([ALL_ROWS + " WITH CHECK (id > 1)"], False),
        (["CREATE POLICY few ON shop.events TO {} USING (id > 1)"], False),
        # Nothing would be deleted, without a word.
        (
            [
                "CREATE POLICY seen ON shop.events FOR SELECT TO {} USING (true)",
                "CREATE POLICY made ON shop.events FOR INSERT TO {} WITH CHECK (true)",
            ],
            False,
        ),
        (["CREATE POLICY others ON shop.events TO pg_monitor USING (true)"], False),
        ([], False),
    ],
)
def test_row_security_is_accepted_only_where_no_row_can_be_hidden_or_refused(
    pipeline: FedPipeline, loader: str, policies: list[str], allows: bool
) -> None:
    pipeline.query(f"GRANT INSERT ON shop.events TO {loader}; ALTER TABLE shop.events ENABLE ROW LEVEL SECURITY")
    for policy in policies:
        pipeline.query(policy.format(loader))
    name = open_ids(pipeline)
    send(pipeline, {"id": 1}, {"id": 2})
    if not allows:
        with pytest.raises(TargetMismatch, match="CREATE POLICY kafka_ingest ON"):
            pipeline.load_here()
        return
    pipeline.load_here()
    reload_all(pipeline, name)
    assert pipeline.rows("id") == [(1,), (2,)]

"""A source table, a real Debezium, and the table that is loaded from its events: equal, value by value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import psycopg2
import pytest

from tests.debezium_source import DebeziumSource
from tests.integration.pipeline_under_test import FedPipeline, produced
from tests.random_dml import TABLE, create_table, final_state, transactions

VALUE = {
    "format": "json",
    "envelope": "debezium",
    "columns": [
        {"name": "id", "type": "bigint", "from": "key"},
        {"name": "tenant", "type": "text"},
        {"name": "amount", "type": "numeric(12,2)", "as": "number_text"},
        {"name": "note", "type": "text"},
        {"name": "tags", "type": "text[]"},
        {"name": "payload", "type": "jsonb", "as": "json_text"},
        {"name": "at", "type": "timestamptz"},
    ],
}


def follow(pipeline: FedPipeline, topic: str, **value: Any) -> None:
    """Write the pipeline that follows the source's table."""
    state = {"mode": "upsert", "key": ["id"], "order": "offset", "deletes": "remove", "truncate": "ignore"}
    target = {"table": pipeline.table, "create_table": True, **state}
    pipeline.write(topic, value={**VALUE, **value}, key=None, headers=None, metadata_columns={}, target=target)


def run_on(source: DebeziumSource, changes: Iterator[Sequence[Any]], transactions_: int) -> None:
    """Run some transactions at the source, and wait until Kafka has their events."""
    for statements in islice(changes, transactions_):
        source.execute(*(one.text for one in statements))
    source.wait_until_captured()


def rows_of(params: Any, table: str) -> list[tuple[Any, ...]]:
    with closing(psycopg2.connect(**params)) as connection:
        return final_state(connection, table)


@pytest.mark.parametrize("with_schemas", [False, True], ids=["plain", "with schemas"])
def test_the_table_is_the_source_table_after_every_batch_of_random_changes(
    debezium_source: DebeziumSource, pipeline: FedPipeline, *, with_schemas: bool
) -> None:
    """A snapshot of rows that were there, then four batches of transactions, with keys that change and come back."""
    source, changes = debezium_source, transactions(7)
    source.execute(*create_table(replica_identity="FULL"))
    for statements in islice(changes, 10):
        source.execute(*(one.text for one in statements))
    converters = {"value_converter_schemas_enable": True, "key_converter_schemas_enable": True} if with_schemas else {}
    [topic] = source.capture([TABLE], decimal_handling_mode="string", **converters)
    follow(pipeline, topic, **({"with_schema": ["value", "key"]} if with_schemas else {}))
    counted = {"deletes": 0, "dead_letters": 0}
    for _ in range(4):
        run_on(source, changes, 40)
        counts = pipeline.load_here()["counts"]
        counted = {name: counted[name] + counts[name] for name in counted}
        assert rows_of(pipeline.database, pipeline.table) == rows_of(source.params, TABLE)
    assert counted["deletes"] > 0
    assert counted["dead_letters"] == 0
    pipeline.command("audit", pipeline.name, "--all")


def test_a_value_that_did_not_travel_is_a_dead_letter_and_the_row_stays_as_it_was(
    debezium_source: DebeziumSource, pipeline: FedPipeline
) -> None:
    """With REPLICA IDENTITY DEFAULT an update that leaves a long note alone does not hold it."""
    source = debezium_source
    source.execute(*create_table())
    [topic] = source.capture([TABLE], decimal_handling_mode="string")
    follow(pipeline, topic)
    source.execute(f"INSERT INTO {TABLE} (id, tenant, note) VALUES (1, 'before', repeat('long ', 1000))")
    source.execute(f"UPDATE {TABLE} SET tenant = 'after'")
    source.wait_until_captured()
    assert pipeline.load_here()["counts"]["dead_letters"] == 1
    assert pipeline.query(f"SELECT tenant, length(note) FROM {pipeline.table}") == [("before", 5000)]
    [(reason, detail)] = pipeline.dead_letters("reason, detail")
    assert reason == "value_did_not_travel"
    assert "REPLICA IDENTITY FULL" in detail
    # The way out that the message names: the next update travels whole.
    source.execute(f"ALTER TABLE {TABLE} REPLICA IDENTITY FULL", f"UPDATE {TABLE} SET tenant = 'again'")
    source.wait_until_captured()
    pipeline.load_here()
    assert pipeline.query(f"SELECT tenant, length(note) FROM {pipeline.table}") == [("again", 5000)]


def test_events_that_a_killed_connector_repeats_change_nothing(
    debezium_source: DebeziumSource, pipeline: FedPipeline
) -> None:
    """After a crash a connector sends what it had not written down again, in order, at new offsets."""
    source, changes = debezium_source, transactions(11)
    source.execute(*create_table(replica_identity="FULL"))
    [topic] = source.capture([TABLE], decimal_handling_mode="string")
    follow(pipeline, topic)
    run_on(source, changes, 40)
    pipeline.load_here()
    with produced(pipeline.make_producer()) as sender:
        for record in source.records(topic)[-60:]:
            sender.produce(topic, key=record.key, value=record.value, partition=0)
    repeated = pipeline.load_here()["counts"]
    assert repeated["rows"] + repeated["deletes"] + repeated["superseded"] + repeated["tombstones"] == 60
    assert rows_of(pipeline.database, pipeline.table) == rows_of(source.params, TABLE)

"""A source table, a real Debezium, and the table that is loaded from its events: equal, value by value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import psycopg2
import pytest

from tests.deadlines import until
from tests.debezium_source import CAPTURE_SECONDS, DebeziumSource
from tests.integration.pipeline_under_test import FedPipeline, produced
from tests.integration.test_debezium_source import TOASTED, TOASTED_ROW
from tests.random_dml import TABLE, Kind, create_table, final_state, transactions

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

#: A table whose values a connector writes in another form in each of its modes. Its times have whole milliseconds:
#: ``time.precision.mode=connect`` cuts off what is below.
OF_MODES = "readings"
OF_MODES_COLUMNS = "amount numeric(12,2), moment timestamp, short timestamp(3), day date, at timestamptz, raw bytea"
OF_MODES_ROWS = """
    (1, 0.1, '2024-02-29 23:34:56.789', '2024-02-29 00:00', '2024-02-29', '2024-02-29 09:34:56.789+02', '\\x00ff'),
    (2, -9999999999.99, '1969-12-31 23:59:59.999', '1969-12-31 23:59:59.999', '1969-12-31', '1970-01-01 00:00+00', ''),
    (3, 1000, '9999-12-31 23:59:59.999', '1600-01-01', '1600-01-01', '0001-01-01 00:00+00', '\\x0a'),
    (4, NULL, NULL, NULL, NULL, NULL, NULL)
"""


def of_modes(*, amount: str | None, moment: str, raw: str | None) -> list[dict[str, str]]:
    """The columns of that table, each with what its values are."""
    conversions = {"amount": amount, "moment": moment, "short": "epoch_millis", "day": "epoch_days", "raw": raw}
    types = {
        "amount": "numeric(12,2)",
        "moment": "timestamp",
        "short": "timestamp",
        "day": "date",
        "at": "timestamptz",
        "raw": "bytea",
    }
    columns = [
        {"name": name, "type": type_} | ({"as": as_} if (as_ := conversions.get(name)) else {})
        for name, type_ in types.items()
    ]
    return [{"name": "id", "type": "bigint", "from": "key"}, *columns]


def follow(pipeline: FedPipeline, topic: str, sections: Mapping[str, Any] | None = None, /, **value: Any) -> None:
    """Write the pipeline that follows the source's table, by its change events unless ``sections`` say otherwise."""
    state = {"mode": "upsert", "key": ["id"], "order": "offset", "deletes": "remove"}
    given = {"value": {**VALUE, **value}, "key": None, "target": {"truncate": "ignore"}, **(sections or {})}
    given["target"] = {"table": pipeline.table, "create_table": True, **state, **given["target"]}
    pipeline.write(topic, headers=None, metadata_columns={}, **given)


def follow_unwrapped(pipeline: FedPipeline, source: DebeziumSource, handling: str, **state: Any) -> None:
    """Capture the source's table, unwrapped, and write the pipeline that follows it."""
    unwrap = {
        "transforms": "unwrap",
        "transforms_unwrap_type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms_unwrap_delete_tombstone_handling_mode": handling,
    }
    [topic] = source.capture([TABLE], decimal_handling_mode="string", **unwrap)
    follow(pipeline, topic, {"value": {"format": "json", "columns": VALUE["columns"]}, "target": state})


def run_on(source: DebeziumSource, changes: Iterator[Sequence[Any]], transactions_: int) -> None:
    """Run some transactions at the source, and wait until Kafka has their events."""
    for statements in islice(changes, transactions_):
        source.execute(*(one.text for one in statements))
    source.wait_until_captured()


def replayed(pipeline: FedPipeline) -> list[tuple[Any, ...]]:
    """Return the rows by key that the history makes, change after change."""
    names = ["id", "tenant", "amount", "note", "tags", "payload::text", "at"]
    changes = pipeline.query(
        f"SELECT kafka_change, coalesce(unavailable_columns, '{{}}'), {', '.join(names)} FROM {pipeline.table}_history "
        "ORDER BY kafka_offset"
    )
    found: dict[Any, tuple[Any, ...]] = {}
    for change, missing, key, *values in changes:
        before = found.pop(key, ())
        if change == "put":
            row = zip(names[1:], values, before[1:] or (None,) * len(values), strict=True)
            found[key] = (key, *(old if name in missing else value for name, value, old in row))
    return [found[key] for key in sorted(found)]


def rows_of(params: Any, table: str) -> list[tuple[Any, ...]]:
    with closing(psycopg2.connect(**params)) as connection:
        return final_state(connection, table)


@pytest.mark.parametrize(
    ("with_schemas", "identity", "kinds"),
    [
        (False, "FULL", tuple(Kind)),
        (True, "FULL", tuple(Kind)),
        # Without the whole row in the log long notes do not travel; those of a changed key are in no event.
        (False, "DEFAULT", tuple(set(Kind) - {Kind.CHANGE_KEY})),
    ],
    ids=["plain", "with schemas", "with values that do not travel"],
)
def test_the_table_is_the_source_table_after_every_batch_of_random_changes(
    debezium_source: DebeziumSource,
    pipeline: FedPipeline,
    *,
    with_schemas: bool,
    identity: str,
    kinds: Sequence[Kind],
) -> None:
    """A snapshot of rows that were there, then four batches of transactions, with keys that change and come back."""
    source, changes = debezium_source, transactions(7, kinds=sorted(kinds))
    source.execute(*create_table(replica_identity=identity))
    for statements in islice(changes, 10):
        source.execute(*(one.text for one in statements))
    converters = {"value_converter_schemas_enable": True, "key_converter_schemas_enable": True} if with_schemas else {}
    [topic] = source.capture([TABLE], decimal_handling_mode="string", **converters)
    kept = {"target": {"truncate": "ignore", "history": f"{pipeline.table}_history"}}
    follow(pipeline, topic, kept, **({"with_schema": ["value", "key"]} if with_schemas else {}))
    counted = {"deletes": 0, "dead_letters": 0}
    for _ in range(4):
        run_on(source, changes, 40)
        counts = pipeline.load_here()["counts"]
        counted = {name: counted[name] + counts[name] for name in counted}
        assert rows_of(pipeline.database, pipeline.table) == rows_of(source.params, TABLE)
        assert replayed(pipeline) == rows_of(source.params, TABLE)
    assert counted["deletes"] > 0
    assert counted["dead_letters"] == 0
    left_out = sum(b"__debezium_unavailable_value" in (record.value or b"") for record in source.records(topic))
    assert (left_out > 20) == (identity == "DEFAULT")
    pipeline.command("audit", pipeline.name, "--all")


@pytest.mark.parametrize(
    ("handling", "state"),
    [
        ("delete-to-tombstone", {}),
        ("rewrite-with-tombstone", {"delete_when": {"path": "$.__deleted", "equals": "true"}}),
        ("rewrite", {"delete_when": {"path": "$.__deleted", "equals": "true"}}),
    ],
)
def test_the_table_is_the_source_table_from_unwrapped_events(
    debezium_source: DebeziumSource, pipeline: FedPipeline, handling: str, state: dict[str, Any]
) -> None:
    """``ExtractNewRecordState`` leaves the row, and tells a delete by a tombstone, by a member, or by both."""
    source, changes = debezium_source, transactions(13)
    source.execute(*create_table(replica_identity="FULL"))
    follow_unwrapped(pipeline, source, handling, **state)
    deletes = 0
    for _ in range(2):
        run_on(source, changes, 40)
        counts = pipeline.load_here()["counts"]
        deletes += counts["deletes"]
        assert pipeline.dead_letters("reason, detail, value") == []
        assert rows_of(pipeline.database, pipeline.table) == rows_of(source.params, TABLE)
    assert deletes > 0


def test_the_text_null_of_an_unwrapped_delete_is_a_dead_letter(
    debezium_source: DebeziumSource, pipeline: FedPipeline
) -> None:
    """With ``handling.mode=tombstone`` the JSON converter writes the text null, which Kafka takes for a value."""
    source = debezium_source
    source.execute(*create_table())
    follow_unwrapped(pipeline, source, "tombstone")
    source.execute(f"INSERT INTO {TABLE} (id) VALUES (1)", f"DELETE FROM {TABLE}")
    source.wait_until_captured()
    pipeline.load_here()
    [(reason, detail, value)] = pipeline.dead_letters("reason, detail, value")
    assert (reason, bytes(value)) == ("wrong_type", b"null")
    assert detail == "the value: expected an object, found null"
    assert pipeline.query(f"SELECT id FROM {pipeline.table}") == [(1,)]


def test_values_of_every_type_that_did_not_travel_are_those_of_the_source(
    debezium_source: DebeziumSource, pipeline: FedPipeline
) -> None:
    """Updates that leave large values alone, in the batch of their insert and in later ones."""
    source = debezium_source
    source.execute(*TOASTED, TOASTED_ROW)
    [topic] = source.capture(["toasted"])
    types = {"small": "integer", "note": "text", "tags": "text[]", "raw": "bytea", "numbers": "integer[]"}
    columns = [{"name": name, "type": type_} for name, type_ in types.items()]
    document = {"name": "doc", "type": "jsonb", "as": "json_text"}
    follow(pipeline, topic, columns=[{"name": "id", "type": "bigint", "from": "key"}, *columns, document])
    question = "SELECT id, small, note, tags, encode(raw, 'hex'), numbers, doc::text FROM {} ORDER BY id"
    for statement in (
        "UPDATE toasted SET small = 2",
        "UPDATE toasted SET small = 3, tags = array_fill('other'::text, ARRAY[900])",
        "UPDATE toasted SET small = 4, doc = NULL",
    ):
        source.execute(statement)
        source.wait_until_captured()
        assert pipeline.load_here()["counts"]["dead_letters"] == 0
        assert pipeline.query(question.format(pipeline.table)) == source.rows(question.format("toasted"))
    left_out = sum(b"__debezium_unavailable_value" in (record.value or b"") for record in source.records(topic))
    assert left_out == 3


def test_a_changed_key_leaves_its_large_value_in_no_event_until_the_whole_row_is_in_the_log(
    debezium_source: DebeziumSource, pipeline: FedPipeline
) -> None:
    source = debezium_source
    source.execute(*create_table())
    [topic] = source.capture([TABLE], decimal_handling_mode="string")
    follow(pipeline, topic)
    source.execute(f"INSERT INTO {TABLE} (id, tenant, note) VALUES (1, 'before', repeat('long ', 1000))")
    source.execute(f"UPDATE {TABLE} SET id = 2", f"UPDATE {TABLE} SET tenant = 'after'")
    source.wait_until_captured()
    assert pipeline.load_here()["counts"]["dead_letters"] == 2
    assert pipeline.query(f"SELECT * FROM {pipeline.table}") == []
    (reason, detail), _ = pipeline.dead_letters("reason, detail")
    assert reason == "value_did_not_travel"
    assert "REPLICA IDENTITY FULL" in detail
    # The way out that the message names: the next update travels whole.
    source.execute(f"ALTER TABLE {TABLE} REPLICA IDENTITY FULL", f"UPDATE {TABLE} SET tenant = 'again'")
    source.wait_until_captured()
    pipeline.load_here()
    assert pipeline.query(f"SELECT id, tenant, length(note) FROM {pipeline.table}") == [(2, "again", 5000)]


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


@pytest.mark.parametrize(
    ("modes", "columns"),
    [
        (
            {"decimal_handling_mode": "string", "time_precision_mode": "adaptive"},
            of_modes(amount="number_text", moment="epoch_micros", raw=None),
        ),
        (
            {
                "decimal_handling_mode": "double",
                "time_precision_mode": "connect",
                "binary_handling_mode": "hex",
                "tombstones_on_delete": False,
                "provide_transaction_metadata": True,
                "heartbeat_interval_ms": 100,
            },
            of_modes(amount=None, moment="epoch_millis", raw="hex"),
        ),
    ],
    ids=["string, adaptive, base64", "double, connect, hex, no tombstones, transactions, heartbeats"],
)
def test_the_table_is_the_source_table_in_every_mode_of_the_connector(
    debezium_source: DebeziumSource, pipeline: FedPipeline, modes: dict[str, Any], columns: list[dict[str, str]]
) -> None:
    """A snapshot of the rows, then each of them updated, one deleted, one with another key."""
    source = debezium_source
    source.execute(
        f"CREATE TABLE {OF_MODES} (id bigint PRIMARY KEY, {OF_MODES_COLUMNS})",
        f"INSERT INTO {OF_MODES} VALUES {OF_MODES_ROWS}",
    )
    [topic] = source.capture([OF_MODES], **modes)
    follow(pipeline, topic, columns=columns)
    question = "SELECT id, amount, moment, short, day, at, encode(raw, 'hex') FROM {} ORDER BY id"
    source.wait_until_captured()
    assert pipeline.load_here()["counts"]["rows"] == 4
    assert pipeline.query(question.format(pipeline.table)) == source.rows(question.format(OF_MODES))
    source.execute(
        f"UPDATE {OF_MODES} SET amount = amount + 0.01, moment = moment - interval '1 day', day = day + 1",
        f"DELETE FROM {OF_MODES} WHERE id = 1",
        f"UPDATE {OF_MODES} SET id = 5 WHERE id = 2",
    )
    source.wait_until_captured()
    counts = pipeline.load_here()["counts"]
    assert (counts["rows"], counts["deletes"], counts["dead_letters"]) == (3, 2, 0)
    assert [row[0] for row in pipeline.query(question.format(pipeline.table))] == [3, 4, 5]
    assert pipeline.query(question.format(pipeline.table)) == source.rows(question.format(OF_MODES))


def test_an_incremental_snapshot_brings_values_that_did_not_travel(
    debezium_source: DebeziumSource, pipeline: FedPipeline
) -> None:
    """The second way out of the docs, for a table that keeps REPLICA IDENTITY DEFAULT, after a change of a key, too."""
    source, signals = debezium_source, "debezium_signal"
    source.execute(*create_table(), f"CREATE TABLE {signals} (id text PRIMARY KEY, type text, data text)")
    [topic, _] = source.capture(
        [TABLE, signals], decimal_handling_mode="string", signal_data_collection=f"public.{signals}"
    )
    follow(pipeline, topic)
    long = "repeat('long ', 1000)"
    source.execute(f"INSERT INTO {TABLE} (id, tenant, note) VALUES (1, 'a', {long}), (2, 'b', {long}), (3, 'c', 'c')")
    source.execute(f"UPDATE {TABLE} SET tenant = 'after' WHERE id = 1", f"UPDATE {TABLE} SET id = 4 WHERE id = 2")
    source.wait_until_captured()
    assert pipeline.load_here()["counts"]["dead_letters"] == 1
    lengths = f"SELECT id, tenant, length(note) FROM {pipeline.table} ORDER BY id"
    assert pipeline.query(lengths) == [(1, "after", 5000), (3, "c", 1)]
    wanted = f'{{"data-collections": ["public.{TABLE}"], "type": "incremental"}}'
    source.execute(f"INSERT INTO {signals} VALUES ('once', 'execute-snapshot', '{wanted}')")
    until(
        lambda: sum(b'"op":"r"' in (record.value or b"") for record in source.records(topic)) == 3,
        "the snapshot has read three rows",
        CAPTURE_SECONDS,
    )
    assert pipeline.load_here()["counts"]["dead_letters"] == 0
    assert pipeline.query(lengths) == [(1, "after", 5000), (3, "c", 1), (4, "b", 5000)]
    assert rows_of(pipeline.database, pipeline.table) == rows_of(source.params, TABLE)

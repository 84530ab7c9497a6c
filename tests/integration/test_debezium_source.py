"""What a running Debezium writes for the changes of a PostgreSQL table, and how the tests get at it.

Expected values follow Debezium's page on its PostgreSQL connector (3.6, "Data change events") and the workload.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Any

import psycopg2
import pytest

from sandbox.connect import ConnectWorker
from sandbox.errors import SandboxError
from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer
from tests.deadlines import until
from tests.debezium_source import CAPTURE_SECONDS, DebeziumSource, fresh_source
from tests.kafka_records import Record
from tests.random_dml import TABLE, Kind, create_table, final_state, transactions
from tests.services import TestServices

#: Debezium's default ``unavailable.value.placeholder``.
UNAVAILABLE = "__debezium_unavailable_value"
ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text, price numeric(8,2))"
#: Values beyond 2 kB are stored outside of their row, and with EXTERNAL never compressed.
TOASTED = (
    "CREATE TABLE toasted (id int PRIMARY KEY, small int, note text, tags text[], doc jsonb, raw bytea, numbers int[])",
    *(
        f"ALTER TABLE toasted ALTER {column} SET STORAGE EXTERNAL"
        for column in ("note", "tags", "doc", "raw", "numbers")
    ),
)
TOASTED_ROW = (
    "INSERT INTO toasted VALUES (1, 1, repeat('n', 3000), array_fill('tag'::text, ARRAY[1000]),"
    " to_jsonb(repeat('j', 3000)), decode(repeat('ff', 3000), 'hex'), array_fill(7, ARRAY[1000]))"
)


@pytest.fixture
def items(debezium_source: DebeziumSource) -> DebeziumSource:
    """A source with a table ``items`` that has one row."""
    debezium_source.execute(ITEMS, "INSERT INTO items VALUES (1, 'one', 1.50)")
    return debezium_source


def captured(source: DebeziumSource, topic: str, *changes: Sequence[str]) -> list[Record]:
    """Run the changes, each a transaction of its statements, and return what the topic holds then."""
    for statements in changes:
        source.execute(*statements)
    source.wait_until_captured()
    return source.records(topic)


def value_of(record: Record) -> dict[str, Any]:
    assert record.value is not None
    value: dict[str, Any] = json.loads(record.value)
    return value


def told(record: Record) -> tuple[object, ...]:
    """Return key, op, before and after; a tombstone has a key alone."""
    key = None if record.key is None else json.loads(record.key)
    if record.value is None:
        return (key,)
    value = value_of(record)
    return key, value["op"], value["before"], value["after"]


def ops(records: Sequence[Record]) -> list[str | None]:
    """Return what each record says was done; a tombstone says nothing."""
    return [None if record.value is None else value_of(record)["op"] for record in records]


def headers_of(record: Record) -> dict[str, bytes | None]:
    return dict(record.headers or ())


def test_rows_from_before_the_capture_are_snapshot_reads(items: DebeziumSource) -> None:
    [topic] = items.capture(["items"], decimal_handling_mode="string")
    [record] = captured(items, topic)
    assert told(record) == ({"id": 1}, "r", None, {"id": 1, "name": "one", "price": "1.50"})


def test_insert_update_and_delete_are_c_and_u_and_d_with_a_tombstone(items: DebeziumSource) -> None:
    [topic] = items.capture(["items"], decimal_handling_mode="string")
    changes = [
        ["INSERT INTO items VALUES (2, 'two', NULL)"],
        ["UPDATE items SET name = 'other' WHERE id = 2"],
        ["DELETE FROM items WHERE id = 2"],
    ]
    two, other = {"id": 2, "name": "two", "price": None}, {"id": 2, "name": "other", "price": None}
    # With REPLICA IDENTITY DEFAULT only the key of the old row is known.
    only_key = {"id": 2, "name": None, "price": None}
    assert [told(record) for record in captured(items, topic, *changes)][1:] == [
        ({"id": 2}, "c", None, two),
        ({"id": 2}, "u", None, other),
        ({"id": 2}, "d", only_key, None),
        ({"id": 2},),
    ]


def test_a_transaction_that_was_rolled_back_has_no_event(items: DebeziumSource) -> None:
    [topic] = items.capture(["items"])
    with closing(psycopg2.connect(**items.params)) as connection:
        connection.cursor().execute("INSERT INTO items VALUES (2, 'two', NULL)")
        connection.rollback()
    assert len(captured(items, topic)) == 1


def test_a_changed_key_is_a_delete_and_a_create_that_share_their_position(items: DebeziumSource) -> None:
    [topic] = items.capture(["items"], decimal_handling_mode="string")
    records = captured(items, topic, ["UPDATE items SET id = 10 WHERE id = 1"])
    assert [told(record) for record in records[1:]] == [
        ({"id": 1}, "d", {"id": 1, "name": None, "price": None}, None),
        ({"id": 1},),
        ({"id": 10}, "c", None, {"id": 10, "name": "one", "price": "1.50"}),
    ]
    _, deleted, _, created = records
    for member in ("lsn", "txId", "sequence"):
        assert value_of(deleted)["source"][member] == value_of(created)["source"][member]
    assert json.loads(headers_of(deleted)["__debezium.newkey"] or b"") == {"id": 10}
    assert json.loads(headers_of(created)["__debezium.oldkey"] or b"") == {"id": 1}


def test_a_truncation_has_neither_key_nor_rows(items: DebeziumSource) -> None:
    [topic] = items.capture(["items"])
    records = captured(items, topic, ["TRUNCATE items"], ["INSERT INTO items VALUES (1, 'again', NULL)"])
    assert [told(record)[:2] for record in records] == [({"id": 1}, "r"), (None, "t"), ({"id": 1}, "c")]
    truncation = value_of(records[1])
    assert (truncation.get("before"), truncation.get("after")) == (None, None)


def test_no_tombstone_follows_a_delete_where_they_are_switched_off(items: DebeziumSource) -> None:
    [topic] = items.capture(["items"], tombstones_on_delete=False)
    records = captured(items, topic, ["DELETE FROM items"], ["INSERT INTO items VALUES (1, 'again', NULL)"])
    assert ops(records) == ["r", "d", "c"]


def test_a_toasted_value_left_alone_does_not_travel(debezium_source: DebeziumSource) -> None:
    source = debezium_source
    source.execute(*TOASTED)
    [topic] = source.capture(["toasted"])
    records = captured(source, topic, [TOASTED_ROW], ["UPDATE toasted SET small = 2"])
    assert told(records[1]) == (
        {"id": 1},
        "u",
        None,
        {
            "id": 1,
            "small": 2,
            "note": UNAVAILABLE,
            "tags": [UNAVAILABLE],
            "doc": UNAVAILABLE,
            "raw": base64.b64encode(UNAVAILABLE.encode()).decode(),
            "numbers": list(UNAVAILABLE.encode()),
        },
    )


def test_a_changed_key_leaves_a_toasted_value_in_no_event(debezium_source: DebeziumSource) -> None:
    source = debezium_source
    source.execute(*TOASTED)
    [topic] = source.capture(["toasted"])
    records = captured(source, topic, [TOASTED_ROW], ["UPDATE toasted SET id = 2"])
    assert [told(record)[:2] for record in records[1:]] == [({"id": 1}, "d"), ({"id": 1},), ({"id": 2}, "c")]
    assert value_of(records[1])["before"]["note"] is None
    assert value_of(records[3])["after"]["note"] == UNAVAILABLE


def test_a_toasted_value_travels_with_a_full_replica_identity(debezium_source: DebeziumSource) -> None:
    source = debezium_source
    source.execute(*TOASTED, "ALTER TABLE toasted REPLICA IDENTITY FULL")
    [topic] = source.capture(["toasted"])
    records = captured(source, topic, [TOASTED_ROW], ["UPDATE toasted SET small = 2"])
    raw = base64.b64encode(b"\xff" * 3000).decode()
    large = {"note": "n" * 3000, "tags": ["tag"] * 1000, "doc": json.dumps("j" * 3000), "raw": raw}
    row = {"id": 1, **large, "numbers": [7] * 1000}
    assert told(records[1]) == ({"id": 1}, "u", {**row, "small": 1}, {**row, "small": 2})


def test_with_schemas_key_and_value_hold_schema_and_payload(items: DebeziumSource) -> None:
    with_schemas = {"key_converter_schemas_enable": True, "value_converter_schemas_enable": True}
    [topic] = items.capture(["items"], **with_schemas)
    [record] = captured(items, topic)
    assert json.loads(record.key or b"")["payload"] == {"id": 1}
    value = value_of(record)
    # A numeric(8,2) of 1.50 is the integer 150, its bytes in base64; the scale is in the schema.
    assert value["payload"]["after"] == {"id": 1, "name": "one", "price": "AJY="}
    [after] = [field for field in value["schema"]["fields"] if field["field"] == "after"]
    [price] = [field for field in after["fields"] if field["field"] == "price"]
    assert (price["name"], price["parameters"]["scale"]) == ("org.apache.kafka.connect.data.Decimal", "2")


def test_every_record_says_what_captured_it_in_its_headers(items: DebeziumSource) -> None:
    [topic] = items.capture(["items"])
    [record] = captured(items, topic)
    names = ("connectorLogicalName", "connectorName", "runId", "taskId")
    assert sorted(headers_of(record)) == [f"__debezium.context.{name}" for name in names]
    assert (record.topic, record.partition, record.offset) == (topic, 0, 0)


def test_two_captures_of_one_table_see_the_same_changes(items: DebeziumSource) -> None:
    [first] = items.capture(["items"])
    items.execute("INSERT INTO items VALUES (2, 'two', NULL)")
    [second] = items.capture(["items"])
    # Its own snapshot holds what was inserted before.
    assert ops(captured(items, first, ["DELETE FROM items WHERE id = 2"])) == ["r", "c", "d", None]
    assert ops(items.records(second)) == ["r", "r", "d", None]


@pytest.fixture
def forgetful_source(
    own_services: TestServices, source_server: PostgresServer, kafka_broker: KafkaBroker
) -> Iterator[tuple[DebeziumSource, ConnectWorker]]:
    """A source with a worker of its own that writes its offsets down when it is stopped, and hardly before."""
    settings = {"offset.flush.interval.ms": "60000"}
    worker = ConnectWorker(own_services.folder / "connect", kafka_broker.bootstrap, settings=settings)
    worker.start()
    with fresh_source(source_server, worker, kafka_broker.bootstrap) as source:
        yield source, worker


def test_a_worker_that_was_killed_writes_events_again_at_new_offsets(
    forgetful_source: tuple[DebeziumSource, ConnectWorker],
) -> None:
    source, worker = forgetful_source
    source.execute(ITEMS, "INSERT INTO items VALUES (0, 'snapshot', NULL)")
    [topic] = source.capture(["items"])
    until_records(source, topic, 1)
    worker.stop()  # it writes down that the snapshot is done
    worker.start()
    source.capture_again()
    for number in range(1, 6):
        source.execute(f"INSERT INTO items VALUES ({number}, 'streamed', NULL)")
    until_records(source, topic, 6)
    worker.kill()
    worker.start()
    source.capture_again()
    until_records(source, topic, 11)
    records = source.records(topic)
    assert [(record.offset, told(record)[:2]) for record in records] == [
        (0, ({"id": 0}, "r")),
        *((offset, ({"id": number}, "c")) for offset, number in enumerate([1, 2, 3, 4, 5, 1, 2, 3, 4, 5], start=1)),
    ]
    first, again = ([value_of(record) for record in part] for part in (records[1:6], records[6:]))
    assert [value["source"]["lsn"] for value in first] == [value["source"]["lsn"] for value in again]
    assert [value["after"] for value in first] == [value["after"] for value in again]
    assert all(before["ts_us"] < after["ts_us"] for before, after in zip(first, again, strict=True))


def until_records(source: DebeziumSource, topic: str, count: int) -> None:
    """Wait for records of a worker that confirms nothing meanwhile."""
    until(lambda: len(source.records(topic)) >= count, f"{topic} holds {count} records", CAPTURE_SECONDS)


@pytest.mark.parametrize(
    ("replica_identity", "left_out"),
    [("FULL", None), ("DEFAULT", Kind.CHANGE_KEY)],  # with DEFAULT, no event would have a note of the new key
)
def test_the_events_of_random_changes_add_up_to_the_table(
    debezium_source: DebeziumSource, replica_identity: str, left_out: Kind | None
) -> None:
    source = debezium_source
    source.execute(*create_table(replica_identity=replica_identity))
    [topic] = source.capture([TABLE], decimal_handling_mode="string")
    kinds = [kind for kind in Kind if kind is not left_out]
    drawn = [[one.text for one in statements] for statements in islice(transactions(1, kinds=kinds), 150)]
    records = captured(source, topic, *drawn)
    with closing(psycopg2.connect(**source.params)) as connection:
        assert added_up(records) == final_state(connection)
    unavailable = any(json.dumps(UNAVAILABLE).encode() in (record.value or b"") for record in records)
    assert unavailable is (replica_identity == "DEFAULT")


def added_up(records: Sequence[Record]) -> list[tuple[object, ...]]:
    """Return the rows that the events leave, as ``final_state`` has them; a note that did not travel is the old one."""
    rows: dict[int, dict[str, Any]] = {}
    for record in records:
        key = json.loads(record.key or b"")["id"]
        after = None if record.value is None else value_of(record)["after"]
        if after is None:
            rows.pop(key, None)
        else:
            note = rows[key]["note"] if after["note"] == UNAVAILABLE else after["note"]
            rows[key] = {**after, "note": note}
    return [_row(rows[key]) for key in sorted(rows)]


def _row(after: dict[str, Any]) -> tuple[object, ...]:
    amount = None if after["amount"] is None else Decimal(after["amount"])
    at = None if after["at"] is None else datetime.fromisoformat(after["at"])
    return after["id"], after["tenant"], amount, after["note"], after["tags"], after["payload"], at


def test_a_worker_that_cannot_start_says_why(own_services: TestServices, kafka_broker: KafkaBroker) -> None:
    settings = {"key.converter": "no.such.Converter"}
    worker = ConnectWorker(own_services.folder / "connect", kafka_broker.bootstrap, settings=settings)
    with pytest.raises(SandboxError) as raised:
        worker.start()
    assert "Class no.such.Converter could not be found" in raised.value.found
    assert not worker.is_running()


def test_settings_that_a_connector_cannot_have_are_refused_with_the_reason(items: DebeziumSource) -> None:
    with pytest.raises(SandboxError) as raised:
        items.capture(["items"], snapshot_mode="sometimes")
    assert raised.value.found.startswith("snapshot.mode: ")


def test_a_connector_that_cannot_log_in_is_reported_with_the_reason(items: DebeziumSource) -> None:
    with pytest.raises(SandboxError) as raised:
        items.capture(["items"], database_password="wrong")
    assert "password authentication failed" in raised.value.found


def test_a_connector_that_fails_is_reported_with_its_cause(items: DebeziumSource) -> None:
    with pytest.raises(SandboxError) as raised:
        items.capture(["items"], publication_autocreate_mode="disabled")
    assert "publication" in raised.value.found.splitlines()[0].lower()

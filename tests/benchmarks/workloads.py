"""The records of the benchmarks: each the same for the same number, and what they become in a table.

Texts are cheap to make on purpose: ten million records have to be produced before anything is measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from io import BytesIO
from typing import Any

#: A prime: numbers multiplied by it spread evenly over any smaller count.
_SPREAD = 2_654_435_761
_WORDS = (
    "leave it at the door",
    "ring twice, please",
    "call before delivery",
    "a gift, no invoice inside",
    "fragile: handle with care",
)
_STATES = ("created", "paid", "shipped", "returned")
_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "SEK")
_COUNTRIES = ("DE", "FR", "IT", "ES", "NL", "SE", "PL")
_CHANNELS = ("web", "app", "store", "phone")


@dataclass(frozen=True, slots=True)
class Workload:
    """Records and their table.

    Attributes:
        name: Name, also of the topic.
        value: Gives the value of the record of that number, without what a registry's format puts before it.
        columns: SQL type of every column, in order; each is the member of that name in the JSON object.
        partitions: Partitions of the topic.
        partition: Gives the partition of the record of that number.
        format: What the value is, as a pipeline file names it.
        schema: The schema to register; empty for JSON without one.
        key: Gives the key of the record of that number; ``None``: records have no key.
        keys: How many keys there are; 0 where every record is a row of its own.
        key_column: The column that the key fills.
    """

    name: str
    value: Callable[[int], bytes]
    columns: Mapping[str, str]
    partitions: int = 4
    partition: Callable[[int], int] = lambda number: number % 4
    format: str = "json"
    schema: str = ""
    key: Callable[[int], bytes] | None = None
    keys: int = 0
    key_column: str = ""

    def rows(self, records: int) -> int:
        """Return how many rows the first records leave."""
        return min(records, self.keys) if self.keys else records

    @property
    def schema_type(self) -> str:
        """The registry's word for the kind of the schema."""
        return {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}[self.format]

    def frame(self, schema_id: int) -> bytes:
        """Return what stands before each value: zero, the schema's id, for Protobuf the first message's index."""
        indexes = b"\0" if self.format == "protobuf" else b""
        return b"\0" + schema_id.to_bytes(4, "big") + indexes


def _order(number: int) -> bytes:
    mixed = number * _SPREAD % 1_000_003
    texts = (
        f'"status":"{_STATES[mixed % 4]}","currency":"{_CURRENCIES[mixed % 5]}","country":"{_COUNTRIES[mixed % 7]}",'
        f'"channel":"{_CHANNELS[number % 4]}","shop":"s{mixed % 97}"'
    )
    at = f"2026-{1 + mixed % 12:02d}-{1 + mixed % 28:02d}T{mixed % 24:02d}:{mixed % 60:02d}:{number % 60:02d}Z"
    note = f"{_WORDS[mixed % 5]}; {_WORDS[number % 5]}; ticket {number:017d}"
    items = f'[{{"sku":{mixed % 9973},"qty":{1 + mixed % 3}}},{{"sku":{number % 9967},"qty":1}}]'
    return (
        f'{{"order_id":{number},"customer":{mixed},{texts},"amount":{mixed // 100}.{mixed % 100:02d},'
        f'"ordered_at":"{at}","note":"{note}","items":{items}}}'
    ).encode()


_ORDER_COLUMNS = {
    "order_id": "bigint",
    "customer": "integer",
    "status": "text",
    "currency": "text",
    "amount": "numeric(12,2)",
    "ordered_at": "timestamptz",
    "note": "text",
    "items": "jsonb",
}

ORDERS = Workload("orders", _order, _ORDER_COLUMNS)

#: Orders that change: each key comes as often as any other, and its records lie in one partition.
STATE_KEYS = 500_000


def _order_of(number: int) -> int:
    return number * _SPREAD % STATE_KEYS


def _changing_order(number: int) -> bytes:
    order = json.loads(_order(number))
    del order["items"]  # the sinks that it is compared with cannot write a nested value
    return json.dumps({**order, "order_id": _order_of(number)}, separators=(",", ":")).encode()


ORDERS_STATE = Workload(
    "orders-state",
    _changing_order,
    {name: kind for name, kind in _ORDER_COLUMNS.items() if kind != "jsonb"},
    partition=lambda number: _order_of(number) % 4,
    key=lambda number: f'{{"order_id":{_order_of(number)}}}'.encode(),
    keys=STATE_KEYS,
    key_column="order_id",
)

_ITEM_FIELDS = [{"name": "sku", "type": "int"}, {"name": "qty", "type": "int"}]
_ITEM = {"type": "record", "name": "Item", "fields": _ITEM_FIELDS}
_AVRO_TYPES: Mapping[str, Any] = {
    "order_id": "long",
    "customer": "int",
    "status": "string",
    "currency": "string",
    "country": "string",
    "channel": "string",
    "shop": "string",
    "amount": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    "ordered_at": {"type": "long", "logicalType": "timestamp-micros"},
    "note": "string",
    "items": {"type": "array", "items": _ITEM},
}
_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": kind} for name, kind in _AVRO_TYPES.items()],
}
_DECIMAL_FILE = "confluent/type/decimal.proto"
_DECIMAL_PROTO = """
syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""
_PROTO = f"""
syntax = "proto3";
import "{_DECIMAL_FILE}";
import "google/protobuf/timestamp.proto";
message Order {{
  int64 order_id = 1;
  int32 customer = 2;
  string status = 3;
  string currency = 4;
  string country = 5;
  string channel = 6;
  string shop = 7;
  confluent.type.Decimal amount = 8;
  google.protobuf.Timestamp ordered_at = 9;
  string note = 10;
  message Item {{ int32 sku = 1; int32 qty = 2; }}
  repeated Item items = 11;
}}
"""
_JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in _AVRO_TYPES},
        **{name: {"type": "integer"} for name in ("order_id", "customer")},
        "amount": {"type": "number"},
        "items": {"type": "array", "items": {"type": "object"}},
    },
}


def _document(number: int) -> dict[str, Any]:
    """Return the same order with its decimal and its time."""
    document: dict[str, Any] = json.loads(_order(number), parse_float=Decimal)
    document["ordered_at"] = datetime.fromisoformat(document["ordered_at"])
    return document


@cache
def _avro_schema() -> Any:
    import fastavro  # what only a few need is imported where it is needed: peers are measured from their start on

    return fastavro.parse_schema(_AVRO)


def _avro_order(number: int) -> bytes:
    from fastavro import schemaless_writer

    written = BytesIO()
    schemaless_writer(written, _avro_schema(), _document(number))
    return written.getvalue()


@cache
def _proto_class() -> Any:
    from tests.protobuf_messages import message_class

    return message_class(_PROTO, "Order", {_DECIMAL_FILE: _DECIMAL_PROTO})


def _proto_order(number: int) -> bytes:
    document = _document(number)
    amount, ordered_at = document.pop("amount"), document.pop("ordered_at")
    message = _proto_class()(**document)
    message.amount.value = int(amount.scaleb(2)).to_bytes(4, "big", signed=True)
    message.amount.precision, message.amount.scale = 12, 2
    message.ordered_at.FromDatetime(ordered_at)
    encoded: bytes = message.SerializeToString()
    return encoded


def _in_format(name: str, value: Callable[[int], bytes], schema: str) -> Workload:
    return Workload(f"orders-{name.replace('_', '-')}", value, _ORDER_COLUMNS, format=name, schema=schema)


#: The same orders behind a schema registry.
ORDERS_AVRO = _in_format("avro", _avro_order, json.dumps(_AVRO))
ORDERS_PROTOBUF = _in_format("protobuf", _proto_order, _PROTO)
ORDERS_JSON_SCHEMA = _in_format("json_schema", _order, json.dumps(_JSON_SCHEMA))

NARROW = Workload(
    "narrow",
    lambda number: f'{{"id":{number},"kind":"k{number % 50}","measured":{number % 1000}.5,"ok":true}}'.encode(),
    {"id": "bigint", "kind": "text", "measured": "double precision", "ok": "boolean"},
)

_WIDE_NAMES = tuple(f"c{position:02d}" for position in range(60))
WIDE = Workload(
    "wide",
    lambda number: (
        "{"
        + ",".join(
            f'"{name}":"{number + at}"' if at % 2 else f'"{name}":{number + at}' for at, name in enumerate(_WIDE_NAMES)
        )
        + "}"
    ).encode(),
    {name: "text" if at % 2 else "bigint" for at, name in enumerate(_WIDE_NAMES)},
)

_MEGABYTE = "0123456789abcdef" * (1 << 16)
LARGE = Workload(
    "large", lambda number: f'{{"id":{number},"body":"{_MEGABYTE}"}}'.encode(), {"id": "bigint", "body": "text"}
)

MANY_PARTITIONS = Workload("many-partitions", _order, _ORDER_COLUMNS, 300, lambda number: number % 300)

#: Partition 0 holds 90 %.
SKEW = Workload("skew", _order, _ORDER_COLUMNS, 4, lambda number: 0 if number % 10 else 1 + number // 10 % 3)

_REGISTERED = (ORDERS_AVRO, ORDERS_PROTOBUF, ORDERS_JSON_SCHEMA)
WORKLOADS = {w.name: w for w in (ORDERS, ORDERS_STATE, *_REGISTERED, NARROW, WIDE, LARGE, MANY_PARTITIONS, SKEW)}

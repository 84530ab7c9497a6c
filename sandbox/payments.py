"""Payments of the made-up shop, Avro records whose schema changes halfway, and an independent check of their load."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from psycopg2 import sql

from sandbox.orders import SentRecord
from sandbox.registry import client_settings
from sandbox.verification import fetched, messages

_FIRST_PAYMENT = datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC)
_CHANNELS = ("card", "transfer", "voucher 🎁")
_CURRENCIES = ("EUR", "CHF", "SEK")
_KEPT_FIELDS = [
    {"name": "payment_id", "type": "long"},
    {"name": "order_id", "type": "long"},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
    {"name": "paid_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]
#: The first schema, and the second, in which a field is renamed and one is added.
_SCHEMAS = tuple(
    json.dumps({"type": "record", "name": "Payment", "namespace": "shop", "fields": [*_KEPT_FIELDS, *fields]})
    for fields in (
        [{"name": "method", "type": "string"}],
        [
            {"name": "channel", "type": "string", "aliases": ["method"]},
            {"name": "currency", "type": "string", "default": "EUR"},
        ],
    )
)


@dataclass(frozen=True, slots=True)
class PaymentsComparison:
    """Payments in a topic against a table.

    Attributes:
        records_by_schema: Number of records in the topic by the id of their schema.
        rows: Rows in the table.
        differing: Records without an equal row, and rows without such a record.
    """

    records_by_schema: Mapping[int, int]
    rows: int
    differing: int

    @property
    def is_exact(self) -> bool:
        """Whether each record is one row with the record's values, and there is no other row."""
        return self.differing == 0


def payment_records(registry_url: str, topic: str, count: int) -> Iterator[SentRecord]:
    """Yield payments with the numbers [0, count) as Confluent's serializer writes them, from the half on anew."""
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient(client_settings(registry_url)) as registry:
        before, after = (AvroSerializer(registry, schema) for schema in _SCHEMAS)
        for number in range(count):
            is_new = number >= count // 2
            document = _kept(number) | (_added(number) if is_new else {"method": _channel(number)})
            yield SentRecord(str(number % 977).encode(), (after if is_new else before)(document, context))


def compare_payments(
    bootstrap: str, registry_url: str, topic: str, postgres: Mapping[str, str], table: tuple[str, str]
) -> PaymentsComparison:
    """Compare a topic of payments with the table that they were loaded into, value by value.

    Confluent's deserializer reads the records, each with its own schema, and nothing of the product does.

    Raises:
        SandboxError: Kafka stopped answering.
    """
    schemas: Counter[int] = Counter()
    expected: Counter[tuple[Any, ...]] = Counter()
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient(client_settings(registry_url)) as registry:
        read = AvroDeserializer(registry)
        for message in messages(bootstrap, topic):
            schemas[int.from_bytes(message.value()[1:5], "big")] += 1
            expected[message.partition(), message.offset(), *_row_of(read(message.value(), context))] += 1
    rows = Counter(_rows(postgres, topic, table))
    differing = (expected - rows).total() + (rows - expected).total()
    return PaymentsComparison(dict(sorted(schemas.items())), rows.total(), differing)


def _kept(number: int) -> dict[str, Any]:
    paid_at = _FIRST_PAYMENT + timedelta(seconds=number)
    amount = Decimal(number * 7919 % 1_000_000 - 1000).scaleb(-2)
    return {"payment_id": number, "order_id": number * 3, "amount": amount, "paid_at": paid_at}


def _added(number: int) -> dict[str, Any]:
    return {"channel": _channel(number), "currency": _CURRENCIES[number % len(_CURRENCIES)]}


def _channel(number: int) -> str:
    return _CHANNELS[number % len(_CHANNELS)]


def _row_of(payment: Any) -> tuple[Any, ...]:
    channel = payment["channel"] if "channel" in payment else payment["method"]
    kept = (payment["payment_id"], payment["order_id"], payment["amount"], payment["paid_at"])
    return (*kept, channel, payment.get("currency", "EUR"))


def _rows(postgres: Mapping[str, str], topic: str, table: tuple[str, str]) -> Iterator[tuple[Any, ...]]:
    statement = sql.SQL(
        "SELECT kafka_partition, kafka_offset, payment_id, order_id, amount, paid_at, channel, currency"
        " FROM {} WHERE kafka_topic = {}"
    )
    return fetched(postgres, statement.format(sql.Identifier(*table), sql.Literal(topic)))

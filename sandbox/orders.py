"""Orders of a made-up shop: what the example pipeline loads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Producer

from sandbox.errors import SandboxError

CUSTOMERS = 5000
#: The part of a pipeline file that reads orders: value and key.
PIPELINE_COLUMNS = """\
value:
  format: json
  columns:
    - {name: order_id, type: bigint, required: true}
    - {name: customer, type: text}
    - {name: status, type: varchar(20)}
    - {name: amount, type: "numeric(12,2)"}
    - {name: currency, type: varchar(3)}
    - {name: ordered_at, type: timestamptz}
    - {name: note, type: text}
    - {name: lines, type: jsonb}
    - {name: tags, type: "text[]"}
key: {format: text, column: customer_key}
"""
_FIRST_ORDER = datetime(2026, 1, 1, tzinfo=UTC)
_STATES = ("created", "paid", "shipped", "returned")
_NOTES = (None, "leave at the door", "présent 🎁", "")


@dataclass(frozen=True)
class SentRecord:
    """Key and value as they are sent; ``None`` is the value of a tombstone."""

    key: bytes
    value: bytes | None


def order(number: int) -> dict[str, Any]:
    """Return the order with this number; the same number always gives the same order."""
    cents = number * 7919 % 1_000_000
    return {
        "order_id": number,
        "customer": f"customer-{number % CUSTOMERS}",
        "status": _STATES[number % len(_STATES)],
        "amount": f"{cents // 100}.{cents % 100:02d}",
        "currency": "EUR",
        "ordered_at": (_FIRST_ORDER + timedelta(seconds=number)).isoformat(),
        "note": _NOTES[number % len(_NOTES)],
        "lines": [{"article": number % 977, "pieces": 1 + number % 3}],
        "tags": ["gift", "express"][: number % 3],
    }


def order_record(number: int) -> SentRecord:
    """Return an order as a record, keyed by customer."""
    document = order(number)
    return SentRecord(document["customer"].encode(), json.dumps(document, ensure_ascii=False).encode())


def malformed_record(number: int, kind: int) -> SentRecord:
    """Return a record that holds no order: cut JSON, a number that does not fit, or no order id, by kind."""
    whole = order_record(number)
    document = order(number)
    values = (
        (whole.value or b"")[: len(whole.value or b"") // 2],
        json.dumps({**document, "amount": "12345678901234.56"}).encode(),
        json.dumps({key: value for key, value in document.items() if key != "order_id"}).encode(),
    )
    return SentRecord(whole.key, values[kind % len(values)])


def orders(count: int, *, first: int = 0, malformed: int = 0) -> Iterator[SentRecord]:
    """Yield records with the numbers [first, first + count), of which ``malformed``, evenly spread, are malformed."""
    bad = {first + position * count // malformed: position for position in range(malformed)}
    for number in range(first, first + count):
        yield malformed_record(number, bad[number]) if number in bad else order_record(number)


def send_records(
    bootstrap: str, topic: str, records: Iterator[SentRecord], *, progress: Callable[[int], None] | None = None
) -> int:
    """Send records with an idempotent producer (acks=all) and return their number when all are acknowledged.

    Raises:
        SandboxError: A record was not acknowledged.
    """
    faults: list[str] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 20, "log_level": 3}
    )
    sent = 0
    for record in records:
        while not _try_send(producer, topic, record, faults):
            producer.poll(0.5)
        sent += 1
        producer.poll(0)
        if progress is not None:
            progress(sent)
    left = producer.flush(60)
    if left or faults:
        raise SandboxError(f"{left + len(faults)} of {sent} records were not acknowledged", found="; ".join(faults[:3]))
    return sent


def _try_send(producer: Producer, topic: str, record: SentRecord, faults: list[str]) -> bool:
    try:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            on_delivery=lambda error, _: faults.append(str(error)) if error is not None else None,
        )
    except BufferError:
        return False
    return True

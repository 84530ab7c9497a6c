"""The orders that are sent are the same every time, and exactly as many as asked for cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from sandbox.orders import SentRecord, orders


def test_the_same_numbers_give_the_same_records() -> None:
    assert list(orders(50, first=7, malformed=3)) == list(orders(50, first=7, malformed=3))


@pytest.mark.parametrize(("count", "malformed"), [(100, 0), (100, 25), (10, 10), (7, 3), (300, 25)])
def test_exactly_as_many_as_asked_for_are_malformed(count: int, malformed: int) -> None:
    records = list(orders(count, malformed=malformed))
    assert len(records) == count
    assert sum(map(_is_malformed, records)) == malformed


def test_every_kind_of_fault_is_sent() -> None:
    faults = {_fault(record) for record in orders(300, malformed=25)}
    assert faults == {None, "not JSON", "amount too large", "no order id"}


def test_records_of_a_customer_have_one_key() -> None:
    keys = _keys_by_customer(orders(10_003))
    assert all(len(found) == 1 for found in keys.values())
    assert len(keys) == 5000


def _keys_by_customer(records: Iterable[SentRecord]) -> dict[str, set[bytes]]:
    found: dict[str, set[bytes]] = {}
    for record in records:
        found.setdefault(json.loads(record.value or b"")["customer"], set()).add(record.key)
    return found


def _is_malformed(record: SentRecord) -> bool:
    return _fault(record) is not None


def _fault(record: SentRecord) -> str | None:
    try:
        document = json.loads(record.value or b"")
    except ValueError:
        return "not JSON"
    if "order_id" not in document:
        return "no order id"
    return "amount too large" if len(document["amount"].partition(".")[0]) > 10 else None

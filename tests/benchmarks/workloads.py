"""The records of the benchmarks: each the same for the same number, and what they become in a table.

Texts are cheap to make on purpose: ten million records have to be produced before anything is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
        value: Gives the value of the record of that number, JSON.
        columns: SQL type of every column, in order; each is the member of that name in the JSON object.
        partitions: Partitions of the topic.
        partition: Gives the partition of the record of that number.
    """

    name: str
    value: Callable[[int], bytes]
    columns: Mapping[str, str]
    partitions: int = 4
    partition: Callable[[int], int] = lambda number: number % 4


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

WORKLOADS = {w.name: w for w in (ORDERS, NARROW, WIDE, LARGE, MANY_PARTITIONS, SKEW)}

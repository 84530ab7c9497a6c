"""What the soak's producer sends: an endless seeded list of portions, each sent plainly or in one transaction."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sandbox.orders import malformed_record, order_record
from sandbox.soak.pipeline import SoakMode

PARTITIONS = 4


class PortionKind(StrEnum):
    """How a portion is sent."""

    PLAIN = "plain"
    COMMITTED = "committed"  #: one transaction that commits
    ABORTED = "aborted"  #: one transaction that aborts: no reader may ever see it


@dataclass(frozen=True, slots=True)
class SoakRecord:
    """One record with the partition that it goes to. A tombstone has no value."""

    partition: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Portion:
    """Records that are sent together."""

    kind: PortionKind
    records: tuple[SoakRecord, ...]


#: Weights. Most records are sound, as in life; the others are frequent enough to be in nearly every batch.
_PORTIONS = {PortionKind.PLAIN: 70, PortionKind.COMMITTED: 18, PortionKind.ABORTED: 12}
_SMALLEST, _LARGEST = 1, 250
_BURST, _BURST_SHARE = 2500, 0.02
_PARTITION_WEIGHTS = (5, 3, 2, 1)  # no topic is even
_RECORDS = {"sound": 93, "keyless": 2, "malformed": 3, "tombstone": 2}
#: Of the changes of a few keys. Each of these is written, removed and written again many times, and stays in its
#: partition, as with every producer's own partitioner: offsets order its changes.
_CHANGES = {"sound": 80, "keyless": 2, "malformed": 3, "tombstone": 15}
_KEYS = 700


def portions(seed: int, mode: SoakMode = SoakMode.APPEND) -> Iterator[Portion]:
    """Yield portions without end; the same seed and mode always give the same."""
    chance = random.Random(f"traffic of soak {seed}")  # noqa: S311 (chaos, not cryptography)
    numbers = itertools.count()
    drawn = _change if mode is SoakMode.UPSERT else _record
    while True:
        [kind] = chance.choices(list(_PORTIONS), weights=list(_PORTIONS.values()))
        count = _BURST if chance.random() < _BURST_SHARE else chance.randint(_SMALLEST, _LARGEST)
        yield Portion(kind, tuple(drawn(next(numbers), chance) for _ in range(count)))


def _record(number: int, chance: random.Random) -> SoakRecord:
    [partition] = chance.choices(range(PARTITIONS), weights=_PARTITION_WEIGHTS)
    [kind] = chance.choices(list(_RECORDS), weights=list(_RECORDS.values()))
    record = malformed_record(number, chance.randrange(3)) if kind == "malformed" else order_record(number)
    key = None if kind == "keyless" else record.key
    return SoakRecord(partition, key, None if kind == "tombstone" else record.value)


def _change(number: int, chance: random.Random) -> SoakRecord:
    [kind] = chance.choices(list(_CHANGES), weights=list(_CHANGES.values()))
    record = malformed_record(number, chance.randrange(3)) if kind == "malformed" else order_record(number)
    # The square makes some keys much busier than others.
    key = b"customer-%d" % int(_KEYS * chance.random() ** 2)
    is_keyless = kind == "keyless" or (kind == "tombstone" and chance.random() < 0.02)
    value = None if kind == "tombstone" else record.value
    return SoakRecord(zlib.crc32(key) % PARTITIONS, None if is_keyless else key, value)

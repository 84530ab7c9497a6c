"""The bytes of many records at once, Avro or Protobuf: one position a record, moved by numpy over a whole batch.

Every record's end is known, so no record can take a byte of its neighbour. What bytes may not say makes their record
bad; the exact way (``avro.py``, ``protobuf.py``) decides what becomes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Numbers = NDArray[Any]

#: Fewer records at once are read quicker one by one (orders of 11 fields: 1 ms a group, 15 us a record).
FEWEST_RECORDS = 64
#: Offsets of Arrow's binary arrays have 32 bits.
MOST_BYTES = 2**31
#: Bytes behind the last record, so that a look at the bytes of any position stays inside.
_MARGIN = 16

_HIGH_BITS = np.uint64(0x8080_8080_8080_8080)
#: Neighbours of 7, 14 and 28 bits that have a gap of 1, 2 and 4 bits between them: the lower one of each pair.
_PAIRS = tuple(map(np.uint64, (0x007F_007F_007F_007F, 0x0000_3FFF_0000_3FFF, 0x0000_0000_0FFF_FFFF)))
_LOW_63_BITS = np.int64(2**63 - 1)
#: What a number of one byte is.
_ONE_BYTE = np.array([number >> 1 ^ -(number & 1) for number in range(128)], np.int64)


@dataclass(slots=True)
class Cursor:
    """Positions in some of the records, which move on as values are read.

    Attributes:
        rows: Numbers of the records; rising.
        at: Where the next value of each record stands; its limit in a record that ended too early.
        limits: One more than where each record ends.
    """

    rows: Numbers
    at: Numbers
    limits: Numbers

    def copy(self) -> Cursor:
        """Return a cursor at the same positions."""
        return Cursor(self.rows, self.at, self.limits)

    def where(self, mask: Numbers) -> Cursor:
        """Return a cursor over those records alone."""
        if mask.all():
            return self.copy()
        return Cursor(self.rows[mask], self.at[mask], self.limits[mask])

    def follow(self, some: Cursor, mask: Numbers) -> None:
        """Move on to where a cursor over those records is."""
        if len(some.rows) == len(self.rows):
            self.at = some.at
            return
        self.at = self.at.copy()
        self.at[mask] = some.at


class RecordBytes:
    """The bytes of all records, and which records are bad.

    Args:
        values: The records, in a large_binary array without null or one by one.
        skip: Bytes before each record that are none of its own.

    Attributes:
        size: Bytes of all records, and a few more.
        starts: Where each record begins.
        bad: Whether a record is bad. Its values mean nothing.
    """

    def __init__(self, values: pa.Array | Sequence[bytes], *, skip: int = 0) -> None:
        offsets, pieces = _of_array(values) if isinstance(values, pa.Array) else _of_list(values)
        self._joined = b"".join((*pieces, bytes(_MARGIN)))
        self._data = np.frombuffer(self._joined, np.uint8)
        self._limits = offsets[1:] + 1
        self.starts = np.minimum(offsets[:-1] + skip, offsets[1:])
        self.bad = np.zeros(len(values), np.bool_)
        self.size = len(self._joined)
        self._even = pa.array(np.arange(0, 2 * len(values), 2))

    @cached_property
    def payloads(self) -> Sequence[bytes]:
        """The bytes of each record."""
        ends = (self._limits - 1).tolist()
        return [self._joined[start:end] for start, end in zip(self.starts.tolist(), ends, strict=True)]

    def cursor(self) -> Cursor:
        """Return a cursor at the beginning of every record."""
        return Cursor(np.arange(len(self.starts)), self.starts, self._limits)

    def end(self, cursor: Cursor) -> None:
        """Mark the records as bad whose end a cursor has not reached, or passed."""
        self.fail(cursor, cursor.at + 1 != cursor.limits)

    def fail(self, cursor: Cursor, mask: Numbers) -> None:
        """Mark records as bad, and move on to their ends."""
        if mask.any():
            self.bad[cursor.rows[mask]] = True
            cursor.at = np.where(mask, cursor.limits - 1, cursor.at)

    def words(self, form: str, at: Numbers) -> Numbers:
        """Return the numbers of a fixed form, ``<f8`` for one, that stand at these positions, aligned or not."""
        every = np.ndarray(len(self._joined) - int(form[-1]) + 1, form, self._joined, strides=(1,))
        return every[at].astype(form[1:], copy=False)

    def skip(self, cursor: Cursor, size: Numbers | int) -> Numbers:
        """Move on by a number of bytes that the record must have; return where they begin, in a bad record its end."""
        is_short = (size >= cursor.limits - cursor.at) | (size < 0)
        if is_short.any():
            self.fail(cursor, is_short)
            size = np.where(is_short, 0, size)
        begin = cursor.at
        cursor.at = begin + size
        return begin

    def number(self, cursor: Cursor) -> Numbers:
        """Read a signed number of variable length: zigzag."""
        first = self._data[cursor.at]
        if not (first & 0x80).any():
            cursor.at = np.minimum(cursor.at + 1, cursor.limits)
            return _ONE_BYTE[first]
        return signed(self.unsigned(cursor))

    def unsigned(self, cursor: Cursor) -> Numbers:
        """Read a number of variable length, whose 64 bits are returned as those of a signed one."""
        first = self._data[cursor.at]
        if not (first & 0x80).any():
            cursor.at = np.minimum(cursor.at + 1, cursor.limits)
            return first.astype(np.int64)
        value, size = self._long_number(cursor.at)
        cursor.at = np.minimum(cursor.at + size, cursor.limits)
        self.fail(cursor, size == 0)
        return value

    def _long_number(self, at: Numbers) -> tuple[Numbers, Numbers]:
        """Return numbers of any length, not yet zigzag, and their sizes; 0 for one of more than 64 bits."""
        words = self.words("<u8", at)
        stop = ~words & _HIGH_BITS
        below = (stop & (~stop + np.uint64(1))) - np.uint64(1)  # the bits below the first clear high bit
        value = words & below & ~_HIGH_BITS
        for power, low in enumerate(_PAIRS):
            value = (value & low) | ((value & ~low) >> np.uint64(2**power))
        size = (np.bitwise_count(below).astype(np.int64) + 1) >> 3
        longer = np.flatnonzero(stop == 0)
        if longer.size:
            ninth, tenth = (self._data[at[longer] + more].astype(np.uint64) for more in (8, 9))
            tenth[ninth < 0x80] = 0
            size[longer] = np.where(ninth < 0x80, 9, np.where(tenth > 1, 0, 10))
            value[longer] |= (ninth & np.uint64(0x7F)) << np.uint64(56) | tenth << np.uint64(63)
        return value.view(np.int64), size

    def slices(self, begin: Numbers, end: Numbers) -> pa.Array:
        """Return the bytes between positions, which rise, as a binary array."""
        offsets = np.empty(2 * len(begin) + 1, np.int32)
        offsets[0:-1:2], offsets[1::2] = begin, end
        offsets[-1] = offsets[-2] if len(end) else 0
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._joined)]
        every = pa.Array.from_buffers(pa.binary(), 2 * len(begin), buffers)
        if len(begin) > len(self._even):
            self._even = pa.array(np.arange(0, 2 * len(begin), 2))
        return every.take(self._even[: len(begin)])


def signed(numbers: Numbers) -> Numbers:
    """Return the signed numbers that zigzag has made unsigned."""
    return (numbers >> 1 & _LOW_63_BITS) ^ -(numbers & 1)


def _of_array(values: pa.Array) -> tuple[Numbers, Sequence[bytes | memoryview]]:
    """Return where values begin, and where the last one ends, in the bytes that follow."""
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return places - places[0], [memoryview(data)[places[0] : places[-1]]] if data else []


def _of_list(values: Sequence[bytes]) -> tuple[Numbers, Sequence[bytes | memoryview]]:
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes))), values

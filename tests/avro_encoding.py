"""Avro's own encoding of numbers and lengths, for payloads that are put together by hand."""

from __future__ import annotations


def long(number: int) -> bytes:
    """Write a number as Avro does: zigzag, seven bits a byte, the lowest first."""
    rest = number * 2 if number >= 0 else -number * 2 - 1
    data = bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*data, rest])


def sized(data: bytes) -> bytes:
    return long(len(data)) + data

"""Avro records as JSON documents, one at a time: the exact way, which decides what a record holds.

A schema becomes functions, one a type, that walk through a record's bytes and write JSON. The bytes are read here and
not by fastavro 1.13, whose reader takes other values for some damaged records (a negative index of a union or an enum
counts from the end, an int may have 64 bits, a boolean may be 2), expands a number of empty items without a bound, and
ends the process where a list is nested some thousand times.
"""

from __future__ import annotations

import binascii
import math
import struct
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from uuid import UUID

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.kafka.registry import UnusableSchema
from spark_jobs.decode.avro_schema import AvroType, parse_schema
from spark_jobs.decode.documents import MAX_NESTING, encode_document
from spark_jobs.decode.numbers import decimal_text
from spark_jobs.decode.values import (
    INFINITY_NUMBER,
    NAN_NUMBER,
    NEGATIVE_INFINITY_NUMBER,
    DecodeError,
    excerpt,
)

#: Reads one value of a type from the bytes of a record. Takes the bytes, the position of the value, the pieces of the
#: document so far, to which it adds, and the value's level of nesting; returns the position behind the value.
Reader = Callable[[bytes, int, list[bytes], int], int]

#: A type in its place: its reader, or the readers of a union's branches. A union has no reader of its own, so that a
#: level of nesting takes one call, and ``MAX_NESTING`` of them fit Python's stack.
_Slot = tuple[Reader | None, Sequence[Reader]]


def malformed(found: str) -> DecodeError:
    """Report bytes that are no record of their schema."""
    return DecodeError(DeadLetterReason.MALFORMED, f"expected Avro of the schema that the record names, found {found}")


class AvroSchema:
    """One registered schema, parsed once a worker process.

    Args:
        text: The schema, JSON.
        references: The schemas whose names it uses, each once, dependencies first.

    Raises:
        UnusableSchema: What is wrong with it.
    """

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        self._readers: dict[int, Reader] = {}
        try:
            self.root = parse_schema(text, references)
            self._slot = self._slot_of(self.root)
        except RecursionError:
            raise UnusableSchema(f"expected an Avro schema, found one nested too deeply: {excerpt(text)}") from None

    def documents(self, payloads: Sequence[bytes]) -> list[bytes | DecodeError]:
        """Return each record as a JSON document, or why it is none.

        A record is an object of all its fields; a union is the value of its branch; bytes are base64; a decimal is a
        number with all its digits; dates and times are ISO 8601. A float of four bytes is the number that names its
        exact value as a double, which columns of both widths keep. What JSON has no number for is a ``*_NUMBER``.

        Args:
            payloads: What stands behind the frame of each record.
        """
        return [self._document(payload) for payload in payloads]

    def _document(self, payload: bytes) -> bytes | DecodeError:
        out: list[bytes] = []
        try:
            at = self.read_value(self._slot, payload, 0, out, level=1)
        except DecodeError as decode_error:
            return decode_error
        if at < len(payload):
            return malformed(f"{len(payload) - at} bytes behind its end at byte {at}")
        return b"".join(out)

    def value_slot(self, of: AvroType) -> _Slot:
        """Return what :meth:`read_value` needs to read one value of a type of this schema."""
        return self._slot_of(of)

    @staticmethod
    def read_value(slot: _Slot, payload: bytes, at: int, out: list[bytes], *, level: int) -> int:
        """Read one value, add it to ``out`` as JSON, and return the position behind it.

        Raises:
            DecodeError: The bytes are no value of the type.
        """
        try:
            read, at = _reader(slot, payload, at)
            return read(payload, at, out, level)
        except (IndexError, struct.error):
            raise _truncated(payload) from None

    def _slot_of(self, of: AvroType) -> _Slot:
        if of.kind == "union":
            return None, [self._reader_of(part) for part in of.parts]
        return self._reader_of(of), ()

    def _reader_of(self, of: AvroType) -> Reader:
        if id(of) not in self._readers:
            self._readers[id(of)] = self._record(of) if of.kind == "record" else self._other(of)
        return self._readers[id(of)]

    def _record(self, of: AvroType) -> Reader:
        if of.meaning:
            return _variable_decimal([name for name, _ in of.fields])
        steps: list[tuple[bytes, _Slot]] = []
        self._readers[id(of)] = reader = _record(steps)
        for name, field in of.fields:
            steps.append(((b"," if steps else b"{") + encode_document(name) + b":", self._slot_of(field)))
        return reader

    def _other(self, of: AvroType) -> Reader:
        match of.kind:
            case "array" | "map":
                opening = b"[" if of.kind == "array" else b"{"
                return _blocks(opening, self._slot_of(of.parts[0]), of.parts[0].takes_bytes())
            case "enum":
                return _enum([encode_document(symbol) for symbol in of.symbols])
            case "fixed" if of.meaning == "duration":
                return _duration
            case "fixed":
                return _fixed(of.size, _bytes_text(of))
            case "bytes":
                return _sized(_bytes_text(of))
        return _PRIMITIVES[of.kind] if not of.meaning else _integer(of.kind, _TIMES[of.meaning](of.digits))


def _truncated(payload: bytes) -> DecodeError:
    return malformed(f"their end, after {len(payload)} bytes, inside a value")


def _reader(slot: _Slot, data: bytes, at: int) -> tuple[Reader, int]:
    read, branches = slot
    if read is None:
        index, at = _long(data, at)
        if not 0 <= index < len(branches):
            raise malformed(f"branch {index} of a union of {len(branches)}, before byte {at}")
        read = branches[index]
    return read, at


# The readers of each kind.


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and the position behind it."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if number >> 64 or (shift >= 70 and byte >= 0x80):
            raise malformed(f"a number of more than 64 bits before byte {at}")
    return (number >> 1) ^ -(number & 1), at


def _null(_data: bytes, at: int, out: list[bytes], _level: int) -> int:
    out.append(b"null")
    return at


def _integer(kind: str, text: Callable[[int], bytes]) -> Reader:
    bound = 2**31 if kind == "int" else 2**63

    def read(data: bytes, at: int, out: list[bytes], _level: int) -> int:
        number, at = _long(data, at)
        if not -bound <= number < bound:
            raise malformed(f"the int {number} before byte {at}")
        out.append(text(number))
        return at

    return read


def _sized(text: Callable[[bytes], bytes]) -> Reader:
    def read(data: bytes, at: int, out: list[bytes], _level: int) -> int:
        size, at = _long(data, at)
        end = at + size
        if size < 0:
            raise malformed(f"the length {size} before byte {at}")
        if end > len(data):
            raise _truncated(data)
        out.append(text(data[at:end]))
        return end

    return read


def _fixed(size: int, text: Callable[[bytes], bytes]) -> Reader:
    def read(data: bytes, at: int, out: list[bytes], _level: int) -> int:
        end = at + size
        if end > len(data):
            raise _truncated(data)
        out.append(text(data[at:end]))
        return end

    return read


def _enum(symbols: Sequence[bytes]) -> Reader:
    def read(data: bytes, at: int, out: list[bytes], _level: int) -> int:
        index, at = _long(data, at)
        if not 0 <= index < len(symbols):
            raise malformed(f"symbol {index} of an enum of {len(symbols)}, before byte {at}")
        out.append(symbols[index])
        return at

    return read


def _check_level(level: int, at: int) -> None:
    if level > MAX_NESTING:
        raise malformed(f"nesting deeper than {MAX_NESTING} levels at byte {at}")


def _record(steps: Sequence[tuple[bytes, _Slot]]) -> Reader:
    def read(data: bytes, at: int, out: list[bytes], level: int) -> int:
        _check_level(level, at)
        for name, slot in steps:
            out.append(name)
            step, at = _reader(slot, data, at) if slot[0] is None else (slot[0], at)
            at = step(data, at, out, level + 1)
        out.append(b"}" if steps else b"{}")
        return at

    return read


def _blocks(opening: bytes, slot: _Slot, takes_bytes: bool) -> Reader:
    """Read an array or a map. Items without bytes are refused: a record of some bytes may have 2^63 of them."""
    is_map, closing = opening == b"{", b"]" if opening == b"[" else b"}"

    def read(data: bytes, at: int, out: list[bytes], level: int) -> int:
        _check_level(level, at)
        out.append(opening)
        count, end, at = _block(data, at)
        while count:
            if not takes_bytes and not is_map:
                raise malformed(f"{count} items that take no bytes, before byte {at}")
            for _ in range(count):
                if is_map:
                    at = _string(data, at, out, level)
                    out.append(b":")
                step, at = _reader(slot, data, at)
                at = step(data, at, out, level + 1)
                out.append(b",")
            if end is not None and at != end:
                raise malformed(f"a block that ends at byte {at} and says {end}")
            count, end, at = _block(data, at)
        out[-1] = opening + closing if out[-1] is opening else closing
        return at

    return read


def _block(data: bytes, at: int) -> tuple[int, int | None, int]:
    """Return the number of items, the position of the block's end where it says so, and the position of the items."""
    count, at = _long(data, at)
    if count >= 0:
        return count, None, at
    size, at = _long(data, at)
    return -count, at + size, at


def _duration(data: bytes, at: int, out: list[bytes], level: int) -> int:
    _check_level(level, at)
    months, days, millis = struct.unpack_from("<III", data, at)
    out.append(b'{"months":%d,"days":%d,"millis":%d}' % (months, days, millis))
    return at + 12


def _variable_decimal(names: Sequence[str]) -> Reader:
    def read(data: bytes, at: int, out: list[bytes], level: int) -> int:
        values: list[bytes] = []
        for name in names:
            at = (_scale if name == "scale" else _unscaled)(data, at, values, level)
        scale, unscaled = values if names[0] == "scale" else reversed(values)
        out.append(_decimal_text(int(scale), unscaled))
        return at

    return read


# The text of each value.


def _string_text(data: bytes) -> bytes:
    try:
        return encode_document(data.decode())
    except UnicodeDecodeError as error:
        detail = f"expected UTF-8 in a string of Avro, found {excerpt(data)} (position {error.start})"
        raise DecodeError(DeadLetterReason.NOT_UTF8, detail) from None


def _integer_text(number: int) -> bytes:
    return b"%d" % number


def _boolean_text(data: bytes) -> bytes:
    if data not in (b"\x00", b"\x01"):
        raise malformed(f"the byte {data.hex()} for a boolean")
    return b"true" if data == b"\x01" else b"false"


def _float_text(form: str, data: bytes) -> bytes:
    (value,) = struct.unpack(form, data)
    if math.isfinite(value):
        return repr(value).encode()
    if math.isnan(value):
        return NAN_NUMBER
    return INFINITY_NUMBER if value > 0 else NEGATIVE_INFINITY_NUMBER


def _base64_text(data: bytes) -> bytes:
    return b'"' + binascii.b2a_base64(data, newline=False) + b'"'


def _bytes_text(of: AvroType) -> Callable[[bytes], bytes]:
    if of.meaning == "decimal":
        return partial(_decimal_text, of.digits)
    if of.meaning == "uuid":
        return lambda data: f'"{UUID(bytes=data)}"'.encode()
    return _base64_text


def _decimal_text(scale: int, data: bytes) -> bytes:
    if not data:
        raise malformed("a decimal without a byte")
    return decimal_text(data, scale)


#: Days from 0001-01-01 to 1970-01-01, and those of the 400 years after which the calendar repeats.
_DAYS_TO_1970, _DAYS_OF_CALENDAR = 719_162, 146_097
_SECONDS_OF_DAY = 86_400


def _date_text(days: int) -> str:
    """Write a date; outside the years 1 to 9999 in a form that no column of a date or time takes."""
    calendars, rest = divmod(days + _DAYS_TO_1970, _DAYS_OF_CALENDAR)
    found = date.fromordinal(rest + 1)
    year = found.year + 400 * calendars
    written = f"{year:04d}" if 1 <= year <= 9999 else f"{year:+05d}"
    return f"{written}-{found.month:02d}-{found.day:02d}"


def _clock_text(units: int, digits: int) -> str:
    """Write units of a second as hours, minutes and seconds; ``digits`` after the point, of nine six where they do."""
    seconds, fraction = divmod(units, 10**digits)
    if digits == 9 and fraction % 1_000 == 0:
        fraction, digits = fraction // 1_000, 6
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}.{fraction:0{digits}d}"


def _time_text(digits: int, units: int) -> bytes:
    """Write a time of day; outside the day in a form that no time column takes."""
    return f'"{"-" if units < 0 else ""}{_clock_text(abs(units), digits)}"'.encode()


def _timestamp_text(zone: str, digits: int, units: int) -> bytes:
    days, rest = divmod(units, _SECONDS_OF_DAY * 10**digits)
    return f'"{_date_text(days)}T{_clock_text(rest, digits)}{zone}"'.encode()


_TIMES: dict[str, Callable[[int], Callable[[int], bytes]]] = {
    "date": lambda _: lambda days: f'"{_date_text(days)}"'.encode(),
    "time": lambda digits: partial(_time_text, digits),
    "instant": lambda digits: partial(_timestamp_text, "Z", digits),
    "local": lambda digits: partial(_timestamp_text, "", digits),
}

_string = _sized(_string_text)
_scale = _integer("int", _integer_text)
_unscaled = _sized(lambda data: data)

_PRIMITIVES: dict[str, Reader] = {
    "null": _null,
    "boolean": _fixed(1, _boolean_text),
    "int": _integer("int", _integer_text),
    "long": _integer("long", _integer_text),
    "float": _fixed(4, partial(_float_text, "<f")),
    "double": _fixed(8, partial(_float_text, "<d")),
    "string": _string,
}

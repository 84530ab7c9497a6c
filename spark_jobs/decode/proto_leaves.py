"""Fields of many Protobuf messages at once: where they stand, and the values of those that are no object of fields."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.decode.avro_leaves import checked_texts, leaf_json
from spark_jobs.decode.avro_schema import AvroType
from spark_jobs.decode.documents import encode_document
from spark_jobs.decode.numbers import float_number
from spark_jobs.decode.record_bytes import FEWEST_RECORDS, Cursor, Numbers, RecordBytes, signed
from spark_jobs.decode.values import with_rows_replaced

#: After as many fields of each record, the few records that have more are doubtful: a step costs as much for one.
_USUAL_FIELDS = 64
#: https://protobuf.dev/programming-guides/encoding/#structure: 32 bits of a tag or a length, seven a byte.
_LONGEST_TAG = 5
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
#: Bytes of the value of each wire type; groups and what is no wire type have none that could be read.
_SIZES = np.array([0, 8, 0, -1, -1, 4, -1, -1])


# The types of a schema.


@dataclass(slots=True)
class Found:
    """A field, in all messages of a type that have it.

    Attributes:
        owners: Numbers of the messages; rising.
        numbers: Its number, or its length.
        cursor: At its bytes, up to their end.
    """

    owners: Numbers
    numbers: Numbers
    cursor: Cursor

    def at(self, places: Numbers) -> Found:
        """Return those at some places."""
        cursor = Cursor(self.cursor.rows[places], self.cursor.at[places], self.cursor.limits[places])
        return Found(self.owners[places], self.numbers[places], cursor)


@dataclass(slots=True)
class Values:
    """The values of a leaf, as :mod:`leaf_columns` takes them.

    Attributes:
        of: Their type.
        values: Numbers, an Arrow array, or the numbers and sizes of decimals.
        exact_json: Returns the JSON of the values at some places, the exact way.
        doubtful: Places of which ``values`` says nothing to a column.
        has_json: ``values`` have their JSON by :func:`leaf_json`, too.
    """

    of: AvroType
    values: Any
    exact_json: Callable[[Numbers], list[bytes]]
    doubtful: Sequence[int] = ()
    has_json: bool = True


_Read = Callable[[RecordBytes, Found], Values]


@dataclass(slots=True)
class Member:
    """A field of a message type.

    Attributes:
        of: Its type, for columns; a message's is a record.
        wire: Its wire type.
        read: Reads its values; ``None`` of a message that is an object of its fields, or that wraps one.
        default: Its JSON where it is unset; empty if it is missing then.
        message: Its message type, if it has one.
        is_wrapper: Its value is the one field of its message.
    """

    name: str
    number: int
    of: AvroType
    wire: int = _SIZED
    read: _Read | None = None
    default: bytes = b""
    message: Message | None = None
    is_wrapper: bool = False
    is_repeated: bool = False

    @property
    def tag(self) -> int:
        """What stands before its value."""
        return self.number << 3 | self.wire


@dataclass(slots=True)
class Message:
    """A message type.

    Attributes:
        of: The type, for paths.
        members: Its fields, in the order of the .proto.
        required: Numbers of the fields that every message has.
        oneofs: Numbers of the fields of each oneof.
    """

    of: AvroType = field(default_factory=lambda: AvroType("record"))
    members: list[Member] = field(default_factory=list)
    required: Sequence[int] = ()
    oneofs: Sequence[Sequence[int]] = ()


# The fields of messages.


def fields_of(data: RecordBytes, message: Message, cursor: Cursor) -> dict[int, Found]:
    """Return the fields of messages by number, and mark the records as bad that have odd ones."""
    known = {member.tag: member.number for member in message.members}
    known |= {member.number << 3 | _SIZED: member.number for member in message.members if member.is_repeated}
    numbers = {*known.values()}
    pieces: dict[int, list[Found]] = defaultdict(list)
    for tag, some in _tagged(data, cursor):
        if tag in known:
            pieces[tag].append(some)
        elif tag >> 3 in numbers:
            data.fail(some.cursor, np.ones(len(some.owners), np.bool_))
    found: dict[int, Found] = {}
    for member in message.members:
        of = [_in_order(pieces[member.tag])] if member.tag in pieces else []
        if member.is_repeated and member.wire != _SIZED and (packed := pieces.get(member.number << 3 | _SIZED)):
            of.append(_unpacked(data, member, _in_order(packed)))
        if of:
            found[member.number] = of[0] if member.is_repeated else _once(data, of[0])
        if len(of) > 1:  # whose order is not known here
            data.fail(of[0].cursor, np.ones(len(of[0].owners), np.bool_))
            found[member.number] = of[1]
    _check(data, message, found, cursor)
    return found


def _once(data: RecordBytes, found: Found) -> Found:
    """Mark the records as bad that have a field twice in a message, and return it once."""
    is_again = found.owners[1:] == found.owners[:-1]
    if not is_again.any():
        return found
    data.fail(found.cursor, np.append(is_again, False))
    return found.at(np.flatnonzero(np.append(~is_again, True)))


def _tagged(data: RecordBytes, cursor: Cursor) -> Iterator[tuple[int, Found]]:
    """Yield the first fields of all messages, then the second ones, and so on, those of one tag together."""
    for owners, at in _unfinished(data, np.arange(len(cursor.rows)), cursor):
        yield from _by_tag(*_step(data, owners, at))


def _unfinished(data: RecordBytes, owners: Numbers, cursor: Cursor) -> Iterator[tuple[Numbers, Cursor]]:
    """Yield what is not at its end, again and again; whoever takes it moves the cursor on."""
    for steps in count():
        is_left = cursor.at + 1 < cursor.limits
        owners, cursor = owners[is_left], cursor.where(is_left)
        if not len(owners):
            return
        if steps >= _USUAL_FIELDS and len(owners) < FEWEST_RECORDS:
            data.fail(cursor, np.ones(len(owners), np.bool_))
            return
        yield owners, cursor


def _step(data: RecordBytes, owners: Numbers, cursor: Cursor) -> tuple[Numbers, Found]:
    """Read a field of each message, and move on behind it."""
    tags = _short_number(data, cursor)
    wires = tags & 7
    numbers = np.zeros(len(tags), np.int64)
    if (is_varint := wires == _VARINT).any():
        some = cursor.where(is_varint)
        numbers[is_varint] = data.unsigned(some)
        cursor.follow(some, is_varint)
    if (is_sized := wires == _SIZED).any():
        some = cursor.where(is_sized)
        numbers[is_sized] = _short_number(data, some)
        cursor.follow(some, is_sized)
    data.fail(cursor, (tags < 1 << 3) | (tags >> 32 != 0))
    begin = data.skip(cursor, np.where(is_sized, numbers, _SIZES[wires]))
    return tags, Found(owners, numbers, Cursor(cursor.rows, begin, cursor.at + 1))


def _short_number(data: RecordBytes, cursor: Cursor) -> Numbers:
    begin = cursor.at
    numbers = data.unsigned(cursor)
    data.fail(cursor, cursor.at - begin > _LONGEST_TAG)
    return numbers


def _by_tag(tags: Numbers, found: Found) -> Iterator[tuple[int, Found]]:
    if (tags == tags[0]).all():
        yield int(tags[0]), found
        return
    order = np.argsort(tags, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(tags[order])) + 1):
        yield int(tags[places[0]]), found.at(places)


def _in_order(pieces: Sequence[Found]) -> Found:
    """Join what each step has found, in the order of the messages and their bytes."""
    if len(pieces) == 1:
        return pieces[0]
    cursors = [piece.cursor for piece in pieces]
    cursor = Cursor(*(np.concatenate([getattr(of, part) for of in cursors]) for part in ("rows", "at", "limits")))
    owners, numbers = (np.concatenate([getattr(of, part) for of in pieces]) for part in ("owners", "numbers"))
    return Found(owners, numbers, cursor).at(np.argsort(owners, kind="stable"))


def _unpacked(data: RecordBytes, member: Member, found: Found) -> Found:
    """Return the numbers that stand in packed fields, one behind the other."""
    if member.wire == _VARINT:
        return _in_order([NOTHING, *_packed_steps(data, found)])
    size = int(_SIZES[member.wire])
    sizes = found.cursor.limits - 1 - found.cursor.at
    data.fail(found.cursor, is_odd := sizes % size != 0)
    counts = np.where(is_odd, 0, sizes // size)
    spread_out = found.at(np.repeat(np.arange(len(counts)), counts))
    first = np.repeat(np.cumsum(counts) - counts, counts)
    spread_out.cursor.at = spread_out.cursor.at + size * (np.arange(len(first)) - first)
    return spread_out


def _packed_steps(data: RecordBytes, found: Found) -> Iterator[Found]:
    for owners, cursor in _unfinished(data, found.owners, found.cursor):
        numbers = data.unsigned(cursor)
        data.fail(cursor, cursor.at >= cursor.limits)
        yield Found(owners, numbers, cursor.copy())


_NONE = np.array([], np.int64)
NOTHING = Found(_NONE, _NONE, Cursor(_NONE, _NONE, _NONE))


def _check(data: RecordBytes, message: Message, found: Mapping[int, Found], cursor: Cursor) -> None:
    """Mark the records as bad with two members of a oneof, or without a required field."""
    length = len(cursor.rows)
    for numbers in message.oneofs:
        owners = [found[number].owners for number in numbers if number in found]
        if sum(map(len, owners)):
            data.fail(cursor, np.bincount(np.concatenate(owners), minlength=length) > 1)
    for number in message.required:
        is_missing = np.ones(length, np.bool_)
        is_missing[found.get(number, NOTHING).owners] = False
        data.fail(cursor, is_missing)


# The values of leaves.

_INT, _LONG, _BOOLEAN = AvroType("int"), AvroType("long"), AvroType("boolean")
_FLOAT, _DOUBLE, _TEXT, _BYTES = AvroType("float"), AvroType("double"), AvroType("string"), AvroType("bytes")


def _plain(of: AvroType, values: Any) -> Values:
    def exact_json(places: Numbers) -> list[bytes]:
        if isinstance(values, pa.Array):
            return [encode_document(value) for value in values.take(pa.array(places)).to_pylist()]
        return [encode_document(value) for value in values[places].tolist()]

    return Values(of, values, exact_json)


def _floats(of: AvroType, values: Numbers) -> Values:
    return Values(of, values, lambda places: [encode_document(float_number(v)) for v in values[places].tolist()])


def _number(of: AvroType, least: int, most: int, data: RecordBytes, found: Found) -> Values:
    """Read a number that stands as it is; others than those of the type are cut or refused by the exact way."""
    data.fail(found.cursor, (found.numbers < least) | (found.numbers > most))
    return _plain(of, found.numbers)


def _zigzag(of: AvroType, bits: int, data: RecordBytes, found: Found) -> Values:
    numbers = found.numbers
    if bits == 32:
        data.fail(found.cursor, (numbers < 0) | (numbers >= 2**32))
    return _plain(of, signed(numbers))


def _boolean(data: RecordBytes, found: Found) -> Values:
    data.fail(found.cursor, (found.numbers < 0) | (found.numbers > 1))
    return _plain(_BOOLEAN, found.numbers == 1)


def _fixed(of: AvroType, form: str, data: RecordBytes, found: Found) -> Values:
    values = data.words(form, found.cursor.at).astype(np.int64)
    if form == "<u8":
        data.fail(found.cursor, values < 0)
    return _plain(of, values)


def _real(of: AvroType, form: str, data: RecordBytes, found: Found) -> Values:
    return _floats(of, data.words(form, found.cursor.at))


def _sized_bytes(data: RecordBytes, found: Found) -> Values:
    return _plain(_BYTES, data.slices(found.cursor.at, found.cursor.limits - 1))


def _text(data: RecordBytes, found: Found) -> Values:
    return _plain(_TEXT, checked_texts(data, found.cursor, data.slices(found.cursor.at, found.cursor.limits - 1)))


def enum_member(name: str, number: int, names: Mapping[int, str | None]) -> Member:
    """Return the field of an enum that has a name for 0."""
    numbers = sorted(names)
    texts = pa.array([names[of] for of in numbers], pa.string())
    read = partial(_names, np.array(numbers), texts)
    return Member(name, number, _TEXT, _VARINT, read, encode_document(names[0]))


def _names(numbers: Numbers, names: pa.Array, data: RecordBytes, found: Found) -> Values:
    places = np.minimum(np.searchsorted(numbers, found.numbers), len(numbers) - 1)
    data.fail(found.cursor, numbers[places] != found.numbers)
    return _plain(_TEXT, names.take(pa.array(places)))


def _leaf(of: AvroType, wire: int, read: _Read, default: bytes) -> Member:
    return Member("", 0, of, wire, read, default)


def _integers(of: AvroType, least: int, most: int) -> Member:
    return _leaf(of, _VARINT, partial(_number, of, least, most), b"0")


#: A field without name and number of each type that is no message, by FieldDescriptorProto.Type of descriptor.proto.
LEAVES: Mapping[int, Member] = {
    1: _leaf(_DOUBLE, _FIXED64, partial(_real, _DOUBLE, "<f8"), b"0.0"),
    2: _leaf(_FLOAT, _FIXED32, partial(_real, _FLOAT, "<f4"), b"0.0"),
    3: _integers(_LONG, -(2**63), 2**63 - 1),  # int64
    4: _integers(_LONG, 0, 2**63 - 1),  # uint64
    5: _integers(_INT, -(2**31), 2**31 - 1),  # int32
    6: _leaf(_LONG, _FIXED64, partial(_fixed, _LONG, "<u8"), b"0"),
    7: _leaf(_LONG, _FIXED32, partial(_fixed, _LONG, "<u4"), b"0"),
    8: _leaf(_BOOLEAN, _VARINT, _boolean, b"false"),
    9: _leaf(_TEXT, _SIZED, _text, b'""'),
    12: _leaf(_BYTES, _SIZED, _sized_bytes, b'""'),
    13: _integers(_LONG, 0, 2**32 - 1),  # uint32
    15: _leaf(_INT, _FIXED32, partial(_fixed, _INT, "<i4"), b"0"),
    16: _leaf(_LONG, _FIXED64, partial(_fixed, _LONG, "<i8"), b"0"),
    17: _leaf(_INT, _VARINT, partial(_zigzag, _INT, 32), b"0"),
    18: _leaf(_LONG, _VARINT, partial(_zigzag, _LONG, 64), b"0"),
}


def json_of(values: Values, length: int) -> pa.Array:
    """Return the JSON of all values, as the exact way writes it."""
    column = leaf_json(values.of, values.values) if values.has_json and length else None
    if column is None:
        return pa.array(values.exact_json(np.arange(length)), pa.string())
    exact = sorted({*column.doubtful, *values.doubtful})
    return with_rows_replaced(column.array, exact, pa.array(values.exact_json(np.array(exact, np.int64)), pa.string()))

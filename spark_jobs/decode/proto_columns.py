"""Protobuf records by whole columns: the quick way.

All records of a message type are walked through at once, one field of each record a step; the fields are then read one
by one. The quick way gives what the exact way gives (``protobuf.py``), or calls a record doubtful: one with a field
twice, with two members of a oneof, with a number that its type does not have. A message type with maps, with itself
inside, or with most of the messages that have a meaning of their own is left to the exact way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.avro_leaves import unscaled
from spark_jobs.decode.avro_schema import AvroType
from spark_jobs.decode.documents import encode_document
from spark_jobs.decode.leaf_columns import column_of, column_of_texts, missing_of, rule_of, spread, with_one_path
from spark_jobs.decode.numbers import decimal_text
from spark_jobs.decode.paths import PathNode, Places
from spark_jobs.decode.proto_files import TYPE_ENUM, TYPE_GROUP, TYPE_MESSAGE
from spark_jobs.decode.proto_leaves import (
    LEAVES,
    NOTHING,
    Found,
    Member,
    Message,
    Values,
    enum_member,
    fields_of,
    json_of,
)
from spark_jobs.decode.proto_values import is_time, timestamp_text
from spark_jobs.decode.record_bytes import FEWEST_RECORDS, MOST_BYTES, Cursor, Numbers, RecordBytes
from spark_jobs.decode.values import MOST_DECIMAL_BYTES, ColumnPlan, DecodeError, QuickColumn

if TYPE_CHECKING:
    from spark_jobs.decode.protobuf import ProtobufSchema

#: Deeper types are left to the exact way.
_MOST_LEVELS = 20


# The values of messages that are no object of their fields.

_INSTANT = AvroType("long", "instant", 6)


def _integer_of(fields: Mapping[int, Found], number: int, length: int) -> Numbers:
    """Return an integer field of every message, 0 where it is unset."""
    values = np.zeros(length, np.int64)
    if number in fields:
        values[fields[number].owners] = fields[number].numbers
    return values


def _int32_of(data: RecordBytes, found: Found, fields: Mapping[int, Found], number: int) -> Numbers:
    """Return an int32 of every message; a record whose number is none, which the exact way cuts, becomes bad."""
    values = _integer_of(fields, number, len(found.owners))
    data.fail(found.cursor, (values < -(2**31)) | (values >= 2**31))
    return values


def _time(message: Message, data: RecordBytes, found: Found) -> Values:
    fields = fields_of(data, message, found.cursor)
    seconds, nanos = _integer_of(fields, 1, len(found.owners)), _int32_of(data, found, fields, 2)
    is_sure = is_time(seconds, nanos) & (nanos % 1_000 == 0)
    micros = np.where(is_sure, seconds, 0) * 1_000_000 + nanos // 1_000

    def exact_json(places: Numbers) -> list[bytes]:
        pairs = zip(seconds[places].tolist(), nanos[places].tolist(), strict=True)
        return [encode_document(timestamp_text(*pair)) for pair in pairs]

    return Values(_INSTANT, micros, exact_json, np.flatnonzero(~is_sure).tolist(), has_json=False)


def _decimal(message: Message, data: RecordBytes, found: Found) -> Values:
    """Read decimals; those of another scale than the first one are doubtful for columns."""
    fields = fields_of(data, message, found.cursor)
    scales = _int32_of(data, found, fields, 3)
    begin, end = found.cursor.limits - 1, found.cursor.limits - 1
    if 1 in fields:
        begin, end = begin.copy(), end.copy()
        places = fields[1].owners
        begin[places], end[places] = fields[1].cursor.at, fields[1].cursor.limits - 1
    data.fail(found.cursor, end - begin > MOST_DECIMAL_BYTES)
    scale = int(scales[0]) if len(scales) else 0

    def exact_json(places: Numbers) -> list[bytes]:
        texts = data.slices(begin[places], end[places]).to_pylist()
        texts = [text[:MOST_DECIMAL_BYTES] for text in texts]
        return [decimal_text(*pair) for pair in zip(texts, scales[places].tolist(), strict=True)]

    of = AvroType("bytes", "decimal", digits=scale)
    odd = np.flatnonzero((scales != scale) | (begin == end)).tolist()
    return Values(of, unscaled(data, begin, end), exact_json, odd)


#: Type for columns, and reader, of the messages that have a meaning of their own and can be read by whole columns.
_SPECIAL: Mapping[str, tuple[AvroType, Callable[[Message, RecordBytes, Found], Values]]] = {
    "google.protobuf.Timestamp": (_INSTANT, _time),
    "confluent.type.Decimal": (AvroType("bytes", "decimal"), _decimal),
}


# The types of a schema.


class _UnableError(Exception):
    """Only the exact way reads the type."""


class ProtobufColumns:
    """The quick way for the records of one schema.

    Args:
        schema: The writer's schema of all records.
    """

    def __init__(self, schema: ProtobufSchema) -> None:
        self._files = schema.files
        self._readers = schema.readers
        self._known: dict[str, Message | None] = {}

    def columns(self, payloads: pa.Array, plans: Sequence[ColumnPlan]) -> list[QuickColumn] | None:
        """Return the columns of records, null where a value is missing.

        A record that the exact way may refuse is doubtful in every column, as is one of another message type than the
        first record. Null in a column that refuses it is not doubtful here.

        Args:
            payloads: What stands behind the schema's id, a large_binary array without null.
            plans: The columns, in their order.

        Returns:
            One column a plan; ``None`` where the exact way is the only or the quicker one.
        """
        if len(payloads) < FEWEST_RECORDS or payloads.nbytes >= MOST_BYTES:
            return None
        try:
            name, skip = self._files.named(payloads[0].as_py())
            message = self._message(name, 1)
        except (DecodeError, _UnableError):
            return None
        found = [with_one_path(plan, message.of, null_is_missing=True) for plan in plans]
        sure = [plan for plan in found if plan is not None]
        if len(sure) < len(plans):
            return None
        data = RecordBytes(payloads, skip=skip)
        starts = pc.binary_slice(payloads, 0, skip)
        data.bad |= pc.not_equal(starts, starts[0]).to_numpy(zero_copy_only=False)
        return _Walk(data, sure).columns(message)

    def _message(self, name: str, level: int) -> Message:
        """Return a message type, made once: types that share types would be made in billions of ways."""
        if name not in self._known and level <= _MOST_LEVELS:
            self._known[name] = None  # as long as it is made: it may hold itself
            self._known[name] = self._made(name, level)
        found = self._known.get(name)
        if found is None:
            raise _UnableError
        return found

    def _made(self, name: str, level: int) -> Message:
        descriptor, declared = self._files.pool.FindMessageTypeByName(name), self._files.declared[name].field
        found = Message(required=[descriptor.fields_by_name[of].number for of in self._readers.required(descriptor)])
        for of in declared:
            member = self._member(of, level + 1)
            if of.label == of.LABEL_REPEATED:
                member.is_repeated, member.default = True, b"[]"
            elif descriptor.fields_by_name[of.name].has_presence:
                member.default = b""
            found.members.append(member)
        found.oneofs = [[of.number for of in group.fields] for group in descriptor.oneofs]
        found.of.fields = tuple((member.name, _in_its_place(member)) for member in found.members)
        return found

    def _member(self, declared: Any, level: int) -> Member:
        name, number, type_name = declared.name, declared.number, declared.type_name[1:]
        if declared.type == TYPE_ENUM:
            names = self._files.enums[type_name]
            if None in names.values() or 0 not in names:
                raise _UnableError
            return enum_member(name, number, names)
        if declared.type not in (TYPE_MESSAGE, TYPE_GROUP):
            return replace(LEAVES[declared.type], name=name, number=number)
        if declared.type == TYPE_GROUP or self._files.declared[type_name].options.map_entry:
            raise _UnableError
        inner = self._message(type_name, level)
        if not self._readers.special(self._files.pool.FindMessageTypeByName(type_name)):
            return Member(name, number, inner.of, message=inner)
        if self._files.file_names[type_name].endswith("/wrappers.proto"):
            return Member(name, number, inner.members[0].of, message=inner, is_wrapper=True)
        if type_name not in _SPECIAL:
            raise _UnableError
        of, read = _SPECIAL[type_name]
        return Member(name, number, of, read=partial(read, inner))


def _in_its_place(member: Member) -> AvroType:
    if member.is_repeated:
        return AvroType("array", parts=(member.of,))
    return member.of if member.default else AvroType("union", parts=(AvroType("null"), member.of))


_NO_FIELDS = Message()

# Columns.


class _Walk:
    """Reads the fields of all records, and makes columns of those that plans name."""

    def __init__(self, data: RecordBytes, plans: Sequence[ColumnPlan]) -> None:
        self._data = data
        self._plans = plans
        self._columns: dict[int, QuickColumn] = {}

    def columns(self, message: Message) -> list[QuickColumn]:
        """Return the columns; every bad record is doubtful in each."""
        self._message(message, Places(self._plans).tree(), self._data.cursor())
        count = len(self._data.starts)
        bad = np.flatnonzero(self._data.bad).tolist()
        nothing = [pa.repeat(missing_of(plan), count) for plan in self._plans]
        columns = [self._columns.get(column, QuickColumn(array)) for column, array in enumerate(nothing)]
        return [QuickColumn(column.array, sorted({*column.doubtful, *bad})) for column in columns]

    def _message(self, message: Message, node: PathNode | None, cursor: Cursor) -> None:
        """Fill the columns of messages, one a record at most, and look at all their bytes."""
        if not len(cursor.rows):
            return
        length, found = len(cursor.rows), fields_of(self._data, message, cursor)
        for member in message.members:
            some = found.get(member.number, NOTHING)
            below = node.children.get(member.name) if node else None
            for place in below.places if below else ():
                column = self._column(member, self._plans[place], some, length)
                self._columns[place] = self._in_rows(column, cursor.rows)
            if member.message and not member.is_repeated and not member.is_wrapper:
                self._message(member.message, below, some.cursor)
            elif below is None or not below.places:
                self._look_at(member, some)

    def _in_rows(self, column: QuickColumn, rows: Numbers) -> QuickColumn:
        array = spread(column.array, rows, len(self._data.starts))
        return QuickColumn(array, rows[np.array(column.doubtful, np.int64)].tolist())

    def _look_at(self, member: Member, some: Found) -> None:
        if member.read:
            member.read(self._data, some)
        elif member.message:
            self._message(member.message, None, some.cursor)

    def _column(self, member: Member, plan: ColumnPlan, some: Found, length: int) -> QuickColumn:
        """Return the column of a field of ``length`` messages."""
        if member.is_wrapper and not member.is_repeated:
            inner, found = self._inner(member, some)
            column = self._column(inner, plan, found, len(some.owners))
            return _with_default(column, some.owners, length, None)
        if member.read is None or member.is_repeated:
            return column_of_texts(_in_its_place(member), rule_of(plan), self._texts(member, some, length))
        values = member.read(self._data, some)
        column = self._of_values(plan, values, len(some.owners))
        default = None
        if member.default and len(some.owners) < length:
            default = column_of_texts(values.of, rule_of(plan), pa.array([member.default], pa.string()))
        return _with_default(column, some.owners, length, default)

    def _of_values(self, plan: ColumnPlan, values: Values, length: int) -> QuickColumn:
        column = column_of(values.of, plan, values.values) if length else None
        if column is None:
            return column_of_texts(values.of, rule_of(plan), json_of(values, length))
        return QuickColumn(column.array, [*column.doubtful, *values.doubtful])

    def _inner(self, wrapper: Member, some: Found) -> tuple[Member, Found]:
        message = wrapper.message or _NO_FIELDS
        inner = message.members[0]
        return inner, fields_of(self._data, message, some.cursor).get(inner.number, NOTHING)

    # Values as JSON, as the exact way writes them.

    def _texts(self, member: Member, some: Found, length: int) -> pa.Array:
        """Return the JSON of a field of ``length`` messages; null where it is missing."""
        texts = self._one_by_one(member, some)
        if member.is_repeated:
            counts = np.bincount(some.owners, minlength=length)
            ends = np.concatenate((np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)))
            lists = pa.ListArray.from_arrays(pa.array(ends), texts)
            return pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")
        texts = spread(texts, some.owners, length)
        return pc.fill_null(texts, member.default.decode()) if member.default else texts

    def _one_by_one(self, member: Member, some: Found) -> pa.Array:
        if member.is_wrapper:
            inner, found = self._inner(member, some)
            return self._texts(inner, found, len(some.owners))
        if member.read:
            return json_of(member.read(self._data, some), len(some.owners))
        return self._objects(member.message or _NO_FIELDS, some.cursor)

    def _objects(self, message: Message, cursor: Cursor) -> pa.Array:
        length, found = len(cursor.rows), fields_of(self._data, message, cursor)
        if not length or not message.members:
            return pa.array(["{}"] * length, pa.string())
        pieces: list[Any] = []
        for member in sorted(message.members, key=lambda of: not of.default):
            name = "," + encode_document(member.name).decode() + ":"
            texts = self._texts(member, found.get(member.number, NOTHING), length)
            pieces.append(pc.fill_null(pc.binary_join_element_wise(name, texts, ""), ""))
        members = pc.binary_replace_slice(pc.binary_join_element_wise(*pieces, ""), 0, 1, "{")
        return pc.binary_join_element_wise(members, "}", "")


def _with_default(column: QuickColumn, owners: Numbers, length: int, default: QuickColumn | None) -> QuickColumn:
    """Return a column of some messages as one of all."""
    if len(owners) == length and default is None:
        return column
    doubtful = owners[np.array(column.doubtful, np.int64)].tolist()
    if default is None:
        return QuickColumn(spread(column.array, owners, length), doubtful)
    places = np.full(length, len(owners))
    places[owners] = np.arange(len(owners))
    array = pa.concat_arrays([column.array, default.array]).take(pa.array(places))
    unset = np.flatnonzero(places == len(owners)).tolist() if default.doubtful else ()
    return QuickColumn(array, [*doubtful, *unset])

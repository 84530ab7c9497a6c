"""Avro records by whole columns: the quick way.

All records of a schema are walked through at once, field by field. So the end of every record is known, and what a
record's bytes may not say (a third branch of two, an int of 40 bits) is seen where it stands. polars 2.1, which reads
such records as the block of a container file, takes both for a value, so no check of its results could prove them.

The quick way gives what the exact way gives (``avro.py``), or calls a record doubtful; what columns cannot describe
(maps, long arrays, other unions than with null) is read record by record with the exact way's own readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.avro import AvroSchema
from spark_jobs.decode.avro_leaves import is_leaf, leaf_json, read_leaf
from spark_jobs.decode.avro_schema import AvroType
from spark_jobs.decode.documents import encode_document
from spark_jobs.decode.leaf_columns import column_of, column_of_texts, missing_of, rule_of, spread, with_one_path
from spark_jobs.decode.paths import PathNode, Places
from spark_jobs.decode.record_bytes import FEWEST_RECORDS, MOST_BYTES, Cursor, Numbers, RecordBytes
from spark_jobs.decode.values import ColumnPlan, DecodeError, QuickColumn, with_rows_replaced

#: Arrays of more items are read record by record: each item is a pass over the records that have one.
_MOST_ITEMS = 16


def quick_columns(
    schema: AvroSchema, payloads: pa.Array | Sequence[bytes], plans: Sequence[ColumnPlan], *, skip: int = 0
) -> list[QuickColumn] | None:
    """Return the columns of records of one schema, null where a value is missing or null.

    A record that the exact way may refuse is doubtful in every column. Null in a column that refuses it is not doubtful
    here.

    Args:
        schema: The writer's schema of all records.
        payloads: What stands behind the frame of each record; or, which is quicker, a large_binary array without null
            of the framed records.
        plans: The columns, in their order.
        skip: Bytes of the frame before each of ``payloads``.

    Returns:
        One column a plan; ``None`` where the exact way is the only or the quicker one: few records, or columns that
        hold the whole record, lead through a map, or have several places of which the first may be missing.
    """
    found = [with_one_path(plan, schema.root) for plan in plans]
    sure = [plan for plan in found if plan is not None]
    if len(payloads) < FEWEST_RECORDS or schema.root.kind != "record" or len(sure) < len(plans):
        return None
    data = RecordBytes(payloads, skip=skip)
    return _Walk(schema, data, sure).columns() if data.size < MOST_BYTES else None


class _Walk:
    """Reads the fields of all records, in their order, and makes columns of those that plans name."""

    def __init__(self, schema: AvroSchema, data: RecordBytes, plans: Sequence[ColumnPlan]) -> None:
        self._schema = schema
        self._bytes = data
        self._count = len(data.starts)
        self._plans = plans
        self._columns: dict[int, QuickColumn] = {}
        self._open: list[AvroType] = []

    def columns(self) -> list[QuickColumn]:
        """Return the columns; every bad record is doubtful in each."""
        cursor = self._bytes.cursor()
        self._value(self._schema.root, Places(self._plans).tree(), cursor, 1)
        self._bytes.end(cursor)
        bad = np.flatnonzero(self._bytes.bad).tolist()
        nothing = [pa.repeat(missing_of(plan), self._count) for plan in self._plans]
        columns = [self._columns.get(column, QuickColumn(array)) for column, array in enumerate(nothing)]
        return [QuickColumn(column.array, sorted({*column.doubtful, *bad})) for column in columns]

    # One value of each record, for the columns that it and what is in it fill.

    def _value(self, of: AvroType, node: PathNode | None, cursor: Cursor, level: int) -> None:
        if not len(cursor.rows):
            return
        some = of.other_than_null
        if some is not None:
            is_there = self._is_there(of, some, cursor)
            present = cursor.where(is_there)
            self._value(some, node, present, level)
            cursor.follow(present, is_there)
        elif is_leaf(of):
            self._leaf(of, node, cursor)
        elif of.kind == "record" and self._can_enter(of):
            self._record(of, node, cursor, level)
        else:
            self._whole(of, node, cursor, level)

    def _leaf(self, of: AvroType, node: PathNode | None, cursor: Cursor) -> None:
        before = cursor.copy()
        values = read_leaf(self._bytes, of, cursor)
        for place in node.places if node else ():
            plan = self._plans[place]
            column = column_of(of, plan, values)
            column = column or column_of_texts(of, rule_of(plan), self._leaf_json(of, values, before))
            self._columns[place] = self._spread(column, cursor.rows)

    def _record(self, of: AvroType, node: PathNode | None, cursor: Cursor, level: int) -> None:
        before = cursor.copy()
        self._open.append(of)
        for name, field in of.fields:
            self._value(field, node.children.get(name) if node else None, cursor, level + 1)
        self._open.pop()
        if node and node.places:
            self._whole(of, node, before, level)

    def _whole(self, of: AvroType, node: PathNode | None, cursor: Cursor, level: int) -> None:
        if node and node.places:
            texts = self._json(of, cursor, level)
            for place in node.places:
                self._columns[place] = self._spread(
                    column_of_texts(of, rule_of(self._plans[place]), texts), cursor.rows
                )
        elif of.kind == "array":
            self._array(of, cursor, level, is_wanted=False)
        else:
            self._texts(of, cursor, level)

    def _is_there(self, of: AvroType, some: AvroType, cursor: Cursor) -> Numbers:
        branch = self._bytes.number(cursor)
        self._bytes.fail(cursor, (branch < 0) | (branch > 1))
        is_there: Numbers = branch == of.parts.index(some)
        return is_there

    def _can_enter(self, of: AvroType) -> bool:
        return not of.meaning and of not in self._open

    def _spread(self, column: QuickColumn, rows: Numbers) -> QuickColumn:
        """Return a column of some records as one of all."""
        if len(rows) == self._count:
            return column
        array = spread(column.array, rows, self._count)
        return QuickColumn(array, rows[np.array(column.doubtful, np.int64)].tolist())

    # One value of each record as JSON, as the exact way writes it.

    def _json(self, of: AvroType, cursor: Cursor, level: int) -> pa.Array:
        if not len(cursor.rows):
            return pa.array([], pa.string())
        before = cursor.copy()
        some = of.other_than_null
        if some is not None:
            is_there = self._is_there(of, some, cursor)
            present = cursor.where(is_there)
            texts = spread(self._json(some, present, level), np.flatnonzero(is_there), len(is_there))
            cursor.follow(present, is_there)
            return pc.fill_null(texts, "null")
        if is_leaf(of):
            return self._leaf_json(of, read_leaf(self._bytes, of, cursor), before)
        if of.kind == "record" and self._can_enter(of) and of.fields:
            return self._object(of, cursor, level)
        if of.kind == "array":
            return self._array(of, cursor, level, is_wanted=True)
        return self._texts(of, cursor, level)

    def _leaf_json(self, of: AvroType, values: Any, before: Cursor) -> pa.Array:
        column = leaf_json(of, values)
        if column is None:
            return self._texts(of, before.copy(), 1)
        if not column.doubtful:
            return column.array
        is_doubtful = np.zeros(len(before.rows), np.bool_)
        is_doubtful[column.doubtful] = True
        texts = self._texts(of, before.where(is_doubtful), 1)
        return with_rows_replaced(column.array, np.flatnonzero(is_doubtful).tolist(), texts)

    def _object(self, of: AvroType, cursor: Cursor, level: int) -> pa.Array:
        pieces: list[Any] = []
        self._open.append(of)
        for name, field in of.fields:
            opening = b"," if pieces else b"{"
            pieces += [pa.scalar((opening + encode_document(name) + b":").decode(), pa.string())]
            pieces += [self._json(field, cursor, level + 1)]
        self._open.pop()
        return pc.binary_join_element_wise(*pieces, "}", "")

    def _array(self, of: AvroType, cursor: Cursor, level: int, *, is_wanted: bool) -> pa.Array:
        """Read arrays of one block and few items item by item, each of all records; others record by record."""
        before = cursor.copy()
        count = self._bytes.number(cursor)
        is_odd = (count < 0) | (count > (_most_items(count) if of.parts[0].takes_bytes() else 0))
        count = np.where(is_odd, 0, count)
        items, places = [pa.array([], pa.string())], [np.array([], np.int64)]
        for number in range(count.max(initial=0)):
            some = cursor.where(has_item := count > number)
            if is_wanted:
                items.append(self._json(of.parts[0], some, level + 1))
                places.append(np.flatnonzero(has_item))
            else:
                self._value(of.parts[0], None, some, level + 1)
            cursor.follow(some, has_item)
        some = cursor.where(has_items := count > 0)
        is_odd[has_items] = self._bytes.number(some) != 0
        cursor.follow(some, has_items)
        array = _arrays(items, places, count) if is_wanted else None
        if is_odd.any():
            some = before.where(is_odd)
            texts = self._texts(of, some, level)
            cursor.follow(some, is_odd)
            array = with_rows_replaced(array, np.flatnonzero(is_odd).tolist(), texts) if is_wanted else None
        return array

    def _texts(self, of: AvroType, cursor: Cursor, level: int) -> pa.Array:
        """Read one value of each record the exact way."""
        slot = self._schema.value_slot(of)
        ats, texts = cursor.at.copy(), []
        is_bad = self._bytes.bad[cursor.rows]
        starts = self._bytes.starts[cursor.rows].tolist()
        for number, (row, start) in enumerate(zip(cursor.rows.tolist(), starts, strict=True)):
            out: list[bytes] = []
            try:
                if not is_bad[number]:
                    at = int(ats[number]) - start
                    ats[number] = start + self._schema.read_value(slot, self._bytes.payloads[row], at, out, level=level)
            except DecodeError:
                is_bad[number] = True
            texts.append(b"null" if is_bad[number] else b"".join(out))
        cursor.at = ats
        self._bytes.fail(cursor, is_bad)
        return pa.array(texts, pa.string())


def _most_items(counts: Numbers) -> int:
    """Return up to which length arrays are read item by item, so that every pass is over enough records."""
    longest = np.sort(counts)[::-1]
    return int(min(max(longest[FEWEST_RECORDS - 1], 0), _MOST_ITEMS)) if len(longest) >= FEWEST_RECORDS else 0


def _arrays(items: Sequence[pa.Array], places: Sequence[Numbers], counts: Numbers) -> pa.Array:
    """Return JSON arrays of the first items, the second ones, and so on, each of the arrays at these places."""
    order = np.argsort(np.concatenate(places), kind="stable")
    in_order = pa.concat_arrays(items).take(pa.array(order))
    ends = np.concatenate((np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)))
    return pc.binary_join_element_wise(
        "[", pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), in_order), ","), "]", ""
    )

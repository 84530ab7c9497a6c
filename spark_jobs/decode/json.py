"""JSON values: the quick reading, and the exact one that decides where the quick one is in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.settings import json_path_text
from spark_jobs.decode.documents import checked_document, too_deep_rows
from spark_jobs.decode.event_values import column_rule
from spark_jobs.decode.paths import PathNode, Places
from spark_jobs.decode.texts import default_of
from spark_jobs.decode.values import (
    WHITE_SPACE,
    Cell,
    ColumnPlan,
    DecodedPart,
    DecodeError,
    DidNotTravel,
    DidNotTravelError,
    ValueRule,
    described,
    invalid_utf8_rows,
    positions,
    with_default,
    with_rows_replaced,
    wrong_type,
)

# The exact reading of one record, along the tree of the columns' paths.

_Text = TypeVar("_Text")


def _first_present(texts: Iterable[_Text | None]) -> _Text | None:
    """Return the first value that is there: null is a value, and missing is none."""
    return next((text for text in texts if text is not None), None)


class ExactReader:
    """The exact reading, one record at a time, every value by its rule. It decides; the quick one only saves time.

    Args:
        plans: The columns.
        rules: Their rules.
        place: Where documents come from, for faults of a whole document; empty for the value.
    """

    def __init__(self, plans: Sequence[ColumnPlan], rules: Sequence[ValueRule], place: str = "") -> None:
        self._columns = list(zip(plans, rules, map(default_of, plans), strict=True))
        self._place = place
        self._places = Places(plans)
        self._tree = self._places.tree()

    def read(self, data: bytes) -> tuple[list[Cell | None], DidNotTravel | None]:
        """Return the record's values in column order, and what of them did not travel.

        Raises:
            DecodeError: The first fault: of the document, of an object on the way to a value, then by column order.
        """
        raws: list[bytes | None] = [None] * len(self._places)
        document = self._document(data)
        if self._tree.children and document == b"null":
            raise wrong_type("an object", "null").at(self._place or "the value")
        _collect(self._tree, document, raws)
        cells: list[Cell | None] = []
        apart: dict[str, str] = {}
        for column, (plan, rule, default) in enumerate(self._columns):
            try:
                cells.append(
                    _cell(plan, rule, default, _first_present(raws[place] for place in self._places.of(column)))
                )
            except DidNotTravelError as error:
                if not plan.is_filled:
                    raise
                cells.append(None)
                apart[plan.name] = error.detail
        return cells, DidNotTravel(tuple(apart), next(iter(apart.values()))) if apart else None

    def _document(self, data: bytes) -> bytes:
        try:
            return checked_document(data)
        except DecodeError as decode_error:
            raise decode_error.at(self._place) if self._place else decode_error from None


def _collect(node: PathNode, raw: bytes, raws: list[bytes | None]) -> None:
    for place in node.places:
        raws[place] = raw
    if not node.children or raw == b"null":
        return
    if raw[:1] != b"{":
        raise wrong_type("an object", described(raw)).at(json_path_text(node.path))
    members = node.members(raw)
    for key, child in node.children.items():
        if key in members:
            _collect(child, bytes(members[key]), raws)


def _cell(plan: ColumnPlan, rule: ValueRule, default: Cell | None, raw: bytes | None) -> Cell | None:
    if raw is None and default is not None:
        return default
    if raw is None or raw == b"null":
        if plan.refuses_null:
            raise plan.null_error("nothing there" if raw is None else "null")
        return None
    try:
        return rule.exact(raw)
    except DecodeError as decode_error:
        raise decode_error.at(plan.place) from None


# The quick reading of many records: typed structs for a whole batch, then one column at a time.

_NULL = b"null"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Sheet:
    """The results of the quick reading: the decoded values of every place or column, and the records in doubt.

    Of each column with a default it also tells in which records the value is missing.
    """

    def __init__(self, places: int) -> None:
        self.columns: list[Sequence[Any]] = [()] * places
        self.missing: dict[int, list[int]] = {}
        self.doubtful: set[int] = set()

    def decode_each(self, decoder: msgspec.json.Decoder[Any], texts: Sequence[Any]) -> list[Any]:
        """Decode each text; one that cannot be decoded becomes ``None`` and is in doubt."""
        decoded: list[Any] = []
        left = iter(texts)
        while len(decoded) < len(texts):
            try:
                decoded.extend(map(decoder.decode, left))
            except _UNREADABLE:
                # The list holds the values before the fault, so its length is the position of the fault.
                self.doubtful.add(len(decoded))
                decoded.append(None)
        return decoded


class QuickReader:
    """The quick reading of JSON documents that are valid UTF-8 and not nested too deeply.

    Raises:
        ValueError: On construction: a key that msgspec's structs cannot name (a quote, a backslash or a control
            character in it); such pipelines are only read in the exact way.
    """

    def __init__(self, plans: Sequence[ColumnPlan], rules: Sequence[ValueRule]) -> None:
        self._places = Places(plans)
        self._types = [rule.quick_type for rule in rules]
        root = self._places.tree()
        self._has_root_column = bool(root.places)
        self._have_default = [plan.default is not None for plan in plans]
        # Of several places, or with a default, values are taken as texts: only so do missing and null differ.
        of_places = [
            kind if len(plan.paths) == 1 and plan.default is None else msgspec.Raw
            for plan, kind in zip(plans, self._types, strict=True)
            for _ in plan.paths
        ]
        self._root = _TextNode(root, of_places)

    def read(self, documents: Sequence[bytes]) -> Sheet:
        """Return every column's values in the order of ``documents``; values of records in doubt mean nothing."""
        sheet = Sheet(len(self._places))
        texts = documents
        if self._has_root_column:
            texts = [document.strip(WHITE_SPACE) for document in documents]
        self._root.fill(texts, sheet)
        sheet.columns = [self._column(column, kind, sheet) for column, kind in enumerate(self._types)]
        return sheet

    def _column(self, column: int, kind: Any, sheet: Sheet) -> Sequence[Any]:
        values = [sheet.columns[place] for place in self._places.of(column)]
        has_default = self._have_default[column]
        if len(values) == 1 and not has_default:
            return values[0]
        found = list(map(_first_present, zip(*values, strict=True)))
        if has_default:
            sheet.missing[column] = [row for row, text in enumerate(found) if text is None]
        texts = [_NULL if text is None else text for text in found]
        return sheet.decode_each(msgspec.json.Decoder(kind), texts)


class _ColumnNode:
    """A key with one column and nothing below it: its field already has the column's quick type."""

    def __init__(self, node: PathNode, types: Sequence[Any]) -> None:
        self._place = node.places[0]
        self.field_type = types[self._place]

    def fill(self, values: Sequence[Any], sheet: Sheet) -> None:
        sheet.columns[self._place] = values


class _ObjectNode:
    """A key that no column holds itself: an object with keys below it, or null."""

    def __init__(self, node: PathNode, types: Sequence[Any]) -> None:
        children = [_child(child, types) for child in node.children.values()]
        names = [f"field_{number}" for number in range(len(children))]
        fields = [(name, child.field_type, None) for name, child in zip(names, children, strict=True)]
        renamed = dict(zip(names, node.children, strict=True))
        # gc=False: the structs hold no cycles, and the collector would walk through all of them.
        self.struct: Any = msgspec.defstruct("Record", fields, rename=renamed, gc=False)
        self.empty = self.struct()
        self.field_type: Any = self.struct | None
        self._children = children

    def fill(self, values: Sequence[Any], sheet: Sheet) -> None:
        structs = [self.empty if value is None else value for value in values]
        # Flat, so that each tuple dies at once: takes two thirds of the time of a look-up for each field.
        cells = list(chain.from_iterable(map(msgspec.structs.astuple, structs)))
        for place, child in enumerate(self._children):
            child.fill(cells[place :: len(self._children)], sheet)


class _TextNode:
    """The root, or a key that several columns hold or look into: its text is decoded for each of them."""

    field_type: Any = msgspec.Raw

    def __init__(self, node: PathNode, types: Sequence[Any]) -> None:
        self._object = _ObjectNode(node, types) if node.children else None
        self._is_below_root = bool(node.path)
        # A document that nothing else decodes must be decoded as Raw, which checks that it is JSON.
        is_checked = bool(node.path or node.children)
        self._places = [(place, _decoder(types[place], is_checked)) for place in node.places]
        # Only the root must be an object; below it null counts as missing.
        object_type = self._object and (self._object.field_type if node.path else self._object.struct)
        self._object_decoder = msgspec.json.Decoder(object_type)

    def fill(self, texts: Sequence[Any], sheet: Sheet) -> None:
        for place, decoder in self._places:
            sheet.columns[place] = texts if decoder is None else sheet.decode_each(decoder, self._present(texts))
        if self._object:
            self._object.fill(sheet.decode_each(self._object_decoder, self._present(texts)), sheet)

    def _present(self, texts: Sequence[Any]) -> Sequence[Any]:
        """Return null for missing values; the root, a whole document, is never missing."""
        return [_NULL if text is None else text for text in texts] if self._is_below_root else texts


def _decoder(quick_type: Any, is_checked: bool) -> msgspec.json.Decoder[Any] | None:
    return None if quick_type is msgspec.Raw and is_checked else msgspec.json.Decoder(quick_type)


def _child(node: PathNode, types: Sequence[Any]) -> _ColumnNode | _ObjectNode | _TextNode:
    if not node.places:
        return _ObjectNode(node, types)
    if node.children or len(node.places) > 1:
        return _TextNode(node, types)
    return _ColumnNode(node, types)


# The part of a batch that typed JSON columns give: the quick reading, and the exact reading of what it doubts.

# Replaces a document that the quick reading must not see; its record is read in the exact way anyway.
_NOTHING = b"{}"


class JsonColumns:
    """The decoder of JSON values into typed columns, by JSON path.

    Args:
        plans: The columns, in their order.
        quick: Whether columns are read the quick way first; without it every record is read in the exact way, with
            the same outcome.
        of_binary: Whether a binary format's records were made these documents, which name NaN and the infinities.
        place: Where documents come from, for faults of a whole document; empty for the value.
    """

    def __init__(
        self, plans: Sequence[ColumnPlan], *, quick: bool = True, of_binary: bool = False, place: str = ""
    ) -> None:
        self._plans = plans
        self._rules = [column_rule(plan, of_binary=of_binary) for plan in plans]
        self._types = [rule.arrow_type for rule in self._rules]
        self._exact = ExactReader(plans, self._rules, place)
        self._quick = _quick_reader(plans, self._rules) if quick else None

    def decode(self, values: pa.Array) -> DecodedPart:
        """Decode a large_binary array; a null value becomes NULL in every column, without a decode error."""
        if not values.null_count:
            return self._decode_present(values)
        rows = positions(values.is_valid())
        part = self._decode_present(values.drop_null())
        places: list[int | None] = [None] * len(values)
        for place, row in enumerate(rows):
            places[row] = place
        spread = pa.array(places, pa.int64())
        return DecodedPart(
            tuple(array.take(spread) for array in part.arrays),
            {rows[place]: decode_error for place, decode_error in part.decode_errors.items()},
            {rows[place]: unavailable for place, unavailable in part.unavailable.items()},
        )

    def _decode_present(self, values: pa.Array) -> DecodedPart:
        documents = values.to_pylist()
        unreadable = [*invalid_utf8_rows(values), *too_deep_rows(values)]
        arrays, doubtful = self._read_quickly(documents, unreadable)
        decode_errors: dict[int, DecodeError] = {}
        apart: dict[int, DidNotTravel] = {}
        rows: list[int] = []
        records: list[list[Cell | None]] = []
        for row in doubtful:
            try:
                cells, unavailable = self._exact.read(documents[row])
                records.append(cells)
                rows.append(row)
                if unavailable:
                    apart[row] = unavailable
            except DecodeError as decode_error:
                decode_errors[row] = decode_error
        columns = zip(*records, strict=True) if records else ((),) * len(arrays)
        exact = [pa.array(column, of) for column, of in zip(columns, self._types, strict=True)]
        merged = (with_rows_replaced(array, rows, cells) for array, cells in zip(arrays, exact, strict=True))
        return DecodedPart(tuple(merged), decode_errors, apart)

    def _read_quickly(self, documents: list[bytes], unreadable: list[int]) -> tuple[list[pa.Array], list[int]]:
        if self._quick is None:
            return [pa.nulls(len(documents), of) for of in self._types], list(range(len(documents)))
        readable = list(documents) if unreadable else documents
        for row in unreadable:
            readable[row] = _NOTHING
        sheet = self._quick.read(readable)
        sheet.doubtful.update(unreadable)
        arrays = []
        for number, (plan, rule) in enumerate(zip(self._plans, self._rules, strict=True)):
            column = rule.quick(sheet.columns[number])
            sheet.doubtful.update(column.doubtful)
            array = with_default(column.array, sheet.missing.get(number, []), default_of(plan))
            if plan.refuses_null and array.null_count:
                sheet.doubtful.update(positions(pc.is_null(array)))
            arrays.append(array)
        return arrays, sorted(sheet.doubtful)


def _quick_reader(plans: Sequence[ColumnPlan], rules: Sequence[ValueRule]) -> QuickReader | None:
    try:
        return QuickReader(plans, rules)
    except ValueError:
        return None

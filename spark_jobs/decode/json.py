"""JSON values: the quick reading, and the exact one that decides where the quick one is in doubt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.settings import json_path_text
from spark_jobs.decode.conversions import converted
from spark_jobs.decode.texts import rule_for
from spark_jobs.decode.values import (
    JSON_STRING,
    WHITE_SPACE,
    Cell,
    ColumnPlan,
    DecodedPart,
    DecodeError,
    ValueRule,
    described,
    excerpt,
    invalid_utf8_rows,
    positions,
    with_rows_replaced,
    wrong_type,
)

# The bytes of a value or key as one JSON document: valid as a whole, also in the parts that no column reads.

#: Deeper nesting is malformed. A fixed limit, so that it does not depend on an interpreter's stack: half of Python's
#: default recursion limit, and far below what PostgreSQL's own stack allows.
MAX_NESTING = 512

#: Each level takes an opening and a closing character, so shorter documents cannot be too deep.
SHORTEST_TOO_DEEP_BYTES = 2 * (MAX_NESTING + 1)

_SYNTAX = msgspec.json.Decoder(msgspec.Raw)
# Runs over bytes that were not checked yet, so a string without an end goes to the end of the document: a search that
# began again at each quote inside it would take hours for 1 MB.
_STRING_OR_BRACKET = re.compile(JSON_STRING[:-1] + rb'(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


def is_too_deep(document: bytes) -> bool:
    """Tell whether a document is nested deeper than ``MAX_NESTING``."""
    if document.count(b"[") + document.count(b"{") <= MAX_NESTING:
        return False
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(document):
        first = match[0][0]
        depth += (first in b"[{") - (first in b"]}")
        if depth > MAX_NESTING:
            return True
    return False


def too_deep_rows(documents: pa.Array) -> list[int]:
    """Return the rows of a large_binary array that hold a document nested too deeply; null is fine."""
    long_enough = positions(pc.greater_equal(pc.binary_length(documents), SHORTEST_TOO_DEEP_BYTES))
    return [row for row in long_enough if is_too_deep(documents[row].as_py())]


def checked_document(data: bytes) -> bytes:
    r"""Return a JSON document that every later step can read, without white space around it.

    A lone surrogate (``\ud800``) is grammatical JSON that names no text. It becomes ``\u0000`` here, which is just as
    unsupported, so it matters only where a column would hold it.

    Raises:
        DecodeError: The bytes are not UTF-8, not one JSON document, or nested too deeply.
    """
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte {data[error.start]:#04x} at position {error.start}"
        raise DecodeError(DeadLetterReason.NOT_UTF8, f"expected UTF-8, found {found}") from None
    if is_too_deep(data):
        raise DecodeError(DeadLetterReason.MALFORMED, f"expected JSON, found nesting deeper than {MAX_NESTING} levels")
    fault = _syntax_fault(data)
    if fault:
        changed = _without_lone_surrogates(data)
        if _syntax_fault(changed):
            found = f"{excerpt(data)} ({fault})" if data else "no bytes"
            raise DecodeError(DeadLetterReason.MALFORMED, f"expected JSON, found {found}{_hint(data)}")
        data = changed
    return data.strip(WHITE_SPACE)


def _without_lone_surrogates(data: bytes) -> bytes:
    changed = bytearray(data)  # the spellings have one length; a piece for each match would take 20 x the document
    for match in _SURROGATE.finditer(data):
        if match["lone"]:
            changed[match.start() : match.end()] = b"\\u0000"
    return bytes(changed)


def _syntax_fault(data: bytes) -> str:
    try:
        _SYNTAX.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        return str(error)
    return ""


def _hint(data: bytes) -> str:
    if data[:1] == b"\x00" and len(data) >= 5:
        number = int.from_bytes(data[1:5], "big")
        return (
            f"; it begins like a value framed by a schema registry (schema id {number}), which this format does not"
            " read: the format raw keeps such bytes untouched"
        )
    if data[:3] == b"\xef\xbb\xbf":
        return "; JSON begins without a byte order mark"
    return ""


# The columns of a pipeline as a tree of JSON keys, and the exact reading of one record along it.


@dataclass
class PathNode:
    """One key of the tree: the columns that hold its value, and the keys below it that columns name."""

    path: tuple[str, ...] = ()
    columns: list[int] = field(default_factory=list)
    children: dict[str, PathNode] = field(default_factory=dict)

    def members(self, raw: bytes) -> Mapping[str, msgspec.Raw]:
        """Return the members that columns name, and skip all others: a dict of them takes 20 x the document."""
        found = self._decoder.decode(raw)
        if isinstance(found, dict):
            return found
        named = zip(self.children, msgspec.structs.astuple(found), strict=True)
        return {key: value for key, value in named if value is not None}

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        if all(key.isascii() for key in self.children):
            members = TypedDict("Members", dict.fromkeys(self.children, msgspec.Raw), total=False)  # type: ignore[misc]
            return msgspec.json.Decoder(members)
        # In a TypedDict msgspec 0.22 misses keys with other characters, until something has asked the key for its
        # UTF-8; a struct can name no quote, backslash or control character.
        names = {f"key_{number}": key for number, key in enumerate(self.children)}
        try:
            fields = [(name, msgspec.Raw, None) for name in names]
            return msgspec.json.Decoder(msgspec.defstruct("Members", fields, rename=names))
        except ValueError:
            return msgspec.json.Decoder(dict[str, msgspec.Raw])


def path_tree(plans: Sequence[ColumnPlan]) -> PathNode:
    """Build the tree of all columns' paths; columns are given by their index."""
    root = PathNode()
    for index, plan in enumerate(plans):
        node = root
        for depth, key in enumerate(plan.path, start=1):
            node = node.children.setdefault(key, PathNode(plan.path[:depth]))
        node.columns.append(index)
    return root


class ExactReader:
    """The exact reading, one record at a time, every value by its rule. It decides; the quick one only saves time."""

    def __init__(self, plans: Sequence[ColumnPlan], rules: Sequence[ValueRule]) -> None:
        self._columns = list(zip(plans, rules, strict=True))
        self._tree = path_tree(plans)

    def read(self, data: bytes) -> list[Cell | None]:
        """Return the record's values in column order.

        Raises:
            DecodeError: The first fault: of the document, of an object on the way to a value, then by column order.
        """
        raws: list[bytes | None] = [None] * len(self._columns)
        document = checked_document(data)
        if self._tree.children and document == b"null":
            raise wrong_type("an object", "null").at("the value")
        _collect(self._tree, document, raws)
        return [_cell(plan, rule, raw) for (plan, rule), raw in zip(self._columns, raws, strict=True)]


def _collect(node: PathNode, raw: bytes, raws: list[bytes | None]) -> None:
    for index in node.columns:
        raws[index] = raw
    if not node.children or raw == b"null":
        return
    if raw[:1] != b"{":
        raise wrong_type("an object", described(raw)).at(json_path_text(node.path))
    members = node.members(raw)
    for key, child in node.children.items():
        if key in members:
            _collect(child, bytes(members[key]), raws)


def _cell(plan: ColumnPlan, rule: ValueRule, raw: bytes | None) -> Cell | None:
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
    """The results of the quick reading: the decoded values of every column, and the records in doubt."""

    def __init__(self, columns: int) -> None:
        self.columns: list[Sequence[Any]] = [()] * columns
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

    def __init__(self, root: PathNode, rules: Sequence[ValueRule]) -> None:
        self._columns = len(rules)
        self._has_root_column = bool(root.columns)
        self._root = _TextNode(root, rules)

    def read(self, documents: Sequence[bytes]) -> Sheet:
        """Return every column's values in the order of ``documents``; values of records in doubt mean nothing."""
        sheet = Sheet(self._columns)
        texts = documents
        if self._has_root_column:
            texts = [document.strip(WHITE_SPACE) for document in documents]
        self._root.fill(texts, sheet)
        return sheet


class _ColumnNode:
    """A key with one column and nothing below it: its field already has the column's quick type."""

    def __init__(self, node: PathNode, rules: Sequence[ValueRule]) -> None:
        self._column = node.columns[0]
        self.field_type = rules[self._column].quick_type

    def fill(self, values: Sequence[Any], sheet: Sheet) -> None:
        sheet.columns[self._column] = values


class _ObjectNode:
    """A key that no column holds itself: an object with keys below it, or null."""

    def __init__(self, node: PathNode, rules: Sequence[ValueRule]) -> None:
        children = [_child(child, rules) for child in node.children.values()]
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

    def __init__(self, node: PathNode, rules: Sequence[ValueRule]) -> None:
        self._object = _ObjectNode(node, rules) if node.children else None
        self._is_below_root = bool(node.path)
        # A document that nothing else decodes must be decoded as Raw, which checks that it is JSON.
        is_checked = bool(node.path or node.children)
        self._columns = [(column, _decoder(rules[column].quick_type, is_checked)) for column in node.columns]
        # Only the root must be an object; below it null counts as missing.
        object_type = self._object and (self._object.field_type if node.path else self._object.struct)
        self._object_decoder = msgspec.json.Decoder(object_type)

    def fill(self, texts: Sequence[Any], sheet: Sheet) -> None:
        for column, decoder in self._columns:
            sheet.columns[column] = texts if decoder is None else sheet.decode_each(decoder, self._present(texts))
        if self._object:
            self._object.fill(sheet.decode_each(self._object_decoder, self._present(texts)), sheet)

    def _present(self, texts: Sequence[Any]) -> Sequence[Any]:
        """Return null for missing values; the root, a whole document, is never missing."""
        return [_NULL if text is None else text for text in texts] if self._is_below_root else texts


def _decoder(quick_type: Any, is_checked: bool) -> msgspec.json.Decoder[Any] | None:
    return None if quick_type is msgspec.Raw and is_checked else msgspec.json.Decoder(quick_type)


def _child(node: PathNode, rules: Sequence[ValueRule]) -> _ColumnNode | _ObjectNode | _TextNode:
    if not node.columns:
        return _ObjectNode(node, rules)
    if node.children or len(node.columns) > 1:
        return _TextNode(node, rules)
    return _ColumnNode(node, rules)


# The part of a batch that typed JSON columns give: the quick reading, and the exact reading of what it doubts.

# Replaces a document that the quick reading must not see; its record is read in the exact way anyway.
_NOTHING = b"{}"


class JsonColumns:
    """The decoder of JSON values into typed columns, by JSON path.

    Args:
        plans: The columns, in their order.
        quick: Whether columns are read the quick way first; without it every record is read in the exact way, with
            the same outcome.
    """

    def __init__(self, plans: Sequence[ColumnPlan], *, quick: bool = True) -> None:
        self._plans = plans
        self._rules = [converted(rule_for(plan.type), plan, checked_document) for plan in plans]
        self._types = [rule.arrow_type for rule in self._rules]
        self._exact = ExactReader(plans, self._rules)
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
        )

    def _decode_present(self, values: pa.Array) -> DecodedPart:
        documents = values.to_pylist()
        unreadable = [*invalid_utf8_rows(values), *too_deep_rows(values)]
        arrays, doubtful = self._read_quickly(documents, unreadable)
        decode_errors: dict[int, DecodeError] = {}
        rows: list[int] = []
        records: list[list[Cell | None]] = []
        for row in doubtful:
            try:
                records.append(self._exact.read(documents[row]))
                rows.append(row)
            except DecodeError as decode_error:
                decode_errors[row] = decode_error
        columns = zip(*records, strict=True) if records else ((),) * len(arrays)
        exact = [pa.array(column, of) for column, of in zip(columns, self._types, strict=True)]
        merged = (with_rows_replaced(array, rows, cells) for array, cells in zip(arrays, exact, strict=True))
        return DecodedPart(tuple(merged), decode_errors)

    def _read_quickly(self, documents: list[bytes], unreadable: list[int]) -> tuple[list[pa.Array], list[int]]:
        if self._quick is None:
            return [pa.nulls(len(documents), of) for of in self._types], list(range(len(documents)))
        readable = list(documents) if unreadable else documents
        for row in unreadable:
            readable[row] = _NOTHING
        sheet = self._quick.read(readable)
        sheet.doubtful.update(unreadable)
        arrays = []
        for plan, rule, cells in zip(self._plans, self._rules, sheet.columns, strict=True):
            column = rule.quick(cells)
            sheet.doubtful.update(column.doubtful)
            if plan.refuses_null and column.array.null_count:
                sheet.doubtful.update(positions(pc.is_null(column.array)))
            arrays.append(column.array)
        return arrays, sorted(sheet.doubtful)


def _quick_reader(plans: Sequence[ColumnPlan], rules: Sequence[ValueRule]) -> QuickReader | None:
    try:
        return QuickReader(path_tree(plans), rules)
    except ValueError:
        return None

"""The quick reading of many records: typed structs for a whole batch, then one column at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

from spark_jobs.decode.json_paths import PathNode
from spark_jobs.decode.json_values import WHITE_SPACE
from spark_jobs.decode.value_rules import ValueRule

_NULL = b"null"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Sheet:
    """What the quick reading fills in: the decoded values of every column, and the records in doubt."""

    def __init__(self, columns: int) -> None:
        self.columns: list[Sequence[Any]] = [()] * columns
        self.doubtful: set[int] = set()

    def decode_each(self, decoder: msgspec.json.Decoder[Any], texts: Sequence[Any]) -> list[Any]:
        """Decodes each text; what cannot be decoded gives ``None`` and is in doubt."""
        decoded: list[Any] = []
        left = iter(texts)
        while len(decoded) < len(texts):
            try:
                decoded.extend(map(decoder.decode, left))
            except _UNREADABLE:
                # The list holds what came before the fault, so its length is the position of the fault.
                self.doubtful.add(len(decoded))
                decoded.append(None)
        return decoded


class QuickReader:
    """Reads a batch of JSON documents that are valid UTF-8 and not nested too deeply.

    Raises:
        ValueError: On construction: a key that msgspec's structs cannot name (a quote, a backslash or a control
            character in it); such pipelines are read in the exact way only.
    """

    def __init__(self, root: PathNode, rules: Sequence[ValueRule]) -> None:
        self._columns = len(rules)
        self._has_root_column = bool(root.columns)
        self._root = _TextNode(root, rules)

    def read(self, documents: Sequence[bytes]) -> Sheet:
        """Gives every column's values in the order of ``documents``; values of records in doubt mean nothing."""
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
        # Flat, so that each tuple dies at once: two thirds of the time that a look for each field takes.
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
        # Only the root must be an object; below it null is as good as missing.
        object_type = self._object and (self._object.field_type if node.path else self._object.struct)
        self._object_decoder = msgspec.json.Decoder(object_type)

    def fill(self, texts: Sequence[Any], sheet: Sheet) -> None:
        for column, decoder in self._columns:
            sheet.columns[column] = texts if decoder is None else sheet.decode_each(decoder, self._present(texts))
        if self._object:
            self._object.fill(sheet.decode_each(self._object_decoder, self._present(texts)), sheet)

    def _present(self, texts: Sequence[Any]) -> Sequence[Any]:
        """Gives null for what is missing; the root, a whole document, is never missing."""
        return [_NULL if text is None else text for text in texts] if self._is_below_root else texts


def _decoder(quick_type: Any, is_checked: bool) -> msgspec.json.Decoder[Any] | None:
    return None if quick_type is msgspec.Raw and is_checked else msgspec.json.Decoder(quick_type)


def _child(node: PathNode, rules: Sequence[ValueRule]) -> _ColumnNode | _ObjectNode | _TextNode:
    if not node.columns:
        return _ObjectNode(node, rules)
    if node.children or len(node.columns) > 1:
        return _TextNode(node, rules)
    return _ColumnNode(node, rules)

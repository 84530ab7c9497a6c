"""The paths of columns as a tree of JSON keys: where values stand, and the members to which no path leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, TypedDict

import msgspec
import pyarrow as pa

from kafka_ingest.protocol.staging import MOST_NEW_FIELDS, NewField
from kafka_ingest.settings import NewFields, json_path_text
from spark_jobs.decode.documents import checked_document, object_pieces
from spark_jobs.decode.values import ColumnPlan, DecodedPart, PartDecoder, excerpt, wrong_type


@dataclass
class PathNode:
    """One key of the tree: the places whose value it holds, and the keys below it that places name."""

    path: tuple[str, ...] = ()
    places: list[int] = field(default_factory=list)
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


class Places:
    """Where the values of columns stand: one place for each path of each column, numbered in the columns' order.

    Args:
        plans: The columns.
    """

    def __init__(self, plans: Sequence[ColumnPlan]) -> None:
        self._first = [0, *accumulate(len(plan.paths) for plan in plans)]
        self._paths = [path for plan in plans for path in plan.paths]

    def __len__(self) -> int:
        return len(self._paths)

    def of(self, column: int) -> range:
        """Return the places of a column, in the order in which they count."""
        return range(self._first[column], self._first[column + 1])

    def tree(self) -> PathNode:
        """Build the tree of all paths."""
        return path_tree(self._paths)


def path_tree(paths: Sequence[tuple[str, ...]]) -> PathNode:
    """Build the tree of paths; the number of each is a place."""
    root = PathNode()
    for place, path in enumerate(paths):
        node = root
        for depth, key in enumerate(path, start=1):
            node = node.children.setdefault(key, PathNode(path[:depth]))
        node.places.append(place)
    return root


# The members of values that no column reads.

#: A longer key names no column, and is cut where it is reported: PostgreSQL takes 63 bytes.
_LONGEST_KEY = 200


class WatchedColumns:
    """Columns of documents, and what becomes of the members that no column reads.

    A member counts where its object is on the way to a column: the root, and each object that a path leads through. An
    object that a column takes whole has no such members.

    Args:
        columns: Decodes the columns.
        plans: The columns.
        policy: ``dead_letter`` refuses a document with such a member, ``warn`` keeps its name in :attr:`new_fields`.
    """

    def __init__(self, columns: PartDecoder, plans: Sequence[ColumnPlan], policy: NewFields) -> None:
        self._columns = columns
        self._refuses = policy is NewFields.DEAD_LETTER
        self._found: dict[tuple[str, ...], None] = {}
        self._known = [path for plan in plans for path in plan.paths]
        self._know()

    @property
    def new_fields(self) -> tuple[NewField, ...]:
        """The members that were met so far, at most ``MOST_NEW_FIELDS``."""
        return tuple(NewField(path, "jsonb") for path in self._found)

    def decode(self, values: pa.Array) -> DecodedPart:
        """Decode a large_binary array; a document that a column refuses is not looked at."""
        part = self._columns.decode(values)
        decode_errors = dict(part.decode_errors)
        for row, document in enumerate(values.to_pylist()):
            if len(self._found) == MOST_NEW_FIELDS:
                break
            if document is None or row in decode_errors or self._has_known_members(document):
                continue
            if not self._refuses:
                self._learn(document)
            elif (path := next(_unread(self._tree, checked_document(document)), None)) is not None:
                found = excerpt(json_path_text(path))
                decode_errors[row] = wrong_type("no fields but those that columns read", found).at("the value")
        return DecodedPart(part.arrays, decode_errors)

    def may_meet_others(self, may_have_others: Callable[[PathNode], bool] | None) -> bool:
        """Tell whether documents of a schema must be looked at, for members that are neither read nor named yet.

        Args:
            may_have_others: Tells whether they may have members that a tree does not have; ``None`` where nobody knows.
        """
        return len(self._found) < MOST_NEW_FIELDS and (may_have_others is None or may_have_others(self._tree))

    def _know(self) -> None:
        self._tree = path_tree(self._known)
        self._strict = _strict_decoder(self._tree)

    def _has_known_members(self, document: bytes) -> bool:
        """Tell quickly, and rather no than yes, whether there is no other member."""
        try:
            return self._strict is not None and self._strict.decode(document) is not None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False

    def _learn(self, document: bytes) -> None:
        """Keep the names of a document's members; they are known from now on, so that checking others stays quick."""
        known = len(self._known)
        for path in _unread(self._tree, checked_document(document)):
            *way, key = path
            if len(key) <= _LONGEST_KEY and path not in self._found:
                self._known.append(path)
            self._found[*way, key[:_LONGEST_KEY]] = None
            if len(self._found) == MOST_NEW_FIELDS:
                break
        if len(self._known) > known:
            self._know()


def _unread(node: PathNode, raw: bytes) -> Iterator[tuple[str, ...]]:
    """Yield the members that the tree does not have, object by object, in their order."""
    if node.places or raw[:1] != b"{":
        return
    for piece in object_pieces(raw):
        yield from ((*node.path, key) for key in piece if key not in node.children)
    members = node.members(raw)
    for key, child in node.children.items():
        if key in members:
            yield from _unread(child, bytes(members[key]))


def _strict_decoder(tree: PathNode) -> msgspec.json.Decoder[Any] | None:
    """Return a decoder that fails on other members; ``None`` for keys that no struct can name."""
    try:
        return msgspec.json.Decoder(_strict_type(tree))
    except ValueError:
        return None


def _strict_type(node: PathNode) -> Any:
    if node.places:
        return msgspec.Raw
    names = {f"field_{number}": key for number, key in enumerate(node.children)}
    of_children = map(_strict_type, node.children.values())
    fields = [
        (name, kind if kind is msgspec.Raw else kind | None, None)
        for name, kind in zip(names, of_children, strict=True)
    ]
    return msgspec.defstruct("Known", fields, rename=names, forbid_unknown_fields=True, gc=False)

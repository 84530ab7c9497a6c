"""The paths of columns as a tree of JSON keys: where values stand, and the members to which no path leads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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

#: Returns the type that a column for a member of documents has, by the member's path. Documents of one kind, such as
#: those of one schema, have one of these.
TypeOf = Callable[[tuple[str, ...]], str]


def as_jsonb(_path: tuple[str, ...]) -> str:
    """Return the type for members of JSON, which promises nothing of values that are still to come."""
    return "jsonb"


class _Members:
    """The members that documents of one kind may have without being looked at: columns read them, or they are named."""

    def __init__(self, paths: Sequence[tuple[str, ...]]) -> None:
        self._paths = list(dict.fromkeys(paths))
        self.tree = path_tree(self._paths)
        self._strict = _strict_decoder(self.tree)

    def with_paths(self, more: Sequence[tuple[str, ...]]) -> _Members:
        return _Members([*self._paths, *more])

    def are_all_of(self, document: bytes) -> bool:
        """Tell quickly, and rather no than yes, whether there is no other member."""
        try:
            return self._strict is not None and self._strict.decode(document) is not None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False


class WatchedColumns:
    """Columns of documents, and what becomes of the members that no column reads.

    A member counts where its object is on the way to a column: the root, and each object that a path leads through. An
    object that a column takes whole has no such members. Members are looked for in each kind of documents by itself, so
    that what is found does not depend on which kind comes first.

    Args:
        columns: Decodes the columns.
        plans: The columns.
        policy: ``dead_letter`` refuses a document with such a member, others keep its name in :attr:`new_fields`.
    """

    def __init__(self, columns: PartDecoder, plans: Sequence[ColumnPlan], policy: NewFields) -> None:
        self._columns = columns
        self._refuses = policy is NewFields.DEAD_LETTER
        self._read = _Members([path for plan in plans for path in plan.paths])
        self._known: dict[TypeOf, _Members] = {}
        self._named: set[tuple[str, ...]] = set()
        self._found: dict[NewField, None] = {}

    @property
    def new_fields(self) -> tuple[NewField, ...]:
        """The members that were met so far, each with every type that it had; at most ``MOST_NEW_FIELDS`` names."""
        return tuple(self._found)

    def decode(self, values: pa.Array, types: Mapping[int, TypeOf] | None = None) -> DecodedPart:
        """Decode a large_binary array; a document that a column refuses is not looked at.

        Args:
            values: The documents.
            types: The kind of each document, by row; without it all are JSON.
        """
        part = self._columns.decode(values)
        decode_errors = dict(part.decode_errors)
        type_of: TypeOf = as_jsonb
        members = self._known.get(type_of, self._read)
        for row, document in enumerate([] if self._is_full else values.to_pylist()):
            if document is None or row in decode_errors:
                continue
            if types:
                type_of = types.get(row, as_jsonb)
                members = self._known.get(type_of, self._read)
            if members.are_all_of(document):
                continue
            if not self._refuses:
                members = self._learn(document, members, type_of)
                if self._is_full:
                    break
            elif (path := next(_unread(members.tree, checked_document(document)), None)) is not None:
                found = excerpt(json_path_text(path))
                decode_errors[row] = wrong_type("no fields but those that columns read", found).at("the value")
        return DecodedPart(part.arrays, decode_errors)

    def may_meet_others(self, may_have_others: Callable[[PathNode], bool] | None, kinds: Collection[TypeOf]) -> bool:
        """Tell whether documents of a schema must be looked at, for members that are neither read nor named yet.

        Args:
            may_have_others: Tells whether they may have members that a tree does not have; ``None`` where nobody knows.
            kinds: The kinds of these documents.
        """
        if self._is_full or may_have_others is None:
            return not self._is_full
        return any(may_have_others(self._known.get(kind, self._read).tree) for kind in kinds or (as_jsonb,))

    @property
    def _is_full(self) -> bool:
        return len(self._named) == MOST_NEW_FIELDS

    def _learn(self, document: bytes, members: _Members, type_of: TypeOf) -> _Members:
        """Keep the names of a document's members; they are known from now on, so that checking others stays quick."""
        more = []
        for path in _unread(members.tree, checked_document(document)):
            *way, key = path
            if len(key) <= _LONGEST_KEY:
                more.append(path)
            name = (*way, key[:_LONGEST_KEY])
            self._named.add(name)
            self._found[NewField(name, type_of(path))] = None
            if self._is_full:
                break
        if more:
            self._known[type_of] = members = members.with_paths(more)
        return members


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

"""The columns of a pipeline as a tree of JSON keys, and the exact reading of one record along it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict

import msgspec

from kafka_ingest.core.json_path import json_path_text
from spark_jobs.decode.column_plan import ColumnPlan
from spark_jobs.decode.json_documents import checked_document
from spark_jobs.decode.json_values import described
from spark_jobs.decode.misfits import Misfit, wrong_type
from spark_jobs.decode.value_rules import Cell, ValueRule


@dataclass
class PathNode:
    """One key of the tree: the columns that hold its value, and the keys below it that columns name."""

    path: tuple[str, ...] = ()
    columns: list[int] = field(default_factory=list)
    children: dict[str, PathNode] = field(default_factory=dict)

    def members(self, raw: bytes) -> Mapping[str, msgspec.Raw]:
        """Give the members that columns name, and pass over all others: a dict of them takes 20 x the document."""
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
    """Builds the tree of all columns' paths; columns go by their index."""
    root = PathNode()
    for index, plan in enumerate(plans):
        node = root
        for depth, key in enumerate(plan.path, start=1):
            node = node.children.setdefault(key, PathNode(plan.path[:depth]))
        node.columns.append(index)
    return root


class ExactReader:
    """Reads one record at a time, every value by its rule's exact way. It decides; the quick reader only saves time."""

    def __init__(self, plans: Sequence[ColumnPlan], rules: Sequence[ValueRule]) -> None:
        self._columns = list(zip(plans, rules, strict=True))
        self._tree = path_tree(plans)

    def read(self, data: bytes) -> list[Cell | None]:
        """Gives the record's values in column order.

        Raises:
            Misfit: The first fault: of the document, of an object on the way to a value, then by column order.
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
            raise plan.null_misfit("nothing there" if raw is None else "null")
        return None
    try:
        return rule.exact(raw)
    except Misfit as misfit:
        raise misfit.at(plan.place) from None

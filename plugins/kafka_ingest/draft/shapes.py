"""What the values and keys of a sample are: JSON, text, bytes, frames of a registry; and the envelopes around JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_ingest.draft.fields import Column, Fields, LeftOut, column_of, leaves, share
from kafka_ingest.draft.values import Document, is_text, read_document, shown
from kafka_ingest.settings import Conversion

#: A frame of a schema registry: a zero byte and four bytes of the schema's id.
_FRAME_BYTES = 5
#: So many columns a person reads; what is more stays in one column of the whole value.
MAX_COLUMNS = 200
MAX_KEY_COLUMNS = 20
_NAMED = 5

_OPERATIONS = tuple("crudtm")
#: What a value that did not travel holds (``unavailable.value.placeholder`` of Debezium's connectors).
UNAVAILABLE = "__debezium_unavailable_value"


#: Kinds of payloads, as comments call them.
OBJECT, OTHER_JSON, TEXT = "JSON objects", "other JSON", "text"
BYTES, FRAMED = "bytes that are no text", "framed by a schema registry"


@dataclass(slots=True)
class Shape:
    """What the payloads of one place are, counted.

    Attributes:
        kinds: How many are of each kind.
        odd: How many JSON documents hold something that jsonb cannot.
        unstorable_texts: How many texts, JSON or not, a text column cannot hold.
        are_strings: Whether all JSON that is no object is a string or an array.
        firsts: Place of the first payload of each kind.
        in_schema: How many are ``{"schema": ..., "payload": ...}``, as Kafka Connect writes JSON.
        changes: How many are change events of Debezium, below ``payload`` or not.
        unwrapped: How many are rows with Debezium's ``__op`` or ``__deleted``.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    odd: int = 0
    unstorable_texts: int = 0
    are_strings: bool = True
    firsts: dict[str, str] = field(default_factory=dict)
    in_schema: int = 0
    changes: int = 0
    unwrapped: int = 0

    @property
    def count(self) -> int:
        """How many payloads there are."""
        return self.kinds.total()

    def are(self, *kinds: str) -> bool:
        """Tell whether there are payloads, and all are of these kinds."""
        return 0 < self.count == sum(self.kinds[kind] for kind in kinds)

    @property
    def prefix(self) -> tuple[str, ...]:
        """Where the data begins in each document."""
        return ("payload",) if 0 < self.count == self.in_schema else ()

    @property
    def are_changes(self) -> bool:
        """Whether all are change events of Debezium, in envelopes of one form."""
        return 0 < self.count == self.changes and self.in_schema in (0, self.count)

    def told(self) -> str:
        """Say what was seen, the commonest first."""
        kinds = self.kinds.most_common()
        return ", ".join(f"{kind}: {share(count, self.count)}, first {self.firsts[kind]}" for kind, count in kinds)

    def told_shortly(self) -> str:
        """Say what was seen, without places."""
        return ", ".join(f"{kind}: {share(count, self.count)}" for kind, count in self.kinds.most_common())


def shape_of(payloads: Iterable[tuple[str, bytes]]) -> Shape:
    """Look at payloads, each with the place where it stands, for people."""
    shape = Shape()
    for place, data in payloads:
        document = read_document(data)
        kind = _kind_of(data, document)
        shape.kinds[kind] += 1
        shape.firsts.setdefault(kind, place)
        if kind not in (FRAMED, BYTES):
            shape.unstorable_texts += not is_text(data.decode())
        if document is not None:
            _look_into(shape, document)
    return shape


def _kind_of(data: bytes, document: Document | None) -> str:
    if document is not None:
        return OBJECT if isinstance(document.value, dict) else OTHER_JSON
    if data[:1] == b"\x00" and len(data) >= _FRAME_BYTES:
        return FRAMED
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return BYTES
    return TEXT


def _look_into(shape: Shape, document: Document) -> None:
    value = document.value
    shape.odd += not document.is_plain
    if not isinstance(value, dict):
        shape.are_strings = shape.are_strings and type(value) in (str, list)
        return
    if _is_in_schema(value):
        shape.in_schema += 1
        value = value["payload"]
    if isinstance(value, dict):
        shape.changes += _is_change(value)
        shape.unwrapped += "__op" in value or "__deleted" in value


def _is_in_schema(value: dict[str, Any]) -> bool:
    schema = value.get("schema", "")
    has_type = schema is None or (isinstance(schema, dict) and "type" in schema)
    return value.keys() == {"schema", "payload"} and has_type


def _is_change(value: dict[str, Any]) -> bool:
    has_rows = all(isinstance(value.get(name), dict | None) for name in ("before", "after"))
    return value.get("op") in _OPERATIONS and isinstance(value.get("source"), dict) and has_rows


# JSON objects into columns.


@dataclass(frozen=True, slots=True)
class Described:
    """The columns of JSON objects.

    Attributes:
        columns: In the order in which their members were met.
        left_out: Members without a column.
        comments: About all of them.
        are_changes: Whether they are change events of Debezium.
    """

    columns: tuple[Column, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    comments: tuple[str, ...] = ()
    are_changes: bool = False


def described(payloads: Iterable[bytes], shape: Shape, *, most: int = MAX_COLUMNS) -> Described:
    """Describe payloads that are all JSON objects.

    Args:
        payloads: The same that ``shape`` was made of; they are read once more, so that no more than one is in memory.
        shape: What they are.
        most: Columns at most, but for change events.
    """
    documents = filter(None, map(read_document, payloads))
    if shape.are_changes:
        return _changes(documents, shape)
    found = _flattened(_observed(documents, shape), shape.prefix, is_whole_plain=not shape.odd, most=most)
    told = {
        "JSON with its schema, as Kafka Connect writes it: the data stand below payload": bool(shape.prefix),
        f"change events of Debezium among others: {share(shape.changes, shape.count)}": shape.changes > 0,
        "rows out of change events of Debezium: __op and __deleted say what was done": shape.unwrapped > 0,
    }
    return Described(found.columns, found.left_out, tuple(comment for comment, holds in told.items() if holds))


def of_key(payloads: Iterable[bytes], shape: Shape) -> Described:
    """Describe keys that are all JSON objects as columns ``from: key``."""
    fields = _observed(filter(None, map(read_document, payloads)), shape)
    found = _flattened(fields, shape.prefix, is_whole_plain=not shape.odd, most=MAX_KEY_COLUMNS)
    return from_key(found, shape.prefix)


def from_key(found: Described, whole: tuple[str, ...] = ("payload",)) -> Described:
    """Name columns as those of the key, and read them from it; ``whole`` is the label of a column of all of it."""
    columns = (
        replace(column, label=("key", *(column.label if column.label != whole else ())), from_key=True)
        for column in found.columns
    )
    return replace(found, columns=tuple(columns))


def _observed(documents: Iterable[Document], shape: Shape) -> Fields:
    fields = Fields()
    for document in documents:
        value = document.value["payload"] if shape.prefix else document.value
        fields.observe(value, is_plain=document.is_plain)
        if shape.prefix:
            fields.learn(document.value["schema"])
    return fields


def _flattened(fields: Fields, prefix: tuple[str, ...], *, is_whole_plain: bool, most: int) -> Described:
    found = [(column_of(path, field, fields), field.present) for path, field in leaves(fields.root)]
    has_more = fields.passed_over and bool(fields.root.members)
    return most_present(found, prefix, has_more=has_more, is_whole_plain=is_whole_plain, most=most)


def most_present(
    places: Sequence[tuple[Column | LeftOut, int]],
    prefix: tuple[str, ...] = (),
    *,
    has_more: bool = False,
    is_whole_plain: bool,
    most: int,
) -> Described:
    """Choose the columns that most records have, in their order, and one of the whole where there are more.

    Args:
        places: Columns, with paths below the prefix, each with the number of records that have it.
        prefix: Where the data begins in each document.
        has_more: Whether there are members beside them.
        is_whole_plain: Whether jsonb holds each whole document.
        most: Columns at most.
    """
    found = [column for column, _ in places]
    ranked = sorted(
        (place for place, column in enumerate(found) if isinstance(column, Column)),
        key=lambda place: (-places[place][1], place),
    )
    has_more = has_more or len(ranked) > most
    kept = {*ranked[: most - 1 if has_more else most]}
    columns = [
        replace(
            column, label=column.label or prefix or ("payload",), paths=tuple((*prefix, *path) for path in column.paths)
        )
        for place, column in enumerate(found)
        if isinstance(column, Column) and place in kept
    ]
    left_out = [LeftOut((*prefix, *column.path), column.why) for column in found if isinstance(column, LeftOut)]
    why = f"the {len(kept):,} members that most records have are columns, and there are more"
    if has_more and is_whole_plain:
        columns.append(Column(("document",), "jsonb", (prefix,), comments=(f"{why}: the whole of each",)))
    elif has_more:
        left_out.append(LeftOut(prefix, f"{why}, but the whole holds what jsonb cannot"))
    return Described(tuple(columns), tuple(left_out))


# Change events of Debezium.

_ABOUT_ROWS = (
    "change events of Debezium: op says what was done (c created, r read by a snapshot, u updated, d deleted,",
    "t truncated, m a message). Columns of the row read it after the change, and before it where it was deleted.",
    "Every event is a row of its own here. For a table of current state write value.envelope: debezium",
    "(docs/change-events.md).",
)


def _changes(documents: Iterator[Document], shape: Shape) -> Described:
    envelope, rows = Fields(), Fields()
    has_placeholder = False
    for document in documents:
        event = document.value["payload"] if shape.prefix else document.value
        envelope.observe(
            {name: value for name, value in event.items() if name not in ("before", "after")},
            is_plain=document.is_plain,
        )
        # Of a list of paths the first that a record has counts: a deleted row stands in before alone.
        row = {**(event.get("before") or {}), **(event.get("after") or {})}
        has_placeholder = has_placeholder or UNAVAILABLE in row.values()
        rows.observe(row, is_plain=document.is_plain)
        if shape.prefix:
            rows.learn(_schema_of_row(document.value["schema"]))
    found = [*_envelope_columns(envelope, shape.prefix), *_row_columns(rows, shape.prefix)]
    return Described(
        tuple(column for column in found if isinstance(column, Column)),
        tuple(column for column in found if isinstance(column, LeftOut)),
        about_rows(has_placeholder=has_placeholder),
        are_changes=True,
    )


def about_rows(*, has_placeholder: bool) -> tuple[str, ...]:
    """Say what change events are; with a placeholder, what stands for values that did not travel."""
    told = f'"{UNAVAILABLE}" stands for a value that was not changed and did not travel.'
    return (*_ABOUT_ROWS, told) if has_placeholder else _ABOUT_ROWS


def _schema_of_row(schema: Any) -> Any:
    members = schema.get("fields") if isinstance(schema, dict) else None
    named = [member for member in members if isinstance(member, dict)] if isinstance(members, list) else []
    return next((member for member in named if member.get("field") == "after"), None)


#: Members of the envelope that become columns, and the names of these; others repeat them in other units.
ENVELOPE = {"op": "op", "ts_ms": "changed_at", "source": "source", "transaction": "transaction", "message": "message"}


def _envelope_columns(envelope: Fields, prefix: tuple[str, ...]) -> Iterator[Column | LeftOut]:
    for name, label in ENVELOPE.items():
        member = envelope.root.members.get(name)
        if member is None or not member.kinds_of_values:
            continue
        column = column_of((name,), member, envelope)
        if isinstance(column, LeftOut):
            yield LeftOut((*prefix, name), column.why)
            continue
        is_other_time = name == "ts_ms" and column.conversion is not Conversion.EPOCH_MILLIS
        yield replace(column, label=(name if is_other_time else label,), paths=((*prefix, name),))


def _row_columns(rows: Fields, prefix: tuple[str, ...]) -> Iterator[Column | LeftOut]:
    members = list(rows.root.members.items())
    for name, member in members[:MAX_COLUMNS]:
        column = column_of((name,), member, rows)
        if isinstance(column, LeftOut):
            yield LeftOut((*prefix, "after", name), column.why)
        else:
            yield replace(column, paths=((*prefix, "after", name), (*prefix, "before", name)))
    if rows.passed_over or len(members) > MAX_COLUMNS:
        yield LeftOut((*prefix, "after"), f"its first {MAX_COLUMNS} members are columns; there are more")


def quoted_names(names: Counter[str]) -> str:
    """List names, the commonest first."""
    listed = ", ".join(shown(name) for name, _ in names.most_common(2 * _NAMED))
    return f"{listed}{', and more' if len(names) > 2 * _NAMED else ''}"

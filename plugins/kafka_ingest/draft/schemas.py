"""Records that name schemas in a registry: columns that come from the schemas, and what the sample says of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from kafka_ingest.draft.fields import Column, Field, Fields, LeftOut, column_of, facts, left_out_as_unstorable, share
from kafka_ingest.draft.shapes import (
    ENVELOPE,
    MAX_COLUMNS,
    OBJECT,
    OTHER_JSON,
    UNAVAILABLE,
    Described,
    Shape,
    about_rows,
    described,
    most_present,
    shape_of,
)
from kafka_ingest.draft.values import Spelling, read_document, shown
from kafka_ingest.kafka.registry import SCHEMA_KINDS, RegisteredSchema, frame_length, schema_id_of
from kafka_ingest.settings import Conversion, Rounding
from kafka_ingest.spark.samples import Place, RecordType, SchemaSample, read_samples

#: Returns a registered schema by the number or GUID that records name (``SchemaRegistry.schema``).
Lookup = Callable[[int | str], RegisteredSchema]

_NAMED = 5


# Which schemas the records name.


@dataclass(slots=True)
class NamedSchemas:
    """Values, or keys, by the schema that they name.

    Attributes:
        payloads: What follows the schema's number or GUID in each, by number or GUID.
        unnamed: How many name none.
        in_headers: How many name theirs in a header.
    """

    payloads: dict[int | str, list[bytes]] = field(default_factory=dict)
    unnamed: int = 0
    in_headers: int = 0

    @property
    def count(self) -> int:
        """How many there are."""
        return self.unnamed + self.named

    @property
    def named(self) -> int:
        """How many name a schema."""
        return sum(map(len, self.payloads.values()))

    @property
    def newest_first(self) -> Sequence[int | str]:
        """Numbers and GUIDs. Registries count up; GUIDs say nothing of their age, so the later seen is the newer."""
        order = list(self.payloads)
        return sorted(order, key=lambda of: (isinstance(of, int), of if isinstance(of, int) else order.index(of)))[::-1]

    def told(self) -> str:
        """List the numbers and GUIDs, the commonest first."""
        common = sorted(self.payloads.items(), key=lambda item: -len(item[1]))
        listed = ", ".join(f"{of} in {share(len(found), self.count)}" for of, found in common[:_NAMED])
        return f"{listed}{f', and {len(common) - _NAMED:,} more' if len(common) > _NAMED else ''}"


def named_schemas(values: Iterable[tuple[bytes, bytes | None]]) -> NamedSchemas:
    """Look at values, or keys, each with the header that may name its schema, as the job does."""
    found = NamedSchemas()
    for value, header in values:
        framed = value if header is None else header
        length = frame_length(framed)
        schema_id = schema_id_of(framed[:length])
        if schema_id is None:
            found.unnamed += 1
            continue
        found.in_headers += header is not None
        payload = framed[length:] if header is None else framed[length:] + value
        found.payloads.setdefault(schema_id, []).append(payload)
    return found


# From schemas to columns.


@dataclass(frozen=True, slots=True)
class Registered:
    """What the schemas say.

    Attributes:
        format: The format of a pipeline file; empty where there is none for all of them.
        found: The columns.
        comments: About the schemas, and why records cannot be read.
        unread: How many records no format of a registry reads.
    """

    format: str = ""
    found: Described = field(default_factory=Described)
    comments: tuple[str, ...] = ()
    unread: int = 0


def registered(named: NamedSchemas, lookup: Lookup, *, most: int = MAX_COLUMNS) -> Registered:
    """Ask for the schemas, each once, and make columns of them.

    Args:
        named: Who names which; at least one does.
        lookup: Where they are.
        most: Columns at most.

    Raises:
        RegistryUnavailable, ConfigError, SchemaMissing: The registry gives no answer about one of them.
        RetryLater: The sample could not be read.
    """
    schemas = {schema_id: lookup(schema_id) for schema_id in named.newest_first}
    kinds = {schema.kind for schema in schemas.values()}
    formats = [name for name, kind in SCHEMA_KINDS.items() if {kind} == kinds]
    if not formats:
        told = ", ".join(f"{schema_id} is {schemas[schema_id].kind}" for schema_id in list(schemas)[:_NAMED])
        return Registered(comments=(f"no format reads all of their schemas: {told}",))
    of_kind = _of_json if formats == ["json_schema"] else _of_types
    found = of_kind(named, schemas, most)
    return replace(found, format=formats[0], unread=found.unread + named.unnamed)


def _of_json(named: NamedSchemas, schemas: Mapping[int | str, RegisteredSchema], most: int) -> Registered:
    """Describe documents as those without a schema, which says less of values than they do; the schema names them."""
    payloads = [payload for found in named.payloads.values() for payload in found]
    shape = shape_of(("", payload) for payload in payloads)
    readable = [payload for payload in payloads if read_document(payload) is not None]
    unread = len(payloads) - len(readable)
    comments = (f"{share(unread, len(payloads))} are no JSON behind the number of their schema",) if unread else ()
    shape = shape_of(("", payload) for payload in readable) if unread else shape
    if not shape.are(OBJECT):
        return Registered(found=_whole_documents(shape), comments=comments, unread=unread)
    found = described(readable, shape, most=most)
    texts: dict[tuple[str, ...], str] = {}
    for schema in reversed(list(schemas.values())):
        texts |= _json_texts(schema.text)
    columns = tuple(_with_text(column, texts) for column in found.columns)
    return Registered(found=replace(found, columns=columns), comments=comments, unread=unread)


def _whole_documents(shape: Shape) -> Described:
    if not shape.are(OBJECT, OTHER_JSON) or shape.odd:
        return Described()
    return Described((Column(("payload",), "jsonb", ((),), comments=(f"documents: {shape.told_shortly()}",)),))


def _json_texts(text: str) -> dict[tuple[str, ...], str]:
    """Return what a JSON Schema calls the members of its documents: descriptions, else titles."""
    document = read_document(text.encode())
    found: dict[tuple[str, ...], str] = {}
    left: list[tuple[tuple[str, ...], Any]] = [((), document.value if document else None)]
    while left:
        path, schema = left.pop()
        properties = schema.get("properties") if isinstance(schema, dict) else None
        for name, member in properties.items() if isinstance(properties, dict) else ():
            said = [member.get(key) for key in ("description", "title")] if isinstance(member, dict) else []
            found |= {(*path, name): text for text in reversed(said) if isinstance(text, str) and text}
            left.append(((*path, name), member))
    return found


def _with_text(column: Column, texts: Mapping[tuple[str, ...], str]) -> Column:
    text = texts.get(column.paths[0]) if column.paths else None
    return replace(column, comments=(*column.comments, shown(text)[1:-1])) if text else column


def _of_types(named: NamedSchemas, schemas: Mapping[int | str, RegisteredSchema], most: int) -> Registered:
    """Make columns of the types of schemas, and compare each with the records."""
    samples = [
        SchemaSample(schema.kind, schema.text, schema.references, named.payloads[schema_id])
        for schema_id, schema in schemas.items()
    ]
    answers = dict(zip(schemas, read_samples(samples), strict=True))
    types = {
        f"schema {schema_id}{of.name and f', {of.name}'}": of
        for schema_id, answer in answers.items()
        for of in answer.types
    }
    unread = sum(answer.faulty for answer in answers.values())
    why = next((f"schema {of}: {answer.faults}" for of, answer in answers.items() if answer.faults), "")
    comments = (f"{share(unread, named.count)} cannot be read with their schema, such as {why}",) if unread else ()
    if not any(of.documents for of in types.values()):
        return Registered(comments=comments, unread=unread)
    return Registered(found=_described(types, most), comments=comments, unread=unread)


def _described(types: Mapping[str, RecordType], most: int) -> Described:
    are_changes = all(map(_is_envelope, types.values()))
    places = _joined({name: _of_row(of) for name, of in types.items()} if are_changes else types)
    fields, is_plain, has_placeholder = Fields(places), True, False
    for document in filter(None, (read_document(text.encode()) for of in types.values() for text in of.documents)):
        value = document.value
        if are_changes:
            value = {**value, _ROW: {**(value.get("before") or {}), **(value.get("after") or {})}}
            has_placeholder = has_placeholder or UNAVAILABLE in value[_ROW].values()
        fields.observe(value, is_plain=document.is_plain)
        is_plain = is_plain and document.is_plain
    found = [(_column(place, fields.root.at(path), fields.documents), path) for path, place in places.items()]
    kept = most_present(
        [(column, fields.root.at(path).present) for column, path in found], is_whole_plain=is_plain, most=most
    )
    return _of_changes(kept, fields, about_rows(has_placeholder=has_placeholder)) if are_changes else kept


# Change events of Debezium: columns of the row after the change, and before it where it was deleted.

#: Where the row stands while events are described: no name of Avro or Protobuf.
_ROW = "after, else before"


def _is_envelope(of: RecordType) -> bool:
    texts = {place.path for place in of.places if place.type == "text"}
    rows = [
        {(place.path[1:], place.type) for place in of.places if place.path[:1] == (side,) and place.path[1:]}
        for side in ("before", "after")
    ]
    has_source = any(place.path[0] == "source" for place in of.places if place.path)
    return ("op",) in texts and has_source and bool(rows[1]) and rows[0] == rows[1]


def _of_row(of: RecordType) -> RecordType:
    """Take the envelope's own places as JSON drafts do, and the row once."""
    roots = {place.path[0]: place for place in of.places if len(place.path) == 1}
    known = {place.path[0] for place in of.places if place.path}
    envelope = [roots.get(name) or Place((name,), "jsonb") for name in ENVELOPE if name in known]
    row = [replace(place, path=(_ROW, *place.path[1:])) for place in of.places if place.path[0] == "after"]
    return replace(of, places=[*envelope, *row])


def _of_changes(found: Described, fields: Fields, comments: tuple[str, ...]) -> Described:
    left_out = tuple(replace(member, path=_sides(member.path)[0]) for member in found.left_out)
    columns = tuple(_of_event(column, fields) for column in found.columns)
    return Described(columns, left_out, comments, are_changes=True)


def _of_event(column: Column, fields: Fields) -> Column:
    if column.label[0] == _ROW:
        return replace(column, label=column.label[1:], paths=_sides(column.paths[0]))
    if column.label == ("ts_ms",) and column.type == "bigint":
        time = column_of(column.label, fields.root.at(column.label), fields)
        if isinstance(time, Column) and time.conversion is Conversion.EPOCH_MILLIS:
            return replace(time, label=(ENVELOPE["ts_ms"],))
    return column


def _sides(path: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return where a member of the row stands: of a list of paths the first that a record has counts."""
    return tuple((side, *path[1:]) for side in ("after", "before")) if path[:1] == (_ROW,) else (path,)


# One column of all schemas.


def _joined(types: Mapping[str, RecordType]) -> Mapping[tuple[str, ...], Place]:
    """Return the places of all types, those of the first first; where one has a value and one has fields, jsonb."""
    found: dict[tuple[str, ...], dict[str, Place]] = {}
    for name, of in types.items():
        for place in of.places:
            found.setdefault(place.path, {})[name] = place
    above = {path[:length] for path in found for length in range(len(path))}
    whole = {path for path in above if path in found}
    joined: dict[tuple[str, ...], Place] = {}
    for path, by_type in found.items():
        over = next((path[:length] for length in range(len(path) + 1) if path[:length] in whole), None)
        if over is not None:
            joined[over] = Place(over, "jsonb", why="a value of its own in one schema, and fields in another")
        else:
            joined[path] = _of_all(by_type, types)
    return joined


def _of_all(by_type: Mapping[str, Place], types: Mapping[str, RecordType]) -> Place:
    """Join the places of one path."""
    place = reduce(_wider, by_type.values())
    if place.type == "jsonb" and {of.type for of in by_type.values()} != {"jsonb"}:
        told = ", ".join(f"{of.type} in {name}" for name, of in list(by_type.items())[:_NAMED])
        place = Place(place.path, "jsonb", why=f"no type holds all: {told}")
    missing = [name for name in types if name not in by_type]
    if not missing:
        return place
    more = f" and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
    return replace(place, why="; ".join(filter(None, [place.why, f"not in {', '.join(missing[:_NAMED])}{more}"])))


#: Digits of whole numbers; a numeric without numbers in brackets holds any.
_WHOLE_DIGITS = {"integer": 10, "bigint": 19}
_FLOATS = ("real", "double precision")


def _wider(one: Place, other: Place) -> Place:
    """Return a place that holds the values of both."""
    name = one.name if one.name == other.name else ""
    is_finer, types = one.is_finer or other.is_finer, {one.type, other.type}
    if types == {"numeric"} or (len(types) > 1 and types <= {"integer", "bigint", "numeric"}):
        return _wider_number(one, other, name)
    if len(types) == 1:
        return replace(one, name=name, is_finer=is_finer, why=one.why or other.why)
    if types <= {"integer", *_FLOATS}:
        return Place(one.path, "double precision", name=name)
    if types <= {"integer", "bigint", "numeric", *_FLOATS}:
        return Place(one.path, "numeric", name=name, why="whole numbers or decimals in one schema, floats in another")
    return Place(one.path, "text" if types == {"text", "uuid"} else "jsonb", name=name)


def _wider_number(one: Place, other: Place, name: str) -> Place:
    if "numeric" not in (one.type, other.type):
        return Place(one.path, "bigint", name=name)
    precisions = [_WHOLE_DIGITS.get(of.type, of.precision) for of in (one, other)]
    scale = max(one.scale, other.scale)
    if not all(precisions):
        return Place(one.path, "numeric", name=name)
    digits = max(precision - of.scale for precision, of in zip(precisions, (one, other), strict=True))
    return Place(one.path, "numeric", digits + scale, scale, name=name)


# What the sample says of it.

_SPELLINGS = {
    "timestamptz": (Spelling.TIMESTAMPTZ, Spelling.FINER_TIMESTAMPTZ),
    "timestamp": (Spelling.TIMESTAMP, Spelling.FINER_TIMESTAMP),
    "time": (Spelling.TIME, Spelling.FINER_TIME),
    "date": (Spelling.DATE, None),
    "uuid": (Spelling.UUID, None),
}
_NUMBERS = ("integer", "bigint", "numeric", *_FLOATS)
_BITS = {"integer": 31, "bigint": 63}


def _column(place: Place, found: Field, documents: int) -> Column | LeftOut:
    """Return the column of a place; one that holds the values seen where they do not fit what the schema says."""
    is_float = place.type in _FLOATS and found.kinds_of_values <= {"number"}
    if found.unstorable and not is_float:
        return left_out_as_unstorable(place.path, found, documents)
    comments = [facts(found, documents), f"{shown(place.name)[1:-1]} in its schema" if place.name else "", place.why]
    if found.unstorable:
        comments.append(f"NaN or infinity in {share(found.unstorable, documents)}")
    column = Column(place.path or ("payload",), place.sql, (place.path,))
    finer = _SPELLINGS.get(place.type, (None, None))[1]
    if _fits(place, found):
        if place.is_finer:
            comments.append(f"{place.type} holds microseconds: round: microseconds would take finer times")
    elif finer and found.texts and finer in found.texts.spellings and found.kinds_of_values == {"string"}:
        comments.append(f"has times that {place.type} does not hold: they are rounded; text would keep them")
        column = replace(column, rounding=Rounding.MICROSECONDS)
    else:
        comments.append(f"{place.sql} by its schema, which does not hold all values seen")
        column = replace(column, type=_WIDEST.get("".join(found.kinds_of_values), "jsonb"))
    return replace(column, comments=tuple(filter(None, comments)))


_WIDEST = {"string": "text", "number": "numeric"}


def _fits(place: Place, found: Field) -> bool:
    """Tell whether a column of the place's type holds every value seen."""
    kinds = found.kinds_of_values
    if not kinds or place.type == "jsonb":
        return True
    if place.type == "boolean":
        return kinds == {"boolean"}
    if place.type in _NUMBERS:
        return kinds == {"number"} and (found.numbers is None or _holds(place, found))
    spelling = _SPELLINGS.get(place.type, (None, None))[0]
    return kinds == {"string"} and (spelling is None or (found.texts is not None and spelling in found.texts.spellings))


def _holds(place: Place, found: Field) -> bool:
    numbers = found.numbers
    if numbers is None or numbers.low is None or numbers.high is None:
        return True
    if place.type in _BITS:
        bound = 2 ** _BITS[place.type]
        return numbers.are_whole and -bound <= numbers.low and numbers.high < bound
    if place.type == "numeric":
        bound = 10 ** (place.precision - place.scale)
        return place.sql == "numeric" or (numbers.scale <= place.scale and max(-numbers.low, numbers.high) < bound)
    return place.type == "real" or numbers.are_doubles

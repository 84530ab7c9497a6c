"""The members of a topic's JSON documents, and the column that each of them needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from kafka_ingest.draft.values import Number, Numbers, Spelling, Texts, is_storable, is_text, shown
from kafka_ingest.settings import Conversion, Rounding, json_path_text

#: Levels that are flattened into columns; an object below them stays one value.
MAX_DEPTH = 5
#: Members that are looked at, over all levels. An object with more of them uses its names as data.
_MAX_FIELDS = 5_000
#: A longer name is no name of a column.
_MAX_NAME = 100
#: An object is a map where it has more different members than this, and each document has less than this share of them.
_MAP_MEMBERS, _MAP_SHARE = 20, 0.25


@dataclass(frozen=True, slots=True)
class Column:
    """A column as a file will have it, but for its name.

    Attributes:
        label: What its name is made of.
        type: Its type, in the spelling of a file.
        paths: Where it stands in the document: the first that a record has counts.
        conversion: What the values are written as.
        from_key: Whether the document is the key.
        rounding: What times are rounded to.
        comments: What a person should know of it, one line each.
    """

    label: tuple[str, ...]
    type: str
    paths: tuple[tuple[str, ...], ...] = ()
    conversion: Conversion | None = None
    from_key: bool = False
    rounding: Rounding | None = None
    comments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A member that gets no column, and why."""

    path: tuple[str, ...]
    why: str


# What stood where.


class Field:
    """One place in the documents, and all that stood there."""

    __slots__ = ("kinds", "longest", "members", "numbers", "texts", "unstorable")

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.numbers: Numbers | None = None
        self.texts: Texts | None = None
        self.members: dict[str, Field] = {}
        self.longest = 0
        self.unstorable = 0

    @property
    def present(self) -> int:
        """In how many documents there is something, also null."""
        return sum(self.kinds.values())

    def at(self, path: tuple[str, ...]) -> Field:
        """Return what stood at a path below."""
        return self.members[path[0]].at(path[1:]) if path else self

    @property
    def kinds_of_values(self) -> set[str]:
        """The kinds of what is not null."""
        return {*self.kinds} - {"null"}

    @property
    def is_map(self) -> bool:
        """Whether the names of the members are data."""
        objects = self.kinds.get("object", 0)
        filled = sum(member.present for member in self.members.values())
        return len(self.members) > _MAP_MEMBERS and filled < _MAP_SHARE * objects * len(self.members)


class Fields:
    """All places in the documents of one sample, down to ``MAX_DEPTH``, in the order in which they were met.

    Attributes:
        documents: How many were looked at.
        root: The documents themselves.
        schema_names: What their schemas call the types of places: ``io.debezium.time.Date``.
        passed_over: Whether a document has members that were not looked at: too many, or with names that are too long.

    Args:
        places: The only ones to look at; by default those that the documents have.
    """

    def __init__(self, places: Iterable[tuple[str, ...]] | None = None) -> None:
        self.documents = 0
        self.root = Field()
        self.schema_names: dict[tuple[str, ...], str] = {}
        self.passed_over = False
        self._left = _MAX_FIELDS if places is None else 0
        self._schema: Any = None
        for path in places or ():
            field = self.root
            for name in path:
                field = field.members.setdefault(name, Field())

    def observe(self, value: Any, *, is_plain: bool) -> None:
        """Look at one document, or at a part of each.

        Args:
            value: As ``draft/values.py`` reads it.
            is_plain: Whether all of it is known to be such that jsonb can hold it.
        """
        self.documents += 1
        self._observe(self.root, value, is_plain, 0)

    def learn(self, schema: Any) -> None:
        """Take the names of types from a schema of Kafka Connect; of two names for one place neither counts."""
        if schema == self._schema:
            return
        self._schema = schema
        for path, name in _schema_names(schema, ()):
            self.schema_names[path] = name if self.schema_names.get(path, name) == name else ""

    def _observe(self, field: Field, value: Any, is_plain: bool, depth: int) -> None:
        kind = _kind(value)
        field.kinds[kind] = field.kinds.get(kind, 0) + 1
        if kind == "object" and depth < MAX_DEPTH:
            for name, member in value.items():
                found = field.members.get(name) or self._added(field, name)
                if found is not None:
                    self._observe(found, member, is_plain, depth + 1)
        if not is_plain and not is_storable(value):
            field.unstorable += 1
        elif kind == "number":
            field.numbers = field.numbers or Numbers()
            field.numbers.observe(value)
        elif kind == "string":
            field.texts = field.texts or Texts()
            field.texts.observe(value)
        elif kind == "array":
            field.longest = max(field.longest, len(value))

    def _added(self, field: Field, name: str) -> Field | None:
        if not self._left or len(name) > _MAX_NAME or not is_text(name):
            self.passed_over = True
            return None
        self._left -= 1
        field.members[name] = Field()
        return field.members[name]


def _schema_names(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    members = schema.get("fields") if isinstance(schema, dict) and len(path) < MAX_DEPTH else None
    for member in members if isinstance(members, list) else ():
        if isinstance(member, dict) and isinstance(member.get("field"), str):
            place = (*path, member["field"])
            if isinstance(member.get("name"), str):
                yield place, member["name"]
            yield from _schema_names(member, place)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Number):
        return "number"
    return _KINDS[type(value)]


_KINDS = {str: "string", bool: "boolean", dict: "object", list: "array"}


# What columns they need.


def leaves(field: Field, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Yield the places that need a column each: objects are flattened, but for maps and what is too deep."""
    if field.kinds_of_values == {"object"} and field.members and not (path and field.is_map):
        for name, member in field.members.items():
            yield from leaves(member, (*path, name))
    else:
        yield path, field


def column_of(path: tuple[str, ...], field: Field, fields: Fields) -> Column | LeftOut:
    """Choose the column of a place, or say why it has none.

    Args:
        path: Where it stands.
        field: What stood there.
        fields: What the place is one of.
    """
    documents, schema_name = fields.documents, fields.schema_names.get(path, "")
    if field.unstorable:
        return left_out_as_unstorable(path, field, documents)
    kinds = field.kinds_of_values
    chosen = _Choice("jsonb")
    if not kinds:
        chosen = _Choice("jsonb", None, "only null was seen, so any type may be right")
    elif len(kinds) > 1:
        mix = ", ".join(f"{kind} in {share(field.kinds[kind], documents)}" for kind in sorted(kinds))
        chosen = _Choice("jsonb", None, f"several types: {mix}")
    elif kinds == {"boolean"}:
        chosen = _Choice("boolean")
    elif field.numbers and kinds == {"number"}:
        chosen = _time_by_schema(schema_name, field.numbers) or _number(path, field.numbers)
    elif field.texts and kinds == {"string"}:
        chosen = _text(path, field.texts, field.kinds["string"])
    elif field.is_map:
        chosen = _Choice("jsonb", None, f"{len(field.members):,} different members: their names look like data")
    schema_comment = f"{shown(schema_name)[1:-1]} in its schema" if schema_name else ""
    comments = (facts(field, documents), *filter(None, [schema_comment, chosen.comment]))
    return Column(path, chosen.type, (path,), chosen.conversion, comments=comments)


def left_out_as_unstorable(path: tuple[str, ...], field: Field, documents: int) -> LeftOut:
    """Say why a place with values that no column can hold has none."""
    what = "U+0000, half a surrogate pair or a number beyond numeric's limits, which PostgreSQL cannot store"
    return LeftOut(path, f"{field.unstorable:,} of {documents:,} values hold {what}")


def share(count: int, of: int) -> str:
    """Write a number and its share, ``12 of 10,000 (0.1 %)``."""
    return f"{count:,} of {of:,} ({100 * count / max(1, of):.1f} %)"


def facts(field: Field, documents: int) -> str:
    """Say how often something stood at a place, and between what it lay."""
    missing, null = documents - field.present, field.kinds.get("null", 0)
    told = [f"missing in {share(missing, documents)}"] if missing else []
    told += [f"null in {share(null, documents)}"] if null else []
    told = told or ["in every record seen"]
    if field.numbers and field.numbers.low is not None:
        told.append(_span(_shortened(field.numbers.low), _shortened(field.numbers.high)))
    if field.texts and field.texts.low is not None and field.texts.high is not None:
        told.append(_span(shown(field.texts.low), shown(field.texts.high)))
    if field.longest:
        told.append(f"at most {field.longest:,} elements")
    return "; ".join(told)


def _span(low: str, high: str) -> str:
    return f"{low} to {high}" if low != high else f"always {low}"


def _shortened(number: object) -> str:
    text = str(number)
    return text if len(text) <= 60 else f"{text[:59]}…"


@dataclass(frozen=True, slots=True)
class _Choice:
    type: str
    conversion: Conversion | None = None
    comment: str = ""


# Numbers: whole ones are bigint or times, others double precision where that is exact, else numeric.

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_MONEY = _set(
    "amount price cost costs total subtotal sum fee fees tax vat balance money salary discount revenue payment paid "
    "charge rate credit debit refund"
)
_TIMES = _set(
    "ts time timestamp datetime date at epoch created updated modified deleted expires expiry expiration started ended "
    "when since until ms millis us micros ns nanos dt day stamp birthday"
)
_DAYS = _set("date day birthday")
_TIME_ENDINGS = ("time", "date", "stamp")

#: 2000-01-01 and 2100-01-01 in seconds since 1970: a number between them is a time where its name says so, too.
_FIRST, _LAST, _DAY = 946_684_800, 4_102_444_800, 86_400
#: Conversion, unit, units in a second, and the most digits after the point that are whole microseconds.
_EPOCHS = (
    (Conversion.EPOCH_SECONDS, "seconds", 1, 6),
    (Conversion.EPOCH_MILLIS, "milliseconds", 1_000, 3),
    (Conversion.EPOCH_MICROS, "microseconds", 1_000_000, 0),
    (Conversion.EPOCH_NANOS, "nanoseconds", 1_000_000_000, 0),
)


def _words(path: Sequence[str]) -> set[str]:
    return {word.lower() for word in _WORD.findall(path[-1])} if path else set()


def _number(path: tuple[str, ...], numbers: Numbers) -> _Choice:
    low, high = numbers.low, numbers.high
    assert low is not None  # noqa: S101 - a field of numbers has seen one
    assert high is not None  # noqa: S101
    if epoch := _epoch(path, numbers, low, high):
        return epoch
    if numbers.are_whole:
        if low >= -(2**63) and high < 2**63:
            return _Choice("bigint")
        return _Choice("numeric", None, "whole numbers beyond 64 bits")
    if not numbers.are_doubles:
        return _Choice("numeric", None, "has digits that double precision would not keep")
    if numbers.are_padded or _words(path) & _MONEY:
        return _Choice("numeric", None, "looks like money or another decimal: numeric keeps every digit")
    return _Choice("double precision", None, "every value is exact in it; numeric would keep any digits")


def _epoch(path: tuple[str, ...], numbers: Numbers, low: Decimal | int, high: Decimal | int) -> _Choice | None:
    words = _words(path)
    if not words & _TIMES and not any(word.endswith(_TIME_ENDINGS) for word in words):
        return None
    if low * _DAY >= _FIRST and high * _DAY <= _LAST and _are_days(words, numbers):
        return _Choice("date", Conversion.EPOCH_DAYS, "looks like days since 1970")
    for conversion, unit_name, parts, scale in _EPOCHS:
        if low < _FIRST * parts or high > _LAST * parts:
            continue
        if numbers.scale > scale or (conversion is Conversion.EPOCH_NANOS and not numbers.are_thousands):
            held = "bigint" if numbers.are_whole else "numeric"
            return _Choice(held, None, f"looks like {unit_name} since 1970, finer than timestamptz holds")
        return _Choice("timestamptz", conversion, f"looks like {unit_name} since 1970")
    return None


#: Names of Kafka Connect and Debezium for times that come as numbers. Debezium's own have no time zone but dates; those
#: of Kafka Connect are instants.
_SCHEMA_TIMES = {
    "io.debezium.time.Date": ("date", Conversion.EPOCH_DAYS, _DAY, 1),
    "io.debezium.time.Timestamp": ("timestamp", Conversion.EPOCH_MILLIS, 1, 1_000),
    "io.debezium.time.MicroTimestamp": ("timestamp", Conversion.EPOCH_MICROS, 1, 1_000_000),
    "io.debezium.time.NanoTimestamp": ("timestamp", Conversion.EPOCH_NANOS, 1, 1_000_000_000),
    "org.apache.kafka.connect.data.Date": ("date", Conversion.EPOCH_DAYS, _DAY, 1),
    "org.apache.kafka.connect.data.Timestamp": ("timestamptz", Conversion.EPOCH_MILLIS, 1, 1_000),
}
#: 0001-01-01 and 9999-12-31 in seconds since 1970: the years that the job stores.
_YEAR_1, _YEAR_9999 = -62_135_596_800, 253_402_214_400


def _time_by_schema(name: str, numbers: Numbers) -> _Choice | None:
    type_name, conversion, seconds, parts = _SCHEMA_TIMES.get(name, ("", None, 1, 1))
    low, high = numbers.low, numbers.high
    if conversion is None or low is None or high is None or not numbers.are_whole:
        return None
    if low * seconds < _YEAR_1 * parts or high * seconds > _YEAR_9999 * parts:
        return _Choice("numeric", None, "has numbers beyond the years 1 to 9999, such as infinity")
    is_finer = conversion is Conversion.EPOCH_NANOS and not numbers.are_thousands
    return None if is_finer else _Choice(type_name, conversion)


def _are_days(words: set[str], numbers: Numbers) -> bool:
    return numbers.are_whole and bool(words & _DAYS or any(word.endswith(("date", "day")) for word in words))


# Texts: what all of them spell, where the next one will surely spell it, too; else text.

_TYPES = {
    Spelling.TIMESTAMPTZ: "timestamptz",
    Spelling.TIMESTAMP: "timestamp",
    Spelling.DATE: "date",
    Spelling.TIME: "time",
    Spelling.UUID: "uuid",
}
_FINER = {
    Spelling.FINER_TIMESTAMPTZ: "timestamptz",
    Spelling.FINER_TIMESTAMP: "timestamp",
    Spelling.FINER_TIME: "time",
}
#: Texts with these names are no numbers, even where all of them have only digits.
_IDENTIFIERS = _set(
    "id code zip postcode postal plz phone tel telephone fax mobile number no nr num sku ean upc isbn iban bic account "
    "serial version key ref reference pin ssn card imei tracking ticket hash token release build"
)
#: Fewer texts that are all numbers say little about the next one.
_ENOUGH = 20


def _text(path: tuple[str, ...], texts: Texts, count: int) -> _Choice:
    spelling = next(iter(texts.spellings), None)
    if spelling in _TYPES:
        return _Choice(_TYPES[spelling])
    if spelling in (Spelling.WHOLE, Spelling.DECIMAL):
        return _number_text(path, spelling, count)
    if spelling is Spelling.JSON:
        return _Choice("text", None, "every text holds JSON: {type: jsonb, as: json_text} would store it as JSON")
    if spelling is Spelling.HEX:
        return _Choice("text", None, "every text is of hexadecimal digits: {type: bytea, as: hex} would fit")
    if spelling is Spelling.BASE64 and texts.is_padded:
        return _Choice("text", None, "every text looks like base64: {type: bytea, as: base64} would fit")
    if spelling in _FINER:
        fits = f"{{type: {_FINER[spelling]}, round: microseconds}} would fit"
        return _Choice("text", None, f"every text is {spelling.value}: {fits}")
    return _Choice("text")


def _number_text(path: tuple[str, ...], spelling: Spelling, count: int) -> _Choice:
    is_whole = spelling is Spelling.WHOLE
    fits = "{type: bigint, as: number_text}" if is_whole else "{type: numeric}"
    if count < _ENOUGH or _words(path) & _IDENTIFIERS:
        return _Choice("text", None, f"every text is {spelling.value}: {fits} would fit, unless one names something")
    if is_whole:
        return _Choice("bigint", Conversion.NUMBER_TEXT, "every text is a whole number")
    return _Choice("numeric", None, "every text is a decimal number, which numeric takes as it is")


def path_shown(path: tuple[str, ...]) -> str:
    """Write a path for a comment, on one line."""
    return shown(json_path_text(path))[1:-1]

"""The text of an Avro schema as a tree of types, each with what its logical type or its name in Kafka Connect means."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_ingest.kafka.registry import UnusableSchema
from spark_jobs.decode.values import excerpt

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

#: What the number of a type means, by the name that the schema gives it: kind, meaning, digits of a second.
#: https://avro.apache.org/docs/1.12.0/specification/#logical-types
_LOGICAL_NUMBERS = {
    "date": ("int", "date", 0),
    "time-millis": ("int", "time", 3),
    "time-micros": ("long", "time", 6),
    "timestamp-millis": ("long", "instant", 3),
    "timestamp-micros": ("long", "instant", 6),
    "timestamp-nanos": ("long", "instant", 9),
    "local-timestamp-millis": ("long", "local", 3),
    "local-timestamp-micros": ("long", "local", 6),
    "local-timestamp-nanos": ("long", "local", 9),
}
#: The same for names of Kafka Connect and Debezium (https://debezium.io/documentation/reference/3.0/connectors/
#: postgresql.html#postgresql-temporal-types). Their other names are on texts and numbers that say it themselves.
_CONNECT_NUMBERS = {
    "org.apache.kafka.connect.data.Date": ("int", "date", 0),
    "org.apache.kafka.connect.data.Time": ("int", "time", 3),
    "org.apache.kafka.connect.data.Timestamp": ("long", "instant", 3),
    "io.debezium.time.Date": ("int", "date", 0),
    "io.debezium.time.Time": ("int", "time", 3),
    "io.debezium.time.MicroTime": ("long", "time", 6),
    "io.debezium.time.NanoTime": ("long", "time", 9),
    "io.debezium.time.Timestamp": ("long", "local", 3),
    "io.debezium.time.MicroTimestamp": ("long", "local", 6),
    "io.debezium.time.NanoTimestamp": ("long", "local", 9),
}
_CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"

#: Java, which writes most of the records, has no longer arrays.
_LARGEST_SIZE = 2**31 - 1
#: Beyond numeric's limits on either side of the point.
_LARGEST_SCALE = 150_000


@dataclass(slots=True, eq=False)
class AvroType:
    """One type of a schema; a named type is one object, however often it is named, so the tree of a list is a circle.

    Attributes:
        kind: Primitive type, ``record``, ``enum``, ``fixed``, ``array``, ``map`` or ``union``.
        meaning: ``date``, ``time``, ``instant`` (a time in UTC), ``local`` (one without zone), ``decimal``, ``uuid``,
            ``duration``, ``variable_decimal``; empty where the kind says it all.
        digits: Digits of a second of a time, or of a decimal after the point.
        precision: Digits of a decimal in all; 0 where the schema does not say. Its values may have more.
        name: Logical type, or the name in Kafka Connect, whether it means something here or not.
        size: Bytes of a fixed.
        symbols: Of an enum.
        fields: Names and types of a record's fields.
        parts: The branches of a union; the one type of an array's items or a map's values.
    """

    kind: str
    meaning: str = ""
    digits: int = 0
    precision: int = 0
    name: str = ""
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[tuple[str, AvroType], ...] = ()
    parts: tuple[AvroType, ...] = ()

    @property
    def other_than_null(self) -> AvroType | None:
        """Return X of a union of null and X; ``None`` for any other type."""
        kinds = [part.kind for part in self.parts]
        if self.kind != "union" or len(kinds) != 2 or kinds.count("null") != 1:
            return None
        return self.parts[1 - kinds.index("null")]

    def takes_bytes(self) -> bool:
        """Tell whether a value of the type takes at least one byte."""
        if self.kind == "record":
            return self.holds(lambda of: of.kind not in ("record", "null", "fixed") or of.size > 0)
        return self.kind != "null" and (self.kind != "fixed" or self.size > 0)

    def holds(self, wanted: Callable[[AvroType], bool]) -> bool:
        """Tell whether the type, or one in it, is a wanted one."""
        seen: dict[int, AvroType] = {}
        todo = [self]
        while todo:
            of = todo.pop()
            if id(of) not in seen:
                seen[id(of)] = of
                todo += [*of.parts, *(field for _, field in of.fields)]
        return any(map(wanted, seen.values()))


def parse_schema(text: str, references: Sequence[str] = ()) -> AvroType:
    """Read a schema.

    Args:
        text: The schema, JSON.
        references: The schemas whose names it uses, each once, dependencies first.

    Raises:
        UnusableSchema: What is wrong with it.
        RecursionError: It is nested too deeply.
    """
    parser = _Parser()
    for reference in references:
        parser.read(_json(reference), "")
    return parser.read(_json(text), "")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UnusableSchema(f"expected an Avro schema in JSON, found {excerpt(text)} ({error})") from None


def _unusable(expected: str, found: Any) -> UnusableSchema:
    return UnusableSchema(
        f"expected {expected}, found {excerpt(found if isinstance(found, str) else json.dumps(found))}"
    )


class _Parser:
    """Reads types; keeps the named ones under their full names."""

    def __init__(self) -> None:
        self._names: dict[str, AvroType] = {}

    def read(self, schema: Any, space: str) -> AvroType:
        """Read a type that stands in the namespace ``space``."""
        if isinstance(schema, str):
            return AvroType(schema) if schema in _PRIMITIVES else self._named(schema, space)
        if isinstance(schema, list):
            return self._union(schema, space)
        kind = schema.get("type") if isinstance(schema, dict) else None
        if isinstance(kind, str) and kind not in _PRIMITIVES:
            return self._complex(kind, schema, space)
        if isinstance(kind, str):
            return _with_meaning(AvroType(kind), schema)
        if kind is None or isinstance(kind, int | float):
            raise _unusable("an Avro type", schema)
        return self.read(kind, space)

    def _complex(self, kind: str, schema: Mapping[str, Any], space: str) -> AvroType:
        match kind:
            case "record" | "error":
                return self._record(schema, space)
            case "enum":
                return self._define(schema, space, AvroType("enum", symbols=_symbols(schema)))
            case "fixed":
                return self._define(schema, space, _with_meaning(AvroType("fixed", size=_size(schema)), schema))
            case "array":
                return AvroType("array", parts=(self.read(schema.get("items"), space),))
            case "map":
                return AvroType("map", parts=(self.read(schema.get("values"), space),))
        return self._named(kind, space)

    def _named(self, name: str, space: str) -> AvroType:
        found = self._names.get(_full_name(name, space)) or self._names.get(name)
        if found is None:
            raise _unusable("a type that the schema, or one that it refers to, defines before", name)
        return found

    def _define(self, schema: Mapping[str, Any], space: str, of: AvroType) -> AvroType:
        full = _full_name(_name(schema), _space(schema, space))
        if full in self._names:
            raise _unusable("each name defined once", full)
        self._names[full] = of
        return of

    def _union(self, schemas: list[Any], space: str) -> AvroType:
        parts = tuple(self.read(schema, space) for schema in schemas)
        if not parts or any(part.kind == "union" for part in parts):
            raise _unusable("a union of one type or more, none of them a union", schemas)
        return AvroType("union", parts=parts)

    def _record(self, schema: Mapping[str, Any], space: str) -> AvroType:
        record = self._define(schema, space, AvroType("record"))
        below = _full_name(_name(schema), _space(schema, space)).rpartition(".")[0]
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
            raise _unusable(f"a list of fields in the record {_name(schema)}", fields)
        record.fields = tuple((_name(field), self.read(field.get("type"), below)) for field in fields)
        if len(dict(record.fields)) < len(fields):
            raise _unusable("fields of different names", [name for name, _ in record.fields])
        kinds = {name: of.kind for name, of in record.fields}
        if schema.get("connect.name") == _VARIABLE_DECIMAL and kinds == {"scale": "int", "value": "bytes"}:
            record.meaning = "variable_decimal"
        return record


def _name(schema: Mapping[str, Any]) -> str:
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise _unusable("a name", schema)
    return name


def _space(schema: Mapping[str, Any], around: str) -> str:
    space = schema.get("namespace")
    return space if isinstance(space, str) else around


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _symbols(schema: Mapping[str, Any]) -> tuple[str, ...]:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise _unusable("a list of symbols", symbols)
    return tuple(symbols)


def _size(schema: Mapping[str, Any]) -> int:
    size = _integer(schema.get("size"))
    if size is None or not 0 <= size <= _LARGEST_SIZE:
        raise _unusable("a fixed of 0 bytes or more", schema.get("size"))
    return size


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _with_meaning(of: AvroType, schema: Mapping[str, Any]) -> AvroType:
    """Add what a type means; a name that does not belong on the type says nothing (Avro's rule for logical types)."""
    connect, logical = (
        name if isinstance(name := schema.get(key), str) else "" for key in ("connect.name", "logicalType")
    )
    of.name = connect or logical
    for known, name in ((_CONNECT_NUMBERS, connect), (_LOGICAL_NUMBERS, logical)):
        kind, meaning, digits = known.get(name, ("", "", 0))
        if kind == of.kind:
            of.meaning, of.digits = meaning, digits
            return of
    scale = _connect_scale(of, schema) if connect == _CONNECT_DECIMAL else None
    if scale is None and logical == "decimal":
        scale = _avro_scale(of, schema)
    if scale is not None:
        of.meaning, of.digits, of.precision = "decimal", scale, _integer(schema.get("precision")) or 0
    elif (logical, of.kind, of.size) in (("uuid", "fixed", 16), ("duration", "fixed", 12)):
        of.meaning = logical
    return of


def _connect_scale(of: AvroType, schema: Mapping[str, Any]) -> int | None:
    parameters = schema.get("connect.parameters")
    try:
        scale = int(parameters["scale"]) if isinstance(parameters, dict) else None
    except (KeyError, TypeError, ValueError):
        return None
    return scale if scale is not None and of.kind == "bytes" and abs(scale) <= _LARGEST_SCALE else None


def _avro_scale(of: AvroType, schema: Mapping[str, Any]) -> int | None:
    precision, scale = _integer(schema.get("precision")), _integer(schema.get("scale", 0))
    if of.kind not in ("bytes", "fixed") or precision is None or scale is None:
        return None
    most = math.inf if of.kind == "bytes" else math.floor(math.log10(2) * (8 * of.size - 1))
    return scale if 0 <= scale <= min(precision, _LARGEST_SCALE) and 0 < precision <= most else None

"""What the keys of an upsert target, and of change events, say about each other and about the rest of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from kafka_ingest.column_types import NEVER_EQUAL_TEXTS, ORDERED_TYPES, parse_column_type
from kafka_ingest.pipeline_files.document import Fault, Location, describe
from kafka_ingest.settings import HISTORY_COLUMNS, REGISTRY_FORMATS, MetadataColumns

_Data = Mapping[Any, Any]

#: Keys of the target that only an upsert target has.
_OF_UPSERT = ("key", "order", "deletes", "delete_when", "deleted_at", "history")
_NEEDED = {
    "key": "the columns that are the key, with mode: upsert",
    "order": "offset, record_time or {column: ...}, with mode: upsert: it has no default",
    "deletes": "remove, mark, ignore or dead_letter, with mode: upsert: it has no default",
}


def upsert_faults(data: _Data) -> Iterator[Fault]:
    """Yield every fault between the keys of an upsert target and the rest of the file."""
    target = data.get("target")
    if not isinstance(target, dict):
        return
    if target.get("mode") != "upsert":
        for key in _OF_UPSERT:
            if target.get(key) is not None:
                yield Fault(("target", key), "only with mode: upsert", "mode: append")
        return
    for key, expected in _NEEDED.items():
        if target.get(key) is None:
            yield Fault(("target", key), expected, "nothing")
    yield from _keys_of_append(data, target)
    columns = _Columns(data)
    yield from _key_faults(target, columns)
    yield from _order_faults(target, columns)
    yield from _delete_when_faults(data, target)
    yield from _delete_faults(data, target, columns)
    yield from _history_faults(data, target, columns)


class _Columns:
    """The columns of a file by name: where each stands, its type, and the part of the record that it reads.

    What is no text is no name here: the model reports it.
    """

    def __init__(self, data: _Data) -> None:
        value, key = (_section(data, name) for name in ("value", "key"))
        self.by_name: dict[str, tuple[Location, _Data]] = {}
        listed = value.get("columns")
        for index, column in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(column, dict) and isinstance(column.get("name"), str):
                self.by_name[column["name"]] = (("value", "columns", index), column)
        for section, source in ((value, "value"), (key, "key")):
            if isinstance(section.get("column"), str):
                types = {"raw": "bytea", "text": "text", "json": "jsonb"}
                kind = {"type": types.get(str(section.get("format"))), "from": source}
                self.by_name[section["column"]] = ((source, "column"), {**kind, "required": section.get("required")})

    def source(self, name: str) -> object:
        return self.by_name[name][1].get("from", "value") if name in self.by_name else None


def _section(data: _Data, key: str) -> _Data:
    section = data.get(key)
    return section if isinstance(section, dict) else {}


def _keys_of_append(data: _Data, target: _Data) -> Iterator[Fault]:
    if data.get("tombstones") is not None:
        yield Fault(("tombstones",), "target.deletes, which says it with mode: upsert", str(data["tombstones"]))
    if target.get("unique_key") is True:
        yield Fault(("target", "unique_key"), "only with mode: append; the key itself is unique", "mode: upsert")
    if _section(data, "lag_policy").get("action") == "skip_to":
        expected = "fail or warn with mode: upsert: what is skipped may hold deletes, whose rows would stay for ever"
        yield Fault(("lag_policy", "action"), expected, "skip_to")


def _key_faults(target: _Data, columns: _Columns) -> Iterator[Fault]:
    key = target.get("key")
    seen: set[str] = set()
    for index, name in enumerate(key if isinstance(key, list) else ()):
        if not isinstance(name, str):
            continue
        if name in seen:
            yield Fault(("target", "key", index), "each column once", f"{name} a second time")
        seen.add(name)
        yield from _column_faults(("target", "key", index), name, columns, refused=NEVER_EQUAL_TEXTS, use="a key")


def _order_faults(target: _Data, columns: _Columns) -> Iterator[Fault]:
    order = target.get("order")
    if not isinstance(order, dict) or not isinstance(order.get("column"), str):
        return
    name, place = order["column"], ("target", "order", "column")
    yield from _column_faults(place, name, columns, allowed=ORDERED_TYPES, use="an order")
    key = target.get("key")
    if isinstance(key, list) and name in key:
        yield Fault(place, "a column that is not of the key, whose records all have one value there", name)


def _column_faults(
    place: Location,
    name: str,
    columns: _Columns,
    *,
    use: str,
    allowed: frozenset[str] | None = None,
    refused: frozenset[str] = frozenset(),
) -> Iterator[Fault]:
    """Yield why a column cannot be a part of the key, or the order: it is not there, has another type, or a default."""
    if name not in columns.by_name:
        yield Fault(place, "a column of value.columns, or that of value or key", name)
        return
    location, column = columns.by_name[name]
    try:
        column_type = parse_column_type(column["type"])
    except (ValueError, TypeError, AttributeError, KeyError):  # the model reports the type
        return
    fits = column_type.name in allowed if allowed else column_type.name not in refused
    if column_type.is_array or not fits:
        kinds = "numbers, dates and times" if allowed else "types whose equal values have one text, and no arrays"
        yield Fault(place, f"a column that can be {use}: {kinds}", f"{name} of type {column_type.sql}")
    if column.get("default") is not None:
        expected = f"no default for a column of {use}: a record without it is a dead letter"
        yield Fault((*location, "default"), expected, "a default")


def _delete_when_faults(data: _Data, target: _Data) -> Iterator[Fault]:
    when = target.get("delete_when")
    if not isinstance(when, dict):
        return
    if _section(data, "value").get("columns") is None:
        yield Fault(("target", "delete_when"), "only with value.columns, which read fields", "delete_when")
    equals = when.get("equals")
    if "equals" in when and (equals is None or isinstance(equals, dict | list)):
        yield Fault(("target", "delete_when", "equals"), "a text, a number, true or false", describe(equals))


def _delete_faults(data: _Data, target: _Data, columns: _Columns) -> Iterator[Fault]:
    deletes, when, names = target.get("deletes"), target.get("delete_when"), _texts(target.get("key"))
    if deletes not in ("remove", "mark"):
        if target.get("deleted_at") is not None:
            yield Fault(("target", "deleted_at"), "only with deletes: mark", f"deletes: {deletes}")
        return
    others = [name for name in names if columns.source(name) not in (None, "key")]
    if when is None and others:
        expected = "columns from the record's key, for a tombstone has nothing else; or delete_when"
        yield Fault(("target", "key"), expected, f"{', '.join(others)} from the value or a header")
    if when is None and isinstance(target.get("order"), dict):
        expected = "delete_when beside the order of a column, in which a tombstone has no value; or deletes: ignore"
        yield Fault(("target", "deletes"), expected, str(deletes))
    if deletes == "remove":
        if target.get("deleted_at") is not None:
            yield Fault(("target", "deleted_at"), "only with deletes: mark", "deletes: remove")
        return
    yield from _marked_row_faults(target, names, columns)
    deleted_at = target.get("deleted_at") or "deleted_at"
    if deleted_at in [*columns.by_name, *_other_names(data)]:
        yield Fault(("target", "deleted_at"), "a column name of its own", f"{deleted_at}, which another column has")


def _history_faults(data: _Data, target: _Data, columns: _Columns) -> Iterator[Fault]:
    if target.get("history") is None:
        return
    place = ("target", "history")
    if target["history"] == target.get("table"):
        yield Fault(place, "another table than target.table", str(target["history"]))
    if _section(data, "value").get("new_fields") == "add_column":
        yield Fault(place, "no history beside new_fields: add_column, which alters the target alone", "both")
    for name in HISTORY_COLUMNS:
        if name in [*columns.by_name, *_other_names(data)]:
            yield Fault(place, f"no column of the name {name}, which the history has itself", name)


def _other_names(data: _Data) -> Iterator[object]:
    """Yield the names of columns that neither value nor key fills."""
    given = _section(data, "metadata_columns")
    yield from (given.get(field.name) or field.default for field in fields(MetadataColumns))
    yield _section(data, "headers").get("column")


def _texts(listed: object) -> list[str]:
    return [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []


def _marked_row_faults(target: _Data, key: list[str], columns: _Columns) -> Iterator[Fault]:
    """Yield columns that a marked row cannot leave NULL."""
    order = target.get("order")
    known = [*key, order.get("column") if isinstance(order, dict) else None]
    for name, (location, column) in columns.by_name.items():
        if column.get("required") is True and name not in known:
            expected = "a column that can be NULL: deletes: mark writes a row for a key that has none"
            yield Fault((*location, "required"), expected, "required: true")


# Change events.

#: Words of ``from`` that name a part of a change event.
_PARTS = ("before", "source", "envelope")


def event_faults(data: _Data) -> Iterator[Fault]:
    """Yield every fault between the keys of change events and the rest of the file."""
    value, target = _section(data, "value"), _section(data, "target")
    if value.get("envelope") is None:
        yield from _without_envelope(value, target)
        return
    yield from _target_of_events(target)
    if value.get("format") in ("raw", "text") or value.get("columns") is None:
        expected = "value.columns beside it, of JSON or of a registry's format"
        yield Fault(("value", "envelope"), expected, f"format: {value.get('format')} without columns")
    if value.get("new_fields") not in (None, "ignore"):
        expected = "ignore beside value.envelope; fields of the events' rows are not told yet"
        yield Fault(("value", "new_fields"), expected, str(value["new_fields"]))
    yield from _schemas_beside(value, _section(data, "key"))


def _listed(value: _Data) -> Sequence[object]:
    columns = value.get("columns")
    return columns if isinstance(columns, list) else ()


def _without_envelope(value: _Data, target: _Data) -> Iterator[Fault]:
    of_value = [("value", key) for key in ("with_schema", "unavailable_placeholder", "unavailable")]
    for section, key in (*of_value, ("target", "truncate")):
        if (value if section == "value" else target).get(key) is not None:
            yield Fault((section, key), "only with value.envelope, for change events", key)
    for index, column in enumerate(_listed(value)):
        if isinstance(column, dict) and column.get("from") in _PARTS:
            expected = "value, key or header, or value.envelope beside it"
            yield Fault(("value", "columns", index, "from"), expected, str(column["from"]))


def _target_of_events(target: _Data) -> Iterator[Fault]:
    if target.get("mode") != "upsert":
        expected = "upsert with value.envelope, whose events say what each row is now"
        yield Fault(("target", "mode"), expected, str(target.get("mode", "append")))
        return
    if target.get("order") not in (None, "offset"):
        expected = "offset with value.envelope: a connector keeps a key in one partition, and nothing else orders all"
        yield Fault(("target", "order"), expected, "another order")
    if target.get("delete_when") is not None:
        expected = "nothing beside value.envelope, whose op says what a delete is"
        yield Fault(("target", "delete_when"), expected, "delete_when")
    if target.get("truncate") is None:
        expected = "stop or ignore, with value.envelope: it has no default"
        yield Fault(("target", "truncate"), expected, "nothing")


def _schemas_beside(value: _Data, key: _Data) -> Iterator[Fault]:
    listed = value.get("with_schema")
    if not isinstance(listed, list):
        return
    if len(listed) > 1 and listed[0] == listed[1]:
        yield Fault(("value", "with_schema"), "each of value and key once", f"{listed[0]} a second time")
    if "value" in listed and value.get("format") != "json":
        expected = f"values of the format json; the format {value.get('format')} has its schemas in the registry"
        yield Fault(("value", "with_schema"), expected, "value")
    if "key" in listed and key.get("format") in REGISTRY_FORMATS:
        expected = f"keys of JSON; the format {key['format']} has its schemas in the registry"
        yield Fault(("value", "with_schema"), expected, "key")

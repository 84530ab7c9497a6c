"""What the keys of change events say about each other, and about the rest of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka_ingest.pipeline_files.document import Fault
from kafka_ingest.settings import REGISTRY_FORMATS

_Data = Mapping[Any, Any]

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


def _section(data: _Data, key: str) -> _Data:
    section = data.get(key)
    return section if isinstance(section, dict) else {}


def _columns(value: _Data) -> Sequence[object]:
    columns = value.get("columns")
    return columns if isinstance(columns, list) else ()


def _without_envelope(value: _Data, target: _Data) -> Iterator[Fault]:
    for section, key in (("value", "with_schema"), ("value", "unavailable_placeholder"), ("target", "truncate")):
        if (value if section == "value" else target).get(key) is not None:
            yield Fault((section, key), "only with value.envelope, for change events", key)
    for index, column in enumerate(_columns(value)):
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

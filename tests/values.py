"""The table of values: what a JSON value becomes in a column of a type, or why its record becomes a dead letter.

It stands in ``tests/data/values/*.toml``. Unit tests, properties and tests against PostgreSQL read it, and
``docs/values.md`` shows the entries that are marked for it.

A section is named for one type, or for several with ", " between them; a conversion follows the type (``date as
epoch_days``). It holds the list ``fits`` and a list for each reason of dead letters. An entry is a table, or the texts
of its first keys alone, in this order:

- ``json``: the JSON text. ``{0*20}`` stands for twenty zeros, here and in every other text.
- ``as``: PostgreSQL's text of the stored value, in the time zone UTC; by default what the JSON text or string says.
- ``written``: the text that COPY gets; by default ``as``, and with ``kept = true`` what the JSON text or string says.
- ``binary``: the field that binary COPY gets, in hexadecimal.
- ``why``: a remark. ``docs = true``: an example in ``docs/values.md``, below the ``title`` of the file.
"""

from __future__ import annotations

import json
import re
import struct
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_ingest.errors import DeadLetterReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One entry; of a refused value only type, JSON text and reason mean something."""

    type: str
    json: str
    reason: DeadLetterReason | None
    #: What PostgreSQL shows, and what COPY gets.
    text: str
    written: str
    binary: bytes | None
    why: str
    title: str
    is_example: bool

    def __str__(self) -> str:
        return f"{self.type}: {self.json[:60]}"

    @property
    def column(self) -> str:
        """Return the type without a conversion."""
        return self.type.partition(" as ")[0]

    @property
    def cell(self) -> bool | int | float | str | bytes:
        """Return the decoded value, as Arrow gives it back."""
        if self.column == "boolean":
            return {"true": True, "false": False}[self.text]
        if self.column in ("smallint", "integer", "bigint"):
            return int(self.text)
        if self.column == "bytea":
            return bytes.fromhex(self.text.removeprefix("\\x"))
        if self.column in _FLOAT_FORMATS:
            layout = _FLOAT_FORMATS[self.column]
            return float(struct.unpack(layout, struct.pack(layout, float(self.text)))[0])
        return self.written


_FLOAT_FORMATS = {"real": "f", "double precision": "d"}
_KEYS = {"json", "as", "written", "kept", "binary", "why", "docs"}
_REPEATED = re.compile(r"\{(.)\*(\d+)\}")


def _read() -> Iterator[Value]:
    for path in sorted((Path(__file__).parent / "data" / "values").glob("*.toml")):
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
        title = sections.pop("title")
        for types, lists in sections.items():
            for name, entries in lists.items():
                reason = None if name == "fits" else DeadLetterReason(name)
                yield from (_value(of, reason, title, _table(entry)) for entry in entries for of in types.split(", "))


def _table(entry: str | list[str] | dict[str, Any]) -> dict[str, Any]:
    if isinstance(entry, dict):
        return entry
    texts = [entry] if isinstance(entry, str) else entry
    return dict(zip(("json", "as", "written"), texts, strict=False))


def _value(type_name: str, reason: DeadLetterReason | None, title: str, table: Mapping[str, Any]) -> Value:
    assert table.keys() <= _KEYS, f"{type_name}: {table}"
    texts = {key: _written_out(text) for key, text in table.items() if isinstance(text, str)}
    said = _said(type_name, texts["json"])
    text = texts.get("as", said)
    return Value(
        type=type_name,
        json=texts["json"],
        reason=reason,
        text=text,
        written=said if table.get("kept") or type_name == "jsonb" else texts.get("written", text),
        binary=bytes.fromhex(texts["binary"]) if "binary" in texts else None,
        why=texts.get("why", ""),
        title=title,
        is_example=table.get("docs", False),
    )


def _written_out(text: str) -> str:
    return _REPEATED.sub(lambda match: match[1] * int(match[2]), text)


def _said(type_name: str, text: str) -> str:
    """Return the characters of a JSON string, and any other JSON as it is; a jsonb column takes all as it is."""
    return str(json.loads(text)) if text.startswith('"') and type_name != "jsonb" else text


#: Every entry, file by file, and the types that have some.
VALUES = tuple(_read())
TYPES = tuple(dict.fromkeys(value.type for value in VALUES))


def values_of(type_name: str, *, fit: bool) -> list[Value]:
    """Return the values of a type that fit it, or those that are refused."""
    return [value for value in VALUES if value.type == type_name and (value.reason is None) is fit]

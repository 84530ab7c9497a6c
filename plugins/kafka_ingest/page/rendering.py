"""Values as HTML: templates, texts of numbers and times, payloads of records, data of plots.

Everything is escaped: templates are rendered with autoescape, and nothing here returns markup.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import zip_longest
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.page import links, states
from kafka_ingest.page.states import Standing, duration, moment
from kafka_ingest.postgres.overview import MOST_COUNTED
from kafka_ingest.protocol.batch import COMMAND_LINE

# ----------
# Texts.


def number(value: float | None) -> str:
    """Return a number with its thousands apart; ``-`` for none."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def counted(value: int | None) -> str:
    """Return a number of dead letters, of which no more than some are counted."""
    return f"more than {MOST_COUNTED:,}" if value is not None and value > MOST_COUNTED else number(value)


def age(time: datetime | None, now: datetime) -> str:
    """Return how long ago something was, or how long it is until then."""
    if time is None:
        return ""
    seconds = (now - time).total_seconds()
    return f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"


def size(count: int | None) -> str:
    """Return a number of bytes in its greatest unit."""
    if count is None:
        return "null"
    for unit, bytes_of_it in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= bytes_of_it:
            return f"{count / bytes_of_it:,.1f} {unit}"
    return f"{count:,} bytes"


def visible(text: str) -> str:
    """Return text in which what is not seen, or turns what follows around, is spelled out.

    Line feeds and tabs stay. Browsers obey marks of direction, and show nothing for control characters.
    """
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"):
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# ----------
# What each reason of a dead letter means, in the words of errors.py, and what mostly helps.

_REASONS: Mapping[DeadLetterReason, tuple[str, str]] = {
    DeadLetterReason.NOT_UTF8: ("bytes that are not UTF-8 where text or JSON is expected", "the producer"),
    DeadLetterReason.MALFORMED: ("the value or key is not JSON, or no record of its schema", "the producer"),
    DeadLetterReason.WRONG_TYPE: ("a value of another type than its column's", "the type of the column, or its as"),
    DeadLetterReason.MISSING_REQUIRED: ("a required value is missing or null", "whether the column has to be required"),
    DeadLetterReason.OUT_OF_RANGE: ("a number or time that the column cannot hold exactly", "the type of the column"),
    DeadLetterReason.TOO_LONG: ("text longer than the column's limit", "the length of the column"),
    DeadLetterReason.UNSUPPORTED_TEXT: (
        "text that PostgreSQL cannot hold: U+0000, or a lone surrogate",
        "a column of type bytea, or format raw",
    ),
    DeadLetterReason.TOMBSTONE: (
        "a null value, which the pipeline file takes for a dead letter",
        "the key tombstones of the pipeline file",
    ),
    DeadLetterReason.RECORD_TIME_OUT_OF_RANGE: ("a record time outside the years 1 to 9999", "the producer"),
    DeadLetterReason.VALUE_DID_NOT_TRAVEL: (
        "a change event without a value that was not changed, and nobody knows the one before",
        "whether the source table has REPLICA IDENTITY FULL",
    ),
    DeadLetterReason.UNREADABLE_HEADERS: (
        "header names that are not UTF-8",
        "the producer, or the key headers of the pipeline file",
    ),
    DeadLetterReason.NOT_NULL_VIOLATION: ("NULL for a NOT NULL column of the table", "the column in the table"),
    DeadLetterReason.CHECK_VIOLATION: ("a CHECK constraint of the table is false for the row", "the constraint"),
    DeadLetterReason.REFUSED_BY_DATABASE: ("PostgreSQL refused the row on its own", "the table"),
}


def meaning(reason: str) -> str:
    """Return what a reason means."""
    return _REASONS[DeadLetterReason(reason)][0]


def remedy(reason: str) -> str:
    """Return what mostly has to be looked at."""
    return _REASONS[DeadLetterReason(reason)][1]


# ----------
# Payloads.


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes of a record as people read them.

    Attributes:
        total_bytes: How many there are; ``None`` for null.
        is_cut: Whether only the beginning is here.
        json_text: The document, indented; empty where it is none, or cut.
        text: The text, with what is not seen spelled out; empty where the bytes are no UTF-8.
        hex_dump: The bytes, 16 in a line.
    """

    total_bytes: int | None
    is_cut: bool
    json_text: str
    text: str
    hex_dump: str


def payload(value: bytes | None, total_bytes: int | None, shown_bytes: int) -> Payload:
    """Return what to show of bytes, of which at most the beginning is shown."""
    if value is None:
        return Payload(None, False, "", "", "")
    total = len(value) if total_bytes is None else total_bytes
    shown = value[:shown_bytes]
    is_cut = total > len(shown)
    return Payload(total, is_cut, "" if is_cut else _json_text(shown), _text(shown, is_cut=is_cut), _hex_dump(shown))


def _json_text(value: bytes) -> str:
    """Return a document indented. Numbers stay as they are spelled, and of a repeated key each one is shown."""
    try:
        document = json.loads(value.decode(), parse_float=_Spelled, parse_int=_Spelled, object_pairs_hook=_Pairs)
        return visible("".join(_indented(document, "")))
    except (ValueError, RecursionError):
        return ""


class _Spelled(str):
    """A number as the document spells it."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, repeated keys included."""


def _indented(value: Any, indent: str) -> Iterator[str]:
    deeper = indent + "  "
    if isinstance(value, _Spelled):
        yield value
    elif isinstance(value, _Pairs) and value:
        entries = [(f"{json.dumps(key, ensure_ascii=False)}: ", entry) for key, entry in value]
        yield from _block("{}", entries, indent, deeper)
    elif isinstance(value, list) and value and not isinstance(value, _Pairs):
        yield from _block("[]", [("", entry) for entry in value], indent, deeper)
    else:
        yield "{}" if isinstance(value, _Pairs) else json.dumps(value, ensure_ascii=False)


def _block(brackets: str, entries: Sequence[tuple[str, Any]], indent: str, deeper: str) -> Iterator[str]:
    yield brackets[0]
    for place, (label, entry) in enumerate(entries):
        yield f"{',' if place else ''}\n{deeper}{label}"
        yield from _indented(entry, deeper)
    yield f"\n{indent}{brackets[1]}"


def _text(value: bytes, *, is_cut: bool) -> str:
    try:
        return visible(value.decode())
    except UnicodeDecodeError as error:
        # The cut may go through a character of up to four bytes.
        if is_cut and error.start >= len(value) - 3:
            return visible(value[: error.start].decode())
        return ""


def _hex_dump(value: bytes) -> str:
    return "\n".join(_hex_line(at, value[at : at + 16]) for at in range(0, len(value), 16))


def _hex_line(at: int, part: bytes) -> str:
    printable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
    return f"{at:08x}  {part.hex(' '):<47}  {printable}"


def headers_of(letter: Mapping[str, Any], shown_bytes: int) -> list[tuple[str, Payload]]:
    """Return the headers of a dead letter, in their order."""
    pairs = zip_longest(letter["header_names"] or (), letter["header_values"] or ())
    return [(visible(name), payload(value, None, shown_bytes)) for name, value in pairs]


# ----------
# Plots.


def plots(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the series of the newest batches, the oldest first: times in seconds since 1970, ``None`` for gaps."""
    committed = [batch for batch in reversed(batches) if batch["committed_at"] is not None]
    phases = ("session_seconds", "stage_seconds", "publish_seconds")
    return {
        "at": [batch["committed_at"].timestamp() for batch in committed],
        "offsets": [batch["offsets"] for batch in committed],
        "rows": [batch["rows"] for batch in committed],
        "rate": [rate(batch) for batch in committed],
        **{phase.removesuffix("_seconds"): [batch[phase] for batch in committed] for phase in phases},
    }


def seconds_of(batch: Mapping[str, Any]) -> float | None:
    """Return how long the load of a batch took, its phases together."""
    phases = [batch["session_seconds"], batch["stage_seconds"], batch["publish_seconds"]]
    known = [phase for phase in phases if phase is not None]
    return sum(known) if known else None


def rate(batch: Mapping[str, Any]) -> float | None:
    """Return the offsets that a batch has loaded in a second."""
    seconds = seconds_of(batch)
    return batch["offsets"] / seconds if seconds else None


# ----------
# Templates.


def render(template: str, **values: Any) -> str:
    """Return a page."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kafka_ingest.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number, counted=counted, moment=moment, duration=duration, size=size, visible=visible, age=age
    )
    environment.globals.update(
        headers_of=headers_of,
        meaning=meaning,
        remedy=remedy,
        payload=payload,
        plots=plots,
        plural=states.plural,
        rate=rate,
        seconds_of=seconds_of,
        totals=totals,
        with_letters=with_letters,
        actions=links,
        command_line=COMMAND_LINE,
        meanings=states.MEANINGS,
    )
    return environment


def totals(standings: Sequence[Standing]) -> list[tuple[states.State, int]]:
    """Count pipelines by state, the worst first."""
    found = [one.state for one in standings]
    return [(state, found.count(state)) for state in states.State if state in found]


def with_letters(standings: Sequence[Standing]) -> int:
    """Count pipelines that have unresolved dead letters."""
    return sum(bool(one.summary.get("unresolved_dead_letters")) for one in standings)

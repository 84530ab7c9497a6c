"""Arbitrary records, and what must become of them: worked out from the bytes alone, by rules that are written here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

#: The last millisecond of the year 9999: PostgreSQL's timestamptz goes on, the pipelines' promise does not.
LAST_TIME_MS = 253_402_300_799_999
MISSING = object()


@dataclass(frozen=True)
class Record:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    time_ms: int
    #: A value of which every typed column can hold its part.
    fits_columns: bool = False


UTF8 = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds(lambda digits, exponent: f"{digits}e{exponent}", st.integers(1, 10**6), st.integers(-400, 400)),
    st.sampled_from(["1e131071", "1e131072", "1e-16383", "1e-16384", "0.1234567890123456789", "1E+2", "-0"]),
)


def json_text(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """JSON documents as text, so that numbers keep their spelling."""
    names = UTF8.map(json.dumps)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
            st.lists(st.tuples(names, inner), max_size=4).map(
                lambda pairs: "{" + ",".join(f"{name}: {value}" for name, value in pairs) + "}"
            ),
        ),
        max_leaves=8,
    )


#: ``json.dumps`` writes escapes, U+0000 and lone surrogates among them; the second spelling writes the characters.
STRINGS = st.one_of(st.text(max_size=20).map(json.dumps), UTF8.map(lambda text: json.dumps(text, ensure_ascii=False)))
ANY_JSON = json_text(st.one_of(st.sampled_from(["null", "true", "false"]), NUMBERS, STRINGS))
FITTING_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
COLUMNS_THAT_FIT = st.fixed_dictionaries(
    {},
    optional={
        "flag": st.none() | st.booleans(),
        "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
        "exact": st.none() | st.decimals(-999_999, 999_999, places=3, allow_nan=False),
        "words": st.none() | FITTING_TEXT,
        "list": st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
        "other": st.none() | st.integers(),
    },
)
COLUMNS_MAYBE = st.fixed_dictionaries({}, optional=dict.fromkeys(("flag", "whole", "exact", "words", "list"), ANY_JSON))
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    UTF8.map(str.encode),
    ANY_JSON.map(str.encode),
    COLUMNS_MAYBE.map(
        lambda parts: ("{" + ",".join(f'"{name}": {value}' for name, value in parts.items()) + "}").encode()
    ),
)
KEYS = st.one_of(st.none(), st.binary(max_size=20), UTF8.map(str.encode), ANY_JSON.map(str.encode))
# No U+0000 in names: the C client ends them there, in its producer as in its consumer.
HEADERS = st.lists(st.tuples(FITTING_TEXT, st.none() | st.binary(max_size=10)), max_size=4).map(tuple)
# The client takes 0 for "now"; a broker that is told to accept any time does.
TIMES = st.one_of(st.integers(1, LAST_TIME_MS), st.sampled_from([LAST_TIME_MS, LAST_TIME_MS + 1, 2**62]))
RECORDS = st.one_of(
    st.builds(Record, key=KEYS, value=VALUES, headers=HEADERS, time_ms=TIMES),
    st.builds(
        lambda key, columns, headers, time: Record(key, columns.encode(), headers, time, fits_columns=True),
        KEYS,
        COLUMNS_THAT_FIT.map(lambda columns: json.dumps(columns, default=float)),
        HEADERS,
        TIMES,
    ),
)


def has_storable_time(record: Record) -> bool:
    """Whether the record time is a timestamptz of the promised years; else every pipeline makes it a dead letter."""
    return record.time_ms <= LAST_TIME_MS


def text_of(data: bytes | None) -> Any:
    """The text, or ``MISSING`` where PostgreSQL's text cannot hold it."""
    try:
        text = data.decode() if data is not None else None
    except UnicodeDecodeError:
        return MISSING
    return MISSING if text is not None and "\0" in text else text


def json_of(data: bytes | None) -> Any:
    """``("json", value)`` with exact numbers; ``None`` for a null record; ``MISSING`` where jsonb cannot hold it."""
    try:
        if data is None:
            return None
        _require_storable(data.decode())
        return stored_json(data.decode())
    except ValueError:
        return MISSING


def stored_json(text: str | None) -> Any:
    """``("json", value)`` of what the database gave; the pair tells JSON null from SQL NULL."""
    return None if text is None else ("json", _parse(text, dict))


def fields_of(data: bytes | None) -> dict[str, Any]:
    """The JSON object of a row whose value was decoded into columns; empty for a null record."""
    if data is None:
        return {}
    document = _parse(data.decode(), dict)
    assert isinstance(document, dict)
    return document


def _parse(text: str, of_pairs: Any) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=refuse, object_pairs_hook=of_pairs)


def _require_storable(text: str) -> None:
    """Raises ``ValueError`` where text or numbers cannot be stored, also under a key that comes again later."""
    for leaf in _leaves(_parse(text, lambda pairs: [part for pair in pairs for part in pair])):
        if isinstance(leaf, str):
            leaf.encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
        if (isinstance(leaf, str) and "\0" in leaf) or (isinstance(leaf, Decimal) and not is_numeric(leaf)):
            raise ValueError(leaf)


def is_numeric(number: Decimal) -> bool:
    """Limits of PostgreSQL's numeric: 131072 digits before the point, 16383 after it (PostgreSQL 18, Table 8.2)."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    return (not number or len(digits) + exponent <= 131_072) and -exponent <= 16_383


def _leaves(document: Any) -> Iterator[Any]:
    if isinstance(document, list):
        for value in document:
            yield from _leaves(value)
    else:
        yield document

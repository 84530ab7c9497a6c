"""What a dead letter's detail quotes after "found" stands in the record, letter by letter."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.settings import ColumnSettings, ValueFormat, ValueSettings
from spark_jobs.decode.values import printable
from tests.builders import batch_settings
from tests.decoding import decode, json_settings, record

# Words before the quotation, and remarks behind it, which end the detail in brackets.
_KIND = r"(?:the (?:string|number|boolean|header name) |an (?:object|array) )?"
_FOUND = re.compile(rf"(?s).*?found {_KIND}(.*?)(…)?( \([^()]*\)(; .*)?)?")
#: Said of a record in which there is nothing to quote.
_NOTHING_TO_QUOTE = {"nothing there", "no bytes", "a null key"}

TYPES = ("boolean", "integer", "double precision", "numeric(5,2)", "varchar(3)", "date", "timestamptz", "uuid",
         "bytea", "jsonb", "integer[]", "text[]")  # fmt: skip

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="()…"), max_size=90)
scalars = st.none() | st.booleans() | st.integers(-(10**25), 10**25) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))


def quoted(detail: str) -> str:
    found = _FOUND.fullmatch(detail)
    assert found is not None
    return found[1]


def stands_in(detail: str, payload: bytes) -> bool:
    quotation = quoted(detail)
    return quotation in _NOTHING_TO_QUOTE or quotation in printable(payload.decode("utf-8", "backslashreplace"))


@given(st.sampled_from(TYPES), values, st.booleans(), st.booleans())
def test_what_is_found_in_json_stands_in_the_value(type_name: str, value: object, ascii_only: bool, wide: bool) -> None:
    settings = json_settings(ColumnSettings("a", type_name, ("a",), required=True))
    separators = (" , ", " : ") if wide else (",", ":")
    data = json.dumps({"a": value}, ensure_ascii=ascii_only, separators=separators).encode()
    for dead in decode(settings, record(data)).dead:
        assert stands_in(dead.detail, data), dead.detail


@given(st.binary(max_size=90) | texts.map(str.encode), st.sampled_from(["text", "varchar(3)"]))
def test_what_is_found_in_text_stands_in_the_value(data: bytes, type_name: str) -> None:
    value = ValueSettings(ValueFormat.TEXT, (ColumnSettings("a", type_name),))
    for dead in decode(replace(batch_settings(), value=value), record(data)).dead:
        text = dead.detail.replace(" character)", " characters)")
        shown = printable(data.decode("utf-8", "backslashreplace"))
        assert any(text.partition("found ")[2].startswith(shown[:length]) for length in (min(len(shown), 20),)), text


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=90))
def test_what_is_found_in_a_header_stands_in_its_name(name: str) -> None:
    settings = json_settings(ColumnSettings("a", "text", ("a",)), headers_column="h")
    for dead in decode(settings, record(headers=[{"name": name, "value": b""}])).dead:
        quotation = dead.detail.partition("found the header name ")[2].removesuffix("…")
        assert quotation
        assert printable(name).startswith(quotation)


def test_an_escape_is_quoted_as_it_is_written() -> None:
    settings = json_settings(ColumnSettings("a", "integer", ("a",)))
    (dead,) = decode(settings, record(rb'{"a": "\u0041\n\"q\" \\ \ud83d\ude00"}')).dead
    assert dead.detail.endswith(r'found the string "\u0041\n\"q\" \\ \ud83d\ude00"')

"""Bytes of a record on the page: as JSON, text and hex, whatever they are."""

from __future__ import annotations

import json

import pytest

from kafka_ingest.page.links import cursor_text, place_text, read_cursor, read_place
from kafka_ingest.page.rendering import Payload, payload, plots, visible
from kafka_ingest.postgres.overview import RecordPlace
from tests.page_world import minutes

ALL = 65_536


def shown(value: bytes) -> Payload:
    return payload(value, len(value), ALL)


def test_a_document_is_indented_with_its_numbers_and_repeated_keys_as_they_are_spelled() -> None:
    text = shown(b'{"a": 1.50, "a": 12345678901234567890, "b": [], "c": {}, "d": [true, null]}').json_text
    assert text == (
        '{\n  "a": 1.50,\n  "a": 12345678901234567890,\n  "b": [],\n  "c": {},\n  "d": [\n    true,\n    null\n  ]\n}'
    )


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": 1} x'])
def test_what_is_no_document_has_no_json(value: bytes) -> None:
    assert shown(value).json_text == ""


def test_bytes_that_are_not_utf8_have_no_text_but_a_dump() -> None:
    found = shown(b"\xff\x00abc")
    assert found.text == ""
    assert found.hex_dump == "00000000  ff 00 61 62 63                                   ..abc"


def test_a_dump_has_sixteen_bytes_a_line() -> None:
    assert [line[:8] for line in shown(bytes(33)).hex_dump.splitlines()] == ["00000000", "00000010", "00000020"]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\u202eb", "a\\u202eb"),  # right-to-left override
        ("a\u2066b\u2069", "a\\u2066b\\u2069"),  # isolates
        ("\x00\x1b[31m", "\\u0000\\u001b[31m"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("\U000e0041", "\\U000e0041"),  # a tag character, which nothing shows
        ("line\n\ttab", "line\n\ttab"),
        ("naïve \u05d0 \U0001f600", "naïve \u05d0 \U0001f600"),
    ],
)
def test_what_is_not_seen_or_turns_text_around_is_spelled_out(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_a_document_with_an_escaped_lone_surrogate_can_be_sent() -> None:
    text = shown(b'["\\ud800"]').json_text
    assert text == '[\n  "\\ud800"\n]'
    text.encode()


def test_a_payload_that_is_cut_says_so_and_is_no_document() -> None:
    whole = json.dumps(["x" * 200]).encode()
    found = payload(whole[:100], len(whole), 100)
    assert (found.total_bytes, found.is_cut, found.json_text, len(found.text)) == (len(whole), True, "", 100)


def test_a_cut_through_a_character_does_not_make_text_into_bytes() -> None:
    value = "é".encode() * 10
    assert payload(value[:5], len(value), 5).text == "éé"


def test_null_and_empty_are_told_apart() -> None:
    assert payload(None, None, ALL).total_bytes is None
    assert shown(b"").total_bytes == 0


PLACE = {"topic": 'a"b', "generation": 1, "partition": 2, "offset": 2**62}


def test_places_and_cursors_are_read_back() -> None:
    place = RecordPlace('a"b', 1, 2, 2**62)
    assert read_place(place_text(PLACE)) == place
    assert read_cursor(cursor_text({**PLACE, "created_at": minutes(0)})) == (minutes(0), place)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "[]", "{}", "null", "[1,0,0,0]", '["t"]', '["t",0,0]', '["t\\u0000",0,0,0]', "[" * 10_000),
        *('["t",0,0,-1]', '["t",0,0,1.5]', '["t",0,0,true]', '["t",0,2147483648,0]', '["t",0,0,9223372036854775807]'),
    ],
)
def test_what_is_no_place_is_none(text: str) -> None:
    assert read_place(text) is None
    assert read_cursor(f"2026-11-30T13:00:00+00:00 {text}") is None


def test_plots_go_from_old_to_new_and_leave_gaps_where_nothing_was_measured() -> None:
    batch = {"batch_id": "b", "offsets": 120, "rows": 100, "session_seconds": 1.0, "stage_seconds": 2.0}
    measured = {**batch, "publish_seconds": 3.0, "committed_at": minutes(1)}
    unmeasured = {**measured, **dict.fromkeys(("session_seconds", "stage_seconds", "publish_seconds"))}
    planned = {**unmeasured, "committed_at": None}
    found = plots([planned, {**unmeasured, "committed_at": minutes(2)}, measured])
    assert found["at"] == [minutes(1).timestamp(), minutes(2).timestamp()]
    assert found["rate"] == [20.0, None]
    assert found["stage"] == [2.0, None]

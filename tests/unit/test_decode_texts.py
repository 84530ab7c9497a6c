from __future__ import annotations

import pytest

from kafka_ingest.errors import DeadLetterReason
from tests.decoding import read_decode_error_or_value, read_value

WRONG_TYPE, OUT_OF_RANGE = DeadLetterReason.WRONG_TYPE, DeadLetterReason.OUT_OF_RANGE
TOO_LONG, UNSUPPORTED_TEXT = DeadLetterReason.TOO_LONG, DeadLetterReason.UNSUPPORTED_TEXT


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('""', ""),
        ('"null"', "null"),
        ('" a "', " a "),
        (r'"a\"\\\/\b\f\n\r\t"', 'a"\\/\b\f\n\r\t'),
        (r'"\u00e9\u20ac"', "é€"),
        (r'"\ud83d\ude00"', "😀"),
        ('"😀"', "😀"),
        (r'"\\u0000"', "\\u0000"),
        (r'"\\ud800"', "\\ud800"),
        ('"\uffff\ufffd\u202e"', "\uffff\ufffd\u202e"),
        ('"\u007f"', "\u007f"),
    ],
)
def test_text_is_kept_character_for_character(raw: str, expected: str) -> None:
    assert read_value("text", raw) == expected


@pytest.mark.parametrize("raw", ["1", "true", "[]", "{}", '["a"]'])
def test_only_a_string_is_text(raw: str) -> None:
    assert read_value("text", raw) == WRONG_TYPE


@pytest.mark.parametrize(
    "raw",
    [r'"a\u0000"', r'"\ud800"', r'"\udc00"', r'"\udc00\ud800"', r'"\ud800\ud800\udc00"', r'"\ud800x"', r'"\\\ud800"'],
)
@pytest.mark.parametrize("type_name", ["text", "varchar(100)", "jsonb", "text[]"])
def test_text_that_postgresql_cannot_hold_is_told_as_such(type_name: str, raw: str) -> None:
    assert read_value(type_name, f"[{raw}]" if type_name == "text[]" else raw) == UNSUPPORTED_TEXT


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('"abc"', "abc"),
        ('"😀😀😀"', "😀😀😀"),
        ('"a  "', "a  "),
        ('"abcd"', TOO_LONG),
        ('"abc "', TOO_LONG),
        ('"    "', TOO_LONG),
    ],
)
def test_varchar_counts_characters_and_drops_no_spaces(raw: str, expected: object) -> None:
    assert read_value("varchar(3)", raw) == expected


@pytest.mark.parametrize(
    "text",
    [
        "6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10",
        "6D0F6E5C-3F0A-4A39-9D1F-0D5F3F7C9A10",
        "6d0f6e5c3f0a4a399d1f0d5f3f7c9a10",
        "00000000-0000-0000-0000-000000000000",
    ],
)
def test_a_uuid_has_hyphens_at_their_places_or_none(text: str) -> None:
    assert read_value("uuid", f'"{text}"') == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a1",
        "6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a100",
        "6d0f-6e5c3f0a4a399d1f0d5f3f7c9a10",
        "{6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10}",
        "urn:uuid:6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10",
        "gd0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10",
    ],
)
def test_other_spellings_are_no_uuid(text: str) -> None:
    assert read_value("uuid", f'"{text}"') == WRONG_TYPE


@pytest.mark.parametrize(
    ("text", "expected"), [("", b""), ("AA==", b"\x00"), ("/+8=", b"\xff\xef"), ("aGVsbG8h", b"hello!")]
)
def test_bytes_come_as_base64(text: str, expected: bytes) -> None:
    assert read_value("bytea", f'"{text}"') == expected


@pytest.mark.parametrize(
    "text", ["AA", "AA=", "AA===", "A===", "AB==", "_-8=", "AA==\\n", "A A=", "AA==AA==", "hello", "é", "\\\\x00"]
)
def test_what_no_encoder_writes_is_no_base64(text: str) -> None:
    assert read_value("bytea", f'"{text}"') == WRONG_TYPE


@pytest.mark.parametrize(
    "raw",
    [
        "{}",
        '{"b": [1, 2.50, 1e400, null, true], "a": {"c": "x"}}',
        "[ 1 ,\t2 ]",
        '"text"',
        "0.1234567890123456789012345678901234567890",
        "123456789012345678901234567890",
        "-0.0",
        r'{"escaped backslash": "\\u0000"}',
        r'"\\\\u0000"',
        r'"12e99999 is text"',
        '{"hash": "1e9999"}',
        "1e131071",
        "1e-16383",
        "0e131072",
    ],
)
def test_jsonb_gets_the_text_of_the_json_value_untouched(raw: str) -> None:
    assert read_value("jsonb", raw) == raw


@pytest.mark.parametrize("raw", [r'{"\u0000": 1}', r'["\\\u0000"]', r'{"a": {"b": ["x\u0000"]}}'])
def test_jsonb_refuses_an_escaped_zero_anywhere(raw: str) -> None:
    assert read_value("jsonb", raw) == UNSUPPORTED_TEXT


@pytest.mark.parametrize("raw", ["1e131072", "[1, 1e-16384]", '{"a":1e999999999}', "-1E+200000", "9" * 131_073])
def test_jsonb_refuses_numbers_beyond_numeric(raw: str) -> None:
    assert read_value("jsonb", raw) == OUT_OF_RANGE


def test_json_null_is_no_value_for_a_typed_jsonb_column() -> None:
    assert read_value("jsonb", "null") is None


def test_a_detail_escapes_what_it_quotes() -> None:
    detail = read_decode_error_or_value("uuid", '"\u202e\u2028\x7f\\u0000"').detail
    assert detail.isprintable()
    assert detail.endswith(r'found the string "\u202e\u2028\x7f\u0000"')

from __future__ import annotations

import pytest

from kafka_ingest.errors import DeadLetterReason
from tests.decoding import read_decode_error_or_value, read_value


@pytest.mark.parametrize(
    ("type_name", "raw", "expected"),
    [
        ("integer[]", "[]", "{}"),
        ("integer[]", "[1, null, -3]", '{1,NULL,-3}'),
        ("bigint[]", "[9007199254740993.0]", '{9007199254740993}'),
        ("boolean[]", "[true, false, null]", '{True,False,NULL}'),
        ("double precision[]", "[0.1, -0.0]", '{0.1,-0.0}'),
        ("numeric(5,2)[]", '[1.50, "2.5"]', '{1.50,2.5}'),
        ("text[]", r'["", "null", "NULL", "a,b", "{x}", "q\"q", "b\\b", " s "]',
         r'{"","null","NULL","a,b","{x}","q\"q","b\\b"," s "}'),
        ("bytea[]", '["AAH/", null]', r'{"\\x0001ff",NULL}'),
        ("date[]", '["2026-11-28"]', '{"2026-11-28"}'),
        ("timestamptz[]", '["2026-11-28T01:02:03+02"]', '{"2026-11-27 23:02:03+00"}'),
        ("uuid[]", '["6d0f6e5c3f0a4a399d1f0d5f3f7c9a10"]', '{"6d0f6e5c3f0a4a399d1f0d5f3f7c9a10"}'),
    ],
)  # fmt: skip
def test_an_array_keeps_order_nulls_and_values(type_name: str, raw: str, expected: str) -> None:
    assert read_value(type_name, raw) == expected


@pytest.mark.parametrize(
    ("type_name", "raw", "reason"),
    [
        ("integer[]", "1", DeadLetterReason.WRONG_TYPE),
        ("integer[]", '"{1,2}"', DeadLetterReason.WRONG_TYPE),
        ("integer[]", '{"0": 1}', DeadLetterReason.WRONG_TYPE),
        ("integer[]", "[[1]]", DeadLetterReason.WRONG_TYPE),
        ("integer[]", '[1, "2"]', DeadLetterReason.WRONG_TYPE),
        ("text[]", '["a", ["b"]]', DeadLetterReason.WRONG_TYPE),
        ("smallint[]", "[1, 40000]", DeadLetterReason.OUT_OF_RANGE),
        ("varchar(2)[]", '["ab", "abc"]', DeadLetterReason.TOO_LONG),
    ],
)
def test_an_array_is_refused_by_its_elements_rule(type_name: str, raw: str, reason: DeadLetterReason) -> None:
    assert read_value(type_name, raw) == reason


def test_a_detail_names_the_element() -> None:
    assert (
        'column "a" from $.a: element 2: expected smallint'
        in read_decode_error_or_value("smallint[]", "[1, 40000]").detail
    )

"""What a pipeline file may give as ``default`` is just what decoding would read in a record.

The two are written apart: files are checked where neither Arrow nor the job's code is.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_ingest.column_types import SUPPORTED, check_value, parse_column_type
from spark_jobs.decode.documents import checked_document
from spark_jobs.decode.texts import rule_for
from spark_jobs.decode.values import DecodeError
from tests.properties.test_decode_properties import json_texts, number_texts, text_values, time_texts
from tests.values import VALUES

_SCALARS = [row.name for row in SUPPORTED] + ["character varying(3)", "numeric(5,2)", "numeric(40,0)", "numeric(3,3)"]
TYPES = [*_SCALARS, "integer[]", "numeric(5,2)[]", "character varying(3)[]", "date[]", "bytea[]"]

any_json = st.one_of(
    json_texts,
    number_texts.map(json.dumps),
    time_texts.map(json.dumps),
    st.text("0123456789-:.,TtZz+ ", max_size=30).map(json.dumps),
    st.lists(st.one_of(number_texts, time_texts.map(json.dumps), text_values.map(json.dumps)), max_size=3).map(
        lambda elements: f"[{', '.join(elements)}]"
    ),
)


def decoding_reads(type_name: str, text: str) -> bool:
    document = checked_document(text.encode())
    if document == b"null":
        return False
    try:
        rule_for(parse_column_type(type_name)).exact(document)
    except DecodeError:
        return False
    return True


def file_takes(type_name: str, text: str) -> bool:
    try:
        check_value(parse_column_type(type_name), text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("type_name", TYPES)
@given(text=any_json)
@example("null")
@example("[null]")
@example('"0001-01-01T00:00:00+00:01"')
@example('"9999-12-31T23:59:59.999999-00:01"')
@example('"2026-02-30"')
@example('"24:00"')
@example('"12:00:60"')
@example('"12:00:00.1234567"')
@example('"12:00.5"')
@example("0e-16384")
@example("0e99999999999999999999")
@example("1e-99999999999999999999")
@example('{"a": "\\u0000", "a": 1}')
def test_a_default_is_taken_just_where_a_record_with_its_value_would_be(type_name: str, text: str) -> None:
    assert file_takes(type_name, text) == decoding_reads(type_name, text)


def test_every_value_of_the_table_is_judged_alike_as_a_default() -> None:
    for value in VALUES:
        if " as " not in value.type:
            assert (value.json, file_takes(value.type, value.json)) == (value.json, value.reason is None), value.type

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason
from spark_jobs.decode.documents import MAX_NESTING
from spark_jobs.decode.values import ColumnPlan, DecodeError
from tests.decoding import read_columns

MALFORMED, NOT_UTF8, WRONG_TYPE = DeadLetterReason.MALFORMED, DeadLetterReason.NOT_UTF8, DeadLetterReason.WRONG_TYPE


def plan(name: str, type_name: str, *path: str, required: bool = False, not_null: bool = False) -> ColumnPlan:
    return ColumnPlan(name, parse_column_type(type_name), path, required=required, not_null=not_null)


ORDER = (
    plan("order_id", "bigint", "id"),
    plan("customer", "jsonb", "customer"),
    plan("customer_id", "text", "customer", "id"),
    plan("city", "text", "customer", "address", "city"),
    plan("street", "text", "customer", "address", "street"),
    plan("raw_order", "jsonb"),
)
PLAIN = (plan("a", "integer", "a"), plan("b", "text", "b", "c"))


def read_one(plans: tuple[ColumnPlan, ...], value: bytes) -> Any:
    (outcome,) = read_columns(plans, value)
    return (outcome.reason, outcome.detail) if isinstance(outcome, DecodeError) else list(outcome)


def reason_of(plans: tuple[ColumnPlan, ...], value: bytes) -> object:
    (outcome,) = read_columns(plans, value)
    return outcome.reason if isinstance(outcome, DecodeError) else list(outcome)


def test_a_column_may_hold_what_other_columns_look_into() -> None:
    customer = '{"id": "c1", "address": {"city": "Oslo", "x": 1e400}}'
    value = f' {{"id": 7, "customer": {customer}, "other": [null]}}\n'
    assert read_one(ORDER, value.encode()) == [7, customer, "c1", "Oslo", None, value.strip()]


@pytest.mark.parametrize("parent", ["", '"b": null, ', '"b": {}, ', '"b": {"c": null}, ', '"b": {"d": "x"}, '])
def test_a_missing_or_null_parent_is_as_a_missing_value(parent: str) -> None:
    assert read_one(PLAIN, f'{{{parent}"a": 1}}'.encode()) == [1, None]


@pytest.mark.parametrize("parent", ["1", '"text"', "[]", "true", '[{"c": "x"}]'])
def test_a_parent_that_is_no_object_is_of_the_wrong_type(parent: str) -> None:
    reason, detail = read_one(PLAIN, f'{{"a": 1, "b": {parent}}}'.encode())
    assert reason == WRONG_TYPE
    assert detail.startswith("$.b: expected an object, found ")


@pytest.mark.parametrize("root", [b"null", b"[]", b'"text"', b"1", b"true", b" null ", b'[{"a": 1}]'])
def test_a_document_that_is_no_object_is_of_the_wrong_type(root: bytes) -> None:
    assert reason_of(PLAIN, root) == WRONG_TYPE
    assert reason_of(ORDER, root) == WRONG_TYPE


@pytest.mark.parametrize(
    ("value", "found"), [(b"{}", "nothing there"), (b'{"a": null}', "null"), (b'{"a": {"x": 1}}', "nothing there")]
)
def test_a_required_value_must_be_there(value: bytes, found: str) -> None:
    path = ("a",) if b"x" not in value else ("a", "b")
    expected = f'column "n" from $.{".".join(path)}: expected a value, found {found}'
    assert read_one((plan("n", "text", *path, required=True),), value) == (DeadLetterReason.MISSING_REQUIRED, expected)


def test_null_is_refused_where_the_target_is_not_null() -> None:
    assert reason_of((plan("a", "text", "a", not_null=True),), b"{}") == DeadLetterReason.NOT_NULL_VIOLATION


def test_the_pipelines_own_rule_is_named_before_the_targets() -> None:
    column = plan("a", "text", "a", required=True, not_null=True)
    assert reason_of((column,), b"{}") == DeadLetterReason.MISSING_REQUIRED


def test_the_first_fault_by_column_order_is_told() -> None:
    columns = (plan("x", "integer", "x", required=True), plan("y", "integer", "y"))
    assert reason_of(columns, b'{"y": "wrong"}') == DeadLetterReason.MISSING_REQUIRED
    assert reason_of(columns[::-1], b'{"y": "wrong"}') == WRONG_TYPE


def test_of_a_repeated_key_the_last_one_counts() -> None:
    assert read_one(PLAIN, b'{"a": "x", "a": 1, "b": {"c": "y"}, "b": {"d": 1}}') == [1, None]


def test_a_key_may_be_written_with_escapes() -> None:
    assert read_one(PLAIN, rb'{"\u0061": 1, "b": {"\u0063": "x"}}') == [1, "x"]


@pytest.mark.parametrize("key", ["unit price", 'q"q', "b\\b", "", "é", "a.b", "$", "line\nbreak", "\U0001f600"])
def test_any_key_can_be_named(key: str) -> None:
    assert read_one((plan("x", "text", key, key),), json.dumps({key: {key: "found"}}).encode()) == ["found"]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"{",
        b'{"a": 1',
        b'{"a": 1}}',
        b'{"a": 1} x',
        b'{"a": 1}{"a": 2}',
        b'{"a": 1,}',
        b"{'a': 1}",
        b'{"a": 01}',
        b'{"a": +1}',
        b'{"a": .5}',
        b'{"a": NaN}',
        b'{"a": 1, "junk": nope}',
        b'{"a": 1, "junk": [1,]}',
        b'{"a": 1, "junk": "\x01"}',
        rb'{"a": 1, "junk": "\q"}',
        rb'{"a": 1, "junk": "\u12g4"}',
        b'{"a": 1, "b": {"c": "x", "d": }}',
        b'{"a": 1}\x00',
        b'\x00{"a": 1}',
        b'\x0b{"a": 1}',
        b'\xc2\xa0{"a": 1}',
    ],
)
def test_what_is_not_json_as_a_whole_is_malformed_also_where_no_column_reads(value: bytes) -> None:
    assert reason_of(PLAIN, value) == MALFORMED
    assert reason_of(ORDER, value) == MALFORMED
    assert reason_of((plan("doc", "jsonb"),), value) == MALFORMED


@pytest.mark.parametrize(
    "value", [b"\xff\xfe\x80", b'{"a": 1, "junk": "caf\xe9"}', b'{"a": 1, "\xe9": 1}', b'{"b": {"c": "\xed\xa0\x80"}}']
)
def test_bytes_that_are_not_utf8_are_told_wherever_they_stand(value: bytes) -> None:
    assert reason_of(PLAIN, value) == NOT_UTF8
    assert reason_of(ORDER, value) == NOT_UTF8


def test_a_byte_order_mark_is_malformed_and_named() -> None:
    reason, detail = read_one(PLAIN, b'\xef\xbb\xbf{"a": 1}')
    assert reason == MALFORMED
    assert "byte order mark" in detail


def test_a_lone_surrogate_where_no_column_reads_does_no_harm() -> None:
    assert read_one(PLAIN, rb'{"a": 1, "junk": "\ud800", "b": {"c": "\ud83d\ude00"}}') == [1, "\U0001f600"]


def test_a_lone_surrogate_does_not_hide_another_fault() -> None:
    assert reason_of(PLAIN, rb'{"a": 1, "junk": "\ud800", nope}') == MALFORMED


@pytest.mark.parametrize(
    "nested",
    [
        lambda depth: b"[" * depth + b"]" * depth,
        lambda depth: b'{"x":' * depth + b"1" + b"}" * depth,
        lambda depth: b'[ { "x" :' * (depth // 2) + b"1" + b"}]" * (depth // 2),
    ],
)
def test_nesting_has_a_fixed_limit(nested: Callable[[int], bytes]) -> None:
    columns = (plan("a", "integer", "a"), plan("n", "jsonb", "n"))
    around = b'{"a": 1, "junk": "[[[[{{{{", "n": %s}'
    deepest = nested(MAX_NESTING - 2)
    assert read_one(columns, around % deepest) == [1, deepest.decode()]
    for depth in (MAX_NESTING, 5_000, 200_000):
        assert reason_of(columns, around % nested(depth)) == MALFORMED
        assert reason_of(columns[:1], around % nested(depth)) == MALFORMED


def test_many_brackets_side_by_side_are_not_deep() -> None:
    value = b'{"a": 1, "junk": [' + b"[]," * 5_000 + b'"\\"[[["]}'
    assert read_one(PLAIN, value) == [1, None]

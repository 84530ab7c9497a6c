"""The column that a draft chooses for the values of a member."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.drafting import decoded, draft_text, settings_of, values_of


def column_of(values: Sequence[str], name: str = "a") -> str:
    """Return type and conversion of the column that a member of these JSON values gets; empty where it has none."""
    records = values_of(*(f'{{"other":1,{json.dumps(name)}:{value}}}' for value in values))
    text = draft_text(records)
    assert decoded(text, records).dead == []
    found = [column for column in settings_of(text).batch.value.columns if column.path == (name,)]
    return " as ".join(filter(None, [found[0].type, found[0].conversion])) if found else ""


MILLIS, SECONDS = "1795901222852", "1795901222"
TIMESTAMPTZ, TIMESTAMP, DOUBLE = "timestamp with time zone", "timestamp without time zone", "double precision"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["true", "false", "null"], "boolean"),
        (["1", "-9223372036854775808", "9223372036854775807"], "bigint"),
        (["1", "9223372036854775808"], "numeric"),
        (["-0"], "bigint"),
        (["0.1", "1e3", "1", "-2.5E-7"], DOUBLE),
        (["0.30000000000000004"], DOUBLE),
        (["0.1", "9007199254740993"], "numeric"),
        (["0.12345678901234567890"], "numeric"),
        (["12.50", "3.1"], "numeric"),
        (["1.0", "2.0"], DOUBLE),
        (["1e400"], "numeric"),
        (["1e-400"], "numeric"),
        (["1e131072"], ""),
        (['"x"', '""'], "text"),
        (['"2026-01-31"', "null"], "date"),
        (['"2026-01-31"', '"2026-02-30"'], "text"),
        (['"2026-01-31T01:02:03.5Z"', '"2026-01-31 01:02:03+05:30"'], TIMESTAMPTZ),
        (['"2026-01-31T01:02:03"'], TIMESTAMP),
        (['"2026-01-31T01:02:03"', '"2026-01-31T01:02:03Z"'], "text"),
        (['"2026-01-31T01:02:03.1234567Z"'], "text"),
        (['"01:02:03"'], "time without time zone"),
        (['"24:00:00"'], "text"),
        (['"6D0F6E5C-3F0A-4A39-9D1F-0D5F3F7C9A10"'], "uuid"),
        (['"6d0f6e5c3f0a4a399d1f0d5f3f7c9a10"'], "text"),
        (["null"], "jsonb"),
        (["{}"], "jsonb"),
        (["[1]", "[]"], "jsonb"),
        (["1", '"1"'], "jsonb"),
        (['{"b":1}', "2"], "jsonb"),
        (['"x\\u0000y"'], ""),
        (['"\\ud800"', '"x"'], ""),
        (['"\\ud83d\\ude00"'], "text"),
        (['["\\u0000"]'], ""),
        (['{"\\u0000":1}', "1"], ""),
    ],
)
def test_the_type_holds_every_value_seen(values: list[str], expected: str) -> None:
    assert column_of(values) == expected


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("created_at", [MILLIS], f"{TIMESTAMPTZ} as epoch_millis"),
        ("createdAt", [SECONDS, "null"], f"{TIMESTAMPTZ} as epoch_seconds"),
        ("ts", ["1795901222852123"], f"{TIMESTAMPTZ} as epoch_micros"),
        ("ts_ns", ["1795901222852123000"], f"{TIMESTAMPTZ} as epoch_nanos"),
        ("ts_ns", ["1795901222852123001"], "bigint"),
        ("eventtime", ["1795901222.123456"], f"{TIMESTAMPTZ} as epoch_seconds"),
        ("eventtime", ["1795901222.1234567"], "numeric"),
        ("day", ["20512"], "date as epoch_days"),
        ("time", ["20512"], "bigint"),
        ("created_at", [MILLIS, "0"], "bigint"),
        ("created_at", [MILLIS, SECONDS], "bigint"),
        ("created_at", ["946684799"], "bigint"),
        ("created_at", ["946684800", "4102444800"], f"{TIMESTAMPTZ} as epoch_seconds"),
        ("order_id", [MILLIS], "bigint"),
        ("price", ["1.5", "2.5"], "numeric"),
        ("totalAmount", ["1.5"], "numeric"),
        ("temperature", ["1.5"], DOUBLE),
    ],
)
def test_a_number_is_a_time_or_money_where_name_and_values_say_so(name: str, values: list[str], expected: str) -> None:
    assert column_of(values, name) == expected


TWENTY = [f'"{number}"' for number in range(20)]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("count", TWENTY, "bigint as number_text"),
        ("count", TWENTY[:19], "text"),
        ("count", [*TWENTY, '"007"'], "text"),
        ("count", [*TWENTY, '"+1"'], "text"),
        ("count", [*TWENTY, '"x"'], "text"),
        ("count", [*TWENTY, '""'], "text"),
        ("count", [*TWENTY, '"1.50"'], "numeric"),
        ("count", [*TWENTY, '"9223372036854775808"'], "numeric"),
        ("customer_id", TWENTY, "text"),
        ("zipCode", TWENTY, "text"),
    ],
)
def test_texts_are_numbers_only_where_all_are_and_none_names_something(
    name: str, values: list[str], expected: str
) -> None:
    assert column_of(values, name) == expected


@pytest.mark.parametrize(
    ("value", "comment"),
    [
        ('"00ff00ff00ff00ff"', "{type: bytea, as: hex} would fit"),
        ('"AAECAwQFBgcICQ=="', "{type: bytea, as: base64} would fit"),
        ('"{\\"a\\": 1}"', "{type: jsonb, as: json_text} would store it as JSON"),
    ],
)
def test_what_else_a_text_may_be_is_a_comment(value: str, comment: str) -> None:
    assert column_of([value]) == "text"
    assert comment in draft_text(values_of(f'{{"a":{value}}}'))


def test_objects_are_flattened_down_to_the_fifth_level() -> None:
    text = draft_text(values_of('{"a":{"b":{"c":{"d":{"e":{"f":1}}}}},"x":{"y z":"t"}}', '{"a":null}'))
    assert "{name: a_b_c_d_e, type: jsonb, path: $.a.b.c.d.e}" in text
    assert "{name: x_y_z, type: text, path: \"$.x['y z']\"}" in text


def test_an_object_whose_names_are_data_stays_whole() -> None:
    values = [json.dumps({"prices": {f"shop-{n}-{m}": 1 for m in range(2)}}) for n in range(20)]
    text = draft_text(values_of(*values))
    assert "- {name: prices, type: jsonb}" in text
    assert "40 different members: their names look like data" in text


def test_what_is_beyond_two_hundred_columns_stays_in_the_whole_value() -> None:
    rare, common = {f"r{n}": n for n in range(150)}, {f"c{n}": n for n in range(150)}
    records = values_of(json.dumps(rare | common), json.dumps(common))
    text = draft_text(records)
    columns = settings_of(text).batch.value.columns
    assert len(columns) == 200
    assert sum(column.name.startswith("c") for column in columns) == 150
    assert (columns[-1].name, columns[-1].type, columns[-1].path) == ("document", "jsonb", ())
    assert decoded(text, records).dead == []


def test_hostile_documents_make_a_sane_file() -> None:
    deep = '{"a":' * 500 + "1" + "}" * 500
    many = json.dumps({f"member {number}": number for number in range(20_000)})
    long_name = json.dumps({"n" * 1_000_000: 1})
    records = values_of(deep, many, long_name, '{"big":"' + "x" * 1_000_000 + '"}')
    text = draft_text(records)
    assert len(settings_of(text).batch.value.columns) == 200
    assert len(text) < 40_000
    assert decoded(text, records).dead == []


def test_shares_and_bounds_stand_in_comments_and_nothing_is_required() -> None:
    text = draft_text(values_of('{"a":1,"b":"é\\n"}', '{"a":3,"b":null}', '{"a":2}', f'{{"a":2,"b":"{"x" * 80}"}}'))
    assert "# in every record seen; 1 to 3\n    - {name: a, type: bigint}" in text
    assert "# missing in 1 of 4 (25.0 %); null in 1 of 4 (25.0 %)" in text
    assert f'"{"x" * 57}…" to "é\\n"' in " ".join(line.strip("# ") for line in text.splitlines())
    assert not any(column.required for column in settings_of(text).batch.value.columns)


def test_a_member_of_several_types_is_jsonb_and_says_so() -> None:
    text = draft_text(values_of('{"a":1}', '{"a":"1"}', '{"a":null}', '{"a":2}'))
    assert "# several types: number in 2 of 4 (50.0 %), string in 1 of 4 (25.0 %)\n    - {name: a, type: jsonb}" in text


def test_names_are_snake_case_and_differ_also_from_those_that_every_table_has() -> None:
    text = draft_text(
        values_of('{"orderId":1,"order_id":2,"HTTPStatus":3,"xmin":4,"kafka_offset":5,"1st":6,"%":7,"Ä b":8}')
    )
    names = {column.path[0]: column.name for column in settings_of(text).batch.value.columns}
    assert names == {
        "orderId": "order_id",
        "order_id": "order_id_2",
        "HTTPStatus": "http_status",
        "xmin": "xmin_2",
        "kafka_offset": "kafka_offset_2",
        "1st": "_1st",
        "%": "column",
        "Ä b": "ä_b",
    }


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        ("2026-01-31T01:02:03.1234567Z", "timestamptz"),
        ("2026-01-31T01:02:03.123456789", "timestamp"),
        ("01:02:03.1234567", "time"),
    ],
)
def test_texts_of_finer_times_stay_texts_and_the_comment_names_the_rounding(value: str, type_name: str) -> None:
    text = draft_text(values_of(json.dumps({"a": value})))
    assert "{name: a, type: text}" in text
    assert f"{{type: {type_name}, round: microseconds}} would fit" in text

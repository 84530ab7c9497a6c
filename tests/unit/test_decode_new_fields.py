"""Fields of the value that no column reads: dead letters, or names for a warning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.protocol.staging import MOST_NEW_FIELDS, NewField
from kafka_ingest.settings import BatchSettings, ColumnSettings, NewFields, ValueFormat
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.paths import WatchedColumns
from spark_jobs.decode.record import RecordDecoder
from spark_jobs.decode.values import ColumnPlan
from tests.decoding import BATCH_ID, batch_of, decode, json_settings, read_columns, reasons, record, target_of

ID = ColumnSettings("id", "bigint", ("id",))
CITY = ColumnSettings("city", "text", ("place", "city"))
DETAILS = ColumnSettings("details", "jsonb", ("details",))
COLOUR = ColumnSettings("colour", "text", ("details", "colour"))


def settings_of(*columns: ColumnSettings, policy: NewFields) -> BatchSettings:
    settings = json_settings(*columns)
    return replace(settings, value=replace(settings.value, new_fields=policy))


def first_new(value: str, *columns: ColumnSettings) -> str | None:
    """Return the field that the dead letter of a value names, between values without new fields."""
    columns = columns or (ID, CITY, DETAILS, COLOUR)
    good = record(b'{"id": 7}')
    decoded = decode(settings_of(*columns, policy=NewFields.DEAD_LETTER), good, record(value.encode()), good)
    assert all(dead.reason is DeadLetterReason.WRONG_TYPE and dead.row_index == 1 for dead in decoded.dead)
    prefix = "the value: expected no fields but those that columns read, found "
    return decoded.dead[0].detail.removeprefix(prefix) if decoded.dead else None


def names(*values: str | bytes | None, columns: tuple[ColumnSettings, ...] = (ID, CITY, DETAILS, COLOUR)) -> list[str]:
    """Return what a warning would name: the fields of several batches, in the order in which they came."""
    settings = settings_of(*columns, policy=NewFields.WARN)
    decoder = RecordDecoder(settings, target_of(settings), batch_id=BATCH_ID)
    for value in values:
        data = value.encode() if isinstance(value, str) else value
        assert decoder.decode(batch_of(record(data), record(data)), generation=0)
    return [".".join(field.path) for field in decoder.new_fields]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("{}", None),
        ('{"id": 1, "place": {"city": "Oslo"}, "details": {"size": 1}}', None),
        ('{"place": null, "details": null}', None),
        ('{"new": 1}', "$.new"),
        ('{"id": 1, "new": null}', "$.new"),
        ('{"id": 1, "new": {"a": 1}}', "$.new"),
        ('{"place": {"city": "Oslo", "zip": 1}}', "$.place.zip"),
        ('{"place": {"zip": 1}, "other": 2}', "$.other"),
        # A column takes the object whole, whatever other columns look for in it.
        ('{"details": {"size": 1, "colour": "red", "more": {"x": 1}}}', None),
        ('{"Id": 1}', "$.Id"),
        ('{"a b": 1}', "$['a b']"),
        (r'{"a\nb": 1}', r"$['a\nb']"),
        (r'{"n\u0065w": 1}', "$.new"),
        ('{"é": 1}', "$.é"),
        ('{"": 1}', "$['']"),
        ('{"new": 1, "new": 2}', "$.new"),
        ('{"place": {"zip": 1}, "place": {"city": "Oslo"}}', None),  # of a repeated key the last one counts
    ],
)
def test_a_dead_letter_names_the_first_field_that_no_column_reads(value: str, field: str | None) -> None:
    assert first_new(value) == field


def test_a_column_of_the_whole_document_reads_every_field() -> None:
    assert first_new('{"new": 1, "place": {"zip": 1}}', ID, CITY, ColumnSettings("document", "jsonb", ())) is None


def test_every_path_of_a_column_reads_its_field() -> None:
    moved = replace(ID, other_paths=(("number",), ("old", "id")))
    assert first_new('{"number": 1, "old": {"id": 2}}', moved) is None
    assert first_new('{"number": 1, "old": {"is": 2}}', moved) == "$.old.is"


def test_columns_of_the_key_read_no_field_of_the_value() -> None:
    key = replace(CITY, path=("city",), from_key=True)
    settings = settings_of(ID, key, policy=NewFields.DEAD_LETTER)
    decoded = decode(settings, record(b'{"city": "a"}', key=b'{"zip": 1}'), record(b"{}", key=b'{"zip": 1}'))
    assert reasons(decoded) == {0: DeadLetterReason.WRONG_TYPE}


def test_a_fault_of_a_column_is_named_before_a_new_field() -> None:
    [dead] = decode(settings_of(ID, policy=NewFields.DEAD_LETTER), record(b'{"new": 1, "id": "x"}')).dead
    assert dead.detail.startswith('column "id" from $.id: expected bigint')


def test_a_long_or_unprintable_name_is_shortened_and_escaped() -> None:
    settings = settings_of(ID, policy=NewFields.DEAD_LETTER)
    [dead] = decode(settings, record(b'{"' + b"x" * 5_000 + b'": 1}')).dead
    assert dead.detail.count("x") < 100
    [dead] = decode(settings, record(rb'{"a\u202e\u0000": 1}')).dead
    assert dead.detail.isprintable()


def test_tombstones_have_no_fields() -> None:
    assert reasons(decode(settings_of(ID, policy=NewFields.DEAD_LETTER), record(None))) == {}
    assert names(None) == []


def test_by_default_new_fields_are_passed_over_and_nothing_is_collected() -> None:
    settings = json_settings(ID)
    decoder = RecordDecoder(settings, target_of(settings), batch_id=BATCH_ID)
    assert decoder.decode(batch_of(record(b'{"new": 1}')), generation=0).dead == []
    assert decoder.new_fields == ()


def test_a_warning_names_each_field_once_over_all_batches() -> None:
    values = ['{"id": 1}', '{"new": 1}', '{"new": 2, "b": 1}', '{"place": {"zip": 1, "city": "x"}}', '{"b": {"c": 1}}']
    assert names(*values) == ["new", "b", "place.zip"]
    decoded = decode(settings_of(ID, policy=NewFields.WARN), record(b'{"id": 1, "new": 2}'))
    assert decoded.columns.column("id").to_pylist() == [1]
    assert decoded.dead == []


@pytest.mark.parametrize("key", [r"a\"b", r"a\\b", r"a\u0000b", "é", ""])
def test_names_that_no_struct_can_have_are_found_too(key: str) -> None:
    value = f'{{"{key}": 1, "new": 1}}'
    assert names(value, value, '{"last": 1}') == [key.encode().decode("unicode_escape") if "\\" in key else key, "new",
                                                  "last"]  # fmt: skip
    column = replace(ID, path=('a"b',))
    assert names(value, columns=(ID, column))[-1] == "new"


def test_fields_of_a_record_that_a_column_refuses_are_not_collected() -> None:
    assert names('{"id": "x", "new": 1}', b"\xff", "[]", '{"new": ') == []


def test_a_task_reports_a_bounded_number_of_names_of_bounded_length() -> None:
    settings = settings_of(ID, policy=NewFields.WARN)
    decoder = RecordDecoder(settings, target_of(settings), batch_id=BATCH_ID)
    keys = ", ".join(f'"{n}{"x" * 1_000}": 1' for n in range(MOST_NEW_FIELDS + 20))
    for _ in range(2):
        decoder.decode(batch_of(record(f"{{{keys}}}".encode()), record(b'{"other": 1}')), generation=0)
    assert len(decoder.new_fields) == MOST_NEW_FIELDS
    assert decoder.new_fields[0] == NewField(("0" + "x" * 199,), "jsonb")


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("policy", [NewFields.WARN, NewFields.DEAD_LETTER])
def test_columns_are_what_they_are_without_a_watch(policy: NewFields, quick: bool) -> None:
    plans = [ColumnPlan("id", parse_column_type("bigint"), ("id",)), ColumnPlan("n", parse_column_type("text"), ("n",))]
    values = [b'{"id": 1}', b'{"n": "a"}', b'{"id": "x"}', b"null", b"{"]
    watched = WatchedColumns(JsonColumns(plans, quick=quick), plans, policy)
    part = watched.decode(batch_of(*map(record, values)).column("value"))
    assert [array.to_pylist()[:2] for array in part.arrays] == [[1, None], [None, "a"]]
    outcomes = read_columns(plans, *values)
    assert {row: str(error) for row, error in part.decode_errors.items()} == {
        row: str(outcome) for row, outcome in enumerate(outcomes) if isinstance(outcome, Exception)
    }


def test_formats_of_one_column_have_no_fields() -> None:
    settings = json_settings(ColumnSettings("a", "jsonb"))
    whole = replace(settings, value=replace(settings.value, format=ValueFormat.JSON, new_fields=NewFields.DEAD_LETTER))
    assert reasons(decode(whole, record(b'{"new": 1}'))) == {}

"""Which columns new fields get, which they do not, and what a batch's mapping is then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import SchemaChangeRefused
from kafka_ingest.protocol.new_columns import ColumnsBefore, columns_for, new_fields_of, with_added_columns
from kafka_ingest.protocol.staging import NewField, StageResult
from kafka_ingest.protocol.target import AddedColumn
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSettings,
    KeyFormat,
    KeySettings,
    NewFields,
    ValueFormat,
    ValueSettings,
)
from tests.builders import batch_settings

ID = ColumnSettings("id", "bigint", ("id",))
#: The columns of a table that was made for the settings below.
TABLE = (
    "id",
    "kafka_topic",
    "kafka_generation",
    "kafka_partition",
    "kafka_offset",
    "kafka_timestamp",
    "batch_id",
)


def settings(*columns: ColumnSettings, **changed: object) -> BatchSettings:
    value = ValueSettings(ValueFormat.JSON_COLUMNS, columns or (ID,), new_fields=NewFields.ADD_COLUMN)
    return replace(batch_settings(), value=value, **changed)  # type: ignore[arg-type]


def field(*path: str, type_: str = "jsonb") -> NewField:
    return NewField(path, type_)


def found(*fields: NewField) -> StageResult:
    return StageResult(0, 1, (), new_fields=fields)


def refusal(*fields: NewField, table: tuple[str, ...] = TABLE, recorded: int = 0, of_batch: int = 0) -> str:
    with pytest.raises(SchemaChangeRefused) as fault:
        columns_for(fields, settings(), ColumnsBefore(table, recorded, of_batch))
    assert fault.value.next_command
    return fault.value.found


# What tasks report.


def test_reports_of_all_tasks_are_one_field_a_path_in_the_order_of_paths() -> None:
    assert new_fields_of([found(field("b"), field("a", "x")), found(), found(field("b"))]) == (
        field("a", "x"),
        field("b"),
    )


def test_of_two_types_of_a_field_the_one_that_holds_both_is_taken() -> None:
    wide, narrow = field("n", type_="bigint"), field("n", type_="integer")
    assert new_fields_of([found(narrow), found(wide)]) == (wide,)
    texts = [field("t", type_=type_) for type_ in ("character varying(20)", "character varying(5)", "text")]
    assert new_fields_of([found(*texts)]) == (field("t", type_="text"),)


def test_types_that_no_one_column_can_hold_stop_and_are_listed_for_every_field() -> None:
    reports = [found(field("a", type_="text"), field("b", type_="date")), found(field("a"), field("b", type_="uuid"))]
    with pytest.raises(SchemaChangeRefused) as fault:
        new_fields_of(reports)
    assert fault.value.found.splitlines()[1:] == ["    field $.a: jsonb, text", "    field $.b: date, uuid"]


# The columns that fields get.


def test_a_column_is_named_by_the_keys_of_its_field() -> None:
    columns = columns_for(
        [field("order", "total", type_="numeric(10,2)"), field("note")], settings(), ColumnsBefore(())
    )
    assert columns == (
        AddedColumn("order_total", "numeric(10,2)", ("order", "total")),
        AddedColumn("note", "jsonb", ("note",)),
    )


def test_a_column_of_exactly_that_name_in_the_table_is_not_refused_by_its_name() -> None:
    assert columns_for([field("note")], settings(), ColumnsBefore((*TABLE, "note")))[0].name == "note"


def test_a_name_longer_than_63_bytes_is_cut_between_two_characters() -> None:
    # 62 letters and an e with an accent, which has two bytes: 64.
    [column] = columns_for([field("a" * 62 + "\u00e9")], settings(), ColumnsBefore(TABLE))
    assert column == AddedColumn("a" * 62, "jsonb", ("a" * 62 + "\u00e9",))


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (("Kafka_Offset",), "but for the case of its letters the name is that of kafka_offset"),
        (("ID",), "but for the case of its letters the name is that of id"),
        (("kafka", "offset"), "the pipeline fills a column of this name from elsewhere"),
        (("batch_id",), "the pipeline fills a column of this name from elsewhere"),
        (("ctid",), "the name is PostgreSQL's or staging's own"),
        (("stage_task",), "the name is PostgreSQL's or staging's own"),
        (("",), "a column name has printable characters but %, and no blank at an end"),
        (("a%b",), "a column name has printable characters but %, and no blank at an end"),
        (("a ",), "a column name has printable characters but %, and no blank at an end"),
        (("a\nb",), "a column name has printable characters but %, and no blank at an end"),
        (("a\x00",), "a column name has printable characters but %, and no blank at an end"),
        (("\ud800",), "a column name has printable characters but %, and no blank at an end"),
    ],
)
def test_a_name_that_is_not_free_stops(path: tuple[str, ...], reason: str) -> None:
    found = refusal(field(*path))
    assert found.endswith(f": {reason}")
    found.encode()  # can be shown


def test_a_name_that_an_index_of_the_table_would_fold_to_a_column_that_is_not_ours_stops() -> None:
    assert "is that of Note" in refusal(field("note"), table=(*TABLE, "Note"))
    assert "is that of Note" in refusal(field("note"), table=(*TABLE, "Note", "note"))


def test_two_fields_that_ask_for_one_name_stop() -> None:
    assert refusal(field("a", "b"), field("a_b")).count("another new field asks for the same name") == 2
    assert refusal(field("a", "b"), field("A_b")).count("but for the case of its letters") == 2
    assert refusal(field("x" * 63 + "y"), field("x" * 63 + "z")).count("asks for the same name") == 2


def test_a_name_that_is_a_column_of_the_table_only_because_it_was_cut_stops() -> None:
    assert "cut to 63 bytes" in refusal(field("x" * 70), table=(*TABLE, "x" * 63))


def test_ten_columns_are_added_for_a_batch_and_no_eleventh() -> None:
    fields = [field(f"f{number}") for number in range(11)]
    assert len(columns_for(fields[:10], settings(), ColumnsBefore(TABLE))) == 10
    assert "11 new columns beside 0, at most 10 are added for one batch" in refusal(*fields)
    assert "2 new columns beside 9, at most 10 are added for one batch" in refusal(*fields[:2], recorded=9, of_batch=9)


def test_a_hundred_columns_are_added_for_a_pipeline_and_no_more() -> None:
    assert len(columns_for([field("a")], settings(), ColumnsBefore(TABLE, recorded=99))) == 1
    assert "1 new columns beside 100, at most 100 are added for the pipeline" in refusal(field("a"), recorded=100)


def test_every_fault_is_listed_at_once() -> None:
    faults = refusal(field("ctid"), field("id", "x"), field("ID"), recorded=100).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in faults] == [
        "3 new columns beside 100, at most 100 are added for the pipeline in shop.orders",
        "field $.ctid as column 'ctid'",
        "field $.ID as column 'ID'",
    ]


# The mapping of a batch.

ADDED = (AddedColumn("note", "jsonb", ("note",)), AddedColumn("a_b", "text", ("a", "b")))


def test_a_batch_reads_the_columns_of_its_file_and_those_that_were_added() -> None:
    assert with_added_columns(settings(), ADDED).value.columns == (
        ID,
        ColumnSettings("note", "jsonb", ("note",)),
        ColumnSettings("a_b", "text", ("a", "b")),
    )
    assert with_added_columns(settings(), ()) == settings()


@pytest.mark.parametrize(
    "own",
    [
        ColumnSettings("remark", "text", ("note",)),
        ColumnSettings("remark", "text", ("remark",), other_paths=(("note",),)),
        ColumnSettings("note", "text", ("remark",)),
    ],
    ids=["its path", "a path of several", "its name"],
)
def test_a_column_of_the_file_wins_over_an_added_one_of_its_name_or_path(own: ColumnSettings) -> None:
    columns = with_added_columns(settings(ID, own), ADDED).value.columns
    assert [column.name for column in columns] == ["id", own.name, "a_b"]
    assert columns[1] == own


def test_a_path_in_the_key_does_not_hide_a_field_of_the_value() -> None:
    own = ColumnSettings("key_note", "text", ("note",), from_key=True)
    assert [c.name for c in with_added_columns(settings(ID, own), ADDED).value.columns] == [
        "id",
        "key_note",
        "note",
        "a_b",
    ]


def test_the_key_column_of_the_file_wins_over_an_added_one() -> None:
    changed = settings(key=KeySettings(KeyFormat.TEXT, "note"))
    assert [column.name for column in with_added_columns(changed, ADDED).value.columns] == ["id", "a_b"]


@pytest.mark.parametrize("format_", [ValueFormat.JSON, ValueFormat.RAW, ValueFormat.TEXT])
def test_a_value_that_is_taken_whole_has_its_one_column(format_: ValueFormat) -> None:
    whole = replace(batch_settings(), value=ValueSettings(format_, (ColumnSettings("payload", "jsonb"),)))
    assert with_added_columns(whole, ADDED) == whole


def test_a_later_schema_does_not_change_the_type_of_an_added_column() -> None:
    """The path is read from now on, so nobody reports it again: values that do not fit are dead letters."""
    [_, column] = with_added_columns(settings(), [AddedColumn("n", "integer", ("n",))]).value.columns
    assert (column.type, column.required, column.conversion) == ("integer", False, None)

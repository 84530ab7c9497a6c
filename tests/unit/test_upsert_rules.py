"""What the file of an upsert pipeline must say, what it must not, and what of it binds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.files import load_pipeline, load_pipelines
from kafka_ingest.postgres.rows import (
    settings_from_json,
    settings_hash,
    settings_to_json,
    upsert_from_json,
    upsert_to_json,
)
from kafka_ingest.protocol.ledger_view import require_bound_settings
from kafka_ingest.settings import (
    BatchSettings,
    Deletes,
    DeleteWhen,
    OrderBy,
    TargetSettings,
    Tombstones,
    UpsertSettings,
)
from tests.builders import batch_settings, pipeline_settings, position, view_of
from tests.pipeline_texts import faults_of, pipeline_text

COLUMNS = (
    {"name": "id", "type": "bigint", "from": "key"},
    {"name": "at", "type": "timestamptz"},
    {"name": "price", "type": "numeric(9,2)"},
    {"name": "gone", "type": "boolean"},
    {"name": "ratio", "type": "real"},
    {"name": "document", "type": "jsonb"},
    {"name": "tags", "type": "text[]"},
    {"name": "tenant", "type": "text", "from": "header", "header": "tenant", "occurrence": "last"},
    {"name": "shop", "type": "text"},
    {"name": "size", "type": "integer", "default": 0},
    {"name": "rank", "type": "integer", "required": True},
)
KEY_SECTION = "{format: text, column: record_key}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.yaml"


def columns_of(*names: str, **changes: Mapping[str, Any]) -> str:
    chosen = [{**column, **changes.get(str(column["name"]), {})} for column in COLUMNS if column["name"] in names]
    return json.dumps({"format": "json", "columns": chosen})


def text_of(
    columns: tuple[str, ...] = ("id", "price"),
    /,
    *,
    target: Mapping[str, Any] | None = None,
    value: str | None = None,
    **sections: str | None,
) -> str:
    """Return the text of a sound upsert file; ``None`` leaves a key of the target out."""
    plain = {"table": "shop.orders", "mode": "upsert", "key": ["id"], "order": "offset", "deletes": "remove"}
    kept = {key: value for key, value in {**plain, **(target or {})}.items() if value is not None}
    return pipeline_text(value=value or columns_of(*columns), target=json.dumps(kept), **sections)


def loaded(path: Path, text: str) -> BatchSettings:
    path.write_text(text, encoding="utf-8")
    return load_pipeline(path).batch


def upsert_of(path: Path, text: str) -> UpsertSettings:
    upsert = loaded(path, text).upsert
    assert upsert is not None
    return upsert


def require_faults(path: Path, text: str, *expected: str) -> None:
    faults = [fault.partition(": ")[2] for fault in faults_of(path, text)]
    assert len(faults) == len(expected), faults
    for fault, words in zip(faults, expected, strict=True):
        assert re.fullmatch(".*".join(map(re.escape, words.split("…"))), fault), fault


# ----------
# Files without a fault.

WHEN = {"path": "$.gone", "equals": True}
GONE = DeleteWhen(("gone",), "true")
AT_COLUMN = {"column": "at"}


@pytest.mark.parametrize(
    ("target", "columns", "expected"),
    [
        ({}, ("id", "price"), UpsertSettings(("id",), OrderBy.OFFSET, Deletes.REMOVE)),
        ({"order": "record_time"}, ("id", "price"), UpsertSettings(("id",), OrderBy.RECORD_TIME, Deletes.REMOVE)),
        (
            {"deletes": "mark"},
            ("id", "price"),
            UpsertSettings(("id",), OrderBy.OFFSET, Deletes.MARK, deleted_at="deleted_at"),
        ),
        (
            {"deletes": "mark", "deleted_at": "gone_at", "order": "record_time"},
            ("id", "price"),
            UpsertSettings(("id",), OrderBy.RECORD_TIME, Deletes.MARK, deleted_at="gone_at"),
        ),
        ({"deletes": "ignore"}, ("id", "price"), UpsertSettings(("id",), OrderBy.OFFSET, Deletes.IGNORE)),
        ({"deletes": "dead_letter"}, ("id", "price"), UpsertSettings(("id",), OrderBy.OFFSET, Deletes.DEAD_LETTER)),
        (
            {"order": AT_COLUMN, "deletes": "ignore"},
            ("id", "at"),
            UpsertSettings(("id",), OrderBy.COLUMN, Deletes.IGNORE, order_column="at"),
        ),
        (
            {"order": AT_COLUMN, "delete_when": WHEN},
            ("id", "at"),
            UpsertSettings(("id",), OrderBy.COLUMN, Deletes.REMOVE, order_column="at", delete_when=GONE),
        ),
        (
            {"key": ["shop", "id"], "delete_when": WHEN},
            ("id", "shop"),
            UpsertSettings(("shop", "id"), OrderBy.OFFSET, Deletes.REMOVE, delete_when=GONE),
        ),
        (
            {"key": ["shop"], "deletes": "ignore"},
            ("shop",),
            UpsertSettings(("shop",), OrderBy.OFFSET, Deletes.IGNORE),
        ),
        (
            {"key": ["shop"], "deletes": "dead_letter"},
            ("shop",),
            UpsertSettings(("shop",), OrderBy.OFFSET, Deletes.DEAD_LETTER),
        ),
    ],
)
def test_a_good_file_of_each_mode_says_what_it_holds(
    path: Path, target: dict[str, Any], columns: tuple[str, ...], expected: UpsertSettings
) -> None:
    assert upsert_of(path, text_of(columns, target=target)) == expected


def test_key_and_order_are_required_columns_and_others_stay_what_they_are(path: Path) -> None:
    target = {"key": ["id", "record_key"], "order": AT_COLUMN, "deletes": "ignore"}
    batch = loaded(path, text_of(("id", "at", "price"), target=target, key=KEY_SECTION))
    assert [(c.name, c.required) for c in batch.value.columns] == [("id", True), ("at", True), ("price", False)]
    assert batch.key is not None
    assert batch.key.required
    assert batch.never_null == {"id", "at", "record_key"}


def test_the_columns_of_whole_values_and_keys_may_be_key_columns(path: Path) -> None:
    value = "{format: raw, column: payload}"
    text = text_of(value=value, target={"key": ["record_key"]}, key="{format: raw, column: record_key}")
    assert upsert_of(path, text).key == ("record_key",)
    text = text_of(value=value, target={"key": ["payload"], "deletes": "ignore"})
    assert upsert_of(path, text).key == ("payload",)


def test_a_required_column_is_no_fault_where_deletes_remove(path: Path) -> None:
    assert loaded(path, text_of(("id", "rank"))).value.columns[1].required


@pytest.mark.parametrize(("equals", "expected"), [("d", '"d"'), (1, "1"), (1.50, "1.5"), (False, "false"), ("", '""')])
def test_delete_when_takes_texts_numbers_and_booleans(path: Path, equals: object, expected: str) -> None:
    upsert = upsert_of(path, text_of(target={"delete_when": {"path": "$.op", "equals": equals}}))
    assert upsert.delete_when == DeleteWhen(("op",), expected)


def test_a_history_is_a_table_with_its_schema_and_is_in_the_hash(path: Path) -> None:
    batch = loaded(path, text_of(target={"history": "shop.history", "create_table": True}))
    assert batch.history == TargetSettings("shop", "history", create_table=True)
    assert settings_from_json(settings_to_json(batch)) == batch
    assert settings_hash(batch) != settings_hash(replace(batch, history=None))
    assert '"history"' not in settings_to_json(replace(batch, history=None))


# ----------
# Every fault.

NO_UPSERT = "expected only with mode: upsert; found mode: append"
KINDS_OF_KEY = "a column that can be a key: types whose equal values have one text, and no arrays"
KINDS_OF_ORDER = "a column that can be an order: numbers, dates and times"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("key", ["id"]),
        ("order", "offset"),
        ("deletes", "remove"),
        ("delete_when", WHEN),
        ("deleted_at", "gone_at"),
        ("history", "shop.history"),
    ],
)
@pytest.mark.parametrize("mode", [None, "append"])
def test_no_key_of_upsert_stands_in_a_file_that_appends(path: Path, key: str, value: object, mode: str | None) -> None:
    others = {"mode": mode, "key": None, "order": None, "deletes": None}
    require_faults(path, text_of(target={**others, key: value}), f"target.{key}: {NO_UPSERT}")


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("key", "target.key: expected the columns that are the key, with mode: upsert; found nothing"),
        ("order", "target.order: expected offset, record_time or {column: ...}, with mode: upsert…; found nothing"),
        ("deletes", "target.deletes: expected remove, mark, ignore or dead_letter, with mode: upsert…; found nothing"),
    ],
)
def test_key_order_and_deletes_have_no_default(path: Path, missing: str, expected: str) -> None:
    require_faults(path, text_of(target={missing: None}), expected)


@pytest.mark.parametrize(
    ("sections", "target", "expected"),
    [
        ({"tombstones": "count"}, {}, "tombstones: expected target.deletes…; found count"),
        ({"tombstones": "row"}, {}, "tombstones: expected target.deletes…; found row"),
        (
            {},
            {"unique_key": True, "create_table": True},
            "target.unique_key: expected only with mode: append…; found mode: upsert",
        ),
        (
            {"lag_policy": "{action: skip_to, max_lag_offsets: 5, keep_offsets: 3}"},
            {},
            "lag_policy.action: expected fail or warn with mode: upsert…; found skip_to",
        ),
    ],
)
def test_what_only_appending_has_is_refused(
    path: Path, sections: dict[str, str], target: dict[str, Any], expected: str
) -> None:
    require_faults(path, text_of(target=target, **sections), expected)


@pytest.mark.parametrize("action", ["fail", "warn"])
def test_a_lag_policy_that_skips_nothing_is_none(path: Path, action: str) -> None:
    loaded(path, text_of(lag_policy=f"{{action: {action}, max_lag_offsets: 5}}"))


@pytest.mark.parametrize(
    ("key", "columns", "expected"),
    [
        (["id", "id"], ("id", "price"), "target.key[1]: expected each column once; found id a second time"),
        (["nowhere"], ("id", "price"), "target.key[0]: expected a column of value.columns…; found nowhere"),
        (["id", "ratio"], ("id", "ratio"), f"target.key[1]: expected {KINDS_OF_KEY}; found ratio of type real"),
        (["document"], ("id", "document"), f"target.key[0]: expected {KINDS_OF_KEY}; found document of type jsonb"),
        (["tags"], ("id", "tags"), f"target.key[0]: expected {KINDS_OF_KEY}; found tags of type text[]"),
        (["size"], ("id", "size"), "value.columns[1].default: expected no default for a column of a key…"),
    ],
)
def test_a_column_that_cannot_be_a_key_is_refused(
    path: Path, key: list[str], columns: tuple[str, ...], expected: str
) -> None:
    require_faults(path, text_of(columns, target={"key": key, "delete_when": WHEN}), expected)


def test_a_document_that_is_taken_whole_is_no_key(path: Path) -> None:
    text = text_of(value="{format: json, column: payload}", target={"key": ["payload"], "deletes": "ignore"})
    require_faults(path, text, f"target.key[0]: expected {KINDS_OF_KEY}; found payload of type jsonb")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nowhere", "target.order.column: expected a column of value.columns, or that of value or key; found nowhere"),
        ("shop", f"target.order.column: expected {KINDS_OF_ORDER}; found shop of type text"),
        ("gone", f"target.order.column: expected {KINDS_OF_ORDER}; found gone of type boolean"),
        ("document", f"target.order.column: expected {KINDS_OF_ORDER}; found document of type jsonb"),
        ("tags", f"target.order.column: expected {KINDS_OF_ORDER}; found tags of type text[]"),
        ("size", "value.columns[…].default: expected no default for a column of an order…; found a default"),
        ("id", "target.order.column: expected a column that is not of the key…; found id"),
    ],
)
def test_a_column_that_orders_nothing_is_refused(path: Path, name: str, expected: str) -> None:
    columns = ("id", "shop", "gone", "document", "tags", "size")
    require_faults(path, text_of(columns, target={"order": {"column": name}, "deletes": "ignore"}), expected)


@pytest.mark.parametrize("equals", [None, ["d"], {"d": 1}])
def test_a_delete_equals_a_single_value(path: Path, equals: object) -> None:
    target = {"delete_when": {"path": "$.op", "equals": equals}}
    expected = "target.delete_when.equals: expected a text, a number, true or false; found…"
    require_faults(path, text_of(target=target), expected)


def test_delete_when_needs_values_that_have_fields(path: Path) -> None:
    target = {"key": ["record_key"], "delete_when": WHEN}
    text = text_of(value="{format: text, column: payload}", target=target, key=KEY_SECTION)
    require_faults(path, text, "target.delete_when: expected only with value.columns…; found delete_when")


FROM_THE_KEY = "columns from the record's key, for a tombstone has nothing else; or delete_when"


@pytest.mark.parametrize("deletes", ["remove", "mark"])
@pytest.mark.parametrize(
    ("key", "found"),
    [
        (["shop"], "shop from the value or a header"),
        (["tenant"], "tenant from the value or a header"),
        (["id", "shop", "tenant"], "shop, tenant from the value or a header"),
    ],
)
def test_deletes_by_tombstones_need_the_key_in_the_records_key(
    path: Path, deletes: str, key: list[str], found: str
) -> None:
    text = text_of(("id", "shop", "tenant"), target={"key": key, "deletes": deletes})
    require_faults(path, text, f"target.key: expected {FROM_THE_KEY}; found {found}")


@pytest.mark.parametrize("deletes", ["remove", "mark"])
def test_a_tombstone_has_no_place_in_the_order_of_a_column(path: Path, deletes: str) -> None:
    text = text_of(("id", "at"), target={"order": AT_COLUMN, "deletes": deletes})
    require_faults(path, text, f"target.deletes: expected delete_when beside the order of a column…; found {deletes}")


@pytest.mark.parametrize("deletes", ["remove", "ignore", "dead_letter"])
def test_only_marked_rows_tell_when_they_were_deleted(path: Path, deletes: str) -> None:
    text = text_of(target={"deletes": deletes, "deleted_at": "gone_at"})
    require_faults(path, text, f"target.deleted_at: expected only with deletes: mark; found deletes: {deletes}")


def test_a_marked_row_can_leave_every_column_null_but_key_and_order(path: Path) -> None:
    target = {"deletes": "mark", "order": {"column": "rank"}, "key": ["id"], "delete_when": WHEN}
    loaded(path, text_of(("id", "rank"), target=target))
    expected = "value.columns[1].required: expected a column that can be NULL…; found required: true"
    require_faults(path, text_of(("id", "rank"), target={"deletes": "mark"}), expected)
    key = "{format: text, column: record_key, required: true}"
    require_faults(
        path, text_of(target={"deletes": "mark"}, key=key), expected.replace("value.columns[1]", "key.column")
    )
    loaded(path, text_of(target={"deletes": "mark", "key": ["id", "record_key"]}, key=key))


@pytest.mark.parametrize(
    ("deleted_at", "sections"),
    [
        ("price", {}),
        (None, {"value": columns_of("id", "at", at={"name": "deleted_at", "path": "$.at"})}),
        ("record_key", {"key": KEY_SECTION}),
        ("kafka_offset", {}),
        ("batch_id", {}),
        ("moved", {"metadata_columns": "{offset: moved}"}),
        ("kind", {"metadata_columns": "{timestamp_type: kind}"}),
        ("headers", {"headers": "{column: headers}"}),
    ],
)
def test_the_time_of_a_delete_has_a_column_of_its_own(
    path: Path, deleted_at: str | None, sections: dict[str, str]
) -> None:
    text = text_of(target={"deletes": "mark", "deleted_at": deleted_at}, **sections)
    expected = f"expected a column name of its own; found {deleted_at or 'deleted_at'}, which another column has"
    require_faults(path, text, f"target.deleted_at: {expected}")


@pytest.mark.parametrize(
    ("target", "value", "expected"),
    [
        ({"history": "shop.state"}, None, "another table than target.table; found shop.state"),
        (
            {"history": "shop.history"},
            columns_of("id", "at", at={"name": "kafka_change", "path": "$.at"}),
            "no column of the name kafka_change, which the history has itself; found kafka_change",
        ),
        (
            {"history": "shop.history"},
            columns_of("id", "at").replace('"columns"', '"new_fields": "add_column", "columns"'),
            "no history beside new_fields: add_column, which alters the target alone; found both",
        ),
    ],
)
def test_a_history_is_a_table_of_its_own(path: Path, target: dict[str, Any], value: str | None, expected: str) -> None:
    sections = {"value": value} if value else {}
    require_faults(
        path, text_of(target={"table": "shop.state", **target}, **sections), f"target.history: expected {expected}"
    )


def test_faults_of_an_upsert_file_are_told_all_at_once(path: Path) -> None:
    target = {
        "key": ["id", "id", "ratio"],
        "order": {"column": "shop"},
        "deletes": "mark",
        "deleted_at": "shop",
        "unique_key": True,
        "create_table": True,
    }
    text = text_of(("id", "ratio", "shop", "rank"), target=target, tombstones="count")
    places = sorted(fault.split(": ")[1] for fault in faults_of(path, text))
    assert places == sorted(
        [
            "tombstones",
            "target.unique_key",
            "target.key",
            "target.key[1]",
            "target.key[2]",
            "target.order.column",
            "target.deletes",
            "target.deleted_at",
            "value.columns[3].required",
        ]
    )


@pytest.mark.parametrize(
    "target",
    [
        {"key": "id"},
        {"key": []},
        {"key": [1]},
        {"key": ["id"] * 33},
        {"order": "time"},
        {"order": {"columns": "at"}},
        {"order": {"column": 1}},
        {"deletes": "delete"},
        {"mode": "merge"},
        {"delete_when": {"path": "$.op"}},
        {"delete_when": {"equals": "d"}},
        {"delete_when": {"path": "$.op[*]", "equals": "d"}},
        {"delete_when": "op"},
        {"deletes": "mark", "deleted_at": 1},
        {"deletes": "mark", "deleted_at": ["a"]},
        {"key": [["id"]]},
        {"key": [{"id": 1}], "deletes": "mark"},
        {"deletes": ["mark"]},
        {"order": {"column": ["at"]}},
        {"order": ["offset"]},
    ],
)
def test_what_is_no_value_of_a_key_at_all_is_a_fault_and_no_crash(path: Path, target: dict[str, Any]) -> None:
    assert faults_of(path, text_of(target=target))


@pytest.mark.parametrize(
    "sections",
    [
        {"value": '{"format": "json", "columns": [{"name": ["id"], "type": "bigint"}]}'},
        {"value": '{"format": "json", "columns": [{"name": "id", "type": ["bigint"]}]}'},
        {"value": '{"format": "json", "columns": [{"type": "bigint"}, 5]}'},
        {"value": '{"format": "json", "columns": "id"}'},
        {"value": '{"format": ["raw"], "column": ["id"]}'},
        {"value": '"raw"'},
        {"key": "{format: text, column: [id]}"},
        {"headers": "{column: [id]}"},
        {"metadata_columns": "{offset: [id]}"},
        {"lag_policy": "skip_to"},
    ],
)
def test_wrong_sections_beside_the_state_are_faults_and_no_crash(path: Path, sections: dict[str, str]) -> None:
    assert faults_of(path, text_of(target={"deletes": "mark"}, **sections))


# ----------
# Two files.


def pair_of(folder: Path, one: str, other: str) -> list[Path]:
    paths = [folder / "one.yaml", folder / "other.yaml"]
    for place, text in zip(paths, (one, other), strict=True):
        place.write_text(text.replace("pipeline: orders", f"pipeline: {place.stem}"), encoding="utf-8")
    return paths


APPENDING: Mapping[str, Any] = {"mode": None, "key": None, "order": None, "deletes": None}


@pytest.mark.parametrize("other", [{}, APPENDING], ids=["upsert", "append"])
def test_no_two_files_share_a_table_that_one_of_them_holds_the_state_in(
    tmp_path: Path, other: Mapping[str, Any]
) -> None:
    # Other topics, even on another cluster: the keys meet in the table.
    kafka = "{topics: [sales], connection: elsewhere}"
    paths = pair_of(tmp_path, text_of(), text_of(target=other, kafka=kafka))
    with pytest.raises(ConfigError) as caught:
        load_pipelines(paths)
    lines = caught.value.found.splitlines()
    assert [line.partition(":")[0] for line in lines] == [str(path) for path in paths]
    for line in lines:
        assert "target.table: expected one pipeline for a table that holds the current state" in line


def test_files_of_other_tables_or_of_another_database_do_not_clash(tmp_path: Path) -> None:
    other_table, elsewhere = {"table": "shop.sales"}, {"connection": "another"}
    for target in (other_table, elsewhere):
        assert len(load_pipelines(pair_of(tmp_path, text_of(), text_of(target=target)))) == 2


# ----------
# The ledger's copy of the settings, and what of them binds.

UPSERT = UpsertSettings(("id",), OrderBy.OFFSET, Deletes.REMOVE)
RICH = UpsertSettings(
    ("tenant", "größe"), OrderBy.COLUMN, Deletes.MARK, "at", DeleteWhen(("meta", "a.b"), '"d"'), "gone_at"
)


@pytest.mark.parametrize("upsert", [UPSERT, RICH, replace(RICH, delete_when=DeleteWhen((), "false"))])
def test_upsert_settings_come_back_exactly(upsert: UpsertSettings) -> None:
    batch = replace(batch_settings(), upsert=upsert)
    assert settings_from_json(settings_to_json(batch)) == batch
    assert upsert_from_json(upsert_to_json(upsert)) == upsert


def test_settings_of_a_pipeline_that_appends_are_written_as_before_there_were_others() -> None:
    # Worked out by hand from the fields of a version that knew appending alone: planned batches keep their hash.
    assert settings_to_json(batch_settings()) == (
        '{"dead_letters":{"max_consecutive":1000,"max_count":10000,"max_ratio":0.05,"ratio_from_count":100},'
        '"headers_column":null,"isolation_level":"read_committed","kafka_connection":"kafka_default","key":null,'
        '"metadata":{"batch_id":"batch_id","generation":"kafka_generation","offset":"kafka_offset",'
        '"partition":"kafka_partition","timestamp":"kafka_timestamp","timestamp_type":null,"topic":"kafka_topic"},'
        '"target":{"create_table":true,"schema":"shop","table":"orders","unique_key":false},'
        '"target_connection":"postgres_default","tombstones":"row","topic_identity":"topic_id",'
        '"value":{"columns":[{"name":"payload","path":[],"required":false,"type":"bytea"}],"format":"raw"}}'
    )
    assert upsert_to_json(None) is None
    assert upsert_from_json(None) is None


@pytest.mark.parametrize(
    "change",
    [
        {"key": ("id", "shop")},
        {"order": OrderBy.RECORD_TIME},
        {"order": OrderBy.COLUMN, "order_column": "at"},
        {"deletes": Deletes.IGNORE},
        {"delete_when": GONE},
        {"deletes": Deletes.MARK, "deleted_at": "gone_at"},
    ],
)
def test_every_setting_of_upsert_is_in_the_hash(change: dict[str, Any]) -> None:
    batch = replace(batch_settings(), upsert=UPSERT)
    assert settings_hash(batch) != settings_hash(replace(batch, upsert=replace(UPSERT, **change)))


def require_bound(bound: UpsertSettings | None, given: UpsertSettings | None) -> None:
    record = view_of(position(0, 5)).pipeline
    assert record is not None
    view = replace(view_of(position(0, 5)), pipeline=replace(record, upsert=bound))
    require_bound_settings(view, pipeline_settings(batch=replace(batch_settings(), upsert=given)))


BY_AT = replace(UPSERT, order=OrderBy.COLUMN, order_column="at", delete_when=GONE)


@pytest.mark.parametrize(
    ("bound", "given", "expected", "found"),
    [
        (None, UPSERT, "target.mode: append", "target.mode: upsert"),
        (UPSERT, None, "target.mode: upsert", "target.mode: append"),
        (UPSERT, replace(UPSERT, key=("tenant", "id")), "target.key: id", "target.key: tenant, id"),
        (RICH, replace(RICH, key=("größe", "tenant")), "target.key: tenant, größe", "target.key: größe, tenant"),
        (UPSERT, replace(UPSERT, order=OrderBy.RECORD_TIME), "target.order: offset", "target.order: record_time"),
        (BY_AT, replace(BY_AT, order_column="size"), "target.order: column at", "target.order: column size"),
        (UPSERT, replace(UPSERT, deletes=Deletes.IGNORE), "target.deletes: remove", "target.deletes: ignore"),
        (UPSERT, replace(UPSERT, delete_when=GONE), "nothing", "$.gone equals true"),
        (
            BY_AT,
            replace(BY_AT, delete_when=DeleteWhen(("gone",), '"true"')),
            "$.gone equals true",
            '$.gone equals "true"',
        ),
        (BY_AT, replace(BY_AT, delete_when=DeleteWhen(("op",), "true")), "$.gone equals true", "$.op equals true"),
        (RICH, replace(RICH, deleted_at="deleted_at"), "target.deleted_at: gone_at", "target.deleted_at: deleted_at"),
    ],
)
def test_what_the_first_plan_has_bound_the_file_cannot_change(
    bound: UpsertSettings | None, given: UpsertSettings | None, expected: str, found: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        require_bound(bound, given)
    assert expected in caught.value.expected
    assert found in caught.value.found
    assert "a new table under another pipeline name" in str(caught.value)


def test_only_the_keys_that_differ_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        require_bound(RICH, replace(RICH, deletes=Deletes.REMOVE, deleted_at=None))
    assert re.findall(r"target\.(\w+):", caught.value.found) == ["deletes", "deleted_at"]


@pytest.mark.parametrize("upsert", [None, UPSERT, BY_AT, RICH])
def test_a_file_that_says_what_is_bound_passes(upsert: UpsertSettings | None) -> None:
    require_bound(upsert, upsert)


def test_a_file_of_the_state_leaves_tombstones_to_target_deletes(path: Path) -> None:
    assert loaded(path, text_of()).tombstones is Tombstones.ROW

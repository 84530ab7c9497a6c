from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.postgres.catalog import CatalogColumn, CatalogIndex, CatalogTable, Rights, TargetHook
from kafka_ingest.postgres.target import has_index_for_replacing, mismatches, weaknesses
from kafka_ingest.protocol.target import written_columns
from kafka_ingest.settings import ColumnSettings, TargetSettings
from tests.builders import batch_settings
from tests.staging_bench import json_settings

SETTINGS = batch_settings()
FITTING = CatalogTable(
    kind="r",
    persistence="p",
    rights=Rights("loader", "shop"),
    columns=tuple(CatalogColumn(c.name, c.type, c.is_not_null) for c in written_columns(SETTINGS)),
)

RANGE_INDEX = CatalogIndex(False, ("kafka_partition", "kafka_offset"), 2)


def with_column(column: CatalogColumn) -> CatalogTable:
    others = tuple(c for c in FITTING.columns if c.name != column.name)
    return replace(FITTING, columns=(*others, column))


def only_mismatch(table: CatalogTable) -> tuple[str, str, str, str]:
    (mismatch,) = mismatches(SETTINGS, table)
    return (mismatch.subject, mismatch.expected, mismatch.found, mismatch.fix)


def test_a_table_with_the_written_columns_fits() -> None:
    assert mismatches(SETTINGS, FITTING) == ()
    assert mismatches(SETTINGS, replace(FITTING, kind="p")) == ()


def test_a_stricter_null_rule_and_columns_that_postgres_fills_fit() -> None:
    extra = (
        CatalogColumn("note", "text", False),
        CatalogColumn("loaded_at", "timestamp with time zone", True, default="now()"),
        CatalogColumn("number", "bigint", True, identity="a"),
        CatalogColumn("total", "integer", True, is_generated=True),
    )
    table = with_column(CatalogColumn("payload", "bytea", True))
    assert mismatches(SETTINGS, replace(table, columns=table.columns + extra)) == ()


def test_every_mismatch_is_told_at_once() -> None:
    columns = (
        CatalogColumn("kafka_generation", "integer", True),
        CatalogColumn("kafka_partition", "smallint", True),
        CatalogColumn("kafka_offset", "bigint", True, identity="a"),
        CatalogColumn("kafka_timestamp", "timestamp without time zone", False),
        CatalogColumn("batch_id", "uuid", True, is_generated=True),
        CatalogColumn("payload", "photo", False, domain_over="text"),
        CatalogColumn("owner", "text", True),
    )
    table = replace(FITTING, columns=columns, persistence="u", rights=Rights("loader", "shop", insert=False))

    found = [(m.subject, m.found) for m in mismatches(SETTINGS, table)]

    assert found == [
        ("shop.orders", "an unlogged table, which a crash empties"),
        ("column payload", "photo, a domain over text"),
        ("column kafka_topic", "no such column"),
        ("column kafka_partition", "smallint"),
        ("column kafka_offset", "GENERATED ALWAYS AS IDENTITY"),
        ("column kafka_timestamp", "timestamp without time zone"),
        ("column batch_id", "a generated column"),
        ("column owner", "text NOT NULL without a default"),
        ("role loader", "not granted"),
    ]


def test_a_mismatch_says_how_to_remove_it() -> None:
    assert only_mismatch(with_column(CatalogColumn("payload", "text", False))) == (
        "column payload",
        "bytea",
        "text",
        'ALTER TABLE "shop"."orders" ALTER COLUMN "payload" TYPE bytea USING "payload"::bytea;',
    )


def test_a_view_is_no_target() -> None:
    _, expected, found, _ = only_mismatch(replace(FITTING, kind="v"))
    assert (expected, found) == ("a table or a partitioned table", "a view")


def test_names_that_staging_uses_are_taken() -> None:
    table = replace(FITTING, columns=(*FITTING.columns, CatalogColumn("stage_task", "integer", False)))
    subject, _, _, fix = only_mismatch(table)
    assert subject == "column stage_task"
    assert fix == 'ALTER TABLE "shop"."orders" RENAME COLUMN "stage_task" TO "stage_task_";'


def hook(kind: str = "rule", **events: bool) -> TargetHook:
    return TargetHook(kind, "odd", "shop.orders", **{"on_insert": False, "on_delete": False, **events})


def test_a_rule_that_takes_the_place_of_insert_is_refused_and_one_of_delete_is_a_weakness() -> None:
    on_insert = hook(on_insert=True, is_instead=True)
    on_delete = hook(on_delete=True, is_instead=True)
    subject, _, _, fix = only_mismatch(replace(FITTING, hooks=(on_insert, on_delete)))
    assert (subject, fix) == ("rule odd on shop.orders", 'DROP RULE "odd" ON shop.orders;')
    table = replace(FITTING, hooks=(on_insert, on_delete), indexes=(RANGE_INDEX,))
    assert [weakness.found for weakness in weaknesses(SETTINGS, table)] == [
        "a rule ON DELETE DO INSTEAD, so a reload fails"
    ]


def test_triggers_and_rules_that_write_beside_fit() -> None:
    also, trigger = hook(on_insert=True, on_delete=True), hook("trigger", on_insert=True, changes_rows=True)
    assert mismatches(SETTINGS, replace(FITTING, hooks=(also, trigger))) == ()


def test_a_sequence_matters_only_where_the_pipeline_does_not_fill_the_column() -> None:
    table = replace(
        FITTING,
        missing_rights=(("nr", "USAGE", "SEQUENCE shop.nr_seq"), ("kafka_offset", "USAGE", "SEQUENCE shop.other_seq")),
    )
    assert only_mismatch(table)[3] == 'GRANT USAGE ON SEQUENCE shop.nr_seq TO "loader";'


WRITTEN = {column.name for column in written_columns(SETTINGS)}
NUMBERED = (
    CatalogColumn("serial", "bigint", True, default="nextval('s'::regclass)"),
    CatalogColumn("identity", "bigint", True, identity="a"),
    CatalogColumn("code", "text", True, is_generated=True, reads=("payload", "serial")),
    CatalogColumn("size", "integer", True, is_generated=True, reads=("payload",)),
    CatalogColumn("loaded_at", "timestamp with time zone", True, default="now()"),
)


def test_columns_that_are_numbered_or_generated_from_such_have_no_value_in_staging() -> None:
    table = replace(FITTING, columns=FITTING.columns + NUMBERED)
    assert table.columns_without_value(WRITTEN) == {"serial", "identity", "code"}
    assert table.columns_without_value({*WRITTEN, "serial"}) == {"identity"}


def test_no_unwritten_column_has_a_value_in_staging_where_a_trigger_may_change_it() -> None:
    trigger = hook("trigger", on_insert=True, changes_rows=True)
    table = replace(FITTING, columns=FITTING.columns + NUMBERED, hooks=(trigger,))
    assert table.columns_without_value(WRITTEN) == {"serial", "identity", "code", "size", "loaded_at"}


@pytest.mark.parametrize(
    ("rights", "fix"),
    [
        (Rights("a b", "d", use_schema=False), 'GRANT USAGE ON SCHEMA "shop" TO "a b";'),
        (Rights("a b", "d", select=False), 'GRANT SELECT ON "shop"."orders" TO "a b";'),
        (Rights("a b", "d", insert=False), 'GRANT INSERT ON "shop"."orders" TO "a b";'),
        (Rights("a b", "d", make_temporary_tables=False), 'GRANT TEMPORARY ON DATABASE "d" TO "a b";'),
        (Rights("a b", "d", use_staging_schema=False), 'GRANT USAGE, CREATE ON SCHEMA kafka_ingest_staging TO "a b";'),
        (
            Rights("a b", "d", row_security_applies=True),
            'CREATE POLICY kafka_ingest ON "shop"."orders" TO "a b" USING (true);',
        ),
    ],
)
def test_a_missing_right_is_told_with_its_grant(rights: Rights, fix: str) -> None:
    assert only_mismatch(replace(FITTING, rights=rights))[3] == fix


def test_a_unique_key_must_be_exactly_the_identity() -> None:
    settings = replace(SETTINGS, target=TargetSettings("shop", "orders", unique_key=True))
    key = ("kafka_topic", "kafka_generation", "kafka_partition", "kafka_offset")
    assert [m.subject for m in mismatches(settings, FITTING)] == ["unique key"]
    for index in (CatalogIndex(False, key, 4), CatalogIndex(True, key[1:], 3), CatalogIndex(True, key, 5)):
        assert mismatches(settings, replace(FITTING, indexes=(index,)))
    assert mismatches(settings, replace(FITTING, indexes=(CatalogIndex(True, key[::-1], 4),))) == ()


def test_an_index_with_partition_and_offset_serves_replacing() -> None:
    assert not has_index_for_replacing(SETTINGS, FITTING)
    index = CatalogIndex(False, ("kafka_offset", "kafka_partition"), 2)
    assert has_index_for_replacing(SETTINGS, replace(FITTING, indexes=(index,)))


TEXT_SETTINGS = json_settings(ColumnSettings("state", "text"), ColumnSettings("n", "integer"))


@pytest.mark.parametrize(
    ("column", "fits"),
    [
        (CatalogColumn("state", "mood", False, text_like="enum"), True),
        (CatalogColumn("state", "public.citext", False, text_like="citext"), True),
        (CatalogColumn("state", "mail", False, domain_over="public.citext", text_like="citext"), True),
        (CatalogColumn("state", "mail", False, domain_over="text"), True),
        (CatalogColumn("state", "code", False, domain_over="character varying(3)"), False),
        (CatalogColumn("n", "positive", False, domain_over="bigint"), True),
        (CatalogColumn("n", "small", False, domain_over="smallint"), False),
        (CatalogColumn("n", "mood", False, text_like="enum"), False),
        (CatalogColumn("kafka_topic", "name_of_topic", True, domain_over="text"), True),
        (CatalogColumn("kafka_topic", "public.citext", True, text_like="citext"), False),
        (CatalogColumn("kafka_topic", "topics", True, text_like="enum"), False),
    ],
)
def test_a_type_of_its_own_fits_where_it_keeps_every_value_that_it_does_not_refuse(
    column: CatalogColumn, fits: bool
) -> None:
    columns = {c.name: CatalogColumn(c.name, c.type, c.is_not_null) for c in written_columns(TEXT_SETTINGS)}
    table = replace(FITTING, columns=tuple({**columns, column.name: column}.values()))
    assert (mismatches(TEXT_SETTINGS, table) == ()) is fits


def test_insert_on_each_written_column_is_enough() -> None:
    rights = Rights("loader", "shop", insert=False)
    written = tuple(replace(column, can_insert=True) for column in FITTING.columns)
    of_others = CatalogColumn("note", "text", False)
    assert mismatches(SETTINGS, replace(FITTING, rights=rights, columns=(*written, of_others))) == ()
    one_missing = (replace(written[0], can_insert=False), *written[1:])
    assert only_mismatch(replace(FITTING, rights=rights, columns=one_missing))[2] == "not granted"

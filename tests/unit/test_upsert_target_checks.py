"""Indexes of a table that holds the current state: which serve as its key, and which a batch can run into."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.postgres.catalog import CatalogColumn, CatalogIndex, CatalogTable, Rights
from kafka_ingest.postgres.target import mismatches, weaknesses
from kafka_ingest.protocol.target import written_columns
from kafka_ingest.settings import ColumnSettings, Deletes, OrderBy, UpsertSettings
from tests.staging_bench import json_settings

SETTINGS = json_settings(
    ColumnSettings("shop", "text", required=True),
    ColumnSettings("id", "bigint", required=True),
    ColumnSettings("email", "text"),
    upsert=UpsertSettings(("shop", "id"), OrderBy.OFFSET, Deletes.REMOVE),
)
KEY = CatalogIndex(True, ("id", "shop"), 2, name="shop.the_key")
TABLE = CatalogTable(
    kind="r",
    persistence="p",
    rights=Rights("loader", "shop"),
    columns=tuple(CatalogColumn(c.name, c.type, c.is_not_null) for c in written_columns(SETTINGS)),
    indexes=(KEY,),
)


def found(*indexes: CatalogIndex) -> list[str]:
    return [mismatch.found for mismatch in mismatches(SETTINGS, replace(TABLE, indexes=indexes))]


def test_a_unique_index_over_the_key_fits_whatever_else_there_is() -> None:
    broken = replace(KEY, name="shop.broken", is_valid=False)
    assert found(KEY) == found(broken, KEY) == found(KEY, broken) == []


def test_all_that_is_wrong_with_an_index_is_told_and_every_index_over_the_key() -> None:
    odd = replace(KEY, name="shop.odd", is_valid=False, is_partial=True, is_immediate=False, method="lsm")
    other = replace(KEY, name="shop.other", other_collations=("shop",), other_operators=("shop", "id"))
    [text] = found(odd, replace(KEY, is_unique=False), other, replace(KEY, columns=("id", "email")))
    assert text == (
        "unique index shop.odd, but it is invalid and is partial and is deferrable and is no btree but a lsm; "
        "unique index shop.other, but it has another collation than its column (shop) and "
        "has another operator class than its type's default (shop, id)"
    )


def test_a_key_with_an_expression_beside_its_columns_is_not_the_key() -> None:
    assert found(replace(KEY, key_count=3)) == ["none"]


EMAIL = CatalogIndex(True, ("email",), 1, name="shop.email", keys="email")


@pytest.mark.parametrize(
    ("index", "fix"),
    [
        (
            EMAIL,
            'DROP INDEX shop.email; ALTER TABLE "shop"."orders" ADD UNIQUE (email) DEFERRABLE INITIALLY DEFERRED;',
        ),
        (
            replace(EMAIL, constraint="e m"),
            'ALTER TABLE "shop"."orders" DROP CONSTRAINT "e m", ADD UNIQUE (email) DEFERRABLE INITIALLY DEFERRED;',
        ),
        (replace(EMAIL, is_partial=True), "DROP INDEX shop.email;"),
        (replace(EMAIL, columns=(), keys="lower(email)"), "DROP INDEX shop.email;"),
    ],
)
def test_a_unique_index_that_a_batch_can_run_into_is_told_with_what_mends_it(index: CatalogIndex, fix: str) -> None:
    assert [weakness.fix for weakness in weaknesses(SETTINGS, replace(TABLE, indexes=(KEY, index)))] == [fix]


@pytest.mark.parametrize(
    "index",
    [
        replace(EMAIL, is_unique=False),
        replace(EMAIL, is_immediate=False),
        replace(EMAIL, is_valid=False),
        replace(EMAIL, columns=("number",)),
        replace(EMAIL, columns=("email", "id", "shop"), key_count=3),
        replace(EMAIL, columns=("id", "shop"), key_count=3),
    ],
    ids=["not unique", "deferred", "invalid", "not written", "with the key", "with the key and an expression"],
)
def test_other_indexes_are_no_weakness(index: CatalogIndex) -> None:
    assert list(weaknesses(SETTINGS, replace(TABLE, indexes=(KEY, index)))) == []

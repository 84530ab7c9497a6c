"""Columns with ``as``, several paths and ``default``, from value, key and headers, through Kafka and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from tests.integration.pipeline_under_test import FedPipeline

COLUMNS = [
    {"name": "id", "type": "bigint", "as": "number_text", "required": True},
    {"name": "created_at", "type": "timestamptz", "path": ["$.ts", "$.created.at"], "as": "epoch_millis"},
    {"name": "day", "type": "date", "as": "epoch_days"},
    {"name": "payload", "type": "jsonb", "as": "json_text"},
    {"name": "hash", "type": "bytea", "as": "hex"},
    {"name": "tenant", "type": "text", "from": "key", "path": "$.tenant"},
    {"name": "trace", "type": "uuid", "from": "header", "header": "trace-id", "occurrence": "last"},
    {"name": "origin", "type": "text", "from": "header", "header": "origin", "occurrence": "first", "default": "web"},
    {"name": "price", "type": "numeric", "default": "1.10"},
]


def test_converted_values_are_stored_exactly_and_what_does_not_fit_is_a_dead_letter(pipeline: FedPipeline) -> None:
    value = {"format": "json", "columns": COLUMNS}
    pipeline.open(value=value, tombstones="count", dead_letters={"max_count": 10, "max_ratio": 1.0})
    pipeline.send(
        '{"id": "7", "ts": 1700000000123, "day": 19675, "payload": "{\\"a\\": [1.50]}", "hash": "00ff"}',
        '{"id": "8", "ts": null, "created": {"at": 0}}',
        '{"id": "12", "created": {"at": -1}}',  # as the field was called before
        '{"id": 9}',  # a number, where the pipeline says that numbers come as text
        '{"id": "10", "ts": 0.0001}',  # a tenth of a microsecond
        '{"id": "11", "ts": 1700000000123, "payload": "{a}"}',
    )
    traces = ["6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10", "6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a11"]
    pipeline.send('{"id": "13"}', key='{"tenant": "no"}', headers=[("trace-id", trace) for trace in traces])
    pipeline.send('{"id": "14", "price": null}', headers=[("origin", None), ("trace-id", None)])
    pipeline.send('{"id": "15", "price": 2.50}', headers=[("trace-id", "none")])
    counts = pipeline.load()["counts"]
    assert (counts["rows"], counts["dead_letters"]) == (5, 4)
    when = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert pipeline.rows("id, created_at, day, payload::text, hash, tenant") == [
        (7, when, date(2023, 11, 14), '{"a": [1.50]}', b"\x00\xff", None),
        (8, None, None, None, None, None),
        (12, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC), None, None, None, None),
        (13, None, None, None, None, "no"),
        (14, None, None, None, None, None),
    ]
    assert pipeline.rows("id, trace::text, origin, price::text") == [
        *((id_, None, "web", "1.10") for id_ in (7, 8, 12)),
        (13, traces[1], "web", "1.10"),
        (14, None, None, None),  # null is there
    ]
    assert pipeline.dead_letters('"offset", reason') == [
        (3, "wrong_type"),
        (4, "out_of_range"),
        (5, "malformed"),
        (8, "wrong_type"),
    ]


@pytest.mark.parametrize(
    ("policy", "rows", "warnings"),
    [
        ("warn", [1, 2, 3], ["fields of the value that no column reads: $.place.zip, $['\\x00']"]),
        ("dead_letter", [1], []),
        ("ignore", [1, 2, 3], []),
    ],
)
def test_fields_that_no_column_reads_are_ignored_named_or_dead_letters(
    pipeline: FedPipeline, policy: str, rows: list[int], warnings: list[str]
) -> None:
    columns = [{"name": "id", "type": "bigint"}, {"name": "city", "type": "text", "path": "$.place.city"}]
    value = {"format": "json", "columns": columns, "new_fields": policy}
    pipeline.open(value=value, dead_letters={"max_ratio": 1.0})
    pipeline.send('{"id": 1, "place": {"city": "Oslo"}}', '{"id": 2, "place": {"zip": 1}}', r'{"id": 3, "\u0000": 1}')
    summary = pipeline.load()
    assert (pipeline.rows("id"), summary["warnings"]) == ([(id_,) for id_ in rows], warnings)
    refused = [(2, "$.place.zip"), (3, r"$['\x00']")] if policy == "dead_letter" else []
    expected = "the value: expected no fields but those that columns read, found "
    assert pipeline.dead_letters("reason, detail") == [("wrong_type", f"{expected}{name}") for _, name in refused]


def test_new_fields_become_columns_and_not_one_of_their_values_is_lost(pipeline: FedPipeline) -> None:
    columns = [{"name": "id", "type": "bigint"}, {"name": "city", "type": "text", "path": "$.place.city"}]
    value = {"format": "json", "columns": columns, "new_fields": "add_column"}
    pipeline.open(value=value, tombstones="count", dead_letters={"max_count": 10, "max_ratio": 1.0})
    pipeline.send(
        '{"id": 1}', '{"id": 2, "colour": "red", "place": {"city": "a", "zip": 7}}', '{"id": 3, "colour": null}'
    )
    assert pipeline.load()["counts"]["rows"] == 3
    assert pipeline.rows("id, city, colour, place_zip") == [
        (1, None, None, None),
        (2, "a", "red", 7),
        (3, None, None, None),
    ]
    pipeline.send('{"id": 4, "colour": [1.50], "size": {"w": 1}}')
    pipeline.load()
    assert pipeline.rows("id, colour::text, size")[-1] == (4, "[1.50]", {"w": 1})
    _, states, _ = pipeline.command("status", pipeline.name)
    assert '"colour"' in str(states).replace("'", '"')


def test_dead_letters_that_come_back_fill_the_columns_that_loads_have_added(pipeline: FedPipeline) -> None:
    columns = [{"name": "id", "type": "bigint"}]
    value = {"format": "json", "columns": columns, "new_fields": "add_column"}
    sections = {"tombstones": "count", "dead_letters": {"max_count": 10, "max_ratio": 1.0}}
    topic = pipeline.open(value=value, **sections)
    pipeline.send('{"id": "1", "colour": "red"}', '{"id": 2, "colour": "blue"}')
    assert pipeline.load()["counts"]["dead_letters"] == 1
    mended = {**value, "columns": [{"name": "id", "type": "bigint", "as": "number_text"}]}
    pipeline.write(topic, value=mended, **sections)
    code, _, notes = pipeline.command("dead-letters", "replay", pipeline.name, "--reason", "ids are text", "--apply")
    assert code == 0, notes
    assert pipeline.rows("id, colour") == [(1, "red"), (2, "blue")]

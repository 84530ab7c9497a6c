"""Columns with ``as``, with several paths and from the key, from a real topic into a real table."""

from __future__ import annotations

from datetime import UTC, date, datetime

from tests.integration.pipeline_under_test import FedPipeline

COLUMNS = [
    {"name": "id", "type": "bigint", "as": "number_text", "required": True},
    {"name": "created_at", "type": "timestamptz", "path": ["$.ts", "$.created.at"], "as": "epoch_millis"},
    {"name": "day", "type": "date", "as": "epoch_days"},
    {"name": "payload", "type": "jsonb", "as": "json_text"},
    {"name": "hash", "type": "bytea", "as": "hex"},
    {"name": "tenant", "type": "text", "from": "key", "path": "$.tenant"},
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
    pipeline.send('{"id": "13"}', key='{"tenant": "no"}')
    counts = pipeline.load()["counts"]
    assert (counts["rows"], counts["dead_letters"]) == (4, 3)
    when = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert pipeline.rows("id, created_at, day, payload::text, hash, tenant") == [
        (7, when, date(2023, 11, 14), '{"a": [1.50]}', b"\x00\xff", None),
        (8, None, None, None, None, None),
        (12, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC), None, None, None, None),
        (13, None, None, None, None, "no"),
    ]
    assert pipeline.dead_letters('"offset", reason') == [(3, "wrong_type"), (4, "out_of_range"), (5, "malformed")]

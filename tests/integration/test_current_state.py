"""Tables that hold the current state, on real Kafka and PostgreSQL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.pipeline_under_test import FedPipeline, produced

STATE: dict[str, Any] = {
    "key": None,
    "headers": None,
    "metadata_columns": {},
    "value": {
        "format": "json",
        "columns": [
            {"name": "id", "type": "bigint", "from": "key"},
            {"name": "note", "type": "text"},
        ],
    },
}


def state_target(table: str, **changes: Any) -> dict[str, Any]:
    plain = {"table": table, "create_table": True, "mode": "upsert", "key": ["id"], "order": "offset"}
    return {**plain, "deletes": "remove", **changes}


@pytest.fixture
def state(pipeline: FedPipeline) -> FedPipeline:
    pipeline.open(1)
    pipeline.write(pipeline.topic, **STATE, target=state_target(pipeline.table))
    return pipeline


def send(pipeline: FedPipeline, *records: tuple[int | None, str | None], partition: int = 0) -> None:
    """Send keys and notes; a note of ``None`` is a tombstone."""
    with produced(pipeline.make_producer()) as sender:
        for key, note in records:
            value = None if note is None else json.dumps({"note": note})
            sender.produce(
                pipeline.topic,
                key=None if key is None else json.dumps({"id": key}),
                value=value,
                partition=partition,
            )


def notes(pipeline: FedPipeline) -> list[tuple[Any, ...]]:
    return pipeline.query(f"SELECT id, note, kafka_offset FROM {pipeline.table} ORDER BY id")


def test_each_key_has_its_newest_record(state: FedPipeline) -> None:
    send(state, (1, "a"), (2, "b"), (1, "c"), (2, None), (3, "d"))
    first = state.load_here()
    assert notes(state) == [(1, "c", 2), (3, "d", 4)]
    assert (first["counts"]["rows"], first["counts"]["deletes"], first["counts"]["superseded"]) == (2, 1, 2)
    send(state, (3, None), (3, "e"), (4, None), (2, "f"))
    second = state.load_here()
    assert notes(state) == [(1, "c", 2), (2, "f", 8), (3, "e", 6)]
    assert (second["counts"]["rows"], second["counts"]["deletes"], second["counts"]["superseded"]) == (2, 1, 1)

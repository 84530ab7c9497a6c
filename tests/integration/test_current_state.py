"""Tables that hold the current state, on real Kafka and PostgreSQL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_ingest.errors import ConfigError, RebuildWouldRemove
from kafka_ingest.protocol.batch import RunMode, RunOptions
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


def test_offsets_that_were_given_up_ask_for_a_rebuild_and_a_rebuild_mends_it(state: FedPipeline) -> None:
    send(state, (1, "a"), (2, "b"), (3, "c"))
    state.load_here()
    send(state, (1, None), (2, "d"))
    state.command("change", state.name, "reset", "--to", "latest", "--reason", "a test", "--apply")
    send(state, (4, "e"))
    warned = state.load_here()
    assert notes(state) == [(1, "a", 0), (2, "b", 1), (3, "c", 2), (4, "e", 5)]  # the delete of 1 was given up
    assert any("--mode rebuild" in warning for warning in warned["warnings"])
    _, rows, _ = state.command("status", state.name)
    assert "gave up" in rows[0]["needs_rebuild"]
    rebuilt = state.load_here(RunOptions(RunMode.REBUILD, reason="a test"))
    assert notes(state) == [(2, "d", 4), (3, "c", 2), (4, "e", 5)]
    assert (rebuilt["counts"]["rows"], rebuilt["counts"]["deletes"], rebuilt["counts"]["superseded"]) == (3, 1, 2)
    _, rows, _ = state.command("status", state.name)
    assert rows[0]["needs_rebuild"] is None
    send(state, (5, "f"))
    assert state.load_here()["warnings"] == []


def test_status_counts_the_keys_whose_rows_may_be_old(state: FedPipeline) -> None:
    """A dead letter of a key may have been its newest record. Those without a key are of no row."""
    send(state, (1, "a"), (2, "b"))
    with produced(state.make_producer()) as sender:
        for key in (b'{"id": 1}', b'{"id": 1}', b'{"id": 7}', None):
            sender.produce(state.topic, key=key, value=b"{", partition=0)
    state.load_here()
    _, rows, _ = state.command("status", state.name)
    assert (rows[0]["unresolved_dead_letters"], rows[0]["keys_in_doubt"]) == (4, 2)
    assert "has_keys" not in rows[0]


def test_a_rebuild_names_rows_that_the_log_does_not_hold_and_takes_them_away_when_told(state: FedPipeline) -> None:
    send(state, (1, "a"), (2, "b"))
    state.load_here()
    state.query(
        f"INSERT INTO {state.table} SELECT 7, 'by hand', kafka_topic, 0, 0, 9999, kafka_timestamp, batch_id"
        f" FROM {state.table} LIMIT 1"
    )
    with pytest.raises(RebuildWouldRemove, match=r"1 key, the first \{7\}"):
        state.load_here(RunOptions(RunMode.REBUILD, reason="a test"))
    assert [key for key, *_ in notes(state)] == [1, 2, 7]
    state.load_here(RunOptions(RunMode.REBUILD, reload_what_is_left=True, reason="a test"))
    assert [key for key, *_ in notes(state)] == [1, 2]


def test_a_batch_cannot_be_rolled_back(state: FedPipeline) -> None:
    send(state, (1, "a"))
    state.load_here()
    code, _, said = state.command("roll-back", state.name, "--batches", "1", "--reason", "x", "--apply")
    assert code != 0
    assert "one whose table holds the current state" in said
    assert notes(state) == [(1, "a", 0)]


def test_another_way_to_hold_the_state_is_refused(state: FedPipeline) -> None:
    send(state, (1, "a"))
    state.load_here()
    state.write(state.topic, **STATE, target=state_target(state.table, deletes="ignore"))
    with pytest.raises(ConfigError, match=r"target\.deletes: remove"):
        state.load_here()

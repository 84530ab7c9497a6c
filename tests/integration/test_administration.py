"""The administration task with real Kafka and PostgreSQL: shown, applied once, tried again, and the ledger agrees."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

import tests.airflow_home  # noqa: F401 (before anything imports Airflow)
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest


@pytest.fixture
def loaded(pipeline: FedPipeline) -> PipelineUnderTest:
    """Five records in one partition, loaded as batches of offsets [0, 3) and [3, 5)."""
    pipeline.open()
    for values in (["a", "b", "c"], ["d", "e"]):
        pipeline.send(*values)
        pipeline.load_here()
    return pipeline


def administer(pipeline: PipelineUnderTest, run_id: str, **form: Any) -> dict[str, Any]:
    from kafka_ingest.operators.administration import AdministrationOperator

    dag_run = SimpleNamespace(conf={"pipeline": pipeline.name, **form}, run_id=run_id, triggering_user_name="ada")
    context: Any = {"dag_run": dag_run}
    done: dict[str, Any] = AdministrationOperator(task_id="administer", folder=pipeline.folder).execute(context)
    return done


def positions(pipeline: PipelineUnderTest) -> list[tuple[Any, ...]]:
    return pipeline.query("SELECT partition, committed_offset, line FROM kafka_ingest.committed_offset ORDER BY 1")


def test_a_reset_is_shown_then_applied_once_and_the_records_are_loaded_again_once(loaded: PipelineUnderTest) -> None:
    reset = {"kind": "reset", "reset_to": "by", "by_offsets": -2, "reason": "two wrong values"}
    shown = administer(loaded, "manual__1", **reset)
    [row] = shown["positions"]
    assert (shown["applied"], row["from"], row["to"], row["line"], row["read_again"]) == (
        False,
        5,
        3,
        1,
        "[3, 5)",
    )
    assert positions(loaded) == [(0, 5, 0)]

    applied = administer(loaded, "manual__2", apply=True, **reset)
    assert (applied["applied"], applied["positions"]) == (True, shown["positions"])
    assert administer(loaded, "manual__2", apply=True, **reset) == applied  # cleared, or tried again
    assert positions(loaded) == [(0, 3, 1)]
    recorded = "SELECT request_id, kind, who, why, from_offset, to_offset FROM kafka_ingest.position_change"
    assert loaded.query(f"{recorded} WHERE kind <> 'initialised'") == [
        ("manual__2", "reset", "ada", "two wrong values", 5, 3)
    ]

    assert loaded.load_here()["counts"]["rows"] == 2
    assert loaded.rows("kafka_offset, payload") == [(n, value.encode()) for n, value in enumerate("abcde")]


def test_the_last_batch_is_rolled_back_once_with_its_rows(loaded: PipelineUnderTest) -> None:
    roll_back = {"kind": "roll-back", "batches": 1, "reason": "wrong values"}
    shown = administer(loaded, "manual__1", **roll_back)
    assert [(row["from"], row["to"]) for row in shown["positions"]] == [(5, 3)]
    assert len(loaded.rows("kafka_offset")) == 5

    applied = administer(loaded, "manual__2", apply=True, **roll_back)
    assert (applied["batch_ids"], [row["rows"] for row in applied["positions"]]) == (shown["batch_ids"], [2])
    assert administer(loaded, "manual__2", apply=True, **roll_back) == applied
    assert loaded.rows("kafka_offset") == [(0,), (1,), (2,)]
    assert positions(loaded) == [(0, 3, 1)]


@pytest.mark.parametrize("apply", [False, True])
def test_what_cannot_be_done_is_refused_with_its_reason_and_changes_nothing(
    loaded: PipelineUnderTest, apply: bool
) -> None:
    [(name,)] = loaded.query("SELECT topic FROM kafka_ingest.committed_offset")
    with pytest.raises(AirflowFailException, match=rf"{name}.*\n(.*\n)*.*9"):
        administer(
            loaded, "manual__1", kind="reset", reset_to="offsets", offsets=f"{name} 0 9", reason="too far", apply=apply
        )
    assert positions(loaded) == [(0, 5, 0)]


def test_preflight_shows_every_check_and_is_red_where_one_fails(
    loaded: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = {row["check"]: row["result"] for row in administer(loaded, "manual__1")["checks"]}
    assert checks["ledger"] == "pass"
    loaded.query(f"DROP TABLE {loaded.table}")
    loaded.query("CREATE TABLE shop.events (payload text)")
    with pytest.raises(AirflowFailException, match="target table"):
        administer(loaded, "manual__2")


def test_dead_letters_are_listed_replayed_once_and_discarded(pipeline: FedPipeline) -> None:
    columns = [{"name": "n", "type": "integer"}]
    pipeline.open(value={"format": "json", "columns": columns})
    pipeline.send(b'{"n": 1}', b'{"n": "two"}', b"{")
    pipeline.load_here()
    counts = administer(pipeline, "manual__1", kind="list-dead-letters")["dead_letters"]
    assert counts == [
        {"reason": "malformed", "standing": "unresolved", "records": 1},
        {"reason": "wrong_type", "standing": "unresolved", "records": 1},
    ]

    columns[0]["type"] = "jsonb"
    pipeline.write(pipeline.topic, value={"format": "json", "columns": columns})
    pipeline.query("ALTER TABLE shop.events ALTER COLUMN n TYPE jsonb USING to_jsonb(n)")
    replay = {"kind": "replay-dead-letters", "reason": "n is anything now"}
    shown = administer(pipeline, "manual__2", **replay)
    assert [(row["becomes"], row["records"]) for row in shown["dead_letters"]] == [
        ("a row", 1),
        ("stays a dead letter", 1),
    ]
    assert (shown["applied"], pipeline.rows("kafka_offset")) == (False, [(0,)])
    applied = administer(pipeline, "manual__3", apply=True, **replay)
    assert applied == {**shown, "applied": True}
    assert administer(pipeline, "manual__3", apply=True, **replay) == applied  # cleared, or tried again
    assert pipeline.rows("kafka_offset, n") == [(0, 1), (1, "two")]

    discard = {"kind": "discard-dead-letters", "dead_letter_reasons": "malformed", "reason": "a test record"}
    administer(pipeline, "manual__4", apply=True, **discard)
    recorded = "SELECT request_id, action, who, why FROM kafka_ingest.dead_letter_request ORDER BY request_number"
    assert pipeline.query(recorded) == [
        ("manual__3", "replay", "ada", "n is anything now"),
        ("manual__4", "discard", "ada", "a test record"),
    ]
    assert pipeline.dead_letters("resolution") == [("replayed",), ("discarded",)]


def test_a_replay_beside_a_planned_batch_fails_at_once(pipeline: FedPipeline) -> None:
    pipeline.open()
    pipeline.send("a")
    batch = pipeline.plan_only("planned")
    with pytest.raises(AirflowFailException, match=batch.batch_id):
        administer(pipeline, "manual__1", kind="replay-dead-letters", reason="why", apply=True)

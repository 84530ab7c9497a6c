"""The world of a pipeline: which connections its ports look up, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_ingest.connections import ConnectionValues
from kafka_ingest.errors import ConfigError
from kafka_ingest.full_world import FullWorld, housekeeper
from kafka_ingest.preflight.checks import Verdict
from kafka_ingest.protocol.batch import Request
from tests.builders import pipeline_settings
from tests.fakes.loading import FakeRunStates

_ORDERS = pipeline_settings("orders")
SETTINGS = replace(
    _ORDERS,
    batch=replace(_ORDERS.batch, kafka_connection="log", target_connection="warehouse"),
    job=replace(_ORDERS.job, spark_connection="cluster"),
)
FOUND = {
    "kafka": ConnectionValues("log", "kafka", extra={"bootstrap.servers": "broker:9092"}),
    "postgres": ConnectionValues("warehouse", "postgres", host="db", login="etl", schema="shop"),
    "spark": ConnectionValues("cluster", "spark", host="local[2]"),
}


class LookUps:
    """Looks up connections, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __call__(self, conn_id: str, conn_type: str) -> ConnectionValues:
        self.asked.append((conn_id, conn_type))
        return FOUND[conn_type]


@pytest.fixture
def look_ups() -> LookUps:
    return LookUps()


def test_a_missing_connection_fails_its_own_check_of_preflight_and_no_other() -> None:
    def missing(conn_id: str, _conn_type: str) -> ConnectionValues:
        raise ConfigError(f"there is no connection {conn_id}")

    results = FullWorld(SETTINGS, missing).preflight()
    assert [(result.check, result.result, result.found) for result in results] == [
        ("kafka", Verdict.FAIL, "there is no connection log"),
        ("postgresql", Verdict.FAIL, "there is no connection warehouse"),
        ("spark", Verdict.FAIL, "there is no connection cluster"),
    ]


def test_a_plan_needs_database_and_log(look_ups: LookUps) -> None:
    FullWorld(SETTINGS, look_ups).plan_ports()
    assert look_ups.asked == [("warehouse", "postgres"), ("log", "kafka")]


def test_a_submission_needs_all_three(look_ups: LookUps, tmp_path: Path) -> None:
    FullWorld(SETTINGS, look_ups).submission("a batch", tmp_path / "outcome.json")
    assert set(look_ups.asked) == {("log", "kafka"), ("warehouse", "postgres"), ("cluster", "spark")}


def test_after_a_time_without_use_a_port_looks_up_anew_so_that_a_changed_password_is_found(look_ups: LookUps) -> None:
    world = FullWorld(SETTINGS, look_ups)
    world.close_session()
    for _ in range(2):
        world.ledger()
        world.attempts()
    assert look_ups.asked == [("warehouse", "postgres")]
    world.close_session()
    world.ledger()
    assert look_ups.asked == [("warehouse", "postgres")] * 2


def test_a_database_is_tidied_without_a_pipeline(look_ups: LookUps) -> None:
    housekeeper("warehouse", look_ups)
    assert look_ups.asked == [("warehouse", "postgres")]


def test_a_connection_that_is_missing_stops_with_the_look_ups_own_error() -> None:
    def missing(conn_id: str, _: str) -> ConnectionValues:
        raise ConfigError(f"there is no connection {conn_id}")

    with pytest.raises(ConfigError, match="there is no connection warehouse"):
        FullWorld(SETTINGS, missing).plan_ports()


def test_without_a_scheduler_no_run_counts_as_finished(look_ups: LookUps) -> None:
    assert FullWorld(SETTINGS, look_ups).plan_ports().runs.is_finished(Request("orders", "manual__1")) is False


def test_a_plan_asks_the_scheduler_that_the_world_was_given(look_ups: LookUps) -> None:
    runs = FakeRunStates()
    assert FullWorld(SETTINGS, look_ups, runs).plan_ports().runs is runs

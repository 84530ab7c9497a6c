"""The housekeeping DAG: one mapped task for each target database, and what its tasks do and say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from kafka_ingest import full_world
from kafka_ingest.errors import ConfigError, DatabaseUnavailable
from kafka_ingest.integrity import load
from kafka_ingest.operators.dags import housekeeping_dag, is_switched_on
from kafka_ingest.operators.tasks import HousekeepingOperator
from kafka_ingest.pipeline_files.files import PipelineCatalog
from kafka_ingest.protocol.batch import BatchState
from sandbox.paths import CHECKOUT
from tests.builders import offset_range, pipeline_settings, planned_batch
from tests.fakes.database import FakeDatabase
from tests.fakes.housekeeper import FakeHousekeeper

SUPERSEDED = planned_batch(offset_range(0, 0, 3), state=BatchState.SUPERSEDED)


def catalog(*connections: str) -> PipelineCatalog:
    settings = pipeline_settings("orders")
    return PipelineCatalog(
        tuple(replace(settings, batch=replace(settings.batch, target_connection=name)) for name in connections), ()
    )


def expanded_over(dag: Any) -> list[str]:
    [task] = dag.tasks
    assert task.task_id == "keep_house"
    connections: list[str] = task.expand_input.value["connection"]
    return connections


def execute(params: dict[str, Any]) -> dict[str, int]:
    context: Any = {"params": {"older_than_days": 90, "dry_run": False, **params}}
    return HousekeepingOperator(task_id="keep_house", connection="warehouse").execute(context)


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> FakeHousekeeper:
    """A database with a leftover, and an index with two page ranges that are not summarised."""
    database = FakeDatabase()
    database.batches = {SUPERSEDED.batch_id: SUPERSEDED}
    database.staged = {(SUPERSEDED.batch_id, 1): []}
    housekeeper = FakeHousekeeper(database)
    housekeeper.unsummarized = {"shop.by_offset": 2}
    monkeypatch.setattr(full_world, "housekeeper", lambda conn_id, _: {"warehouse": housekeeper}[conn_id])
    return housekeeper


def test_there_is_one_task_for_each_target_database() -> None:
    assert expanded_over(housekeeping_dag(catalog("warehouse", "archive", "warehouse"))) == ["archive", "warehouse"]


def test_a_deployment_without_pipelines_has_nothing_to_do() -> None:
    assert expanded_over(housekeeping_dag(catalog())) == []


def test_it_runs_from_the_first_day_on_although_airflow_pauses_new_dags() -> None:
    assert housekeeping_dag(catalog("warehouse")).is_paused_upon_creation is False


@pytest.mark.parametrize(("value", "is_on"), [(None, True), ("", True), ("on", True), ("off", False), (" OFF ", False)])
def test_the_environment_switches_it_off(value: str | None, is_on: bool) -> None:
    assert is_switched_on({} if value is None else {"KAFKA_INGEST_HOUSEKEEPING": value}) is is_on


def test_a_switch_that_says_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(ConfigError, match="KAFKA_INGEST_HOUSEKEEPING"):
        is_switched_on({"KAFKA_INGEST_HOUSEKEEPING": "false"})


def test_where_it_is_switched_off_there_is_no_such_dag(tmp_path: Path) -> None:
    report = load(CHECKOUT / "dags", tmp_path, KAFKA_INGEST_HOUSEKEEPING="off")
    assert report["import_errors"] == {}
    dag_ids = {dag["dag_id"] for dag in report["dags"]}
    assert "kafka_ingest_administration" in dag_ids
    assert "kafka_ingest_housekeeping" not in dag_ids


def test_the_defaults_of_the_form_change_nothing_younger_than_a_quarter_of_a_year() -> None:
    params = housekeeping_dag(catalog()).params
    assert {name: params[name] for name in params} == {"older_than_days": 90, "dry_run": False}


def test_the_task_tidies_the_database_of_its_connection(house: FakeHousekeeper) -> None:
    assert execute({"older_than_days": 0}) == {"done": 3, "would be done": 0, "left": 0}
    assert house.database.staged == {}


def test_a_dry_run_changes_nothing(house: FakeHousekeeper) -> None:
    assert execute({"older_than_days": 0, "dry_run": True}) == {"done": 0, "would be done": 3, "left": 0}
    assert list(house.database.staged) == [(SUPERSEDED.batch_id, 1)]


def test_what_is_left_is_a_warning_in_the_log_and_the_task_succeeds(
    house: FakeHousekeeper, capsys: pytest.CaptureFixture[str]
) -> None:
    [table] = house.staging_tables()
    house.in_use = {table.name}
    assert execute({}) == {"done": 1, "would be done": 0, "left": 1}
    [line] = [line for line in capsys.readouterr().out.splitlines() if table.name in line]
    assert "warning" in line.partition("drop staging table")[0]
    assert f"drop staging table, {table.name}: left: canceling statement due to lock timeout" in line


def test_a_database_that_is_away_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> Any:
        raise DatabaseUnavailable("the server cannot be reached")

    monkeypatch.setattr(full_world, "housekeeper", away)
    with pytest.raises(AirflowException, match="the server cannot be reached"):
        execute({})

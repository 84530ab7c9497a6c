"""What the page reads of Airflow's database: the models of Airflow, on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow import settings
from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import event, insert

from kafka_ingest.errors import ConfigError
from kafka_ingest.page.airflow_side import AirflowDatabase
from kafka_ingest.pipeline_files.files import DAG_ID_PREFIX

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
RUNS = 12


pytestmark = pytest.mark.usefixtures("airflow_tables")


@pytest.fixture(autouse=True)
def _a_bundle_without_dags() -> Iterator[None]:
    with create_session() as session:
        session.add(DagBundleModel(name="dags-folder"))
    yield
    with create_session() as session:
        for model in (TaskOutletAssetReference, AssetModel, DagRun, DagModel, DagBundleModel):
            session.query(model).delete()


def add_dag(dag_id: str, uri: str = "x-kafka-ingest://warehouse/shop/orders", **columns: Any) -> None:
    """Add a DAG whose task *audit_batch* has the target's asset as outlet."""
    filled = {"bundle_name": "dags-folder", "is_stale": False, "is_paused": False, "max_active_tasks": 1} | columns
    with create_session() as session:
        session.add(DagModel(dag_id=dag_id, **filled))  # type: ignore[no-untyped-call]
        session.flush()
        asset = session.query(AssetModel).filter_by(uri=uri).one_or_none() or AssetModel(name=uri, uri=uri)
        session.add(asset)
        session.flush()
        session.add(TaskOutletAssetReference(asset_id=asset.id, dag_id=dag_id, task_id="audit_batch"))


def add_runs(dag_id: str, number: int = RUNS, **columns: Any) -> None:
    """Add runs, one an hour, the last at noon."""
    rows = [
        {
            "dag_id": dag_id,
            "run_id": f"scheduled__{hour}",
            "run_type": "scheduled",
            "state": "success",
            "run_after": NOON - timedelta(hours=number - 1 - hour),
        }
        | columns
        for hour in range(number)
    ]
    with create_session() as session:
        session.execute(insert(DagRun.__table__), rows)


def test_a_dag_of_a_pipeline_file_is_told_with_pipeline_and_connection() -> None:
    add_dag(f"{DAG_ID_PREFIX}orders", timetable_summary="*/15 * * * *", timetable_description="Every 15 minutes")

    [found] = AirflowDatabase().dags()

    assert (found.pipeline, found.connections, found.schedule) == (
        "orders",
        ("warehouse",),
        "Every 15 minutes (*/15 * * * *)",
    )
    assert (found.runs, found.due_at, found.next_run_at) == ((), None, None)


def test_somebody_elses_dag_counts_by_what_it_loads_and_others_do_not_count() -> None:
    add_dag("nightly", uri="x-kafka-ingest://ware%2Fhouse/shop/orders")
    add_dag("unrelated", uri="s3://bucket/key")
    add_dag(f"{DAG_ID_PREFIX}gone", is_stale=True)

    [found] = AirflowDatabase().dags()

    assert (found.dag_id, found.pipeline, found.connections) == ("nightly", "", ("ware/house",))


def test_the_newest_ten_runs_are_told_newest_first() -> None:
    add_dag(f"{DAG_ID_PREFIX}orders")
    add_runs(f"{DAG_ID_PREFIX}orders")

    [found] = AirflowDatabase().dags()

    assert [run.run_id for run in found.runs] == [f"scheduled__{hour}" for hour in range(11, 1, -1)]
    assert found.runs[0].run_after == NOON


def test_a_run_that_was_due_and_never_made_is_due_unless_the_dag_is_paused() -> None:
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    for name, is_paused in (("orders", False), ("payments", True)):
        dag_id = f"{DAG_ID_PREFIX}{name}"
        add_dag(dag_id, is_paused=is_paused, next_dagrun_create_after=hour_ago)
        add_runs(dag_id, run_after=hour_ago - timedelta(hours=1), number=1)

    due = {found.pipeline: found.due_at for found in AirflowDatabase().dags()}

    assert due == {"orders": hour_ago, "payments": hour_ago - timedelta(hours=1)}


def test_300_dags_take_as_many_queries_as_one() -> None:
    statements: list[str] = []
    event.listen(settings.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))

    def asked() -> int:
        statements.clear()
        found = AirflowDatabase().dags()
        assert all(len(dag.runs) == RUNS - 2 for dag in found)
        return len(statements)

    add_dag(f"{DAG_ID_PREFIX}p0")
    add_runs(f"{DAG_ID_PREFIX}p0")
    one = asked()
    for number in range(1, 300):
        add_dag(f"{DAG_ID_PREFIX}p{number}")
    with create_session() as session:
        session.query(DagRun).delete()
    for number in range(300):
        add_runs(f"{DAG_ID_PREFIX}p{number}")

    assert asked() == one == 4


def test_a_connection_is_read_where_airflow_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", "postgres://reader:secret@db:5432/shop")
    params = AirflowDatabase().postgres_params("warehouse")
    assert (params["host"], params["user"], params["dbname"]) == ("db", "reader", "shop")


def test_a_connection_that_is_not_there_is_told_with_its_command() -> None:
    with pytest.raises(ConfigError, match="airflow connections add nowhere --conn-type postgres"):
        AirflowDatabase().postgres_params("nowhere")

"""The administration DAG: its form offers what the package can do, and a wrong form changes nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, ParamValidationError

from kafka_ingest.forms.change import KINDS, LOOKS, kinds_of
from kafka_ingest.forms.order import read_order
from kafka_ingest.operators.administration import (
    AdministrationOperator,
    administration_dag,
    administration_params,
    who_asks,
)
from kafka_ingest.pipeline_files.files import PipelineCatalog
from tests.builders import pipeline_settings
from tests.pipeline_texts import pipeline_text

FORM = administration_params(["payments", "orders"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KAFKA_INGEST_PIPELINES", raising=False)
    (tmp_path / "orders.yaml").write_text(pipeline_text())
    return tmp_path


def execute(folder: Path, conf: dict[str, Any] | None) -> Any:
    dag_run = SimpleNamespace(conf=conf, run_id="manual__1", triggering_user_name="ada")
    context: Any = {"dag_run": dag_run}
    return AdministrationOperator(task_id="administer", folder=folder).execute(context)


def test_no_kind_refuses_what_the_form_is_filled_in_with() -> None:
    filled_in = {key: param.value for key, param in FORM.items()}
    needed = {"reset_to": "earliest", "keep_offsets": 5, "former_name": "x", "only": "orders", "batches": 1}
    for kind in KINDS:
        own = {key: value for key, value in needed.items() if kind in kinds_of(key)}
        form = {**filled_in, "pipeline": "orders", "kind": kind, **own}
        reason = {} if kind in LOOKS else {"reason": "a reason"}
        read_order({**form, **reason}, zone="UTC", who="ada", request_id="manual__1")


def test_a_form_without_a_pipeline_is_refused_when_it_is_sent() -> None:
    with pytest.raises(ParamValidationError):
        FORM["pipeline"].resolve()


def test_airflow_refuses_a_pipeline_that_there_is_not() -> None:
    assert FORM["pipeline"].resolve("payments") == "payments"
    with pytest.raises(ParamValidationError):
        FORM["pipeline"].resolve("unheard_of")


def test_there_is_a_dag_before_there_is_a_pipeline() -> None:
    dag = administration_dag(PipelineCatalog((), ()), Path("pipelines"))
    assert [task.task_id for task in dag.tasks] == ["administer"]
    assert "enum" not in dag.params.get_param("pipeline").schema


def test_nothing_starts_it_but_a_person() -> None:
    dag = administration_dag(PipelineCatalog((pipeline_settings("orders"),), ()), Path("pipelines"))
    assert type(dag.timetable).__name__ == "NullTimetable"
    assert dag.params.get_param("pipeline").schema["enum"] == ["orders"]


def test_every_fault_of_a_form_is_in_one_message_and_the_task_is_not_retried(folder: Path) -> None:
    with pytest.raises(AirflowFailException) as stop:
        execute(folder, {"pipeline": "orders", "kind": "reset", "batches": 2, "apply": True})
    lines = [line.strip() for line in str(stop.value).splitlines()]
    assert "Reset to: expected a value: reset needs it; found nothing" in lines
    assert "Reason: expected a value: reset needs it; found nothing" in lines
    assert "Batches: expected nothing for reset; found a value" in lines


@pytest.mark.parametrize("conf", [None, {}, {"pipeline": " "}, {"pipeline": 7}])
def test_a_run_without_a_pipeline_is_refused(folder: Path, conf: dict[str, Any] | None) -> None:
    with pytest.raises(AirflowFailException, match="Pipeline: expected"):
        execute(folder, conf)


def test_a_pipeline_whose_file_is_gone_is_told(folder: Path) -> None:
    with pytest.raises(AirflowFailException, match="there is no pipeline payments"):
        execute(folder, {"pipeline": "payments"})


def test_who_asks_is_the_airflow_user_or_airflow_itself() -> None:
    runs: list[Any] = [SimpleNamespace(triggering_user_name=name) for name in ("ada", None, "")]
    assert [who_asks(run) for run in runs] == ["ada", "airflow", "airflow"]

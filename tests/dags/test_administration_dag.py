"""The administration DAG: its form offers what the package can do, and a wrong form changes nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk.exceptions import ParamValidationError

from kafka_ingest.forms.change import DEFAULTS, AdministrationKind, ResetTo, kinds_of, read_order
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


def test_the_form_has_the_keys_that_the_package_reads_and_as_it_stands_is_a_form_that_nobody_filled_in() -> None:
    assert list(FORM) == list(DEFAULTS)
    filled_in = {key: param.value for key, param in FORM.items()}
    assert {key: value for key, value in filled_in.items() if value is not None} == {
        "kind": "preflight",
        "apply": False,
        "supersede": False,
        "allow_compacted": False,
        "submit_job": False,
    }


def test_no_kind_refuses_what_the_form_is_filled_in_with() -> None:
    filled_in = {key: param.value for key, param in FORM.items()}
    needed = {"reset_to": "earliest", "keep_offsets": 5, "former_name": "x", "only": "orders", "batches": 1}
    for kind in AdministrationKind:
        own = {key: value for key, value in needed.items() if kind in kinds_of(key)}
        form = {**filled_in, "pipeline": "orders", "kind": kind.value, **own}
        reason = {} if kind is AdministrationKind.PREFLIGHT else {"reason": "a reason"}
        read_order({**form, **reason}, zone="UTC", who="ada", request_id="manual__1")


def test_a_form_without_a_pipeline_is_refused_when_it_is_sent() -> None:
    with pytest.raises(ParamValidationError):
        FORM["pipeline"].resolve()


def test_no_field_is_required_that_has_no_value_from_the_start() -> None:
    """Airflow shows such a field in red before anybody has typed."""
    assert [key for key, param in FORM.items() if param.value is None and "null" not in param.schema["type"]] == []


def test_a_choice_of_nothing_has_a_text_of_its_own() -> None:
    """Airflow shows it as null otherwise."""
    choices = [param.schema for param in FORM.values() if None in param.schema.get("enum", ())]
    assert [schema["title"] for schema in choices if not schema["values_display"].get("None")] == []


def test_fields_of_some_kinds_only_are_in_a_section_that_names_them() -> None:
    sections = {key: param.schema.get("section") for key, param in FORM.items()}
    assert sections["kind"] is None
    assert sections["by_offsets"] == "Only for reset"
    assert sections["begin"] == "Only for accept-recreation, accept-cluster"


def test_the_form_offers_every_kind_and_says_what_it_is() -> None:
    kind, reset_to = FORM["kind"].schema, FORM["reset_to"].schema
    assert kind["enum"] == [choice.value for choice in AdministrationKind] == list(kind["values_display"])
    assert reset_to["enum"] == [None, *(choice.value for choice in ResetTo)]
    assert list(reset_to["values_display"]) == ["None", *reset_to["enum"][1:]]


def test_every_field_has_a_title_and_a_description() -> None:
    assert {
        key for key, param in FORM.items() if not (param.schema["title"] and param.schema["description_md"])
    } == set()


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("pipeline", "orders", "unheard_of"),
        ("kind", "roll-back", "drop"),
        ("apply", True, "yes"),
        ("batches", 1, 0),
        ("keep_offsets", 0, -1),
        ("by_offsets", -5, 0.5),
        ("margin_offsets", 0, -1),
        ("margin_offsets", 2**63 - 1, 2**63),
        ("only", "orders 1", 7),
    ],
)
def test_airflow_itself_refuses_values_of_the_wrong_kind(key: str, good: object, bad: object) -> None:
    params = administration_params(["orders"])
    assert params[key].resolve(good) == good
    with pytest.raises(ParamValidationError):
        params[key].resolve(bad)


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

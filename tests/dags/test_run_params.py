"""The form of a manual run as Airflow shows and checks it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.exceptions import ParamValidationError
from airflow.sdk.definitions.param import ParamsDict

from kafka_ingest.forms.run import DEFAULTS, run_options
from kafka_ingest.operators.dags import pipeline_dag, run_params
from kafka_ingest.protocol.batch import RunOptions
from tests.builders import pipeline_settings


def checked(**values: Any) -> dict[str, Any]:
    """As Airflow merges a run's conf into the form and checks it (``process_params``, Task SDK 1.3)."""
    params = ParamsDict(dict(run_params("Europe/Berlin")))
    params.update(values)
    return params.validate()


def test_the_form_has_the_keys_that_are_read() -> None:
    assert checked() == DEFAULTS


def test_the_form_as_it_stands_is_a_plain_live_run() -> None:
    assert run_options(checked(), zone="UTC", pipeline="orders") == RunOptions()


@pytest.mark.parametrize(
    "values",
    [
        {"mode": "reload", "from": "2026-01-01", "to": "", "reason": "r", "replace_resolved": True},
        {"mode": "plan_only", "offsets": "orders 0 1 2\norders 1 3"},
        {"limit": 5},
        {"openlineage": {"parentRunId": "x"}},
    ],
)
def test_airflow_lets_pass_what_can_be_asked(values: dict[str, Any]) -> None:
    asked = checked(**values)
    assert {key: asked[key] for key in values} == values


@pytest.mark.parametrize(
    "values",
    [
        {"mode": "relaod"},
        {"limit": 0},
        {"limit": "five"},
        {"replace_resolved": "yes"},
        {"reload_what_is_left": 1},
        {"from": 5},
    ],
)
def test_airflow_refuses_another_kind_of_value_before_the_run_starts(values: dict[str, Any]) -> None:
    with pytest.raises(ParamValidationError):
        checked(**values)


def test_every_field_has_a_title_and_says_what_it_does() -> None:
    for param in run_params("Europe/Berlin").values():
        assert param.schema["title"]
        assert param.schema["description_md"].endswith(".")


def test_no_field_is_required_that_has_no_value_from_the_start() -> None:
    """Airflow shows such a field in red before anybody has typed."""
    params = run_params("Europe/Berlin")
    assert [key for key, param in params.items() if param.value is None and "null" not in param.schema["type"]] == []


def test_times_say_their_zone() -> None:
    params = run_params("America/New_York")
    assert all("America/New_York" in params[key].schema["description_md"] for key in ("from", "to"))


def test_the_form_is_json_and_belongs_to_the_dag() -> None:
    dag = pipeline_dag(pipeline_settings())
    assert json.loads(json.dumps(dag.params.dump())) == DEFAULTS

"""Each field of a form, row by row: what it holds, what it refuses, how Airflow shows it, and its argument."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from airflow.sdk import Param
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import ParamValidationError

from kafka_ingest.errors import ConfigError
from kafka_ingest.forms import change, run
from kafka_ingest.forms.change import read_order
from kafka_ingest.forms.run import run_options
from kafka_ingest.operators.administration import administration_params
from kafka_ingest.operators.context import form_params
from kafka_ingest.operators.dags import pipeline_dag
from kafka_ingest.protocol.batch import RunOptions
from tests.builders import pipeline_settings
from tests.command_line import parsed


@dataclass(frozen=True)
class Row:
    """A field: a value that fits, those that do not, and what is expected of them."""

    key: str
    label: str
    default: Any
    good: Any
    bad: tuple[Any, ...]
    expected: str
    filled_in: Any = None


RUN = (
    Row("mode", "Mode", "live", "plan_only", ("relaod",), "one of live, reload, plan_only", "live"),
    Row("from", "From (time)", None, "2026-01-01", (5,), "a text"),
    Row("to", "To (time)", None, "2026-01-01", (5,), "a text"),
    Row("offsets", "Offsets", None, "a 0 1\na 1 3", (7,), "a text"),
    Row("limit", "Limit (offsets)", None, 1, (0, "5", True), "a whole number, at least 1"),
    Row("reload_what_is_left", "Reload what is left", False, True, ("yes", 1), "true or false", False),
    Row("replace_resolved", "Replace resolved dead letters", False, True, ("yes",), "true or false", False),
    Row("reason", "Reason", None, "a bug", (5,), "a text"),
)
CHANGE = (
    Row("pipeline", "Pipeline", None, "orders", (7,), "a text"),
    Row("kind", "What to do", "preflight", "roll-back", ("drop",), "one of preflight, reset, skip-lag, ", "preflight"),
    Row("apply", "Apply", False, True, ("yes",), "true or false", False),
    Row("reason", "Reason", None, "a bug", (5,), "a text"),
    Row("supersede", "Supersede the outstanding batch", False, True, (1,), "true or false", False),
    Row("reset_to", "Reset to", None, "time", ("middle",), "one of earliest, latest, time, offsets, by"),
    Row("time", "Time", None, "2026-01-01", (5,), "a text"),
    Row("offsets", "Offsets", None, "a 0 1", (7,), "a text"),
    Row("by_offsets", "By (offsets)", None, -5, (0.5, True), "a whole number"),
    Row("only", "Only", None, "a 1", (7,), "a text"),
    Row("keep_offsets", "Keep (offsets)", None, 0, (-1,), "a whole number, at least 0"),
    Row("margin_offsets", "Margin (offsets)", 0, 2**63 - 1, (-1,), "a whole number, at least 0"),
    Row("begin", "Begin at", "earliest", "latest", ("middle",), "one of earliest, latest"),
    Row("former_name", "Former name", None, "shop", (5,), "a text"),
    Row("batches", "Batches", None, 1, (0, True), "a whole number, at least 1"),
    Row("allow_compacted", "Allow compacted topics", False, True, ("yes",), "true or false", False),
    Row("submit_job", "Submit a job", False, True, ("yes",), "true or false", False),
)
ROWS = [*(("run", row) for row in RUN), *(("change", row) for row in CHANGE)]
FIELDS = {"run": run.FIELDS, "change": change.FIELDS}
each_field = pytest.mark.parametrize(("form", "row"), ROWS, ids=lambda part: getattr(part, "key", part))


def params(form: str) -> dict[str, Param]:
    return form_params(run.FIELDS, zone="Europe/Berlin") if form == "run" else administration_params(["orders"])


def read(form: str, values: dict[str, Any]) -> object:
    if form == "run":
        return run_options(values, zone="UTC", pipeline="orders")
    return read_order(values, zone="UTC", who="ada", request_id="manual__1")


@pytest.mark.parametrize(("form", "rows"), [("run", RUN), ("change", CHANGE)])
def test_airflow_shows_the_fields_that_are_read_in_this_order(form: str, rows: tuple[Row, ...]) -> None:
    assert list(FIELDS[form]) == list(params(form)) == list(dict.fromkeys(row.key for row in rows))


@each_field
def test_a_field_holds_its_default_until_somebody_fills_it_in(form: str, row: Row) -> None:
    assert FIELDS[form][row.key].default == row.default
    assert params(form)[row.key].value == row.filled_in


@each_field
def test_a_value_that_does_not_fit_is_a_fault_under_the_label_of_its_field(form: str, row: Row) -> None:
    for bad in row.bad:
        with pytest.raises(ConfigError) as stop:
            read(form, {row.key: bad})
        [fault] = [one for one in stop.value.found.splitlines() if one.endswith(f"; found {bad!r}")]
        assert fault.startswith(f"{row.label}: expected {row.expected}")


@each_field
def test_airflow_itself_refuses_another_kind_of_value(form: str, row: Row) -> None:
    param = params(form)[row.key]
    assert param.resolve(row.good) == row.good
    for bad in row.bad:
        with pytest.raises(ParamValidationError):
            param.resolve(bad)


@each_field
def test_airflow_shows_a_field_under_its_label_and_says_what_it_does(form: str, row: Row) -> None:
    schema = params(form)[row.key].schema
    assert schema["title"] == row.label
    assert schema["description_md"].strip("*").endswith(".")
    # Airflow shows a field in red before anybody has typed, where its type does not allow that it is empty.
    assert row.filled_in is not None or "null" in schema["type"]
    # It shows a choice of nothing as null, unless that has a text.
    assert None not in schema.get("enum", ()) or schema["values_display"]["None"]


@pytest.mark.parametrize(
    ("arguments", "key", "held"),
    [
        ("run x", "mode", "live"),
        ("run x --mode reload", "mode", "reload"),
        ("plan x --dry-run", "mode", "plan_only"),
        ("run x --from-time 2026-01-01", "from", "2026-01-01"),
        ("plan x --dry-run --to-time 2026-01-01", "to", "2026-01-01"),
        ("run x --offsets a --offsets b", "offsets", ["a", "b"]),
        ("run x --limit 5", "limit", 5),
        ("run x --reload-what-is-left", "reload_what_is_left", True),
        ("run x --replace-resolved", "replace_resolved", True),
        ("run x --reason why", "reason", "why"),
        ("change x change-target --apply", "apply", True),
        ("roll-back x --batches 2 --reason why", "reason", "why"),
        ("roll-back x --batches 2 --supersede", "supersede", True),
        ("roll-back x --batches 2", "batches", 2),
        ("roll-back x --batches 2 --allow-compacted", "allow_compacted", True),
    ],
)
def test_an_argument_fills_a_field_in_under_its_key(arguments: str, key: str, held: object) -> None:
    assert vars(parsed(*arguments.split()))[key] == held


@pytest.mark.parametrize("key", [key for key, param in params("change").items() if "maximum" in param.schema])
def test_airflow_refuses_a_number_that_postgresql_does_not_keep(key: str) -> None:
    with pytest.raises(ParamValidationError):
        params("change")[key].resolve(2**63)


def checked_run(**values: Any) -> dict[str, Any]:
    """As Airflow merges a run's conf into the form and checks it (``process_params``, Task SDK 1.3)."""
    form = ParamsDict(dict(params("run")))
    form.update(values)
    return form.validate()


def test_the_form_of_a_run_as_it_stands_is_a_plain_live_run_and_json_of_its_dag() -> None:
    assert read("run", checked_run()) == RunOptions()
    assert json.loads(json.dumps(pipeline_dag(pipeline_settings()).params.dump())) == checked_run()


@pytest.mark.parametrize(
    "values",
    [
        {"mode": "reload", "from": "2026-01-01", "to": "", "reason": "r", "replace_resolved": True},
        {"mode": "plan_only", "offsets": "orders 0 1 2\norders 1 3"},
        {"limit": 5},
        {"openlineage": {"parentRunId": "x"}},
    ],
)
def test_airflow_lets_pass_what_a_run_can_be_asked_for(values: dict[str, Any]) -> None:
    asked = checked_run(**values)
    assert {key: asked[key] for key in values} == values


def test_times_say_their_zone() -> None:
    form = form_params(run.FIELDS, zone="America/New_York")
    assert all("America/New_York" in form[key].schema["description_md"] for key in ("from", "to"))


def test_fields_of_some_kinds_only_are_in_a_section_that_names_them() -> None:
    sections = {key: param.schema.get("section") for key, param in params("change").items()}
    assert sections["kind"] is None
    assert sections["by_offsets"] == "Only for reset"
    assert sections["begin"] == "Only for accept-recreation, accept-cluster"


def test_a_choice_says_what_each_value_is() -> None:
    kind, reset_to = params("change")["kind"].schema, params("change")["reset_to"].schema
    assert kind["enum"] == list(change.KINDS) == list(kind["values_display"])
    assert kind["values_display"]["rename"] == "rename: the pipeline file has another name than before"
    assert reset_to["enum"] == [None, "earliest", "latest", "time", "offsets", "by"]
    assert list(reset_to["values_display"]) == ["None", *reset_to["enum"][1:]]

"""Each field of a form, row by row: what it holds, what it refuses, how Airflow shows it, and its argument."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ParamValidationError
from airflow.sdk import Param
from airflow.sdk.definitions.param import ParamsDict

from kafka_ingest.errors import ConfigError, DeadLetterReason
from kafka_ingest.forms import change, run
from kafka_ingest.forms.order import read_order
from kafka_ingest.forms.run import run_options
from kafka_ingest.operators.administration import administration_params
from kafka_ingest.operators.context import form_params
from kafka_ingest.operators.dags import pipeline_dag
from kafka_ingest.protocol.batch import RunOptions
from tests.builders import pipeline_settings
from tests.command_line import parsed

GREATEST = 2**63 - 1
DIGITS = "9" * 5_000


@dataclass(frozen=True)
class Row:
    """A field.

    Attributes:
        good: A value that fits.
        bad: Values of the wrong kind, which Airflow refuses, too.
        expected: What is expected instead.
        faults: Further values that do not fit, each with what is expected.
        filled_in: What Airflow's form holds from the start.
        arguments: Command lines, each with what it fills in.
    """

    key: str
    label: str
    default: Any
    good: Any
    bad: tuple[Any, ...]
    expected: str
    faults: tuple[tuple[Any, str], ...] = ()
    filled_in: Any = None
    arguments: tuple[tuple[str, object], ...] = ()


def choice(key: str, label: str, of: str, good: str, *arguments: tuple[str, object], default: Any = None) -> Row:
    return Row(key, label, default, good, ("middle", 5), f"one of {of}", arguments=arguments)


def text(key: str, label: str, good: str, *arguments: tuple[str, object], faults: Any = ()) -> Row:
    return Row(key, label, None, good, (5, True), "a text", tuple(faults), arguments=arguments)


def number(key: str, label: str, least: int | None, *arguments: tuple[str, object], default: int | None = None) -> Row:
    fits = "a whole number" + ("" if least is None else f", at least {least}")
    bad = ("5", True, 0.5) if least is None else ("5", True, 0.5, least - 1)
    faults = tuple((n, f"{fits}, at most 9223372036854775807") for n in (GREATEST + 1, 10**30))
    return Row(key, label, default, GREATEST if least is None else least, bad, fits, faults, arguments=arguments)


def flag(key: str, label: str, *arguments: tuple[str, object]) -> Row:
    return Row(key, label, False, True, ("yes", 1), "true or false", filled_in=False, arguments=arguments)


PLACES = "earliest, latest"
KINDS = (
    "preflight, reset, skip-lag, accept-loss, accept-recreation, accept-cluster, accept-same-log, rename, "
    "retire-topic, read-topic-again, change-target, change-identity-columns, change-isolation-level, roll-back, "
    "list-dead-letters, replay-dead-letters, discard-dead-letters"
)
SPAN = "topic, partition, start and end, the first offset after the span; without end: up to the end of the log"
OFFSET = "topic, partition and offset, the next one to read"
ZONED = "a time with its offset from UTC, or in the time zone UTC, at most milliseconds, from 1970 on, such as"
RELOADED_SPANS = (
    *((line, f"{SPAN} (line 1)") for line in ("a 0", "a 0 1 2 3", "a zero 1 2", "a 0 -1 2", "a 0 ٣", f"a 0 {DIGITS}")),
    (f"a 1 2\na {DIGITS} 1", f"{SPAN} (line 2)"),
    *((line, f"a start below the end; {SPAN} (line 1)") for line in ("a 0 5 5", f"a 0 5 {GREATEST + 1}")),
    *((line, "each partition once, not a[0] twice") for line in ("a 0 1 2\na 0 7", "a 0 1 2\na 0 1")),
)
RESET_OFFSETS = (
    *((line, f"{OFFSET} (line 1)") for line in ("a 0 many", f"a 0 {GREATEST + 1}", f"a 0 {DIGITS}", f"a {DIGITS} 0")),
    ("a 0 1\na 0 2", "each partition once, not a 0 twice"),
)
DEAD_LETTER_PLACES = tuple(
    (line, "topic, or topic and partition, or topic, partition, start and end (line 1)")
    for line in ("a x", "a 0 1", "a 0 1 x", "a 0 1 2 3", f"a {2**31} 1 2")
)
SELECTIONS = tuple((line, "topic, or topic and partition (line 1)") for line in ("a x", f"a {DIGITS}"))

RUN = (
    replace(
        choice("mode", "Mode", "live, reload, rebuild, plan_only", "plan_only", default="live"),
        filled_in="live",
        arguments=(
            ("run x", "live"),
            ("run x --mode reload", "reload"),
            ("run x --mode rebuild", "rebuild"),
            ("plan x --dry-run", "plan_only"),
        ),
    ),
    text("from", "From (time)", "2026-01-01", ("run x --from-time y", "y"), faults=[("tomorrow", ZONED)]),
    text("to", "To (time)", "2026-01-01", ("plan x --dry-run --to-time y", "y"), faults=[("tomorrow", ZONED)]),
    text("offsets", "Offsets", "a 0 1\na 1 3", ("run x --offsets a --offsets b", ["a", "b"]), faults=RELOADED_SPANS),
    number("limit", "Limit (offsets)", 1, ("run x --limit 5", 5), (f"run x --limit {GREATEST}", GREATEST)),
    flag("reload_what_is_left", "Reload what is left", ("run x --reload-what-is-left", True)),
    flag("replace_resolved", "Replace resolved dead letters", ("run x --replace-resolved", True)),
    flag("into_new_table", "Into a new table", ("run x --mode rebuild --into-new-table --reason y", True)),
    text("reason", "Reason", "a bug", ("run x --reason why", "why")),
)
CHANGE = (
    text("pipeline", "Pipeline", "orders"),
    replace(choice("kind", "What to do", KINDS, "roll-back", default="preflight"), filled_in="preflight"),
    flag("apply", "Apply", ("change x change-target --apply", True)),
    text("reason", "Reason", "a bug", ("roll-back x --batches 2 --reason why", "why")),
    flag("supersede", "Supersede the outstanding batch", ("roll-back x --batches 2 --supersede", True)),
    choice("reset_to", "Reset to", f"{PLACES}, time, offsets, by", "time", ("change x reset --to latest", "latest")),
    text("time", "Time", "2026-01-01", ("change x reset --to-time y", "y"), faults=[("yesterday", ZONED)]),
    text("offsets", "Offsets", "a 0 1", ("change x reset --to-offset a 0 1", [["a", "0", "1"]]), faults=RESET_OFFSETS),
    number("by_offsets", "By (offsets)", None, ("change x reset --by -5", -5)),
    text("only", "Only", "a 1", ("change x reset --by 5 --only a 1", [["a", "1"]]), faults=SELECTIONS),
    number("keep_offsets", "Keep (offsets)", 0, ("change x skip-lag --keep 0", 0)),
    number("margin_offsets", "Margin (offsets)", 0, ("change x accept-loss --margin 7", 7), default=0),
    choice(
        "begin", "Begin at", PLACES, "latest", ("change x accept-cluster --begin latest", "latest"), default="earliest"
    ),
    text("former_name", "Former name", "shop", ("change x rename --from y", "y")),
    number("batches", "Batches", 1, ("roll-back x --batches 2", 2)),
    flag("allow_compacted", "Allow compacted topics", ("roll-back x --batches 2 --allow-compacted", True)),
    flag("submit_job", "Submit a job"),
    text(
        "dead_letter_reasons",
        "Reasons of dead letters",
        "malformed\ntoo_long",
        ("dead-letters list x --of-reason malformed --of-reason too_long", ["malformed", "too_long"]),
        faults=[("malformed wrong", f"reasons of {', '.join(DeadLetterReason)}, not wrong")],
    ),
    text(
        "dead_letter_places",
        "Places of dead letters",
        "a\na 1\na 1 5 9",
        ("dead-letters replay x --only a 1 5 9 --only b", [["a", "1", "5", "9"], ["b"]]),
        faults=DEAD_LETTER_PLACES,
    ),
    number("generation", "Generation", 0, ("dead-letters export x --generation 0", 0)),
    number("most_dead_letters", "At most (dead letters)", 1, ("dead-letters discard x --limit 7", 7)),
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
    for bad, expected in (*((bad, row.expected) for bad in row.bad), *row.faults):
        with pytest.raises(ConfigError) as stop:
            read(form, {row.key: bad})
        [fault] = [one for one in stop.value.found.splitlines() if one.endswith(f"; found {bad!r}")]
        assert fault.startswith(f"{row.label}: expected {expected}")


@each_field
def test_airflow_itself_refuses_another_kind_of_value(form: str, row: Row) -> None:
    param = params(form)[row.key]
    assert param.resolve(row.good) == row.good
    for bad in (*row.bad, *(fault for fault, _ in row.faults if not isinstance(fault, str))):
        with pytest.raises(ParamValidationError):
            param.resolve(bad)


@each_field
def test_an_argument_fills_a_field_in_under_its_key(form: str, row: Row) -> None:
    assert row.arguments or not FIELDS[form][row.key].option
    for arguments, held in row.arguments:
        assert vars(parsed(*arguments.split()))[row.key] == held


@pytest.mark.parametrize(
    ("arguments", "found", "least"),
    [
        *(("run x --limit", found, 1) for found in ("0", "-1", "1e3", "1.0", "1_000", "", "x", DIGITS, str(2**63))),
        ("change x skip-lag --keep", "-1", 0),
        ("change x accept-loss --margin", "-1", 0),
        ("roll-back x --batches", "0", 1),
    ],
)
def test_an_argument_that_is_no_number_from_the_least_on_is_told_the_range_in_a_line(
    arguments: str, found: str, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parsed(*arguments.split(), found)
    fault = capsys.readouterr().err.splitlines()[-1].partition(f"argument {arguments.rsplit(maxsplit=1)[-1]}: ")[2]
    assert end.value.code == 2
    assert fault.startswith(f"expected a whole number from {least} to 9223372036854775807, found {found[:30]}")
    assert len(fault) < 120


@each_field
def test_airflow_shows_a_field_under_its_label_and_says_what_it_does(form: str, row: Row) -> None:
    schema = params(form)[row.key].schema
    assert schema["title"] == row.label
    assert schema["description_md"].strip("*").endswith(".")
    # Airflow shows a field in red before anybody has typed, where its type does not allow that it is empty.
    assert row.filled_in is not None or "null" in schema["type"]
    # It shows a choice of nothing as null, unless that has a text.
    assert None not in schema.get("enum", ()) or schema["values_display"]["None"]


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

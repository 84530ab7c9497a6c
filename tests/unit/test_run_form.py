"""The form of a run: what it asks for, and every fault of it at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.errors import ConfigError
from kafka_ingest.forms.run import FIELDS, backfill_options, run_options
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions, TimeSpan

NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
HOUR_MS = 3_600_000
DEFAULTS = {key: field.default for key, field in FIELDS.items()}
INTERVAL = TimeSpan(NEW_YEAR_MS, NEW_YEAR_MS + HOUR_MS)


def options(**form: Any) -> RunOptions:
    given = {key.removesuffix("_"): value for key, value in form.items()}
    return run_options(given, zone="Europe/Berlin", pipeline="orders")


def faults(**form: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        options(**form)
    return caught.value.found.splitlines()


@pytest.mark.parametrize("form", [{}, DEFAULTS, dict.fromkeys(DEFAULTS), dict.fromkeys(DEFAULTS, " ")])
def test_a_form_that_nobody_filled_in_is_a_plain_live_run(form: dict[str, Any]) -> None:
    assert run_options(form, zone="UTC", pipeline="orders") == RunOptions()


def test_a_live_run_can_be_limited_and_bounded() -> None:
    assert options(limit=10, to="2026-01-01T00:00:00Z", reason=" a try ") == RunOptions(
        until_ms=NEW_YEAR_MS, limit_offsets=10, reason="a try"
    )


def test_a_live_run_after_a_reset_can_go_on_with_what_is_left() -> None:
    assert options(reload_what_is_left=True, replace_resolved=True) == RunOptions(
        reload_what_is_left=True, replace_resolved=True
    )


def test_a_reload_by_times_takes_the_pipelines_time_zone() -> None:
    assert options(mode="reload", from_="2026-01-01T01:00", to="2026-01-01T02:00", reason="a bug") == RunOptions(
        RunMode.RELOAD, times=INTERVAL, reason="a bug"
    )


def test_a_reload_without_an_end_goes_to_the_end_of_the_log() -> None:
    assert options(mode="reload", from_="2026-01-01T00:00:00Z", reason="a bug").times == TimeSpan(NEW_YEAR_MS)


def test_a_reload_by_offsets_takes_a_line_a_partition() -> None:
    asked = options(
        mode="reload",
        offsets="orders 1 5 9\n\n  orders   0  0\n",
        reload_what_is_left=True,
        replace_resolved=True,
        reason="a bug",
    )
    assert asked == RunOptions(
        RunMode.RELOAD,
        offsets=(OffsetSpan("orders", 0, 0), OffsetSpan("orders", 1, 5, 9)),
        reload_what_is_left=True,
        replace_resolved=True,
        reason="a bug",
    )


def test_plan_only_looks_at_a_live_run_or_at_a_reload() -> None:
    assert options(mode="plan_only", limit=5) == RunOptions(RunMode.PLAN_ONLY, limit_offsets=5)
    assert options(mode="plan_only", to="2026-01-01T00:00:00Z").until_ms == NEW_YEAR_MS
    reload = options(mode="plan_only", from_="2026-01-01T00:00:00Z", to="2026-01-01T01:00:00Z")
    assert (reload.times, reload.until_ms) == (INTERVAL, None)


@pytest.mark.parametrize(
    ("form", "fault"),
    [
        (
            {"mode": "relaod", "from": "2026-01-01"},
            "Mode: expected one of live, reload, rebuild, plan_only; found 'relaod'",
        ),
        ({"colour": "red"}, f"colour: expected one of the keys {', '.join(DEFAULTS)}; found an unknown key"),
        (
            {"from": "2026-01-01"},
            "From (time): expected nothing in a live run, which begins at the committed offsets; found",
        ),
        ({"offsets": "orders 0 1"}, "Offsets: expected nothing in a live run, which begins at the committed offsets"),
        (
            {"mode": "reload", "reason": "r"},
            "From (time): expected a time, or Offsets: a reload needs a span; found neither",
        ),
        ({"mode": "reload", "from": "2026-01-01"}, "Reason: expected why it is loaded again; found nothing"),
        ({"mode": "rebuild"}, "Reason: expected why it is loaded again; found nothing"),
        (
            {"mode": "rebuild", "reason": "r", "from": "2026-01-01"},
            "From (time): expected nothing in a rebuild, which reads the whole log; found a value",
        ),
        (
            {"mode": "rebuild", "reason": "r", "limit": 5},
            "Limit (offsets): expected nothing in a reload, which reads its whole span; found a value",
        ),
        (
            {"mode": "reload", "reason": "r", "from": "2026-01-02", "to": "2026-01-02"},
            "To (time): expected a time after From (time); found '2026-01-02'",
        ),
        (
            {"mode": "reload", "reason": "r", "from": "2026-01-02", "offsets": "orders 0 1"},
            "Offsets: expected either offsets or times; found both",
        ),
        (
            {"mode": "reload", "reason": "r", "from": "2026-01-02", "limit": 5},
            "Limit (offsets): expected nothing in a reload, which reads its whole span; found a value",
        ),
    ],
)
def test_a_fault_says_key_expected_and_found(form: dict[str, Any], fault: str) -> None:
    (found,) = faults(**form)
    assert found.startswith(fault)


def test_every_fault_is_told_at_once() -> None:
    found = faults(mode="reload", limit=-1, offsets="x", to="y", unheard_of=1)
    assert [fault.partition(":")[0] for fault in found] == [
        "unheard_of",
        "To (time)",
        "Offsets",
        "Limit (offsets)",
        "Reason",
        "Offsets",
        "Limit (offsets)",
    ]


def test_faults_speak_of_what_the_asker_sees() -> None:
    with pytest.raises(ConfigError) as caught:
        run_options(
            {"from": "2026-01-01"}, zone="UTC", pipeline="orders", labels={"from": "--from-time", "mode": "--mode"}
        )
    assert caught.value.found == (
        "--from-time: expected nothing in a live run, which begins at the committed offsets; "
        "found a value (--mode reload?)"
    )


def test_what_airflow_adds_to_a_conf_is_no_fault() -> None:
    assert options(openlineage={"parentRunId": "x"}) == RunOptions()


def test_a_backfill_reloads_the_interval_of_its_run() -> None:
    form = {**DEFAULTS, "reload_what_is_left": True, "replace_resolved": True, "reason": "a new column"}
    assert backfill_options({}, INTERVAL, pipeline="orders") == RunOptions(RunMode.RELOAD, times=INTERVAL)
    assert backfill_options(form, INTERVAL, pipeline="orders") == RunOptions(
        RunMode.RELOAD, times=INTERVAL, reload_what_is_left=True, replace_resolved=True, reason="a new column"
    )


def test_a_backfill_takes_no_span_of_its_own() -> None:
    with pytest.raises(ConfigError) as caught:
        backfill_options({"mode": "live", "limit": 5, "from": "2026-01-01", "x": 1}, INTERVAL, pipeline="orders")
    assert [fault.partition(":")[0] for fault in caught.value.found.splitlines()] == [
        "x",
        "From (time)",
        "Limit (offsets)",
    ]


def test_the_page_about_operating_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    assert [key for key in DEFAULTS if f"`{key}`" not in page] == []

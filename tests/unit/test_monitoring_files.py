"""Rules, dashboard and mapping fit each other, the metrics and the documentation."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_ingest.__main__ import main
from kafka_ingest.metrics import METRICS
from sandbox.paths import CHECKOUT
from tests.monitoring import ALERTS, DASHBOARD, FOLDER, PANELS, exported_names, names_in

NAMES = [str(alert["alert"]) for alert in ALERTS]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
CASES = yaml.safe_load((FOLDER / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
ALERTING = (CHECKOUT / "docs" / "alerting.md").read_text(encoding="utf-8")


def test_rules_their_tests_and_the_dashboard_name_no_metric_that_is_not_sent() -> None:
    sent = {name for metric in METRICS for name in exported_names(metric)}
    series = [entry["series"] for case in CASES for entry in case["input_series"]]
    texts = [*QUERIES, *series, *(alert["expr"] for alert in ALERTS)]
    named = set().union(*map(names_in, texts))
    assert named
    assert named - sent == set()


def test_every_metric_is_on_the_dashboard() -> None:
    shown = set().union(*map(names_in, QUERIES))
    assert [metric.name for metric in METRICS if not shown & set(exported_names(metric))] == []


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_says_what_is_wrong_what_to_do_and_where_to_read_on(alert: dict[str, Any]) -> None:
    notes = alert["annotations"]
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert set(notes) == {"summary", "description", "page", "runbook_url"}
    assert "Next: " in notes["description"]
    assert notes["page"].startswith("/kafka-ingest/")
    path, _, anchor = notes["runbook_url"].partition("#")
    assert anchor in anchors(CHECKOUT / path)


def test_every_command_that_an_alert_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    texts = " ".join(alert["annotations"]["description"] for alert in ALERTS)
    commands = set(re.findall(r"python -m kafka_ingest ([a-z-]+)", texts))
    assert {"status", "lag", "dead-letters"} <= commands
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0, command
    assert capsys.readouterr().out


def test_every_alert_has_moments_at_which_it_fires_and_at_which_it_does_not() -> None:
    fires: set[str] = set()
    silent: set[str] = set()
    for case in CASES:
        for asked in case.get("alert_rule_test", []):
            (fires if asked["exp_alerts"] else silent).add(asked["alertname"])
        for asked in case.get("promql_expr_test", []):
            [name] = re.findall(r'alertname="(\w+)"', asked["expr"])
            (fires if asked["exp_samples"] else silent).add(name)
    assert (fires, silent) == (set(NAMES), set(NAMES))


def test_every_alert_is_in_the_table_of_the_documentation() -> None:
    rows = re.findall(r"(?m)^\| `(KafkaIngest\w+)` \| (\w+) \|", ALERTING)
    assert rows == [(alert["alert"], alert["labels"]["severity"]) for alert in ALERTS]


def test_the_dashboard_takes_its_data_source_from_its_variable() -> None:
    sources = [panel["datasource"] for panel in PANELS]
    sources += [target["datasource"] for panel in PANELS for target in panel["targets"]]
    assert {(source["type"], source["uid"]) for source in sources} == {("prometheus", "${datasource}")}


def test_every_variable_that_a_query_uses_is_defined() -> None:
    defined = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert {"datasource", "pipeline"} <= defined
    assert {name for query in QUERIES for name in re.findall(r"\$(\w+)", query)} <= defined


def test_panels_have_titles_and_ids_of_their_own_and_lie_side_by_side() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    places = [{(x, y) for x in columns(panel["gridPos"]) for y in lines(panel["gridPos"])} for panel in panels]
    assert all(x < 24 for place in places for x, _ in place)
    assert [one & other for one, other in combinations(places, 2) if one & other] == []


def columns(place: dict[str, int]) -> range:
    return range(place["x"], place["x"] + place["w"])


def lines(place: dict[str, int]) -> range:
    return range(place["y"], place["y"] + place["h"])


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

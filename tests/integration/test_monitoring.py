"""Prometheus itself judges rules and dashboard, on what Airflow's own StatsD client sends when tasks run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import isnan
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

import tests.airflow_home  # noqa: F401 (before anything imports Airflow)
from kafka_ingest.errors import TargetMismatch
from kafka_ingest.metrics import HEADROOM_OFFSETS, METRICS, Measurement
from kafka_ingest.operators.runs import send
from tests.dags.all_fakes import FakeSystem
from tests.deadlines import until
from tests.monitoring import FOLDER, PANELS, Monitoring, exported_names, running_monitoring, tool

SENT = re.compile(r"(?m)^(kafka_ingest_\w+)\{(.*)\} (\S+)$")


def test_every_alert_fires_when_it_should_and_not_otherwise() -> None:
    command = [str(tool("promtool")), "test", "rules", "alerts_test.yml"]
    answer = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    command = [str(tool("promtool")), "check", "config", "prometheus.yml"]
    answer = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.fixture(scope="module")
def monitoring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitoring]:
    """Exporter and Prometheus, after pipeline orders has loaded, has kept a dead letter, and has failed twice."""
    with pytest.MonkeyPatch.context() as patch, running_monitoring(tmp_path_factory.mktemp("monitoring")) as running:
        with airflow_sending_to(running.statsd_port, patch):
            run_pipeline(patch)
        scraped = "count_over_time(kafka_ingest_failed_runs_in_a_row[1m]) > 1"
        until(lambda: running.query(scraped) != [], "Prometheus has asked the exporter twice")
        yield running


@contextmanager
def airflow_sending_to(port: int, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Airflow's stats, made of its configuration as in a worker (`main` of `task_runner.py`, 3.3.2)."""
    settings = {
        "statsd_on": "True",
        "statsd_host": "127.0.0.1",
        "statsd_port": str(port),
        "statsd_influxdb_enabled": "True",
    }
    for name, value in settings.items():
        patch.setenv(f"AIRFLOW__METRICS__{name.upper()}", value)
    sender = get_stats_factory()()
    stats.initialize(factory=lambda: sender, export_legacy_names=True)
    yield
    sender.statsd.close()
    stats.initialize(factory=None, export_legacy_names=True)  # type: ignore[arg-type]  # as before Airflow sets one


def run_pipeline(patch: pytest.MonkeyPatch) -> None:
    """Two runs that load, the first one with a record that does not fit, then two that fail."""
    patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    system = FakeSystem()
    system.install(patch)
    system.log.append("orders", b"1", b"bad", b"3")
    system.run("run-1")
    system.log.append("orders", b"4")
    system.run("run-2")
    system.job_fault = TargetMismatch("the target refused the batch")
    system.log.append("orders", b"5")
    for run_id in ("run-3", "run-4"):
        with pytest.raises(AirflowFailException):
            system.run(run_id)


def test_every_metric_arrives_under_the_name_and_labels_that_rules_and_dashboard_use(monitoring: Monitoring) -> None:
    sent: dict[str, set[str]] = {}
    for name, labels, _ in SENT.findall(monitoring.exported()):
        sent.setdefault(name, set()).update(re.findall(r"(\w+)=", labels))
    expected = {
        name: {"pipeline", *metric.tags, *(["le"] if name.endswith("_bucket") else [])}
        for metric in METRICS
        for name in exported_names(metric)
    }
    assert sent == expected


def test_values_arrive_as_they_were_sent(monitoring: Monitoring) -> None:
    def value(expression: str) -> float:
        [series] = monitoring.query(expression)
        return float(series["value"][1])

    assert value('kafka_ingest_rows_total{pipeline="orders"}') == 3
    assert value('kafka_ingest_dead_letters_total{pipeline="orders"}') == 1
    assert value('kafka_ingest_failed_runs_in_a_row{pipeline="orders"}') == 2
    assert value('kafka_ingest_step_failures_total{pipeline="orders", step="load", fault="TargetMismatch"}') == 2
    # A step of a test takes well below a minute, and would be above 60 if milliseconds had stayed.
    assert 0 < value('kafka_ingest_step_duration_seconds_sum{pipeline="orders", step="plan"}') < 60
    assert isnan(value('kafka_ingest_headroom_seconds{pipeline="orders"}'))


def test_headroom_below_zero_is_no_change_of_what_was_before(monitoring: Monitoring) -> None:
    lost = Measurement(HEADROOM_OFFSETS, -5, "lossy", (("topic", "orders"),))
    with pytest.MonkeyPatch.context() as patch, airflow_sending_to(monitoring.statsd_port, patch):
        send([replace(lost, value=7), lost])
    until(lambda: 'kafka_ingest_headroom_offsets{pipeline="lossy"' in monitoring.exported(), "the exporter has it")
    [told] = [told for _, labels, told in SENT.findall(monitoring.exported()) if 'pipeline="lossy"' in labels]
    assert float(told) == -5


def test_two_failed_runs_and_a_dead_letter_reach_prometheus_as_alerts(monitoring: Monitoring) -> None:
    firing = 'ALERTS{alertstate="firing", pipeline="orders"}'
    expected = {"KafkaIngestFailedTwice", "KafkaIngestDeadLetters"}
    until(lambda: {found["metric"]["alertname"] for found in monitoring.query(firing)} == expected, "both fire, alone")


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_every_query_of_the_dashboard_shows_data(monitoring: Monitoring, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        expression = target["expr"].replace("$pipeline", "orders").replace("$window", "10m")
        until(partial(shows_data, monitoring, expression), f"{expression} has series")


def shows_data(monitoring: Monitoring, expression: str) -> bool:
    return monitoring.query(expression) != []

"""What monitoring/ holds, and Prometheus with its tools, for tests of rules, dashboard and mapping."""

from __future__ import annotations

import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_ingest.metrics import Metric, MetricKind
from sandbox.paths import CHECKOUT
from sandbox.ports import PortBook, is_listening
from sandbox.processes import ManagedProcess

FOLDER = CHECKOUT / "monitoring"
MAPPING: dict[str, Any] = yaml.safe_load((FOLDER / "statsd_mapping.yml").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana_dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
#: What a histogram is made of, in Prometheus.
_HISTOGRAM = ("_bucket", "_sum", "_count")
_KINDS = {MetricKind.COUNTER: "counter", MetricKind.GAUGE: "gauge", MetricKind.TIMER: "observer"}


def exported_names(metric: Metric) -> list[str]:
    """What the mapping calls a metric in Prometheus."""
    [template] = [entry["name"] for entry in MAPPING["mappings"] if entry["match_metric_type"] == _KINDS[metric.kind]]
    name = template.replace("${1}", metric.name.partition(".")[2])
    return [name + part for part in _HISTOGRAM] if metric.kind is MetricKind.TIMER else [name]


def names_in(text: str) -> set[str]:
    """Every metric of ours that a text names."""
    return set(re.findall(r"kafka_ingest_\w+(?=[{\[) ]|$)", text))


def tool(name: str) -> Path:
    """A program of Prometheus; the test is skipped where it is not there."""
    path = CHECKOUT / ".cache" / "monitoring" / "usr" / "bin" / name
    found = str(path) if path.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not there: make monitoring-tools")
    return Path(found)


@dataclass(frozen=True)
class Monitoring:
    """A running exporter, and a Prometheus that asks it each second."""

    statsd_port: int
    exporter_url: str
    prometheus_url: str

    def exported(self) -> str:
        """All that the exporter tells Prometheus."""
        with urllib.request.urlopen(f"{self.exporter_url}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Series that an expression has now: labels in ``metric``, time and value in ``value``."""
        question = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.prometheus_url}/api/v1/query?{question}", timeout=10) as answer:
            series: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return series


@contextmanager
def running_monitoring(folder: Path) -> Iterator[Monitoring]:
    """Starts both with the files of monitoring/, on loopback; stops them in the end."""
    exporter, prometheus = tool("statsd_exporter"), tool("prometheus")
    ports = PortBook(folder)
    statsd, web, own = (ports.port_for_start(name) for name in ("statsd", "web", "prometheus"))
    shutil.copy(FOLDER / "alerts.yml", folder)
    config = (FOLDER / "prometheus.yml").read_text(encoding="utf-8")
    config = config.replace("statsd-exporter:9102", f"127.0.0.1:{web}").replace("15s", "1s")
    (folder / "prometheus.yml").write_text(config, encoding="utf-8")
    addresses = [
        f"--statsd.listen-udp=127.0.0.1:{statsd}",
        "--statsd.listen-tcp=",
        f"--web.listen-address=127.0.0.1:{web}",
    ]
    with (
        _running(
            "statsd_exporter",
            [exporter, f"--statsd.mapping-config={FOLDER / 'statsd_mapping.yml'}", *addresses],
            folder,
            web,
        ),
        _running(
            "prometheus",
            [
                prometheus,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{own}",
            ],
            folder,
            own,
        ),
    ):
        yield Monitoring(statsd, f"http://127.0.0.1:{web}", f"http://127.0.0.1:{own}")


@contextmanager
def _running(name: str, command: Sequence[Path | str], folder: Path, port: int) -> Iterator[None]:
    process = ManagedProcess(name, folder)
    try:
        process.start([str(part) for part in command])
        process.wait_until(lambda: is_listening(port), timeout_seconds=60)
        yield
    finally:
        process.stop()

"""The demo's pipelines are the example files under other names; its report is true only when all was exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_ingest import load_pipeline
from sandbox.demo_pipeline import DemoPipeline, new_demo_pipelines
from sandbox.demo_report import DemoResult, report_lines
from sandbox.paths import CHECKOUT, SandboxPaths
from sandbox.payments import PaymentsComparison
from sandbox.verification import Comparison

EXACT = Comparison(produced=3, rows=2, dead_letters=1, missing=0, duplicates=0, unexpected=0)


def test_every_demo_has_pipelines_of_its_own_and_airflow_shows_the_newest(tmp_path: Path) -> None:
    paths = SandboxPaths(tmp_path)
    new_demo_pipelines(paths)
    orders, payments = new_demo_pipelines(paths)
    assert (orders.name, payments.name) == ("orders_demo_2", "payments_demo_2")
    assert {path.name for path in paths.pipelines.iterdir()} == {"orders_demo_2.yaml", "payments_demo_2.yaml"}
    for pipeline in (orders, payments):
        settings = load_pipeline(paths.pipelines / f"{pipeline.name}.yaml")
        assert (settings.pipeline, settings.schedule.schedule) == (pipeline.name, None)
        assert (settings.batch.target.schema, settings.batch.target.table) == pipeline.target


@pytest.mark.parametrize("path", sorted((CHECKOUT / "docs" / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_of_the_documentation_is_a_sound_file(path: Path) -> None:
    assert load_pipeline(path).pipeline == path.stem


@pytest.mark.parametrize(
    ("payments", "is_proved"),
    [
        (PaymentsComparison({7: 2, 8: 2}, rows=4, differing=0), True),
        (PaymentsComparison({7: 4}, rows=4, differing=0), False),
        (PaymentsComparison({7: 2, 8: 2}, rows=3, differing=1), False),
    ],
)
def test_a_demo_is_proved_by_exact_payments_of_two_schemas(payments: PaymentsComparison, is_proved: bool) -> None:
    result = DemoResult(DemoPipeline("o"), EXACT, [], 1, DemoPipeline("p"), payments)
    assert result.is_proved is is_proved
    assert ("THIS DEMO FAILED" in report_lines(result, total_seconds=1.0)) is not is_proved

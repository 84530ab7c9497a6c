"""The demo's pipelines are the example files under other names; its report is true only when all was exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_ingest import load_pipeline
from sandbox.demo_pipeline import DemoPipeline, new_demo_pipelines
from sandbox.demo_report import DemoResult, report_lines
from sandbox.inventory import InventoryComparison
from sandbox.paths import CHECKOUT, SandboxPaths
from sandbox.payments import PaymentsComparison
from sandbox.verification import Comparison

EXACT = Comparison(produced=3, rows=2, dead_letters=1, missing=0, duplicates=0, unexpected=0)


def test_every_demo_has_pipelines_of_its_own_and_airflow_shows_the_newest(tmp_path: Path) -> None:
    paths = SandboxPaths(tmp_path)
    new_demo_pipelines(paths)
    pipelines = new_demo_pipelines(paths)
    names = ["orders_demo_2", "payments_demo_2", "inventory_demo_2"]
    assert [pipeline.name for pipeline in pipelines] == names
    assert {path.name for path in paths.pipelines.iterdir()} == {f"{name}.yaml" for name in names}
    for pipeline in pipelines:
        settings = load_pipeline(paths.pipelines / f"{pipeline.name}.yaml")
        assert (settings.pipeline, settings.schedule.schedule) == (pipeline.name, None)
        assert (settings.batch.target.schema, settings.batch.target.table) == pipeline.target


@pytest.mark.parametrize("path", sorted((CHECKOUT / "docs" / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_of_the_documentation_is_a_sound_file(path: Path) -> None:
    assert load_pipeline(path).pipeline == path.stem


@pytest.mark.parametrize(
    ("payments", "differing_items", "is_proved"),
    [
        (PaymentsComparison({7: 2, 8: 2}, rows=4, differing=0), 0, True),
        (PaymentsComparison({7: 4}, rows=4, differing=0), 0, False),
        (PaymentsComparison({7: 2, 8: 2}, rows=3, differing=1), 0, False),
        (PaymentsComparison({7: 2, 8: 2}, rows=4, differing=0), 1, False),
    ],
)
def test_a_demo_is_proved_by_exact_payments_of_two_schemas_and_a_table_that_is_the_source_table(
    payments: PaymentsComparison, differing_items: int, is_proved: bool
) -> None:
    items = InventoryComparison(events=9, rows=5, differing=differing_items)
    result = DemoResult(DemoPipeline("o"), EXACT, [], 1, DemoPipeline("p"), payments, DemoPipeline("i"), items)
    assert result.is_proved is is_proved
    assert ("THIS DEMO FAILED" in report_lines(result, total_seconds=1.0)) is not is_proved

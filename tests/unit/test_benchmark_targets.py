"""The targets of the page of benchmarks: whom they compare is measured side by side, and what was found is judged."""

from __future__ import annotations

import pytest

from tests.benchmarks.comparisons import COMPARISONS
from tests.benchmarks.contenders import COPY_THEN_INSERT, OURS, SPARK_JDBC, SPARK_STAGED, Contender
from tests.benchmarks.page import TARGETS
from tests.benchmarks.page_targets import Target, targets_table


def contenders_of(comparison: str) -> set[str]:
    return {one.name for one in COMPARISONS[comparison](None).contenders}


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: f"{one.comparison}, {one.against.name}")
def test_both_sides_of_a_target_meet_in_its_comparison(target: Target) -> None:
    assert {target.contender.name, target.against.name} <= contenders_of(target.comparison)


@pytest.mark.parametrize("comparison", ["peers-2m", "same-promise-10m"])
def test_the_staging_peer_and_the_bound_of_the_protocol_meet_the_product(comparison: str) -> None:
    expected = {one.name for one in (OURS, SPARK_JDBC, SPARK_STAGED, COPY_THEN_INSERT)}
    assert expected <= contenders_of(comparison)


def test_a_contender_that_is_newer_than_the_results_is_not_measured() -> None:
    newer = Contender("a newer one", OURS.prepare)
    last_line = targets_table([Target("load", "peers-2m", OURS, newer, least=2.0)], []).splitlines()[-1]
    assert last_line == "| load | a newer one | ≥ 2 | not measured |  |"


def test_a_target_that_no_load_can_miss_is_met() -> None:
    table = targets_table([Target("load", "peers-2m", OURS, SPARK_JDBC, least=0.0)], [])
    assert table.endswith(" | met |")

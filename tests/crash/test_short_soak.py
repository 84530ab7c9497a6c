"""A few cycles of ``make soak``: the same code, without Airflow and Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandbox.soak.choices import SoakOptions
from sandbox.soak.command import run_soak
from sandbox.soak.pipeline import SoakMode
from sandbox.soak.report import SoakResult
from sandbox.state_verification import StateComparison
from sandbox.verification import Comparison
from tests.services import TestServices

CYCLES = 6
#: Its cycles kill a driver, Kafka and PostgreSQL, start a run twice, and freeze two drivers, one while it publishes.
#: Its operator reloads, resets, skips and rolls back, before runs and beside them, and most of that is killed once.
SEED = 31

STATE_CYCLES = 4
#: Its cycles kill drivers and PostgreSQL, both while the first run publishes. Its operator skips, rebuilds, resets both
#: ways and reloads, and most of that is killed once.
STATE_SEED = 186


def test_after_cycles_of_kills_every_record_is_there_exactly_once(own_services: TestServices) -> None:
    result = run_soak(SoakOptions(cycles=CYCLES, seed=SEED), own_services.folder)
    found = result.comparison
    assert isinstance(found, Comparison)
    assert (found.missing, found.duplicates, found.unexpected) == (0, 0, 0)
    assert found.rows + found.dead_letters == found.produced
    assert found.miscounted_ranges == 0
    assert min(found.rows, found.dead_letters, found.tombstones) > 0
    assert result.sent["aborted transactions"] > 0
    assert (result.violations, result.audits) == (0, CYCLES // 5 + 1)
    assert result.runs == {"in-process": CYCLES}
    require_choices_happened(result, own_services.folder)
    # Those that go forwards move nothing where no lag is left.
    assert {"reloads", "resets backwards", "roll-backs"} <= result.interventions.keys()


def test_after_cycles_of_kills_every_key_is_as_its_newest_record_says(own_services: TestServices) -> None:
    options = SoakOptions(cycles=STATE_CYCLES, seed=STATE_SEED, mode=SoakMode.UPSERT)
    result = run_soak(options, own_services.folder)
    found = result.comparison
    assert isinstance(found, StateComparison)
    assert (found.differing, found.differing_dead_letters) == (0, 0)
    assert min(found.rows, found.removed, found.dead_letters) > 0
    # Keys were written again and again, or the comparison would prove little.
    assert found.changes > 3 * (found.rows + found.removed)
    assert result.violations == 0
    require_choices_happened(result, own_services.folder)
    assert {"rebuilds", "reloads", "resets backwards"} <= result.interventions.keys()


def require_choices_happened(result: SoakResult, folder: Path) -> None:
    """Each fault and each kill that the seed chose hit something, or came too late and was counted."""
    chosen: list[dict[str, Any]] = [json.loads(line) for line in (folder / "choices.jsonl").read_text().splitlines()]
    asked = [one for cycle in chosen for one in cycle["interventions"]]
    killed = [one for one in asked if one["kill_at"] is not None]
    assert result.kills.total() + result.late_faults == sum(len(cycle["faults"]) for cycle in chosen) + len(killed)
    assert result.kills.total() > 0

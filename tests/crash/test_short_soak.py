"""A few cycles of ``make soak``: the same code, without Airflow and Spark."""

from __future__ import annotations

import json

from sandbox.soak.choices import SoakOptions
from sandbox.soak.command import run_soak
from tests.services import TestServices

CYCLES = 6
#: Its cycles kill a driver, Kafka and PostgreSQL, start a run twice, and freeze two drivers, one while it publishes.
#: Its operator reloads, resets, skips and rolls back, before runs and beside them, and most of that is killed once.
SEED = 31


def test_after_cycles_of_kills_every_record_is_there_exactly_once(own_services: TestServices) -> None:
    result = run_soak(SoakOptions(cycles=CYCLES, seed=SEED), own_services.folder)
    found = result.comparison
    assert (found.missing, found.duplicates, found.unexpected) == (0, 0, 0)
    assert found.rows + found.dead_letters == found.produced
    assert found.miscounted_ranges == 0
    assert min(found.rows, found.dead_letters, found.tombstones) > 0
    assert result.sent["aborted transactions"] > 0
    assert (result.violations, result.audits) == (0, CYCLES // 5 + 1)
    assert result.runs == {"in-process": CYCLES}
    chosen = [json.loads(line) for line in (own_services.folder / "choices.jsonl").read_text().splitlines()]
    asked = [one for cycle in chosen for one in cycle["interventions"]]
    killed = [one for one in asked if one["kill_at"] is not None]
    assert result.kills.total() + result.late_faults == sum(len(cycle["faults"]) for cycle in chosen) + len(killed)
    assert result.kills.total() > 0
    # Those that go forwards move nothing where no lag is left.
    assert {"reloads", "resets backwards", "roll-backs"} <= result.interventions.keys()

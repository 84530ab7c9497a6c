"""The last lines of the demo: what it proved, or where it failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.demo_pipeline import DemoPipeline
from sandbox.verification import Comparison


@dataclass(frozen=True, slots=True)
class DemoLoad:
    """One load: rows of its batch, seconds of the try that committed it, and how many tries there were."""

    name: str
    rows: int
    seconds: float
    tries: int


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo found. Every invariant held, or it would not have come this far."""

    pipeline: DemoPipeline
    comparison: Comparison
    loads: Sequence[DemoLoad]
    expected_dead_letters: int

    @property
    def is_proved(self) -> bool:
        """Whether every record is there exactly once, and only the malformed ones are dead letters."""
        return self.comparison.is_exact and self.comparison.dead_letters == self.expected_dead_letters


def report_lines(result: DemoResult, *, total_seconds: float) -> list[str]:
    """Return the lines to print."""
    compared, loads = result.comparison, result.loads
    lines = [
        "",
        "What this demo proved" if result.is_proved else "THIS DEMO FAILED",
        f"  produced      {compared.produced:>9,}   records, read back with a plain consumer",
        f"  rows          {compared.rows:>9,}   in {result.pipeline.schema}.{result.pipeline.table}",
        f"  dead letters  {compared.dead_letters:>9,}   expected {result.expected_dead_letters}",
        f"  missing       {compared.missing:>9,}",
        f"  duplicates    {compared.duplicates:>9,}",
        f"  unexpected    {compared.unexpected:>9,}",
        "  invariants         held   every query of sql/invariants returned nothing",
    ]
    lines += [
        f"  {load.name:<13} {load.seconds:>7.1f} s   {load.rows / load.seconds:,.0f} rows/s from load_batch's start"
        f" to end, with Spark's start (try {load.tries})"
        for load in loads
    ]
    return [*lines, f"  whole demo    {total_seconds:>7.1f} s"]

"""The last lines of the demo: what it proved, or where it failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.demo_pipeline import DemoPipeline
from sandbox.inventory import InventoryComparison
from sandbox.payments import PaymentsComparison
from sandbox.verification import Comparison

_SCHEMAS = 2  # that the payments of a demo are written with


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

    orders: DemoPipeline
    comparison: Comparison
    loads: Sequence[DemoLoad]
    expected_dead_letters: int
    payments: DemoPipeline
    payments_comparison: PaymentsComparison
    items: DemoPipeline
    items_comparison: InventoryComparison

    @property
    def is_proved(self) -> bool:
        """Whether every record is there once, only the malformed ones are dead letters, and the tables are equal."""
        compared = self.comparison
        has_orders = compared.is_exact and compared.dead_letters == self.expected_dead_letters
        has_payments = self.payments_comparison.is_exact and len(self._payments_by_schema()) == _SCHEMAS
        return has_orders and has_payments and self.items_comparison.is_exact

    def payments_lines(self) -> list[str]:
        """Return the lines about the topic whose schema changed."""
        numbers = " and ".join(f"{number:,}" for number in self._payments_by_schema())
        compared, table = self.payments_comparison, f"{self.payments.schema}.{self.payments.table}"
        return [
            f"  payments      {compared.rows:>9,}   in {table}, of Avro records with two schemas: {numbers}",
            f"  differing     {compared.differing:>9,}   of these rows from their records, value by value",
        ]

    def items_lines(self) -> list[str]:
        """Return the lines about the table whose changes were loaded."""
        compared, table = self.items_comparison, f"{self.items.schema}.{self.items.table}"
        return [
            f"  items         {compared.rows:>9,}   in {table}, of {compared.events:,} change events of a table",
            f"  differing     {compared.differing:>9,}   of these rows from the source's last state, value by value",
        ]

    def _payments_by_schema(self) -> list[int]:
        return list(self.payments_comparison.records_by_schema.values())


def report_lines(result: DemoResult, *, total_seconds: float) -> list[str]:
    """Return the lines to print."""
    compared, loads = result.comparison, result.loads
    lines = [
        "",
        "What this demo proved" if result.is_proved else "THIS DEMO FAILED",
        f"  produced      {compared.produced:>9,}   records, read back with a plain consumer",
        f"  rows          {compared.rows:>9,}   in {result.orders.schema}.{result.orders.table}",
        f"  dead letters  {compared.dead_letters:>9,}   expected {result.expected_dead_letters}",
        f"  missing       {compared.missing:>9,}",
        f"  duplicates    {compared.duplicates:>9,}",
        f"  unexpected    {compared.unexpected:>9,}",
        *result.payments_lines(),
        *result.items_lines(),
        "  invariants         held   every query of sql/invariants returned nothing",
    ]
    lines += [
        f"  {load.name:<13} {load.seconds:>7.1f} s   {load.rows / load.seconds:,.0f} rows/s from load_batch's start"
        f" to end, with Spark's start (try {load.tries})"
        for load in loads
    ]
    return [*lines, f"  whole demo    {total_seconds:>7.1f} s"]

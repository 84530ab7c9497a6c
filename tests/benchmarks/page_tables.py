"""Tables of the page, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.statistics import Runs, Spread, contenders_of, of_contender, ratio


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Writes a table; text to the left, as Markdown has it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figures_table(
    runs: Runs, *, against: str, figure: str = "records_per_second", unit: str = "k records/s", decimals: int = 0
) -> str:
    """Shows a figure of every contender, and how many times the figure of ``against`` it is."""
    scale = 1_000 if unit.startswith("k ") else 1
    rows = []
    for name in contenders_of(runs):
        found = of_contender(runs, name, figure)
        share = ratio(runs, against, name, figure)
        records = of_contender(runs, name, "records").greatest
        rows.append(
            (name, f"{records:,}", spread_text(found, scale, decimals), spread_text(share, 1, 2), str(found.count))
        )
    return markdown_table(("contender", "records", unit, f"{against} / this", "rounds"), rows)


def ratios_table(runs: Runs, contender: str, *, against: str) -> str:
    """Shows the rates of two contenders and their ratio."""
    rows = [(name, spread_text(of_contender(runs, name), 1_000, 0)) for name in (against, contender)]
    rows.append((f"{contender} / {against}", spread_text(ratio(runs, contender, against), 1, 2)))
    return markdown_table(("contender", "k records/s"), rows)


def spread_text(found: Spread, scale: float = 1, decimals: int = 2) -> str:
    """Write a median and, of several figures, their range, all divided by ``scale``."""
    middle, least, greatest = (f"{f / scale:,.{decimals}f}" for f in (found.median, found.least, found.greatest))
    return middle if found.count == 1 else f"{middle} ({least}-{greatest})"


def thousands(number: int) -> str:
    """Writes a whole number for a person."""
    return f"{number:,}"

"""Every command of docs/sizing.md that calculates from its options prints what the page shows, word for word."""

from __future__ import annotations

import re
import shlex

import pytest

from kafka_ingest.__main__ import main
from kafka_ingest.sizing import costs
from sandbox.paths import CHECKOUT

PAGE = (CHECKOUT / "docs" / "sizing.md").read_text(encoding="utf-8")
#: A command with options alone, and the block of its output that follows.
SHOWN = re.findall(r"^    python -m kafka_ingest (size --[^\n]*)\n\n```text\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_shows_what_every_such_command_prints() -> None:
    assert len(SHOWN) == len(re.findall(r"^    python -m kafka_ingest size --", PAGE, re.MULTILINE)) == 4


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_the_page_shows_what_the_command_prints(command: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(command)) == 0
    printed = capsys.readouterr().out
    # All of it, or whole tables from its end.
    assert printed == shown or printed.endswith(f"\n\n{shown}")


def test_the_table_of_rates_has_the_rates() -> None:
    rows = {line.split(" | ")[0].strip("| "): line for line in PAGE.splitlines() if line.startswith("| ")}
    for name, rate in (
        ("stage, in one task", costs._STAGE),
        ("publish, in one session", costs._PUBLISH),
        ("publish of a table of current state", costs._FOLD),
        ("CPU of Spark", costs._SPARK_CPU),
        ("CPU of PostgreSQL", costs._DATABASE_CPU),
    ):
        told = [float(number) for number in re.findall(r"\| ([0-9.]+) µs", rows[name])]
        assert told == [number for number in (rate.record, rate.column, rate.byte) if number]

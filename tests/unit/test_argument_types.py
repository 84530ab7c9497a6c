"""Numbers on a command line and in forms: one that does not fit is told what fits, in our words."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from kafka_ingest.cli.command import at_least
from kafka_ingest.forms.change import parse_partition_offsets, parse_selection
from kafka_ingest.forms.run import parse_offset_spans

DIGITS = "9" * 5_000


@pytest.mark.parametrize("text", ["0", "-1", "1e3", "1.0", "1_000", "", "x", DIGITS, str(2**63)])
def test_an_argument_that_is_no_positive_number_is_told_the_range(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"expected a whole number from 1 to {2**63 - 1}, found") as it:
        at_least(1)(text)
    assert len(str(it.value)) < 120


def test_numbers_in_the_range_are_read() -> None:
    assert (at_least(1)("1"), at_least(1)(str(2**63 - 1)), at_least(0)("0")) == (1, 2**63 - 1, 0)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_offset_spans, f"orders 0 {DIGITS}"),
        (parse_offset_spans, f"orders {DIGITS} 1"),
        (parse_partition_offsets, f"orders 0 {DIGITS}"),
        (parse_partition_offsets, f"orders {DIGITS} 0"),
        (parse_selection, f"orders {DIGITS}"),
    ],
)
def test_an_offset_of_5000_digits_is_told_what_fits_and_not_what_python_converts(
    parse: Callable[[str], object], text: str
) -> None:
    with pytest.raises(ValueError, match=r"\(line 1\)") as caught:
        parse(text)
    assert "digits" not in str(caught.value)

"""Kinds of arguments that several commands take; a fault is one of usage."""

from __future__ import annotations

import argparse
import re

_GREATEST = 2**63 - 1  # what PostgreSQL's bigint can hold


def at_least_1(text: str) -> int:
    """Reads a whole number above 0."""
    return _whole_number(text, 1)


def at_least_0(text: str) -> int:
    """Reads a whole number that is not negative."""
    return _whole_number(text, 0)


def _whole_number(text: str, least: int) -> int:
    # At most 19 digits: Python converts no text of more than 4,300.
    if re.fullmatch(r"\+?[0-9]{1,19}", text) and least <= int(text) <= _GREATEST:
        return int(text)
    shown = text if len(text) <= 30 else f"{text[:30]}..."
    raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {_GREATEST}, found {shown}")

"""Kinds of arguments that several commands take; a fault is one of usage."""

from __future__ import annotations

import argparse


def at_least_1(text: str) -> int:
    """Reads a whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number

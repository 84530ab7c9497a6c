"""The command line of a peer: ``[options] <load.json>``, or ``--install``, which is not timed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import psycopg2
from confluent_kafka import KafkaException

from sandbox.errors import SandboxError
from tests.benchmarks.load import Load, load_of_command

#: Loads the records; what it gives back is printed as the last line.
LoadRecords = Callable[[Load, dict[str, Any]], Mapping[str, Any] | None]


class ContenderError(Exception):
    """A peer cannot do what it was asked for; the message is one line."""


def option(name: str) -> bool:
    """Says whether the command line has this option, and takes it away: what remains is the load."""
    if name not in sys.argv:
        return False
    sys.argv.remove(name)
    return True


def run(load_records: LoadRecords, *, install: Callable[[], object] | None = None) -> None:
    """Runs a peer as the harness or a person asks for it; exits with one line when it fails."""
    try:
        if option("--install"):
            if install is not None:
                install()
            return
        told = load_records(*load_of_command(sys.modules["__main__"].__doc__ or ""))
    except (ContenderError, SandboxError, KafkaException, psycopg2.Error) as error:
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    if told:
        sys.stdout.write(json.dumps(told) + "\n")

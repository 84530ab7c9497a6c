"""Arguments as the command line reads them."""

from __future__ import annotations

import argparse

from kafka_ingest.cli import change, dead_letters, run
from kafka_ingest.cli.command import add_command


def parsed(*arguments: str) -> argparse.Namespace:
    """Return what the commands with a form read of their arguments."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    for command in (*run.COMMANDS, *change.COMMANDS, *dead_letters.COMMANDS):
        add_command(commands, command)
    return parser.parse_args(arguments)

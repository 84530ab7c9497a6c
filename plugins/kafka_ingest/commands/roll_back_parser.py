"""The arguments of ``roll-back``."""

from __future__ import annotations

import argparse
from typing import TypeAlias

from kafka_ingest.commands.argument_types import at_least_1

Parsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_DETAILS = """\
Without --apply it shows what would be undone and writes nothing.
examples
  python -m kafka_ingest roll-back orders --batches 1
  python -m kafka_ingest roll-back orders --batches 1 --reason "prices were wrong, see incident 812" --apply
The next run loads the same offsets again. Batches that only reloaded are passed over. The same request id is done once.
"""


def add_roll_back(commands: Parsers) -> None:
    """Adds the command."""
    summary = "undo the newest batches: rows, dead letters and positions together"
    parser = commands.add_parser(
        "roll-back",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=_DETAILS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of the pipeline")
    parser.add_argument("--batches", type=at_least_1, required=True, metavar="N", help="how many, the newest first")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; needed with --apply, kept in the ledger")
    parser.add_argument("--apply", action="store_true", help="do it; without it, it is only shown")
    parser.add_argument("--supersede", action="store_true", help="take an outstanding batch out of the way")
    parser.add_argument(
        "--allow-compacted",
        action="store_true",
        help="go on where compaction may have taken records that the table still holds",
    )
    parser.add_argument("--request-id", metavar="ID", help="name of the request (default: a new one, which is printed)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=("roll_back", "run_roll_back"))

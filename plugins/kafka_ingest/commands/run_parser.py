"""The arguments of ``run`` and ``plan``: those of the form that Airflow shows (``core.run_form``)."""

from __future__ import annotations

import argparse
from typing import TypeAlias

from kafka_ingest.commands.argument_types import at_least_1
from kafka_ingest.core.run_options import RunMode

Parsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_RUN_DETAILS = """\
examples
  python -m kafka_ingest run orders
  python -m kafka_ingest run orders --limit 10000 --runner in-process
  python -m kafka_ingest run orders --mode reload --from-time 2026-01-31T13:00:00Z --to-time 2026-01-31T14:00:00Z \\
      --reason "a column was mapped wrongly"
  python -m kafka_ingest run orders --mode reload --offsets "orders 0 120 4120" --offsets "orders 1 0" --reason "..."
The same run id means the same batch: running it again finishes it, or finds it loaded.
A run from here has no data interval: under end: interval, too, it reads to the end of the log, or to --to-time.
The job's log goes to standard error, the result to standard output.
"""
_PLAN_DETAILS = """\
examples
  python -m kafka_ingest plan orders --dry-run
  python -m kafka_ingest plan orders --dry-run --from-time 2026-01-31T13:00:00Z
A run plans by itself: this is for looking. With a span it shows what a reload would read.
"""


def add_plan(commands: Parsers) -> None:
    """Adds ``plan``."""
    parser = _add(
        commands, "plan", "show what a run would read now, and what would stop it; writes nothing", _PLAN_DETAILS
    )
    parser.add_argument("--dry-run", action="store_true", required=True, help="required: says that nothing is written")
    _add_form(parser)
    parser.set_defaults(command=("run", "run_plan"), mode=RunMode.PLAN_ONLY.value)


def add_run(commands: Parsers) -> None:
    """Adds ``run``."""
    parser = _add(commands, "run", "plan, load and audit one batch", _RUN_DETAILS)
    parser.add_argument(
        "--mode",
        choices=(RunMode.LIVE.value, RunMode.RELOAD.value),
        default=RunMode.LIVE.value,
        help="live: go on from the committed offsets (default); reload: read a span again and replace its rows",
    )
    _add_form(parser)
    parser.add_argument("--run-id", metavar="ID", help="name of the run (default: a new one, which is printed)")
    parser.add_argument(
        "--runner",
        choices=("spark", "in-process"),
        default="spark",
        help="spark-submit (default), or one Python process without Spark: for small loads in CI",
    )
    parser.set_defaults(command=("run", "run_pipeline"))


def _add(commands: Parsers, name: str, summary: str, details: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of the pipeline")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _add_form(parser: argparse.ArgumentParser) -> None:
    zone = "without an offset from UTC in the pipeline's time zone"
    parser.add_argument("--from-time", metavar="TIME", help=f"reload: first record time of the span, {zone}")
    parser.add_argument(
        "--to-time",
        metavar="TIME",
        help=f"stop before the first record at or after this time, {zone} (default: the end of the log)",
    )
    parser.add_argument(
        "--offsets",
        action="append",
        metavar="'TOPIC PARTITION START [END]'",
        help="reload: a span of one partition, END not included; can be given again",
    )
    parser.add_argument(
        "--limit",
        type=at_least_1,
        metavar="N",
        help="read at most N offsets, instead of the limit in the pipeline file",
    )
    parser.add_argument(
        "--reload-what-is-left",
        action="store_true",
        help="go on where Kafka no longer holds all of what is read again, in a reload or after a reset backwards; "
        "rows that compaction took are deleted",
    )
    parser.add_argument(
        "--replace-resolved",
        action="store_true",
        help="where offsets are read again: replace resolved dead letters and their rows, too",
    )
    parser.add_argument("--reason", metavar="TEXT", help="why; needed for a reload, kept in the ledger")

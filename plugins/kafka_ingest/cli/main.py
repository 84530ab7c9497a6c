"""The command line: ``python -m kafka_ingest``, or ``kafka-ingest`` where the package is installed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

from kafka_ingest import __version__
from kafka_ingest.cli.output import Output
from kafka_ingest.errors import IngestError, exit_code
from kafka_ingest.forms.change import add_change, add_roll_back
from kafka_ingest.forms.run import add_plan, add_run
from kafka_ingest.forms.values import at_least_1
from kafka_ingest.protocol.housekeeping import MOST_DAYS, OLDER_THAN_DAYS

Command: TypeAlias = Callable[[argparse.Namespace, Output], int]
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_INTERRUPTED = 130
_EPILOG = """\
connections
  Kafka, target database and Spark are Airflow connections, named in the pipeline file. Each is looked up in the
  variable AIRFLOW_CONN_<ID> (JSON or URI), then in Airflow, where it is installed:
    export AIRFLOW_CONN_KAFKA_DEFAULT='{"conn_type": "kafka", "extra": {"bootstrap.servers": "localhost:9092"}}'
    export AIRFLOW_CONN_POSTGRES_DEFAULT='postgresql://etl:secret@localhost:5432/shop'
    export AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[*]"}'

pipelines
  Files dags/pipelines/*.yaml, and those in the folders that KAFKA_INGEST_PIPELINES lists.

exit codes
  0   done            65  the audit found that an invariant does not hold
  1   unexpected      75  try again later: a server is away, or another run holds the pipeline
  2   usage           78  stop: somebody must act; the message says how

a first run
  python -m kafka_ingest check-config
  python -m kafka_ingest migrate
  python -m kafka_ingest preflight
  python -m kafka_ingest plan orders --dry-run
  python -m kafka_ingest run orders
  python -m kafka_ingest status
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Expected faults are told on standard error, without a trace."""
    options = _parser().parse_args(arguments)
    output = Output(as_json=options.json)
    try:
        code = _command(options)(options, output)
        sys.stdout.flush()
    except IngestError as error:
        output.fault(error)
        return exit_code(error)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader had enough (as ``| head`` does). What is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _command(options: argparse.Namespace) -> Command:
    # Imported now and not above: the libraries of all commands together take a second to load.
    module, function = options.command
    found: Command = getattr(importlib.import_module(f"kafka_ingest.cli.{module}"), function)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kafka_ingest",
        description="Load Kafka topics into PostgreSQL in batches, exactly once: the DAGs' steps, without Airflow.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kafka-ingest {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_preflight(commands)
    for add in (_add_check_config, _add_migrate, add_plan, add_run, _add_status, _add_lag, _add_batches):
        add(commands)
    _add_dead_letters(commands)
    _add_audit(commands)
    _add_housekeeping(commands)
    _add_prepare_spark(commands)
    add_change(commands)
    add_roll_back(commands)
    return parser


def _add(
    commands: Commands, name: str, command: tuple[str, str], *, summary: str, details: str = ""
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=command)
    return parser


def _add_check_config(commands: Commands) -> None:
    details = "example: python -m kafka_ingest check-config dags/pipelines/orders.yaml"
    parser = _add(
        commands,
        "check-config",
        ("setup", "run_check_config"),
        summary="check pipeline files and list every fault with its line",
        details=f"{details}\nWithout files it checks all that make DAGs. Exit code 78 when one is broken.",
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="pipeline files")


def _add_migrate(commands: Commands) -> None:
    parser = _add(
        commands,
        "migrate",
        ("setup", "run_migrate"),
        summary="create the ledger in the target database, or bring it up to date",
        details="example: python -m kafka_ingest migrate --connection warehouse\nRunning it twice is harmless.",
    )
    _add_connection(parser)


def _add_preflight(commands: Commands) -> None:
    parser = _add(
        commands,
        "preflight",
        ("look", "run_preflight"),
        summary="check what pipelines rest on: connections, topics, database, Spark; exit code 78 when something fails",
        details="example: python -m kafka_ingest preflight orders\nIt changes nothing. Warnings do not fail it.",
    )
    parser.add_argument("pipelines", metavar="PIPELINE", nargs="*", help="names of pipelines (default: all)")
    parser.add_argument("--spark", action="store_true", help="let a small Spark job look at the executors' packages")


def _add_status(commands: Commands) -> None:
    parser = _add(commands, "status", ("look", "run_status"), summary="say where each pipeline stands")
    _add_pipeline(parser, nargs="?")


def _add_lag(commands: Commands) -> None:
    parser = _add(
        commands,
        "lag",
        ("look", "run_lag"),
        summary="say how far each partition's committed offset is behind its log",
        details=(
            "lag offsets       end offset - committed offset: offsets, not records\n"
            "lag seconds       0 when nothing waits, else the time since the partition was complete (an estimate)\n"
            "headroom offsets  what the log still holds before the committed offset; below 0, records are lost\n"
            "open transaction offsets  what an open producer transaction holds back"
        ),
    )
    _add_pipeline(parser, nargs="?")


def _add_batches(commands: Commands) -> None:
    parser = _add(commands, "batches", ("look", "run_batches"), summary="list the newest batches of a pipeline")
    _add_pipeline(parser)
    parser.add_argument("--limit", type=at_least_1, default=20, metavar="N", help="at most N batches (default: 20)")


def _add_dead_letters(commands: Commands) -> None:
    parser = _add(
        commands,
        "dead-letters",
        ("look", "run_dead_letters"),
        summary="list records that did not fit, with the reason",
        details=(
            "example: python -m kafka_ingest dead-letters orders --batch 0b8ee31f-5b0e-4a54-8a5c-0b1f5e1f9f55\n"
            "With --json and --show-values, keys, values and header values are base64."
        ),
    )
    _add_pipeline(parser)
    parser.add_argument("--batch", type=UUID, metavar="ID", help="only those of one batch")
    parser.add_argument("--limit", type=at_least_1, default=50, metavar="N", help="at most N (default: 50)")
    parser.add_argument("--show-values", action="store_true", help="show keys, values and headers, too")


def _add_audit(commands: Commands) -> None:
    parser = _add(
        commands,
        "audit",
        ("look", "run_audit"),
        summary="check every invariant of a pipeline; exit code 65 when one does not hold",
        details=(
            "It looks at the newest 1,000 batches of the ledger, and counts the rows of the newest one in the table.\n"
            "With --all it counts every range that was ever published: in steps, beside running loads, for as long\n"
            "as reading the table takes. It can be stopped at any moment."
        ),
    )
    _add_pipeline(parser)
    parser.add_argument("--all", action="store_true", help="count the rows of all batches in the table")


def _add_housekeeping(commands: Commands) -> None:
    parser = _add(
        commands,
        "housekeeping",
        ("setup", "run_housekeeping"),
        summary="drop leftover staging tables, delete old details of the ledger, summarise BRIN indexes",
        details=(
            "example: python -m kafka_ingest housekeeping --dry-run\n"
            "What is in use stays and is named; running it again is harmless. The DAG kafka_ingest_housekeeping runs\n"
            "the same once a day."
        ),
    )
    _add_connection(parser)
    parser.add_argument(
        "--older-than-days",
        type=_days,
        default=OLDER_THAN_DAYS,
        metavar="N",
        help=f"age from which ranges of superseded batches are deleted (default: {OLDER_THAN_DAYS})",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done; change nothing")


def _add_prepare_spark(commands: Commands) -> None:
    parser = _add(
        commands,
        "prepare-spark",
        ("setup", "run_prepare_spark"),
        summary="let loads on this machine start sooner: make an archive of the classes that Spark loads",
        details=(
            "example: python -m kafka_ingest prepare-spark\n"
            "Once on each machine that submits jobs, and again after an update of Java or Spark: an archive that does\n"
            "not fit is not used. It is kept in the virtual environment, else in ~/.cache/kafka-ingest; the variable\n"
            "KAFKA_INGEST_CACHE names another folder."
        ),
    )
    parser.add_argument("--again", action="store_true", help="make it also where there is one that fits")


def _add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--connection",
        action="append",
        metavar="ID",
        help="connection of the target database; can be given again (default: those of all pipelines, "
        "or postgres_default)",
    )


def _add_pipeline(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    text = "name of the pipeline" + (" (default: all)" if nargs else "")
    parser.add_argument("pipeline", metavar="PIPELINE", nargs=nargs, help=text)


def _days(text: str) -> int:
    number = int(text)
    if not 0 <= number <= MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {MOST_DAYS}")
    return number

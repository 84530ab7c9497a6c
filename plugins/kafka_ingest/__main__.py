"""The command line: ``python -m kafka_ingest``, or ``kafka-ingest`` where the package is installed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from kafka_ingest import __version__
from kafka_ingest.cli import change, dead_letters, look, run, setup, size
from kafka_ingest.cli.command import Output, add_command
from kafka_ingest.errors import IngestError, exit_code

#: In the order of ``--help``: before the first run, a run, a look at it, upkeep, changes.
_COMMANDS = (
    look.PREFLIGHT,
    *size.COMMANDS,
    *setup.COMMANDS,
    *run.COMMANDS,
    *look.COMMANDS,
    *dead_letters.COMMANDS,
    *setup.UPKEEP,
    *change.COMMANDS,
)

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
  python -m kafka_ingest draft orders --write dags/pipelines/orders.yaml
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
        code: int = options.run(options, output)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kafka_ingest",
        description="Load Kafka topics into PostgreSQL in batches, exactly once: the DAGs' steps, without Airflow.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kafka-ingest {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        add_command(commands, command)
    return parser


if __name__ == "__main__":
    sys.exit(main())

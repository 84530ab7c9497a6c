"""Commands around a load: ``migrate``, ``housekeeping``, ``prepare-spark``."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from kafka_ingest.cli.environment import connection, postgres_params, target_connections
from kafka_ingest.cli.output import Output
from kafka_ingest.errors import OK, STOP_AND_CALL
from kafka_ingest.pipeline_files.files import pipeline_paths, read_pipelines
from kafka_ingest.postgres.migrations import migrate
from kafka_ingest.protocol.housekeeping import keep_house
from kafka_ingest.spark.class_archive import prepare_archive
from kafka_ingest.spark.installation import class_archive
from kafka_ingest.world import housekeeper

# ----------
# Commands that come before the first run: ``migrate`` and ``check-config``.


def run_migrate(options: argparse.Namespace, output: Output) -> int:
    """Bring the ledger up to date in one database, or in the target database of every pipeline."""
    rows = []
    for conn_id in options.connection or target_connections():
        applied = migrate(postgres_params(conn_id))
        rows.append({"connection": conn_id, "applied": applied or ["nothing: the ledger is up to date"]})
    output.rows(rows, ("connection", "applied"), empty="")
    return OK


def run_check_config(options: argparse.Namespace, output: Output) -> int:
    """Read pipeline files, each by itself and against the others, and list the faults of all of them."""
    deployed = pipeline_paths()
    paths = [path.resolve() for path in options.files] or deployed
    # A file that is checked alone can still clash with one that is deployed.
    loaded = read_pipelines(dict.fromkeys([*paths, *(path for path in deployed if path.resolve() not in paths)]))
    rows = [
        {
            "file": str(path),
            "pipeline": loaded.settings[path].pipeline if path in loaded.settings else None,
            "result": "broken" if path in loaded.errors else "good",
            "faults": loaded.errors[path].found.splitlines() if path in loaded.errors else [],
        }
        for path in paths
    ]
    output.rows(rows, ("pipeline", "result", "file"), empty="no pipeline files found")
    errors = [loaded.errors[path] for path in paths if path in loaded.errors]
    for error in () if output.as_json else errors:
        output.note(f"\n{error}")
    return STOP_AND_CALL if errors else OK


# ----------
# Command ``housekeeping``: tidies target databases.

_COLUMNS = ("connection", "chore", "thing", "outcome", "count", "reason")


def run_housekeeping(options: argparse.Namespace, output: Output) -> int:
    """Tidy one database, or the target database of every pipeline. What stays is told and is no failure."""
    rows = [
        {"connection": conn_id, **asdict(report)}
        for conn_id in options.connection or target_connections()
        for report in keep_house(
            housekeeper(conn_id, connection),
            older_than_days=options.older_than_days,
            is_dry_run=options.dry_run,
        )
    ]
    output.rows(rows, _COLUMNS, empty="nothing to do")
    return OK


# ----------
# Command ``prepare-spark``: what can be done once so that every load starts sooner.


def run_prepare_spark(options: argparse.Namespace, output: Output) -> int:
    """Make the archive of Spark's classes, unless there is one that fits, and say what it gains."""
    if not options.again and (existing := class_archive()):
        output.record({"archive": str(existing), "result": "it is there and fits: nothing to do"})
        return OK
    output.note("starting a small Spark job three times: as it is, to make the archive, and with it")
    made = prepare_archive()
    output.record(
        {
            "archive": str(made.path),
            "result": "made, and used by a second start",
            "classes loaded by a start": made.loaded_classes,
            "classes of these from it": made.archived_classes,
            "CPU seconds of a start without it": round(made.cpu_seconds_without, 1),
            "CPU seconds of a start with it": round(made.cpu_seconds_with, 1),
        }
    )
    return OK

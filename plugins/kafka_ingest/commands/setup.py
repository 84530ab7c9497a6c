"""Commands that come before the first run: ``migrate`` and ``check-config``."""

from __future__ import annotations

import argparse

from kafka_ingest.adapters.pipeline_files import pipeline_paths, read_pipelines
from kafka_ingest.adapters.postgres_migrations import migrate
from kafka_ingest.commands.output import Output
from kafka_ingest.commands.wiring import postgres_params, target_connections
from kafka_ingest.core.exit_codes import OK, STOP_AND_CALL


def run_migrate(options: argparse.Namespace, output: Output) -> int:
    """Brings the ledger up to date in one database, or in the target database of every pipeline."""
    rows = []
    for conn_id in options.connection or target_connections():
        applied = migrate(postgres_params(conn_id))
        rows.append({"connection": conn_id, "applied": applied or ["nothing: the ledger is up to date"]})
    output.rows(rows, ("connection", "applied"), empty="")
    return OK


def run_check_config(options: argparse.Namespace, output: Output) -> int:
    """Reads pipeline files, each by itself and against the others, and lists the faults of all of them."""
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

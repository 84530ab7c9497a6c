"""Commands that come before the first run: ``migrate`` and ``check-config``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from kafka_ingest.adapters.pipeline_files import load_pipeline, pipeline_paths
from kafka_ingest.adapters.postgres_migrations import migrate
from kafka_ingest.commands.output import Output
from kafka_ingest.commands.wiring import postgres_params
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.exit_codes import OK, STOP_AND_CALL

_DEFAULT_CONNECTION = "postgres_default"


def run_migrate(options: argparse.Namespace, output: Output) -> int:
    """Brings the ledger up to date in one database, or in the target database of every pipeline."""
    rows = []
    for conn_id in options.connection or _target_connections():
        applied = migrate(postgres_params(conn_id))
        rows.append({"connection": conn_id, "applied": applied or ["nothing: the ledger is up to date"]})
    output.rows(rows, ("connection", "applied"), empty="")
    return OK


def run_check_config(options: argparse.Namespace, output: Output) -> int:
    """Reads pipeline files and lists the faults of all of them."""
    rows = [_check(path) for path in (options.files or pipeline_paths())]
    broken = [row for row in rows if row["fault"]]
    output.rows(rows, ("file", "pipeline", "result"), empty="no pipeline files found")
    for row in () if output.as_json else broken:
        output.note(f"\n{row['file']}\n{row['fault']}")
    return STOP_AND_CALL if broken else OK


def _check(path: Path) -> dict[str, str | None]:
    try:
        settings = load_pipeline(path)
    except ConfigError as error:
        return {"file": str(path), "pipeline": None, "result": "broken", "fault": str(error)}
    return {"file": str(path), "pipeline": settings.pipeline, "result": "good", "fault": None}


def _target_connections() -> Iterable[str]:
    """Target connections of all readable pipelines; the default one where there is no pipeline yet."""
    found: dict[str, None] = {}
    for path in pipeline_paths():
        try:
            found[load_pipeline(path).batch.target_connection] = None
        except ConfigError:
            # check-config reports it; a broken file must not keep the other databases from being migrated.
            continue
    return found or (_DEFAULT_CONNECTION,)

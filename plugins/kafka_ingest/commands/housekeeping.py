"""Command ``housekeeping``: tidies target databases."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from kafka_ingest.adapters.postgres_housekeeping import PostgresHousekeeper
from kafka_ingest.commands.output import Output
from kafka_ingest.commands.wiring import postgres_params, target_connections
from kafka_ingest.core.exit_codes import OK
from kafka_ingest.steps.housekeeping import keep_house

_COLUMNS = ("connection", "chore", "thing", "outcome", "count", "reason")


def run_housekeeping(options: argparse.Namespace, output: Output) -> int:
    """Tidies one database, or the target database of every pipeline. What stays is told and is no failure."""
    rows = [
        {"connection": conn_id, **asdict(report)}
        for conn_id in options.connection or target_connections()
        for report in keep_house(
            PostgresHousekeeper(postgres_params(conn_id)),
            older_than_days=options.older_than_days,
            is_dry_run=options.dry_run,
        )
    ]
    output.rows(rows, _COLUMNS, empty="nothing to do")
    return OK

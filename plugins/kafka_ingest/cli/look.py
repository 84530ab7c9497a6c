"""Commands that look and change nothing: preflight, reports, audits."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kafka_ingest.cli.command import Output, Parser, add_limit, add_pipeline, add_pipeline_or_all, command, world_of
from kafka_ingest.errors import AUDIT_FOUND, OK, STOP_AND_CALL, ConfigError, naming
from kafka_ingest.preflight.checks import CheckResult, failed, is_ready
from kafka_ingest.protocol.audit import TableAudit, audit_table
from kafka_ingest.protocol.ledger_view import TARGET_INVARIANT
from kafka_ingest.report import report_lag, shown_columns
from kafka_ingest.settings import PipelineSettings

# ----------
# Reports and audits.

_STATUS_COLUMNS = (
    "pipeline",
    "target",
    "standing",
    "last_committed_at",
    "last_rows",
    "last_deletes",
    "last_superseded",
    "last_dead_letters",
    "valid_through",
    "unresolved_dead_letters",
    "keys_in_doubt",
    "needs_rebuild",
)
_LAG_COLUMNS = (
    "pipeline",
    "topic",
    "partition",
    "committed_offset",
    "end_offset",
    "lag_offsets",
    "lag_seconds",
    "headroom_offsets",
    "headroom_seconds",
    "open_transaction_offsets",
    "fault",
)
_BATCH_COLUMNS = (
    "batch_id",
    "state",
    "run_id",
    "planned_at",
    "committed_at",
    "offsets",
    "rows",
    "deletes",
    "superseded",
    "dead_letters",
)


@command("status", "say where each pipeline stands", add_pipeline_or_all)
def run_status(options: argparse.Namespace, output: Output) -> int:
    """Say where each pipeline stands."""
    by_connection: dict[str, list[PipelineSettings]] = {}
    for settings in _pipelines(options.pipeline, output):
        by_connection.setdefault(settings.batch.target_connection, []).append(settings)
    rows = [
        {**row, "standing": _standing(row)}
        for neighbours in by_connection.values()
        for row in world_of(neighbours[0]).reports().status([settings.pipeline for settings in neighbours])
    ]
    output.rows(rows, shown_columns(rows, _STATUS_COLUMNS), empty="no pipeline files found")
    return OK


@command(
    "lag",
    "say how far each partition's committed offset is behind its log",
    add_pipeline_or_all,
    details="""\
lag offsets       end offset - committed offset: offsets, not records
lag seconds       0 when nothing waits, else the time since the partition was complete (an estimate)
headroom offsets  what the log still holds before the committed offset; below 0, records are lost
open transaction offsets  what an open producer transaction holds back""",
)
def run_lag(options: argparse.Namespace, output: Output) -> int:
    """Say how far each partition is behind its log."""
    rows = [
        {"pipeline": settings.pipeline, **asdict(partition)}
        for settings in _pipelines(options.pipeline, output)
        for partition in report_lag(settings, world_of(settings).lag_ports())
    ]
    output.rows(rows, _LAG_COLUMNS, empty="no partitions: the topics are missing or have not been planned")
    return OK


def _batches_arguments(parser: Parser) -> None:
    add_pipeline(parser)
    add_limit(parser, default=20, what=" batches")


@command("batches", "list the newest batches of a pipeline", _batches_arguments)
def run_batches(options: argparse.Namespace, output: Output) -> int:
    """List a pipeline's newest batches."""
    from kafka_ingest.pipeline_files.files import find_pipeline

    settings = find_pipeline(options.pipeline)
    with naming(settings.pipeline):
        rows = world_of(settings).reports().batches(settings.pipeline, options.limit)
    output.rows(rows, shown_columns(rows, _BATCH_COLUMNS), empty=f"pipeline {settings.pipeline} has no batches yet")
    return OK


def _audit_arguments(parser: Parser) -> None:
    add_pipeline(parser)
    parser.add_argument("--all", action="store_true", help="count the rows of all batches in the table")


@command(
    "audit",
    "check every invariant of a pipeline; exit code 65 when one does not hold",
    _audit_arguments,
    details="""\
It looks at the newest 1,000 batches of the ledger, and counts the rows of the newest one in the table.
With --all it counts every range that was ever published: in steps, beside running loads, for as long
as reading the table takes. It can be stopped at any moment. Of a table that holds the current state it
looks at every row instead, in one statement: a later record may have taken the place of any of them.""",
)
def run_audit(options: argparse.Namespace, output: Output) -> int:
    """Run every invariant of a pipeline; with ``--all`` it counts the rows of all batches, and not of the newest."""
    from kafka_ingest.pipeline_files.files import find_pipeline

    settings = find_pipeline(options.pipeline)
    with naming(settings.pipeline):
        return _audited(settings, output, is_whole=options.all)


def _audited(settings: PipelineSettings, output: Output, *, is_whole: bool) -> int:
    world = world_of(settings)
    ledger = world.ledger()
    violations = list(ledger.violations(settings.pipeline))
    found = ledger.audited(settings.pipeline)
    output.note(
        f"checked in the ledger: the newest {found.batches} batches ({found.oldest or '-'} to {found.newest or '-'})"
    )
    if is_whole and settings.batch.upsert:
        violations += ledger.state_violations(settings.pipeline)
        output.note("checked in the table: that every row, and every removed key, is of a record that was read")
    elif is_whole:
        audit = audit_table(world.written_table(), _progress(output))
        violations = [v for v in violations if v.invariant != TARGET_INVARIANT] + audit.violations
        for line in _looked_at(audit):
            output.note(line)
    else:
        output.note(
            f"checked in the table: {found.ranges} ranges of the newest batch; {found.not_counted} other ranges were "
            f"not looked at: python -m kafka_ingest audit {settings.pipeline} --all"
        )
    output.rows([asdict(v) for v in violations], ("invariant", "row"), empty="every invariant holds")
    return AUDIT_FOUND if violations else OK


def _progress(output: Output) -> Callable[[TableAudit], None]:
    """Return what notes how far an audit is, each time that a percent more is done."""
    told = -1

    def tell(audit: TableAudit) -> None:
        nonlocal told
        percent = min(100, 100 * audit.offsets // max(1, audit.scope.offsets))
        if percent > told:
            told = percent
            output.note(
                f"{percent} %: {audit.ranges} of {audit.scope.ranges} ranges, {audit.faulty} of them with faults"
            )

    return tell


def _looked_at(audit: TableAudit) -> Iterator[str]:
    yield f"checked in the table: {audit.ranges} of {audit.scope.ranges} published ranges, {audit.rows:,} rows"
    remarks = {
        "partly replaced by a later batch: their rows lie within bounds": audit.within_bounds,
        "loaded before a reset to the log start or a change of table: only rows that stand twice were looked for": (
            audit.given_up
        ),
        "written meanwhile: audit again": audit.written_since,
        "loaded into another table: not looked at": audit.scope.elsewhere,
    }
    yield from (f"{number} ranges {what}" for what, number in remarks.items() if number)
    if audit.faulty:
        numbers = f"{audit.missing:,} rows missing, {audit.doubled:,} doubled, {audit.beyond:,} loaded by nobody"
        more = f"; the first {len(audit.violations)} are listed" if audit.faulty > len(audit.violations) else ""
        yield f"{audit.faulty} ranges with faults: {numbers}{more}"


def _pipelines(name: str | None, output: Output) -> Sequence[PipelineSettings]:
    from kafka_ingest.pipeline_files.files import find_pipeline, pipeline_paths, read_pipelines

    if name:
        return [find_pipeline(name)]
    loaded = read_pipelines(pipeline_paths())
    if loaded.errors:
        # They make no DAGs either; the sound ones can still be looked at.
        output.note(f"{len(loaded.errors)} pipeline files are broken: python -m kafka_ingest check-config")
    return list(loaded.settings.values())


def _standing(row: Mapping[str, Any]) -> str:
    if row["target"] is None:
        return "never planned"
    if row["outstanding_batch_id"] is None:
        return "idle"
    if row["step"] is None:
        return f"outstanding, not held: {row['outstanding_request']}"
    return f"{row['step']} {row['staged_offsets']:,} of {row['total_offsets']:,} offsets: {row['outstanding_request']}"


COMMANDS = (run_status, run_lag, run_batches, run_audit)

# ----------
# Command ``preflight``: everything that pipelines rest on, in one table.

_COLUMNS = ("check", "pipeline", "result", "found", "fix")


def _preflight_arguments(parser: Parser) -> None:
    parser.add_argument("pipelines", metavar="PIPELINE", nargs="*", help="names of pipelines (default: all)")
    parser.add_argument("--spark", action="store_true", help="let a small Spark job look at the executors' packages")


@command(
    "preflight",
    "check what pipelines rest on: connections, topics, database, Spark; exit code 78 when something fails",
    _preflight_arguments,
    details="""\
example: python -m kafka_ingest preflight orders
It changes nothing. Warnings do not fail it.""",
)
def run_preflight(options: argparse.Namespace, output: Output) -> int:
    """Check the named pipelines, or all; a broken pipeline file is a result like any other."""
    results = [(name, result) for name, checked in _checked(options, output) for result in checked]
    rows: list[dict[str, Any]] = [
        {
            "check": result.check,
            "pipeline": name,
            "result": result.result.value,
            "found": result.found,
            "fix": result.fix,
        }
        for name, result in results
    ]
    output.rows(rows, _COLUMNS, empty="no pipeline files found")
    return OK if is_ready(result for _, result in results) else STOP_AND_CALL


def _checked(options: argparse.Namespace, output: Output) -> Iterator[tuple[str, Sequence[CheckResult]]]:
    for name, found in _pipelines_and_faults(options.pipelines):
        if isinstance(found, ConfigError):
            yield name, [failed("pipeline file", found)]
            continue
        output.note(f"checking {name}")
        yield name, world_of(found).preflight(submit_job=options.spark)


def _pipelines_and_faults(names: Sequence[str]) -> Iterator[tuple[str, PipelineSettings | ConfigError]]:
    from kafka_ingest.pipeline_files.files import find_pipeline, pipeline_paths, read_pipelines

    for name in dict.fromkeys(names):
        try:
            yield name, find_pipeline(name)
        except ConfigError as error:
            yield name, error
    if names:
        return
    loaded = read_pipelines(pipeline_paths())
    yield from ((settings.pipeline, settings) for settings in loaded.settings.values())
    yield from ((path.name, error) for path, error in loaded.errors.items())


PREFLIGHT = run_preflight

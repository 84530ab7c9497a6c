"""Commands ``run`` and ``plan --dry-run``: the steps of the DAG, one after another, without Airflow."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterator
from typing import Any

from kafka_ingest.cli.environment import connection, new_request_id, world_of
from kafka_ingest.cli.output import Output, table
from kafka_ingest.connections import ConnectionValues
from kafka_ingest.errors import AUDIT_FOUND, OK, STOP_AND_CALL, AccountingMismatch, Busy
from kafka_ingest.forms.run import run_options
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.postgres.rows import settings_hash
from kafka_ingest.protocol.audit import AuditReport, audit_batch, mirror_group, record_announcement
from kafka_ingest.protocol.batch import Batch, BatchState, Request
from kafka_ingest.protocol.load import hold_given_back
from kafka_ingest.protocol.plan import PlanPorts, PlanPreview, plan_batch, preview_plan
from kafka_ingest.protocol.ports import Ledger
from kafka_ingest.report import batch_result, batch_summary, dead_letters_text, plan_remarks
from kafka_ingest.settings import PipelineSettings
from kafka_ingest.spark.archive import job_folder
from kafka_ingest.spark.submission import (
    JobSubmission,
    in_process_command,
    in_process_environment,
    loaded_batch,
    spark_submit_command,
)
from kafka_ingest.world import World

DAG_ID = "cli"
_STDERR = 2
#: The command's options in place of the form's keys, for messages.
_OPTIONS = {
    "mode": "--mode",
    "from": "--from-time",
    "to": "--to-time",
    "offsets": "--offsets",
    "limit": "--limit",
    "reload_what_is_left": "--reload-what-is-left",
    "replace_resolved": "--replace-resolved",
    "reason": "--reason",
}
_RANGE_COLUMNS = ("topic", "partition", "start", "end", "offsets", "complete_up_to", "log_start_offset")


def run_pipeline(options: argparse.Namespace, output: Output) -> int:
    """Plan, load and audit one batch. The same run id always means the same batch."""
    settings = find_pipeline(options.pipeline)
    request = _request(options, settings)
    output.note(f"run {request.run_id} (the same again: --run-id {request.run_id})")
    world = _world(settings, options.runner)
    _require_job(world, options.runner)
    ports = world.plan_ports()
    batch = _plan(settings, request, ports)
    output.note(_planned(batch))
    if batch.state is not BatchState.COMMITTED:
        with hold_given_back(batch, ports.ledger):
            batch = _load(world, batch, ports.ledger, options.runner)
    try:
        audit_batch(batch.batch_id, request, ports.ledger)
    except AccountingMismatch as violations:
        output.fault(violations)
        return AUDIT_FOUND
    mirror_group(settings, request, ports.ledger, world.mirror)
    _tell_result(batch, ports.ledger, output)
    # Who called the command knows of this batch now; batches of others wait for an audit that sends asset events.
    record_announcement(AuditReport(batch, (batch,)), ports.ledger)
    for fault in batch.left_out:
        output.note(f"left out: {fault}")
    return STOP_AND_CALL if batch.left_out else OK


def run_plan(options: argparse.Namespace, output: Output) -> int:
    """Show what a run would read now, and every fault that would stop it; write nothing."""
    settings = find_pipeline(options.pipeline)
    request = Request(DAG_ID, "plan preview", parameters=_asked(options, settings))
    preview = preview_plan(settings, request, world_of(settings).plan_ports())
    choice, outstanding = preview.choice, preview.outstanding
    ranges = list(_range_rows(preview))
    if output.as_json:
        output.record(
            {
                "pipeline": settings.pipeline,
                "ranges": ranges,
                "backlog_offsets": choice.backlog_offsets,
                "outstanding_batch_id": outstanding.batch_id if outstanding else None,
                "faults": [str(fault) for fault in choice.faults],
                "left_out": [str(fault) for fault in choice.left_out],
                "warnings": list(choice.warnings),
            }
        )
    else:
        output.rows(ranges, _RANGE_COLUMNS, empty="nothing to read: a run would succeed without starting Spark")
        for line in plan_remarks(preview):
            output.note(line)
    return STOP_AND_CALL if choice.faults else OK


def _request(options: argparse.Namespace, settings: PipelineSettings) -> Request:
    return Request(DAG_ID, options.run_id or new_request_id(), parameters=_asked(options, settings))


def _asked(options: argparse.Namespace, settings: PipelineSettings) -> str:
    form = {
        "mode": options.mode,
        "from": options.from_time,
        "to": options.to_time,
        "offsets": "\n".join(options.offsets or ()),
        "limit": options.limit,
        "reload_what_is_left": options.reload_what_is_left,
        "replace_resolved": options.replace_resolved,
        "reason": options.reason,
    }
    zone, name = settings.schedule.timezone, settings.pipeline
    return run_options(form, zone=zone, pipeline=name, labels=_OPTIONS).to_parameters()


def _world(settings: PipelineSettings, runner: str) -> World:
    return world_of(settings) if runner == "spark" else World(settings, _without_spark)


def _without_spark(conn_id: str, conn_type: str) -> ConnectionValues:
    if conn_type == "spark":
        return ConnectionValues("in_process", "spark", host="local[1]")
    return connection(conn_id, conn_type)


def _require_job(world: World, runner: str) -> None:
    """Find what keeps a job from starting before anything is planned: a plan holds the pipeline for others.

    Raises:
        ConfigError: Spark, its connection or the job's code cannot be used.
    """
    with job_folder() as folder:
        _command(world.submission("not planned yet", folder / "outcome.json"), runner)


def _plan(settings: PipelineSettings, request: Request, ports: PlanPorts) -> Batch:
    try:
        return plan_batch(settings, request, ports, settings_hash=settings_hash(settings.batch))
    except Busy as busy:
        # Unlike a task of Airflow, a command is not asked again by itself.
        raise Busy(
            busy.what,
            expected=busy.expected,
            found=busy.found,
            next_command=f"{busy.next_command}. Nothing waits for that: run the same command again",
            pipeline=busy.pipeline,
            batch_id=busy.batch_id,
        ) from None


def _load(world: World, batch: Batch, ledger: Ledger, runner: str) -> Batch:
    with job_folder() as folder:
        outcome_file = folder / "outcome.json"
        code = _run_job(world.submission(batch.batch_id, outcome_file), runner)
        return loaded_batch(batch, ledger, outcome_file, f"exit code {code}")


def _run_job(submission: JobSubmission, runner: str) -> int:
    """Run the job with its log on standard error: standard output is for the result."""
    variables = submission.env_vars if runner == "spark" else in_process_environment(submission)
    command, environment = _command(submission, runner), {**os.environ, **variables}
    # The command is made of our own script and of validated settings; no shell is involved.
    return subprocess.run(command, env=environment, stdout=_STDERR, check=False).returncode  # noqa: S603


def _command(submission: JobSubmission, runner: str) -> list[str]:
    return spark_submit_command(submission) if runner == "spark" else in_process_command(submission)


def _planned(batch: Batch) -> str:
    if batch.state is BatchState.COMMITTED:
        what = "was loaded before" if batch.ranges else "has nothing to read"
        return f"batch {batch.batch_id} {what}: Spark is not started"
    ranges = [{"topic": r.topic, "partition": r.partition, "start": r.start, "end": r.end} for r in batch.ranges]
    head = f"batch {batch.batch_id}: {batch.span_offsets:,} offsets into {batch.settings.target}"
    return f"{head}\n{table(ranges, ('topic', 'partition', 'start', 'end'))}"


def _tell_result(batch: Batch, ledger: Ledger, output: Output) -> None:
    result = {**batch_result(batch), "audit": "every invariant holds"}
    output.record(batch_summary(batch) if output.as_json else result)
    if batch.counts and batch.counts.dead_letters:
        output.note(f"warning: {dead_letters_text(batch, ledger.dead_letter_groups(batch.batch_id))}")


def _range_rows(preview: PlanPreview) -> Iterator[dict[str, Any]]:
    valid_through = {p.topic_partition: p.valid_through for p in preview.view.positions}
    for r in preview.choice.ranges:
        state = preview.snapshot.topics[r.topic].partitions[r.partition]
        yield {
            "topic": r.topic,
            "partition": r.partition,
            "start": r.start,
            "end": r.end,
            "offsets": r.span_offsets,
            "complete_up_to": valid_through.get(r.topic_partition),
            "log_start_offset": state.log_start_offset,
        }

"""Commands ``plan --dry-run`` and ``run``: the steps of the DAG, one after another, without Airflow."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from kafka_ingest.cli.command import (
    Output,
    Parser,
    add_field,
    add_pipeline,
    command,
    connection,
    new_request_id,
    world_of,
)
from kafka_ingest.errors import AUDIT_FOUND, OK, STOP_AND_CALL, AccountingMismatch, Busy, naming
from kafka_ingest.forms.run import FIELDS, FLAGS, run_options
from kafka_ingest.protocol.attempts import Attempt, Step, record, recorded
from kafka_ingest.protocol.audit import AuditReport, audit_batch, mirror_group, record_announcement
from kafka_ingest.protocol.batch import COMMAND_LINE, Batch, BatchState, Request, RunMode
from kafka_ingest.protocol.load import hold_given_back
from kafka_ingest.protocol.plan import PlanPorts, PlanPreview, plan_batch, preview_plan
from kafka_ingest.protocol.ports import Ledger
from kafka_ingest.report import batch_result, batch_summary, dead_letters_text, plan_remarks, table
from kafka_ingest.settings import PipelineSettings
from kafka_ingest.spark.archive import job_folder

if TYPE_CHECKING:
    from kafka_ingest.spark.submission import JobSubmission
    from kafka_ingest.world import World

_STDERR = 2
_RANGE_COLUMNS = ("topic", "partition", "start", "end", "offsets", "complete_up_to", "log_start_offset")


def _run_arguments(parser: Parser) -> None:
    add_pipeline(parser)
    for key, field in FIELDS.items():
        add_field(parser, key, field)
    parser.add_argument("--run-id", metavar="ID", help="name of the run (default: a new one, which is printed)")
    parser.add_argument(
        "--runner",
        choices=("spark", "in-process"),
        help="spark-submit, or this process, without Spark (default: Spark, but for a batch below "
        "spark.in_process_below_offsets of the pipeline file)",
    )


@command(
    "run",
    "plan, load and audit one batch",
    _run_arguments,
    details="""\
examples
  python -m kafka_ingest run orders
  python -m kafka_ingest run orders --limit 10000 --runner in-process
  python -m kafka_ingest run orders --mode reload --from-time 2026-01-31T13:00:00Z --to-time 2026-01-31T14:00:00Z \\
      --reason "a column was mapped wrongly"
  python -m kafka_ingest run orders --mode reload --offsets "orders 0 120 4120" --offsets "orders 1 0" --reason "..."
The same run id means the same batch: running it again finishes it, or finds it loaded.
A run from here has no data interval: under end: interval, too, it reads to the end of the log, or to --to-time.
The job's log goes to standard error, the result to standard output.
""",
)
def run_pipeline(options: argparse.Namespace, output: Output) -> int:
    """Plan, load and audit one batch. The same run id always means the same batch."""
    from kafka_ingest.pipeline_files.files import find_pipeline

    settings = find_pipeline(options.pipeline)
    with naming(settings.pipeline):
        return _run(settings, options, output)


def _run(settings: PipelineSettings, options: argparse.Namespace, output: Output) -> int:
    from kafka_ingest.world import World

    request = _request(options, settings)
    output.note(f"run {request.run_id} (the same again: --run-id {request.run_id})")
    world = World(settings, connection)
    _require_job(world, options.runner)
    ports = world.plan_ports()

    def attempt(step: Step, batch: Batch | None = None) -> AbstractContextManager[Attempt]:
        own = Attempt(settings.pipeline, step, request, f"run.{step}", batch_id=batch.batch_id if batch else None)
        return recorded(own, world.attempts, output.note)

    with attempt(Step.PLAN) as planning:
        batch = _plan(settings, request, ports)
        planning.batch_id = batch.batch_id
    output.note(_planned(batch))
    if batch.state is not BatchState.COMMITTED:
        here = options.runner == "in-process" if options.runner else settings.job.is_in_process(batch.span_offsets)
        with attempt(Step.LOAD, batch) as loading, hold_given_back(batch, ports.ledger):
            record(loading, world.attempts, output.note)  # that it runs
            batch, loading.phases = world.load(batch, _submit, in_process=here, log_to=sys.stderr)
    try:
        with attempt(Step.AUDIT, batch):
            audit_batch(batch.batch_id, request, ports.ledger)
    except AccountingMismatch as violations:
        output.fault(violations)
        return AUDIT_FOUND
    target = settings.batch.target
    mirror_group(settings, lambda: ports.ledger.plan_view(settings.pipeline, request, target), world.mirror)
    _tell_result(batch, ports.ledger, output)
    # Who called the command knows of this batch now; batches of others wait for an audit that sends asset events.
    record_announcement(AuditReport(batch, (batch,)), ports.ledger)
    for fault in batch.left_out:
        output.note(f"left out: {fault}")
    return STOP_AND_CALL if batch.left_out else OK


def _plan_arguments(parser: Parser) -> None:
    add_pipeline(parser)
    parser.add_argument("--dry-run", action="store_true", required=True, help="required: says that nothing is written")
    parser.set_defaults(mode=RunMode.PLAN_ONLY.value)
    for key, field in FIELDS.items():
        if key != "mode":
            add_field(parser, key, field)


@command(
    "plan",
    "show what a run would read now, and what would stop it; writes nothing",
    _plan_arguments,
    details="""\
examples
  python -m kafka_ingest plan orders --dry-run
  python -m kafka_ingest plan orders --dry-run --from-time 2026-01-31T13:00:00Z
A run plans by itself: this is for looking. With a span it shows what a reload would read.
""",
)
def run_plan(options: argparse.Namespace, output: Output) -> int:
    """Show what a run would read now, and every fault that would stop it; write nothing."""
    from kafka_ingest.pipeline_files.files import find_pipeline

    settings = find_pipeline(options.pipeline)
    request = Request(COMMAND_LINE, "plan preview", parameters=_asked(options, settings))
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
    return Request(COMMAND_LINE, options.run_id or new_request_id(), parameters=_asked(options, settings))


def _asked(options: argparse.Namespace, settings: PipelineSettings) -> str:
    given = {key: value for key, value in vars(options).items() if key in FIELDS}
    form = {key: "\n".join(value) if isinstance(value, list) else value for key, value in given.items()}
    zone, name = settings.schedule.timezone, settings.pipeline
    return run_options(form, zone=zone, pipeline=name, labels=FLAGS).to_parameters()


def _require_job(world: World, runner: str | None) -> None:
    """Find what keeps a job from starting before anything is planned: a plan holds the pipeline for others.

    Raises:
        ConfigError: A connection, Spark or the job's code cannot be used.
    """
    from kafka_ingest.spark.submission import spark_submit_command

    if runner == "in-process":
        world.job_environment()
        return
    with job_folder() as folder:
        spark_submit_command(world.submission("not planned yet", folder / "outcome.json"))


def _plan(settings: PipelineSettings, request: Request, ports: PlanPorts) -> Batch:
    from kafka_ingest.postgres.rows import settings_hash

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


def _submit(submission: JobSubmission) -> str:
    """Run spark-submit with its log on standard error: standard output is for the result."""
    from kafka_ingest.spark.submission import spark_submit_command

    command, environment = spark_submit_command(submission), {**os.environ, **submission.env_vars}
    # The command is made of our own script and of validated settings; no shell is involved.
    done = subprocess.run(command, env=environment, stdout=_STDERR, check=False)  # noqa: S603
    return f"exit code {done.returncode}"


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


COMMANDS = (run_plan, run_pipeline)

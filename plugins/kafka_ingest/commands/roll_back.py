"""Command ``roll-back``: show what undoing the newest batches would do, and with ``--apply`` do it."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kafka_ingest.adapters.kafka_log import KafkaLog
from kafka_ingest.adapters.pipeline_files import find_pipeline
from kafka_ingest.adapters.postgres_roll_back import PostgresRollBackLedger
from kafka_ingest.commands.output import Output
from kafka_ingest.commands.wiring import kafka_config, new_request_id, target_params
from kafka_ingest.core.batch import Batch
from kafka_ingest.core.exit_codes import OK, STOP_AND_CALL
from kafka_ingest.core.position_rows import ROLL_BACK_COLUMNS, UNDONE_COLUMNS, lowered_rows, undone_rows
from kafka_ingest.core.roll_back import RollBackPlan, RollBackRequest
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.core.text_table import table
from kafka_ingest.steps.roll_back import RollBackPorts, preview_roll_back, roll_back

_BATCH_COLUMNS = ("batch_id", "run_id", "committed_at", "rows", "dead_letters")


def run_roll_back(options: argparse.Namespace, output: Output) -> int:
    """Shows or does a roll-back. The same request id is done once, however often it comes."""
    settings = find_pipeline(options.pipeline)
    request = RollBackRequest(
        request_id=options.request_id or new_request_id(),
        pipeline=settings.pipeline,
        batches=options.batches,
        who=getpass.getuser(),
        why=options.reason,
        supersede=options.supersede,
        allow_compacted=options.allow_compacted,
    )
    ports = roll_back_ports(settings)
    return _apply(request, ports, output) if options.apply else _preview(request, ports, output)


def roll_back_ports(settings: PipelineSettings) -> RollBackPorts:
    """Gives what a roll-back needs."""
    return RollBackPorts(PostgresRollBackLedger(target_params(settings)), KafkaLog(kafka_config(settings)))


def _apply(request: RollBackRequest, ports: RollBackPorts, output: Output) -> int:
    output.note(f"request {request.request_id} (the same again: --request-id {request.request_id})")
    record = roll_back(request, ports)
    if output.as_json:
        output.record(asdict(record))
        return OK
    output.rows(undone_rows(record.spans), UNDONE_COLUMNS, empty="")
    output.note(f"rolled back: {', '.join(record.batch_ids)}")
    if record.superseded:
        output.note(f"superseded: {record.superseded}")
    return OK


def _preview(request: RollBackRequest, ports: RollBackPorts, output: Output) -> int:
    plan = preview_roll_back(request, ports)
    if output.as_json:
        output.record(_document(plan))
    else:
        output.rows([_batch_row(batch) for batch in plan.batches], _BATCH_COLUMNS, empty="no batch to roll back")
        for line in _remarks(plan):
            output.note(line)
    return STOP_AND_CALL if plan.faults else OK


def _document(plan: RollBackPlan) -> dict[str, Any]:
    return {
        "pipeline": plan.request.pipeline,
        "batches": [_batch_row(batch) for batch in plan.batches],
        "positions": lowered_rows(plan.positions),
        "supersedes": plan.supersedes,
        "faults": [str(fault) for fault in plan.faults],
    }


def _remarks(plan: RollBackPlan) -> Iterator[str]:
    if plan.positions:
        yield f"\n{table(lowered_rows(plan.positions), ROLL_BACK_COLUMNS)}"
    if plan.supersedes:
        yield f"supersedes: {plan.supersedes}"
    yield from (f"fault: {fault}\n  next: {fault.next_command}" for fault in plan.faults)
    yield "nothing was changed" + ("" if plan.faults else ": --apply does it")


def _batch_row(batch: Batch) -> dict[str, Any]:
    counts = batch.counts
    return {
        "batch_id": batch.batch_id,
        "run_id": batch.request.run_id,
        "committed_at": batch.committed_at,
        "rows": counts.rows if counts else None,
        "dead_letters": counts.dead_letters if counts else None,
    }

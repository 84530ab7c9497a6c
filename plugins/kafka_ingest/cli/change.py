"""Commands that change positions: ``change`` and ``roll-back``."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kafka_ingest.cli.environment import new_request_id, world_of
from kafka_ingest.cli.output import Output
from kafka_ingest.errors import OK, STOP_AND_CALL, ConfigError
from kafka_ingest.forms.values import parse_partition_offsets, parse_selection
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.protocol import change_requests as changes
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.change_requests import Change, ChangeRequest, LogPlace, Selection
from kafka_ingest.protocol.changes import ChangePreview, apply_change, preview_change
from kafka_ingest.protocol.ledger_view import RecordedChange, SettingChange
from kafka_ingest.protocol.roll_back import RollBackPlan, RollBackPorts, RollBackRequest, preview_roll_back, roll_back
from kafka_ingest.report import (
    CHANGE_COLUMNS,
    ROLL_BACK_COLUMNS,
    UNDONE_COLUMNS,
    change_rows,
    lowered_rows,
    setting_rows,
    table,
    undone_rows,
)
from kafka_ingest.times import parse_record_time

# ----------
# Command ``change``: shows what a position change would do, or makes it.

_NOTHING = "no position changes"


def run_change(options: argparse.Namespace, output: Output) -> int:
    """Show a change, or with ``--apply`` make it. The same request id always means the same change."""
    settings = find_pipeline(options.pipeline)
    request = ChangeRequest(
        pipeline=settings.pipeline,
        request_id=options.request_id or new_request_id(),
        change=change_of(options, zone=settings.schedule.timezone, pipeline=settings.pipeline),
        who=getpass.getuser(),
        why=options.reason,
        supersede=options.supersede,
    )
    ports = world_of(settings).change_ports()
    if options.apply:
        output.note(f"request {request.request_id} (the same again: --request-id {request.request_id})")
        _show_recorded(apply_change(settings, request, ports), output)
        return OK
    preview = preview_change(settings, request, ports)
    _show_preview(preview, request, output)
    return STOP_AND_CALL if preview.plan.faults else OK


def change_of(options: argparse.Namespace, *, zone: str, pipeline: str) -> Change:
    """Return the change that the arguments ask for.

    Args:
        options: Arguments of one kind.
        zone: IANA time zone of a time that names none.
        pipeline: Name of the pipeline, for the message.

    Raises:
        ConfigError: An argument does not fit.
    """
    made: Mapping[str, Callable[[], Change]] = {
        "reset": lambda: _reset(options, zone),
        "skip-lag": lambda: changes.SkipLag(options.keep, _selection(options)),
        "accept-loss": lambda: changes.AcceptLoss(options.margin, _selection(options)),
        "accept-recreation": lambda: changes.AcceptRecreation(tuple(options.topics), LogPlace(options.begin)),
        "accept-cluster": lambda: changes.AcceptCluster(LogPlace(options.begin)),
        "accept-same-log": changes.AcceptSameLog,
        "rename": lambda: changes.RenamePipeline(options.former_name),
        "retire-topic": lambda: changes.RetireTopic(options.topic),
        "read-topic-again": lambda: changes.ReadTopicAgain(options.topic),
        "change-target": changes.ChangeTarget,
        "change-identity-columns": changes.ChangeIdentityColumns,
        "change-isolation-level": changes.ChangeIsolationLevel,
    }
    try:
        return made[options.kind]()
    except ValueError as expected:
        raise ConfigError(
            "the arguments of the change do not fit",
            expected=str(expected),
            found="another value",
            next_command=f"python -m kafka_ingest change {pipeline} {options.kind} --help",
            pipeline=pipeline,
        ) from expected


def _reset(options: argparse.Namespace, zone: str) -> Change:
    if options.to_offset and options.only:
        raise ValueError("--only or --to-offset, which names its partitions itself")
    if options.to_offset:
        return changes.ResetToOffsets(parse_partition_offsets(_lines(options.to_offset)))
    if options.to_time:
        return changes.ResetToTime(parse_record_time(options.to_time, zone), _selection(options))
    if options.by is not None:
        return changes.ResetBy(options.by, _selection(options))
    return changes.ResetToPlace(LogPlace(options.to), _selection(options))


def _selection(options: argparse.Namespace) -> Selection:
    return parse_selection(_lines(options.only))


def _lines(given: Sequence[Sequence[str]]) -> str:
    return "\n".join(" ".join(words) for words in given)


def _show_preview(preview: ChangePreview, request: ChangeRequest, output: Output) -> None:
    if preview.recorded:
        output.note(f"request {request.request_id} was recorded before: it would change nothing")
        _show_recorded(preview.recorded, output)
        return
    plan, outstanding = preview.plan, preview.outstanding
    if output.as_json:
        output.record(
            {
                "pipeline": request.pipeline,
                "kind": request.change.kind.value,
                "positions": change_rows(plan.positions),
                "settings": setting_rows(plan.settings),
                "outstanding_batch_id": outstanding.batch_id if outstanding else None,
                "faults": [str(fault) for fault in plan.faults],
            }
        )
        return
    output.rows(change_rows(plan.positions), CHANGE_COLUMNS, empty=_NOTHING)
    for line in _remarks(preview):
        output.note(line)


def _remarks(preview: ChangePreview) -> Iterator[str]:
    plan, outstanding = preview.plan, preview.outstanding
    yield from map(_setting_text, plan.settings)
    if outstanding:
        yield f"batch {outstanding.batch_id} of {outstanding.request} is outstanding: it is refused without --supersede"
    yield from (f"fault: {fault}\n  next: {fault.next_command}" for fault in plan.faults)
    if not plan.faults:
        yield "nothing was written: add --apply to make this change"


def _show_recorded(recorded: RecordedChange, output: Output) -> None:
    if output.as_json:
        output.record(
            {
                "pipeline": recorded.pipeline,
                "request_id": recorded.request_id,
                "kind": recorded.kind,
                "who": recorded.who,
                "why": recorded.why,
                "at": recorded.at,
                "positions": change_rows(recorded.positions),
                "settings": setting_rows(recorded.settings),
                "superseded_batch_id": recorded.superseded,
            }
        )
        return
    output.rows(change_rows(recorded.positions), CHANGE_COLUMNS, empty=_NOTHING)
    for setting in recorded.settings:
        output.note(_setting_text(setting))
    if recorded.superseded:
        output.note(f"batch {recorded.superseded} was taken out of the way")
    output.note(f"recorded by {recorded.who}: {recorded.why}")


def _setting_text(setting: SettingChange) -> str:
    return f"{setting.name}: {setting.before} -> {setting.after}"


# ----------
# Command ``roll-back``: show what undoing the newest batches would do, and with ``--apply`` do it.

_BATCH_COLUMNS = ("batch_id", "run_id", "committed_at", "rows", "dead_letters")


def run_roll_back(options: argparse.Namespace, output: Output) -> int:
    """Show or do a roll-back. The same request id is done once, however often it comes."""
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
    ports = world_of(settings).roll_back_ports()
    return _apply(request, ports, output) if options.apply else _preview(request, ports, output)


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
        for line in _roll_back_remarks(plan):
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


def _roll_back_remarks(plan: RollBackPlan) -> Iterator[str]:
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

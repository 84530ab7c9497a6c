"""Commands that change positions: ``change`` and ``roll-back``."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from kafka_ingest import report
from kafka_ingest.cli.command import (
    Output,
    Parser,
    add_field,
    add_json,
    add_parser,
    add_pipeline,
    command,
    new_request_id,
    world_of,
)
from kafka_ingest.errors import OK, STOP_AND_CALL, ConfigError
from kafka_ingest.forms.change import CHANGES, FIELDS, KindOfChange
from kafka_ingest.forms.values import Field, Text
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.changes import ChangePreview, apply_change, preview_change
from kafka_ingest.protocol.decisions import Change, ChangeRequest, Selection
from kafka_ingest.protocol.ledger_view import RecordedChange, SettingChange
from kafka_ingest.protocol.roll_back import RollBackPlan, RollBackPorts, RollBackRequest, preview_roll_back, roll_back

# ----------
# Command ``change``: show what a position change would do, and with ``--apply`` make it.

_NOTHING = "no position changes"


def _change_arguments(parser: Parser) -> None:
    add_pipeline(parser)
    kinds = parser.add_subparsers(title="kinds of changes", metavar="KIND", dest="kind", required=True)
    for name, kind in CHANGES.items():
        of_kind = add_parser(kinds, name, kind.summary)
        for key in ("reason", "apply", "supersede"):
            add_field(of_kind, key, FIELDS[key])
        _add_request_id(of_kind)
        add_json(of_kind)
        _add_keys(of_kind, kind)


def _add_keys(parser: Parser, kind: KindOfChange) -> None:
    """Add the arguments of a kind. Where there are several ways to do it, exactly one of them is given."""
    fields = {**FIELDS, "only": replace(FIELDS["only"], option=kind.scope.option)}
    ways = kind.ways.values()
    needs = parser.add_mutually_exclusive_group(required=True) if ways else parser
    for key in (*kind.needs, *(key for way in ways for key in way.needs)):
        add_field(needs, key, fields[key], **({} if ways else {"required": True}))
    for key in dict.fromkeys((*kind.takes, *(key for way in ways for key in way.takes))):
        add_field(parser, key, fields[key])


def _add_request_id(parser: Parser) -> None:
    parser.add_argument("--request-id", metavar="ID", help="name of the request (default: a new one, which is printed)")


@command(
    "change",
    "change positions, or what binds a pipeline: shows first, and keeps who, when and why",
    _change_arguments,
    details="""\
Without --apply it shows what would change and writes nothing.
examples
  python -m kafka_ingest change orders reset --to earliest --reason "mapping was wrong until today"
  python -m kafka_ingest change orders reset --by -5000 --only orders 3 --reason "..." --apply
  python -m kafka_ingest change orders accept-loss --reason "retention was too short, see incident 812" --apply
  python -m kafka_ingest change sales rename --from orders --reason "new owner" --apply
A reset backwards leaves the rows in place: the next run replaces them. The same request id is the same change.
""",
    has_json=False,
)
def run_change(options: argparse.Namespace, output: Output) -> int:
    """Show a change, or with ``--apply`` make it. The same request id always means the same change."""
    from kafka_ingest.pipeline_files.files import find_pipeline

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
    given, kind = vars(options), CHANGES[options.kind]
    try:
        if given.get("offsets") and given.get("only"):
            raise ValueError("--only or --to-offset, which names its partitions itself")
        read = {key: _read(field, given.get(key, field.default), zone) for key, field in FIELDS.items()}
        chosen = (name for name, way in kind.ways.items() for key in way.needs if read[key] is not None)
        return kind.make({**read, "reset_to": next(chosen, read["reset_to"])})
    except ValueError as expected:
        raise ConfigError(
            "the arguments of the change do not fit",
            expected=str(expected),
            found="another value",
            next_command=f"python -m kafka_ingest change {pipeline} {options.kind} --help",
            pipeline=pipeline,
        ) from expected


def _read(field: Field, found: Any, zone: str) -> Any:
    """Read one argument; argparse has read numbers, choices and flags already."""
    if not found or not isinstance(field.value, Text):
        return found
    if isinstance(found, str):
        return field.value.read(found, zone)
    if isinstance(found[0], str):
        return Selection(topics=tuple(found))
    return field.value.read("\n".join(" ".join(words) for words in found), zone)


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
                "positions": report.change_rows(plan.positions),
                "settings": report.setting_rows(plan.settings),
                "outstanding_batch_id": outstanding.batch_id if outstanding else None,
                "faults": [str(fault) for fault in plan.faults],
            }
        )
        return
    output.rows(report.change_rows(plan.positions), report.CHANGE_COLUMNS, empty=_NOTHING)
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
                "positions": report.change_rows(recorded.positions),
                "settings": report.setting_rows(recorded.settings),
                "superseded_batch_id": recorded.superseded,
            }
        )
        return
    output.rows(report.change_rows(recorded.positions), report.CHANGE_COLUMNS, empty=_NOTHING)
    for setting in recorded.settings:
        output.note(_setting_text(setting))
    if recorded.superseded:
        output.note(f"batch {recorded.superseded} was taken out of the way")
    output.note(f"recorded by {recorded.who}: {recorded.why}")


def _setting_text(setting: SettingChange) -> str:
    return f"{setting.name}: {setting.before} -> {setting.after}"


# ----------
# Command ``roll-back``: show what undoing the newest batches would do, and with ``--apply`` do it.

_BATCH_COLUMNS = ("batch_id", "run_id", "committed_at", "rows", "deletes", "superseded", "dead_letters")


def _roll_back_arguments(parser: Parser) -> None:
    add_pipeline(parser)
    add_field(parser, "batches", FIELDS["batches"], required=True)
    add_field(parser, "reason", FIELDS["reason"])
    add_field(parser, "apply", FIELDS["apply"], help="do it; without it, it is only shown")
    add_field(parser, "supersede", FIELDS["supersede"])
    add_field(parser, "allow_compacted", FIELDS["allow_compacted"])
    _add_request_id(parser)
    add_json(parser)


@command(
    "roll-back",
    "undo the newest batches: rows, dead letters and positions together",
    _roll_back_arguments,
    details="""\
Without --apply it shows what would be undone and writes nothing.
examples
  python -m kafka_ingest roll-back orders --batches 1
  python -m kafka_ingest roll-back orders --batches 1 --reason "prices were wrong, see incident 812" --apply
The next run loads the same offsets again. Batches that only reloaded are passed over. The same request id is done once.
""",
    has_json=False,
)
def run_roll_back(options: argparse.Namespace, output: Output) -> int:
    """Show or do a roll-back. The same request id is done once, however often it comes."""
    from kafka_ingest.pipeline_files.files import find_pipeline

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
    output.rows(report.undone_rows(record.spans), report.UNDONE_COLUMNS, empty="")
    output.note(f"rolled back: {', '.join(record.batch_ids)}")
    if record.superseded:
        output.note(f"superseded: {record.superseded}")
    return OK


def _preview(request: RollBackRequest, ports: RollBackPorts, output: Output) -> int:
    plan = preview_roll_back(request, ports)
    if output.as_json:
        output.record(_document(plan))
    else:
        rows = [_batch_row(batch) for batch in plan.batches]
        output.rows(rows, report.shown_columns(rows, _BATCH_COLUMNS), empty="no batch to roll back")
        for line in _roll_back_remarks(plan):
            output.note(line)
    return STOP_AND_CALL if plan.faults else OK


def _document(plan: RollBackPlan) -> dict[str, Any]:
    return {
        "pipeline": plan.request.pipeline,
        "batches": [_batch_row(batch) for batch in plan.batches],
        "positions": report.lowered_rows(plan.positions),
        "supersedes": plan.supersedes,
        "faults": [str(fault) for fault in plan.faults],
    }


def _roll_back_remarks(plan: RollBackPlan) -> Iterator[str]:
    if plan.positions:
        yield f"\n{report.table(report.lowered_rows(plan.positions), report.ROLL_BACK_COLUMNS)}"
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
        "deletes": counts.deletes if counts else None,
        "superseded": counts.superseded if counts else None,
        "dead_letters": counts.dead_letters if counts else None,
    }


COMMANDS = (run_change, run_roll_back)

"""Command ``dead-letters``: list, show and export them; replay or discard them."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO
from uuid import UUID

from kafka_ingest import report
from kafka_ingest.cli.command import (
    Output,
    Parser,
    add_field,
    add_json,
    add_limit,
    add_parser,
    add_pipeline,
    command,
    new_request_id,
    world_of,
)
from kafka_ingest.errors import OK, ConfigError, naming
from kafka_ingest.forms.change import FIELDS, parse_places, parse_reasons
from kafka_ingest.protocol.dead_letters import (
    DeadLetterAction,
    DeadLetterChoice,
    DeadLetterPlace,
    DeadLetterReport,
    DeadLetterRequest,
)
from kafka_ingest.settings import PipelineSettings

_LIST_COLUMNS = ("topic", "partition", "offset", "record_time", "reason", "detail", "resolution", "batch_id")
_COUNT_COLUMNS = ("reason", "standing", "records", "first_at", "last_at")
_PAYLOAD = ("key", "value", "header_names", "header_values")
#: Bytes of a key, a value or a header that a terminal gets to see, as printable text or hexadecimal digits.
_EXCERPT = 200
#: More bytes than a value can have (1 GB, PostgreSQL 18).
_WHOLE = 2**31 - 1
_STANDINGS = {"unresolved": False, "resolved": True, "all": None}

# ----------
# Arguments.


def _arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(title="what to do", metavar="ACTION", dest="action", required=True)
    for name, (summary, run, add) in _ACTIONS.items():
        of_action = add_parser(actions, name, summary)
        of_action.set_defaults(act=run)
        add_pipeline(of_action)
        add(of_action)
        add_json(of_action)


def _add_choice(parser: Parser) -> None:
    for key in ("dead_letter_reasons", "dead_letter_places", "generation"):
        add_field(parser, key, FIELDS[key])
    parser.add_argument("--batch", type=UUID, metavar="ID", help="only those of one batch")


def _add_list(parser: Parser) -> None:
    _add_choice(parser)
    _add_standing(parser, "all")
    add_limit(parser, default=50)
    parser.add_argument("--show-values", action="store_true", help="show keys, values and headers, too")


def _add_show(parser: Parser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="topic of the record")
    parser.add_argument("partition", metavar="PARTITION", type=int, help="its partition")
    parser.add_argument("offset", metavar="OFFSET", type=int, help="its offset")


def _add_export(parser: Parser) -> None:
    _add_choice(parser)
    _add_standing(parser, "all")
    add_field(parser, "most_dead_letters", FIELDS["most_dead_letters"])
    parser.add_argument("--to", type=Path, metavar="FILE", help="a new file (default: standard output)")


def _add_standing(parser: Parser, default: str) -> None:
    text = f"only these (default: {default})"
    parser.add_argument("--standing", choices=tuple(_STANDINGS), default=default, help=text)


def _add_request(parser: Parser) -> None:
    _add_choice(parser)
    add_field(parser, "most_dead_letters", FIELDS["most_dead_letters"])
    add_field(parser, "reason", FIELDS["reason"])
    add_field(parser, "apply", FIELDS["apply"], help="do it; without it, it is only shown")
    parser.add_argument("--request-id", metavar="ID", help="name of the request (default: a new one, which is printed)")


def _choice(options: argparse.Namespace) -> DeadLetterChoice:
    """Return what the arguments choose.

    Raises:
        ConfigError: An argument does not fit.
    """
    given = vars(options)
    places = [" ".join(words) for words in given["dead_letter_places"] or ()]
    try:
        return DeadLetterChoice(
            reasons=parse_reasons("\n".join(given["dead_letter_reasons"] or ())),
            places=parse_places("\n".join(places)),
            batch_id=str(options.batch) if options.batch else None,
            generation=options.generation,
            limit=given.get("most_dead_letters", given.get("limit")),
        )
    except ValueError as expected:
        raise ConfigError(
            "the arguments do not fit",
            expected=str(expected),
            found="another value",
            next_command=f"python -m kafka_ingest dead-letters {options.action} --help",
        ) from expected


@command(
    "dead-letters",
    "look at records that did not fit, bring them back, or discard them",
    _arguments,
    details="""\
examples
  python -m kafka_ingest dead-letters list orders
  python -m kafka_ingest dead-letters show orders shop.orders 3 4711
  python -m kafka_ingest dead-letters export orders --of-reason malformed --to malformed.jsonl
  python -m kafka_ingest dead-letters replay orders --of-reason wrong_type --reason "column amount is text now" --apply
  python -m kafka_ingest dead-letters discard orders --only shop.orders 3 4711 4712 --reason "a test record" --apply
Without --apply, replay and discard show what would happen and write nothing. The same request id is done once.
In JSON, and in what is exported, keys, values and header values are base64.
""",
    has_json=False,
)
def run_dead_letters(options: argparse.Namespace, output: Output) -> int:
    """Do what the action says."""
    from kafka_ingest.pipeline_files.files import find_pipeline

    settings = find_pipeline(options.pipeline)
    with naming(settings.pipeline):
        code: int = options.act(settings, options, output)
    return code


# ----------
# Looking. Payloads are shown only when they are asked for: they may be personal data.


def _list(settings: PipelineSettings, options: argparse.Namespace, output: Output) -> int:
    """List dead letters, those of the newest batch first; in text after their counts by reason."""
    choice, standing = _choice(options), _STANDINGS[options.standing]
    reports = world_of(settings).reports()
    if not output.as_json:
        counts = reports.dead_letter_counts(settings.pipeline, choice, is_resolved=standing)
        output.rows(counts, _COUNT_COLUMNS, empty=f"pipeline {settings.pipeline} has no dead letters here")
        if not counts:
            return OK
        output.note("")
    most = (_WHOLE if output.as_json else _EXCERPT) if options.show_values else 0
    rows = reports.dead_letters(settings.pipeline, choice, is_resolved=standing, excerpt=most)
    columns: tuple[str, ...] = _LIST_COLUMNS
    if options.show_values:
        columns = (*columns, *_PAYLOAD)
    else:
        rows = [{key: value for key, value in row.items() if key not in _PAYLOAD} for row in rows]
    shown = rows if output.as_json else [_for_terminal(row) for row in rows]
    output.rows(shown, columns, empty=f"pipeline {settings.pipeline} has no dead letters here")
    return OK


def _show(settings: PipelineSettings, options: argparse.Namespace, output: Output) -> int:
    """Show one dead letter, with the beginning of its bytes; of each generation that has one."""
    place = DeadLetterPlace(options.topic, options.partition, options.offset, options.offset + 1)
    choice = DeadLetterChoice(places=(place,), limit=10)
    most = _WHOLE if output.as_json else _EXCERPT
    rows = world_of(settings).reports().dead_letters(settings.pipeline, choice, is_resolved=None, excerpt=most)
    if not rows:
        raise ConfigError(
            f"there is no dead letter of {options.topic}[{options.partition}] offset {options.offset}",
            expected="topic, partition and offset of a dead letter",
            found="none in the ledger",
            next_command=f"python -m kafka_ingest dead-letters list {settings.pipeline}",
        )
    for row in rows:
        output.record(row if output.as_json else _for_terminal(row))
    return OK


def _for_terminal(row: Mapping[str, Any]) -> dict[str, Any]:
    """Cut the bytes that a record brought along; tables escape what a terminal might obey (``report.cell``)."""
    return {key: _excerpt(value) for key, value in row.items()}


def _excerpt(value: Any) -> Any:
    match value:
        case bytes():
            return value[:_EXCERPT]
        case list():
            return [_excerpt(item) for item in value]
    return value


def _export(settings: PipelineSettings, options: argparse.Namespace, output: Output) -> int:
    """Write dead letters as JSON lines, whole, a page at a time."""
    choice, standing = _choice(options), _STANDINGS[options.standing]
    letters = world_of(settings).reports().all_dead_letters(settings.pipeline, choice, is_resolved=standing)
    number = 0
    with _file(options.to) as file:
        for number, letter in enumerate(letters, 1):  # noqa: B007 - the last number is told
            file.write(f"{json.dumps(report.dead_letter_document(letter), ensure_ascii=False)}\n")
    output.note(f"{number:,} dead letters exported" + (f" to {options.to}" if options.to else ""))
    return OK


@contextmanager
def _file(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    try:
        # For this user alone: it holds whole records.
        file = open(path, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
    except OSError as error:
        raise ConfigError(
            "the dead letters cannot be exported there",
            expected="a file that does not exist yet, in a folder that exists",
            found=str(error),
            next_command="name another file: --to FILE",
        ) from error
    with file:
        yield file


# ----------
# Resolving.


def _resolve(settings: PipelineSettings, options: argparse.Namespace, output: Output) -> int:
    """Replay or discard, or show what that would do."""
    request = DeadLetterRequest(
        request_id=options.request_id or new_request_id(),
        pipeline=settings.pipeline,
        action=DeadLetterAction(options.action),
        choice=_choice(options),
        who=getpass.getuser(),
        why=options.reason,
    )
    if options.apply:
        output.note(f"request {request.request_id} (the same again: --request-id {request.request_id})")
    _tell(request, world_of(settings).resolve_dead_letters(request, apply=options.apply, tell=output.note), output)
    return OK


def _tell(request: DeadLetterRequest, told: DeadLetterReport, output: Output) -> None:
    if output.as_json:
        output.record({"pipeline": request.pipeline, "request_id": request.request_id, **asdict(told)})
        return
    output.rows(report.outcome_rows(told.outcome), report.OUTCOME_COLUMNS, empty="no dead letters are chosen")
    for line in report.outcome_remarks(told):
        output.note(line)
    if told.recorded is None:
        output.note("nothing was written: --apply does it")


_ACTIONS = {
    "list": ("count dead letters by reason, and list them", _list, _add_list),
    "show": ("show one, with the beginning of its bytes", _show, _add_show),
    "export": ("write them as JSON lines, with all their bytes", _export, _add_export),
    "replay": ("decode them again with today's pipeline file; what fits becomes rows", _resolve, _add_request),
    "discard": ("resolve them without rows; their bytes stay", _resolve, _add_request),
}

COMMANDS = (run_dead_letters,)

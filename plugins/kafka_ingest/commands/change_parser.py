"""The arguments of ``change PIPELINE KIND``: one parser a kind, so that each has help of its own."""

from __future__ import annotations

import argparse
from typing import TypeAlias

from kafka_ingest.commands.argument_types import at_least_0
from kafka_ingest.core.change_requests import LogPlace

Parsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_DETAILS = """\
Without --apply it shows what would change and writes nothing.
examples
  python -m kafka_ingest change orders reset --to earliest --reason "mapping was wrong until today"
  python -m kafka_ingest change orders reset --by -5000 --only orders 3 --reason "..." --apply
  python -m kafka_ingest change orders accept-loss --reason "retention was too short, see incident 812" --apply
  python -m kafka_ingest change sales rename --from orders --reason "new owner" --apply
A reset backwards leaves the rows in place: the next run replaces them. The same request id is the same change.
"""
_PLACES = tuple(place.value for place in LogPlace)


def add_change(commands: Parsers) -> None:
    """Adds the command and its kinds."""
    summary = "change positions, or what binds a pipeline: shows first, and keeps who, when and why"
    parser = commands.add_parser(
        "change",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=_DETAILS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of the pipeline")
    kinds = parser.add_subparsers(title="kinds of changes", metavar="KIND", dest="kind", required=True)
    for add in (_add_reset, _add_skip_lag, _add_accept_loss, _add_accept_recreation, _add_accept_cluster):
        add(kinds)
    _add_kind(kinds, "accept-same-log", "the cluster has another id but the same topics, by their ids: positions stay")
    rename = _add_kind(kinds, "rename", "the pipeline file has a new name: let the ledger follow")
    rename.add_argument("--from", dest="former_name", required=True, metavar="NAME", help="the name until now")
    for name, summary in (
        ("retire-topic", "read a topic no more; rows and positions stay"),
        (
            "read-topic-again",
            "read a retired topic again: from its positions, or as a new one where it was created again",
        ),
    ):
        _add_kind(kinds, name, summary).add_argument("topic", metavar="TOPIC", help="the topic")
    _add_kind(kinds, "change-target", "load into the table that the pipeline file names now")
    summary = "find rows by the identity columns that the pipeline file names now; rename them in the table first"
    _add_kind(kinds, "change-identity-columns", summary)
    _add_kind(kinds, "change-isolation-level", "read under the isolation level that the pipeline file names now")


def _add_kind(kinds: Parsers, name: str, summary: str) -> argparse.ArgumentParser:
    parser = kinds.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; needed with --apply, kept in the ledger")
    parser.add_argument("--apply", action="store_true", help="make the change; without it, it is only shown")
    parser.add_argument("--supersede", action="store_true", help="take an outstanding batch out of the way")
    parser.add_argument("--request-id", metavar="ID", help="name of the request (default: a new one, which is printed)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=("change", "run_change"))
    return parser


def _add_reset(kinds: Parsers) -> None:
    parser = _add_kind(kinds, "reset", "put positions elsewhere in their log")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", choices=_PLACES, help="the log start, or the end offset")
    where.add_argument(
        "--to-time", metavar="TIME", help="first offset at or after a time; in the pipeline's zone when it names none"
    )
    where.add_argument(
        "--to-offset",
        nargs=3,
        action="append",
        metavar=("TOPIC", "PARTITION", "OFFSET"),
        help="the next offset to read of a partition; can be given again",
    )
    where.add_argument("--by", type=int, metavar="N", help="so many offsets forwards, or below 0 backwards")
    _add_only(parser)


def _add_skip_lag(kinds: Parsers) -> None:
    parser = _add_kind(kinds, "skip-lag", "give up what waits, except the last offsets of each partition")
    parser.add_argument("--keep", type=at_least_0, required=True, metavar="N", help="offsets to keep of each partition")
    _add_only(parser)


def _add_accept_loss(kinds: Parsers) -> None:
    parser = _add_kind(kinds, "accept-loss", "go on at the log start where retention deleted unread offsets")
    parser.add_argument(
        "--margin",
        type=at_least_0,
        default=0,
        metavar="N",
        help="begin so many offsets above the log start, which moves on while they are read (default: 0)",
    )
    _add_only(parser)


def _add_accept_recreation(kinds: Parsers) -> None:
    parser = _add_kind(kinds, "accept-recreation", "load topics that were deleted and created again, as new ones")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics (default: all that were)")
    _add_begin(parser)


def _add_accept_cluster(kinds: Parsers) -> None:
    summary = "load every topic from the cluster that the connection leads to, as a new one"
    _add_begin(_add_kind(kinds, "accept-cluster", summary))


def _add_begin(parser: argparse.ArgumentParser) -> None:
    text = "where the new log is begun (default: earliest)"
    parser.add_argument("--begin", choices=_PLACES, default=LogPlace.EARLIEST.value, help=text)


def _add_only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        nargs="+",
        action="append",
        default=[],
        metavar=("TOPIC", "PARTITION"),
        help="a topic, or one partition of it; can be given again (default: all partitions)",
    )

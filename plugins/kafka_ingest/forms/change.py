"""The form of a change: ten kinds, in Airflow and on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from kafka_ingest.errors import ConfigError
from kafka_ingest.forms.values import (
    FormValues,
    a_flag,
    a_positive_number,
    a_text,
    a_whole_number,
    at_least_0,
    at_least_1,
    one_of,
    parse_partition_offsets,
    parse_selection,
)
from kafka_ingest.protocol import change_requests as changes
from kafka_ingest.protocol.change_requests import Change, ChangeRequest, LogPlace, Selection
from kafka_ingest.protocol.roll_back import RollBackRequest

# ----------
# The form of the administration DAG: which change of which pipeline, whether it is made or only shown, and why.
#
# Every fault of a form is found at once. A key that means nothing for the chosen kind is a fault, since whoever filled
# it in expects something of it.


class AdministrationKind(StrEnum):
    """What can be done; named as the commands are."""

    PREFLIGHT = "preflight"
    RESET = "reset"
    SKIP_LAG = "skip-lag"
    ACCEPT_LOSS = "accept-loss"
    ACCEPT_RECREATION = "accept-recreation"
    ACCEPT_CLUSTER = "accept-cluster"
    ACCEPT_SAME_LOG = "accept-same-log"
    RENAME = "rename"
    RETIRE_TOPIC = "retire-topic"
    READ_TOPIC_AGAIN = "read-topic-again"
    CHANGE_TARGET = "change-target"
    CHANGE_IDENTITY_COLUMNS = "change-identity-columns"
    CHANGE_ISOLATION_LEVEL = "change-isolation-level"
    ROLL_BACK = "roll-back"


class ResetTo(StrEnum):
    """Where a reset leads."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSETS = "offsets"
    BY = "by"


#: What a form holds when nobody fills it in. An empty text counts as nothing.
DEFAULTS: Mapping[str, Any] = {
    "pipeline": None,
    "kind": AdministrationKind.PREFLIGHT.value,
    "apply": False,
    "reason": None,
    "supersede": False,
    "reset_to": None,
    "time": None,
    "offsets": None,
    "by_offsets": None,
    "only": None,
    "keep_offsets": None,
    "margin_offsets": 0,
    "begin": LogPlace.EARLIEST.value,
    "former_name": None,
    "batches": None,
    "allow_compacted": False,
    "submit_job": False,
}

#: What Airflow's form shows in place of the keys.
LABELS: Mapping[str, str] = {
    "pipeline": "Pipeline",
    "kind": "What to do",
    "apply": "Apply",
    "reason": "Reason",
    "supersede": "Supersede the outstanding batch",
    "reset_to": "Reset to",
    "time": "Time",
    "offsets": "Offsets",
    "by_offsets": "By (offsets)",
    "only": "Only",
    "keep_offsets": "Keep (offsets)",
    "margin_offsets": "Margin (offsets)",
    "begin": "Begin at",
    "former_name": "Former name",
    "batches": "Batches",
    "allow_compacted": "Allow compacted topics",
    "submit_job": "Submit a job",
}

_EVERYWHERE = frozenset({"pipeline", "kind"})
_OF_CHANGES = frozenset({"apply", "reason", "supersede"})


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys that a kind must have, and those that it may have."""

    needed: frozenset[str] = frozenset()
    possible: frozenset[str] = frozenset()


def _keys(*needed: str, possible: tuple[str, ...] = ()) -> _Keys:
    return _Keys(frozenset(needed), frozenset(possible))


_KEYS: Mapping[AdministrationKind, _Keys] = {
    AdministrationKind.PREFLIGHT: _keys(possible=("submit_job",)),
    AdministrationKind.RESET: _keys("reset_to"),
    AdministrationKind.SKIP_LAG: _keys("keep_offsets", possible=("only",)),
    AdministrationKind.ACCEPT_LOSS: _keys(possible=("margin_offsets", "only")),
    AdministrationKind.ACCEPT_RECREATION: _keys(possible=("begin", "only")),
    AdministrationKind.ACCEPT_CLUSTER: _keys(possible=("begin",)),
    AdministrationKind.ACCEPT_SAME_LOG: _keys(),
    AdministrationKind.RENAME: _keys("former_name"),
    AdministrationKind.RETIRE_TOPIC: _keys("only"),
    AdministrationKind.READ_TOPIC_AGAIN: _keys("only"),
    AdministrationKind.CHANGE_TARGET: _keys(),
    AdministrationKind.CHANGE_IDENTITY_COLUMNS: _keys(),
    AdministrationKind.CHANGE_ISOLATION_LEVEL: _keys(),
    AdministrationKind.ROLL_BACK: _keys("batches", possible=("allow_compacted",)),
}
_RESET_KEYS: Mapping[ResetTo, _Keys] = {
    ResetTo.EARLIEST: _keys(possible=("only",)),
    ResetTo.LATEST: _keys(possible=("only",)),
    ResetTo.TIME: _keys("time", possible=("only",)),
    ResetTo.OFFSETS: _keys("offsets"),
    ResetTo.BY: _keys("by_offsets", possible=("only",)),
}

_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "pipeline": a_text,
    "kind": one_of(AdministrationKind),
    "apply": a_flag,
    "reason": a_text,
    "supersede": a_flag,
    "reset_to": one_of(ResetTo),
    "offsets": lambda text: parse_partition_offsets(a_text(text)),
    "by_offsets": a_whole_number,
    "only": lambda text: parse_selection(a_text(text)),
    "keep_offsets": lambda number: a_whole_number(number, at_least=0),
    "margin_offsets": lambda number: a_whole_number(number, at_least=0),
    "begin": one_of(LogPlace),
    "former_name": a_text,
    "batches": a_positive_number,
    "allow_compacted": a_flag,
    "submit_job": a_flag,
}


@dataclass(frozen=True, slots=True)
class PreflightRequest:
    """Look at everything that a pipeline rests on."""

    pipeline: str
    submit_job: bool


@dataclass(frozen=True, slots=True)
class ChangeOrder:
    """A change of positions or of what binds the pipeline; ``apply``: make it, do not only show it."""

    request: ChangeRequest
    apply: bool


@dataclass(frozen=True, slots=True)
class RollBackOrder:
    """A roll-back; ``apply``: make it, do not only show it."""

    request: RollBackRequest
    apply: bool


Order: TypeAlias = PreflightRequest | ChangeOrder | RollBackOrder


def read_order(form: Mapping[str, Any], *, zone: str, who: str, request_id: str) -> Order:
    """Return what a form asks for.

    Args:
        form: Values by key; keys that are missing hold their defaults.
        zone: IANA time zone of a time without an offset from UTC.
        who: The person who filled it in.
        request_id: Identity of the request: the same one means the same change.

    Raises:
        ConfigError: Lists every fault.
    """
    values = FormValues(form, DEFAULTS, zone, LABELS)
    values.check_known_keys()
    read = {key: values.read(key, parse) for key, parse in _PARSERS.items()} | {"time": values.time("time")}
    for key, expected, found in _faults_between_keys(values, read):
        values.fault(key, expected, found)
    _require_no_faults(values, read)
    return _order(read, who, request_id)


def _faults_between_keys(values: FormValues, read: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    if not values.is_given("pipeline"):
        yield "pipeline", "the name of a pipeline", "nothing"
    if read["kind"] != values.given.get("kind", read["kind"]):
        return  # an unknown kind: nobody can say what belongs to it
    kind = AdministrationKind(read["kind"])
    keys = _keys_of(kind, read["reset_to"])
    for key in sorted(keys.needed):
        if not values.is_given(key):
            yield key, f"a value: {kind} needs it", "nothing"
    for key in DEFAULTS:
        if key not in keys.needed | keys.possible | _EVERYWHERE and values.is_given(key):
            yield key, f"nothing for {kind}{_reset_text(read)}", "a value"
    yield from _wrong_selection(kind, read["only"])


def kinds_of(key: str) -> tuple[AdministrationKind, ...]:
    """Give the kinds that a key says something to; none for the keys that belong to preflight or changes at large."""
    return tuple(kind for kind in AdministrationKind if key in _own_keys(kind))


def _own_keys(kind: AdministrationKind) -> frozenset[str]:
    of_reset = _RESET_KEYS.values() if kind is AdministrationKind.RESET else ()
    return frozenset().union(*(keys.needed | keys.possible for keys in (_KEYS[kind], *of_reset)))


def _keys_of(kind: AdministrationKind, reset_to: str | None) -> _Keys:
    keys = _KEYS[kind]
    if kind is AdministrationKind.RESET and reset_to is not None:
        more = _RESET_KEYS[ResetTo(reset_to)]
        keys = _Keys(keys.needed | more.needed, more.possible)
    if kind is AdministrationKind.PREFLIGHT:
        return keys
    return _Keys(keys.needed | {"reason"}, keys.possible | _OF_CHANGES)


def _reset_text(read: Mapping[str, Any]) -> str:
    return f" to {read['reset_to']}" if read["kind"] == AdministrationKind.RESET and read["reset_to"] else ""


def _wrong_selection(kind: AdministrationKind, only: Selection | None) -> Iterator[tuple[str, str, str]]:
    if only is None:
        return
    of_one_topic = kind in (AdministrationKind.RETIRE_TOPIC, AdministrationKind.READ_TOPIC_AGAIN)
    if of_one_topic and (only.partitions or len(only.topics) != 1):
        yield "only", "one topic", "more, or partitions"
    if kind is AdministrationKind.ACCEPT_RECREATION and only.partitions:
        yield "only", "topics: all partitions of a topic were created again", "partitions"


def _require_no_faults(values: FormValues, read: Mapping[str, Any]) -> None:
    if values.faults:
        raise ConfigError(
            "the form asks for something that cannot be done",
            expected="values as the form describes them",
            found="\n".join(values.faults),
            next_command="start a new run with these values corrected; nothing was changed",
            pipeline=read["pipeline"],
        )


def _order(read: Mapping[str, Any], who: str, request_id: str) -> Order:
    kind, pipeline = AdministrationKind(read["kind"]), read["pipeline"]
    if kind is AdministrationKind.PREFLIGHT:
        return PreflightRequest(pipeline, read["submit_job"])
    if kind is AdministrationKind.ROLL_BACK:
        roll_back = RollBackRequest(
            request_id=request_id,
            pipeline=pipeline,
            batches=read["batches"],
            who=who,
            why=read["reason"],
            supersede=read["supersede"],
            allow_compacted=read["allow_compacted"],
        )
        return RollBackOrder(roll_back, read["apply"])
    change = ChangeRequest(pipeline, request_id, _change(kind, read), who, read["reason"], read["supersede"])
    return ChangeOrder(change, read["apply"])


def _change(kind: AdministrationKind, read: Mapping[str, Any]) -> Change:
    only: Selection = read["only"] or Selection()
    begin = LogPlace(read["begin"])
    made: Mapping[AdministrationKind, Callable[[], Change]] = {
        AdministrationKind.RESET: lambda: _reset(ResetTo(read["reset_to"]), read, only),
        AdministrationKind.SKIP_LAG: lambda: changes.SkipLag(read["keep_offsets"], only),
        AdministrationKind.ACCEPT_LOSS: lambda: changes.AcceptLoss(read["margin_offsets"], only),
        AdministrationKind.ACCEPT_RECREATION: lambda: changes.AcceptRecreation(only.topics, begin),
        AdministrationKind.ACCEPT_CLUSTER: lambda: changes.AcceptCluster(begin),
        AdministrationKind.ACCEPT_SAME_LOG: changes.AcceptSameLog,
        AdministrationKind.RENAME: lambda: changes.RenamePipeline(read["former_name"]),
        AdministrationKind.RETIRE_TOPIC: lambda: changes.RetireTopic(*only.topics),
        AdministrationKind.READ_TOPIC_AGAIN: lambda: changes.ReadTopicAgain(*only.topics),
        AdministrationKind.CHANGE_TARGET: changes.ChangeTarget,
        AdministrationKind.CHANGE_IDENTITY_COLUMNS: changes.ChangeIdentityColumns,
        AdministrationKind.CHANGE_ISOLATION_LEVEL: changes.ChangeIsolationLevel,
    }
    return made[kind]()


def _reset(reset_to: ResetTo, read: Mapping[str, Any], only: Selection) -> Change:
    if reset_to is ResetTo.TIME:
        return changes.ResetToTime(read["time"], only)
    if reset_to is ResetTo.OFFSETS:
        return changes.ResetToOffsets(read["offsets"])
    if reset_to is ResetTo.BY:
        return changes.ResetBy(read["by_offsets"], only)
    return changes.ResetToPlace(LogPlace(reset_to.value), only)


# ----------
# The arguments of ``change PIPELINE KIND``: one parser a kind, so that each has help of its own.

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
    """Add the command and its kinds."""
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


# ----------
# The arguments of ``roll-back``.

_ROLL_BACK_DETAILS = """\
Without --apply it shows what would be undone and writes nothing.
examples
  python -m kafka_ingest roll-back orders --batches 1
  python -m kafka_ingest roll-back orders --batches 1 --reason "prices were wrong, see incident 812" --apply
The next run loads the same offsets again. Batches that only reloaded are passed over. The same request id is done once.
"""


def add_roll_back(commands: Parsers) -> None:
    """Add the command."""
    summary = "undo the newest batches: rows, dead letters and positions together"
    parser = commands.add_parser(
        "roll-back",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=_ROLL_BACK_DETAILS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of the pipeline")
    parser.add_argument("--batches", type=at_least_1, required=True, metavar="N", help="how many, the newest first")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; needed with --apply, kept in the ledger")
    parser.add_argument("--apply", action="store_true", help="do it; without it, it is only shown")
    parser.add_argument("--supersede", action="store_true", help="take an outstanding batch out of the way")
    parser.add_argument(
        "--allow-compacted",
        action="store_true",
        help="go on where compaction may have taken records that the table still holds",
    )
    parser.add_argument("--request-id", metavar="ID", help="name of the request (default: a new one, which is printed)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=("change", "run_roll_back"))

"""The form of a run: what it may be asked for, in Airflow and on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from kafka_ingest.errors import ConfigError
from kafka_ingest.forms.values import (
    FormValues,
    a_flag,
    a_positive_number,
    a_text,
    at_least_1,
    one_of,
    parse_offset_spans,
)
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions, TimeSpan

# ----------
# The form of a run: what a person may ask of one run, in Airflow's form, in a run's conf, or on the command line.
#
# Every fault of a form is found at once. A form gives :class:`RunOptions`; a form of defaults gives a plain live run.

#: What a form holds when nobody fills it in. An empty text counts as nothing.
DEFAULTS: Mapping[str, Any] = {
    "mode": RunMode.LIVE.value,
    "from": None,
    "to": None,
    "offsets": None,
    "limit": None,
    "reload_what_is_left": False,
    "replace_resolved": False,
    "reason": None,
}

#: What Airflow's form shows in place of the keys.
LABELS: Mapping[str, str] = {
    "mode": "Mode",
    "from": "From (time)",
    "to": "To (time)",
    "offsets": "Offsets",
    "limit": "Limit (offsets)",
    "reload_what_is_left": "Reload what is left",
    "replace_resolved": "Replace resolved dead letters",
    "reason": "Reason",
}

#: Keys that also mean something for a run that Airflow's backfill made: its interval is the span.
BACKFILL_KEYS = frozenset({"reload_what_is_left", "replace_resolved", "reason"})


def run_options(form: Mapping[str, Any], *, zone: str, pipeline: str, labels: Mapping[str, str] = LABELS) -> RunOptions:
    """Return the options that a form asks for.

    Args:
        form: Values by key; keys that are missing hold their defaults.
        zone: IANA time zone of times without an offset from UTC.
        pipeline: For the message.
        labels: What whoever filled it in sees in place of the keys.

    Raises:
        ConfigError: Lists every fault.
    """
    values = FormValues(form, DEFAULTS, zone, labels)
    values.check_known_keys()
    mode = RunMode(values.read("mode", one_of(RunMode)))
    start_ms, end_ms = values.time("from"), values.time("to")
    offsets: tuple[OffsetSpan, ...] = values.read("offsets", lambda text: parse_offset_spans(a_text(text))) or ()
    options = RunOptions(
        mode=mode,
        until_ms=end_ms if not _has_span(values) and mode is not RunMode.RELOAD else None,
        times=None if start_ms is None else TimeSpan(start_ms, end_ms),
        offsets=offsets,
        limit_offsets=values.read("limit", a_positive_number),
        reload_what_is_left=values.read("reload_what_is_left", a_flag),
        replace_resolved=values.read("replace_resolved", a_flag),
        reason=values.read("reason", a_text) or "",
    )
    if mode.value == values.given.get("mode", mode.value):
        _check_together(values, options)
    _require_no_faults(values, pipeline)
    return options


def backfill_options(form: Mapping[str, Any], span: TimeSpan, *, pipeline: str) -> RunOptions:
    """Return the options of a run that Airflow's backfill made: a reload of the run's interval.

    Args:
        form: The backfill's conf; only :data:`BACKFILL_KEYS` may differ from their defaults.
        span: The run's data interval.
        pipeline: For the message.

    Raises:
        ConfigError: Lists every fault.
    """
    values = FormValues(form, DEFAULTS, "UTC", LABELS)
    values.check_known_keys()
    for key in DEFAULTS:
        if key not in BACKFILL_KEYS and values.is_given(key):
            values.fault(key, "nothing in a backfill, which reloads the interval of each run", repr(form[key]))
    options = RunOptions(
        mode=RunMode.RELOAD,
        times=span,
        reload_what_is_left=values.read("reload_what_is_left", a_flag),
        replace_resolved=values.read("replace_resolved", a_flag),
        reason=values.read("reason", a_text) or "",
    )
    _require_no_faults(values, pipeline)
    return options


def _has_span(values: FormValues) -> bool:
    return values.is_given("from") or values.is_given("offsets")


def _check_together(values: FormValues, options: RunOptions) -> None:
    for key, expected, found in _faults_between_keys(values, options):
        values.fault(key, expected, found)


def _faults_between_keys(values: FormValues, options: RunOptions) -> Iterator[tuple[str, str, str]]:
    is_reload, has_span = options.mode is RunMode.RELOAD, _has_span(values)
    if is_reload and not has_span:
        yield "from", f"a time, or {values.labels['offsets']}: a reload needs a span", "neither"
    if is_reload and not values.is_given("reason"):
        yield "reason", "why the span is loaded again", "nothing"
    if values.is_given("offsets") and (values.is_given("from") or values.is_given("to")):
        yield "offsets", "either offsets or times", "both"
    if options.times and options.times.end_ms is not None and options.times.end_ms <= options.times.start_ms:
        yield "to", f"a time after {values.labels['from']}", repr(values.given["to"])
    yield from _misplaced_keys(values, options.mode, has_span=has_span)


def _misplaced_keys(values: FormValues, mode: RunMode, *, has_span: bool) -> Iterator[tuple[str, str, str]]:
    """Yield keys that mean nothing for such a run: they are faults, since whoever gave them expects something."""
    is_live, found = mode is RunMode.LIVE, f"a value ({values.labels['mode']} reload?)"
    for key in ("from", "offsets"):
        if is_live and values.is_given(key):
            yield key, "nothing in a live run, which begins at the committed offsets", found
    if values.is_given("limit") and (mode is RunMode.RELOAD or has_span):
        yield "limit", "nothing in a reload, which reads its whole span", "a value"


def _require_no_faults(values: FormValues, pipeline: str) -> None:
    if values.faults:
        raise ConfigError(
            "the run asks for something that cannot be done",
            expected="values as the run's form describes them",
            found="\n".join(values.faults),
            next_command="start a new run with these values corrected; nothing was planned",
            pipeline=pipeline,
        )


# ----------
# The arguments of ``run`` and ``plan``: those of the form that Airflow shows (``core.run_form``).

Parsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_RUN_DETAILS = """\
examples
  python -m kafka_ingest run orders
  python -m kafka_ingest run orders --limit 10000 --runner in-process
  python -m kafka_ingest run orders --mode reload --from-time 2026-01-31T13:00:00Z --to-time 2026-01-31T14:00:00Z \\
      --reason "a column was mapped wrongly"
  python -m kafka_ingest run orders --mode reload --offsets "orders 0 120 4120" --offsets "orders 1 0" --reason "..."
The same run id means the same batch: running it again finishes it, or finds it loaded.
A run from here has no data interval: under end: interval, too, it reads to the end of the log, or to --to-time.
The job's log goes to standard error, the result to standard output.
"""
_PLAN_DETAILS = """\
examples
  python -m kafka_ingest plan orders --dry-run
  python -m kafka_ingest plan orders --dry-run --from-time 2026-01-31T13:00:00Z
A run plans by itself: this is for looking. With a span it shows what a reload would read.
"""


def add_plan(commands: Parsers) -> None:
    """Add ``plan``."""
    parser = _add(
        commands, "plan", "show what a run would read now, and what would stop it; writes nothing", _PLAN_DETAILS
    )
    parser.add_argument("--dry-run", action="store_true", required=True, help="required: says that nothing is written")
    _add_form(parser)
    parser.set_defaults(command=("run", "run_plan"), mode=RunMode.PLAN_ONLY.value)


def add_run(commands: Parsers) -> None:
    """Add ``run``."""
    parser = _add(commands, "run", "plan, load and audit one batch", _RUN_DETAILS)
    parser.add_argument(
        "--mode",
        choices=(RunMode.LIVE.value, RunMode.RELOAD.value),
        default=RunMode.LIVE.value,
        help="live: go on from the committed offsets (default); reload: read a span again and replace its rows",
    )
    _add_form(parser)
    parser.add_argument("--run-id", metavar="ID", help="name of the run (default: a new one, which is printed)")
    parser.add_argument(
        "--runner",
        choices=("spark", "in-process"),
        default="spark",
        help="spark-submit (default), or one Python process without Spark: for small loads in CI",
    )
    parser.set_defaults(command=("run", "run_pipeline"))


def _add(commands: Parsers, name: str, summary: str, details: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of the pipeline")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _add_form(parser: argparse.ArgumentParser) -> None:
    zone = "without an offset from UTC in the pipeline's time zone"
    parser.add_argument("--from-time", metavar="TIME", help=f"reload: first record time of the span, {zone}")
    parser.add_argument(
        "--to-time",
        metavar="TIME",
        help=f"stop before the first record at or after this time, {zone} (default: the end of the log)",
    )
    parser.add_argument(
        "--offsets",
        action="append",
        metavar="'TOPIC PARTITION START [END]'",
        help="reload: a span of one partition, END not included; can be given again",
    )
    parser.add_argument(
        "--limit",
        type=at_least_1,
        metavar="N",
        help="read at most N offsets, instead of the limit in the pipeline file",
    )
    parser.add_argument(
        "--reload-what-is-left",
        action="store_true",
        help="go on where Kafka no longer holds all of what is read again, in a reload or after a reset backwards; "
        "rows that compaction took are deleted",
    )
    parser.add_argument(
        "--replace-resolved",
        action="store_true",
        help="where offsets are read again: replace resolved dead letters and their rows, too",
    )
    parser.add_argument("--reason", metavar="TEXT", help="why; needed for a reload, kept in the ledger")

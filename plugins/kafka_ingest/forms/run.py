"""The form of a run: what it may be asked for, in Airflow and on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from kafka_ingest.errors import ConfigError
from kafka_ingest.forms.values import Choice, Field, Flag, FormValues, Number, Option, Text, is_number, lines_of
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions, TimeSpan
from kafka_ingest.times import parse_record_time

# ----------
# Spans of offsets as people write them: one line a partition, ``topic partition start end``. A ValueError says what
# was expected of the first line that does not fit.

_EXPECTED = "topic, partition, start and end, the first offset after the span; without end: up to the end of the log"
#: Numbers of 19 digits are read, so that one above PostgreSQL's bigint has the fault of an offset.
_GREATEST_OF_19_DIGITS = 10**19 - 1


def parse_offset_spans(text: str) -> tuple[OffsetSpan, ...]:
    """Read spans ``[start, end)``, ordered by partition; empty lines count for nothing."""
    found = (_span(words, f"{_EXPECTED} (line {number})") for number, words in lines_of(text))
    spans = sorted(found, key=lambda span: span.topic_partition)
    for one, other in pairwise(spans):
        if one.topic_partition == other.topic_partition:
            raise ValueError(f"each partition once, not {one.topic_partition} twice")
    return tuple(spans)


def _span(words: list[str], expected: str) -> OffsetSpan:
    topic, numbers = words[0], words[1:]
    if len(numbers) not in (2, 3) or not all(is_number(n, _GREATEST_OF_19_DIGITS) for n in numbers):
        raise ValueError(expected)
    partition, start, *rest = (int(n) for n in numbers)
    end = rest[0] if rest else None
    if not all(is_number(n) for n in numbers[1:]) or (end is not None and end <= start):
        raise ValueError(f"a start below the end; {expected}")
    return OffsetSpan(topic, partition, start, end)


# ----------
# The form. As it stands it is a plain live run, which is what the schedule does.

_ZONE = "Without an offset from UTC it is a time in {zone}."
_ZONE_OF_PIPELINE = "without an offset from UTC in the pipeline's time zone"

FIELDS: Mapping[str, Field] = {
    "mode": Field(
        "Mode",
        Choice(
            {
                RunMode.LIVE.value: "live: go on from the committed offsets",
                RunMode.RELOAD.value: "reload: read a span again and replace its rows",
                RunMode.REBUILD.value: "rebuild: read the whole log again, take away rows that it does not hold",
                RunMode.PLAN_ONLY.value: "plan only: show what would be read, write nothing",
            },
            RunMode.LIVE.value,
        ),
        "`live` is what scheduled runs do. `reload` reads a span of times or offsets again and replaces its rows in "
        "one transaction; what lies above the committed offsets is loaded, too, and moves them. `rebuild` is for "
        "tables that hold the current state: it reads the whole log again, and rows of keys that the log does not hold "
        "go (it stops first, and tells how many, unless *reload what is left* is given). `plan_only` logs what "
        "a live run would read, or a reload where a span is given.",
        Option(
            "--mode",
            "live: go on from the committed offsets (default); reload: read a span again and replace its rows; "
            "rebuild: read the whole log again into a table that holds the current state",
            # What plan_only shows has a command of its own.
            settings={"choices": (RunMode.LIVE.value, RunMode.RELOAD.value, RunMode.REBUILD.value)},
        ),
    ),
    "from": Field(
        "From (time)",
        Text(parse_record_time),
        f"Reload: first record time of the span, such as `2026-01-31T13:00:00Z`. {_ZONE}",
        Option("--from-time", f"reload: first record time of the span, {_ZONE_OF_PIPELINE}", "TIME"),
    ),
    "to": Field(
        "To (time)",
        Text(parse_record_time),
        "Reload: the span ends before the first record at or after this time; empty: at the end of the log. Live: the "
        f"run ends there. {_ZONE}",
        Option(
            "--to-time",
            f"stop before the first record at or after this time, {_ZONE_OF_PIPELINE} (default: the end of the log)",
            "TIME",
        ),
    ),
    "offsets": Field(
        "Offsets",
        Text(lambda text, _zone: parse_offset_spans(text), is_multiline=True),
        "Reload, instead of times: one line a partition, `topic partition start end`; `end` is the first offset after "
        "the span, without it the span goes to the end of the log. Other partitions are left alone.",
        Option(
            "--offsets",
            "reload: a span of one partition, END not included; can be given again",
            "'TOPIC PARTITION START [END]'",
            {"action": "append"},
        ),
    ),
    "limit": Field(
        "Limit (offsets)",
        Number(at_least=1),
        "Live: read at most so many offsets, instead of the pipeline's limit. No run follows by itself.",
        Option("--limit", "read at most N offsets, instead of the limit in the pipeline file"),
    ),
    "reload_what_is_left": Field(
        "Reload what is left",
        Flag(),
        "Go on where Kafka no longer holds all of what is read again, in a reload or after a reset backwards. **Rows "
        "of records that compaction took are deleted**; without it such a run stops with the table untouched.",
        Option(
            "--reload-what-is-left",
            "go on where Kafka no longer holds all of what is read again, in a reload or after a reset backwards; "
            "rows that compaction took are deleted",
        ),
    ),
    "replace_resolved": Field(
        "Replace resolved dead letters",
        Flag(),
        "Where offsets are read again: replace dead letters that are marked as resolved, and their rows, too.",
        Option("--replace-resolved", "where offsets are read again: replace resolved dead letters and their rows, too"),
    ),
    "into_new_table": Field(
        "Into a new table",
        Flag(),
        "Rebuild: fill a new table, which takes the name of the old one in the same transaction. The old one is kept "
        "under another name, until somebody drops it.",
        Option(
            "--into-new-table",
            "rebuild: fill a new table, which takes the name of the old one; the old one is kept under another name",
        ),
    ),
    "reason": Field(
        "Reason",
        Text(),
        "Why. Required for a reload; stored with the batch.",
        Option("--reason", "why; needed for a reload, kept in the ledger", "TEXT"),
    ),
}

#: What whoever runs a command sees in place of the keys.
FLAGS: Mapping[str, str] = {key: field.option.name for key, field in FIELDS.items() if field.option}

#: Modes that read again what was loaded: who asks for one says why.
_READ_AGAIN = (RunMode.RELOAD, RunMode.REBUILD)

#: Keys that also mean something for a run that Airflow's backfill made: its interval is the span.
BACKFILL_KEYS = ("reload_what_is_left", "replace_resolved", "reason")


def run_options(
    form: Mapping[str, Any], *, zone: str, pipeline: str, labels: Mapping[str, str] | None = None
) -> RunOptions:
    """Return the options that a form asks for.

    Args:
        form: Values by key; keys that are missing hold their defaults.
        zone: IANA time zone of times without an offset from UTC.
        pipeline: For the message.
        labels: What whoever filled it in sees in place of the keys (default: the labels of Airflow's form).

    Raises:
        ConfigError: Lists every fault.
    """
    values = FormValues(form, FIELDS, zone, labels or {})
    values.check_known_keys()
    read = {key: values.read(key) for key in FIELDS}
    mode = RunMode(read["mode"])
    options = RunOptions(
        mode=mode,
        until_ms=read["to"] if not _has_span(values) and mode not in _READ_AGAIN else None,
        times=None if read["from"] is None else TimeSpan(read["from"], read["to"]),
        offsets=read["offsets"] or (),
        limit_offsets=read["limit"],
        into_new_table=read["into_new_table"],
        **_of_what_is_read_again(read),
    )
    if mode.value == values.given.get("mode", mode.value):
        for key, expected, found in _faults_between_keys(values, options):
            values.fault(key, expected, found)
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
    values = FormValues(form, FIELDS, "UTC")
    values.check_known_keys()
    for key in FIELDS:
        if key not in BACKFILL_KEYS and values.is_given(key):
            values.fault(key, "nothing in a backfill, which reloads the interval of each run", repr(form[key]))
    read = {key: values.read(key) for key in BACKFILL_KEYS}
    options = RunOptions(mode=RunMode.RELOAD, times=span, **_of_what_is_read_again(read))
    _require_no_faults(values, pipeline)
    return options


def _of_what_is_read_again(read: Mapping[str, Any]) -> dict[str, Any]:
    return {key: read[key] for key in BACKFILL_KEYS} | {"reason": read["reason"] or ""}


def _has_span(values: FormValues) -> bool:
    return values.is_given("from") or values.is_given("offsets")


def _faults_between_keys(values: FormValues, options: RunOptions) -> Iterator[tuple[str, str, str]]:
    is_reload, has_span = options.mode is RunMode.RELOAD, _has_span(values)
    if is_reload and not has_span:
        yield "from", f"a time, or {values.label('offsets')}: a reload needs a span", "neither"
    if options.mode in _READ_AGAIN and not values.is_given("reason"):
        yield "reason", "why it is loaded again", "nothing"
    if values.is_given("offsets") and (values.is_given("from") or values.is_given("to")):
        yield "offsets", "either offsets or times", "both"
    if options.times and options.times.end_ms is not None and options.times.end_ms <= options.times.start_ms:
        yield "to", f"a time after {values.label('from')}", repr(values.given["to"])
    yield from _misplaced_keys(values, options.mode, has_span=has_span)


def _misplaced_keys(values: FormValues, mode: RunMode, *, has_span: bool) -> Iterator[tuple[str, str, str]]:
    """Yield keys that mean nothing for such a run: they are faults, since whoever gave them expects something."""
    is_live, found = mode is RunMode.LIVE, f"a value ({values.label('mode')} reload?)"
    for key in ("from", "offsets"):
        if is_live and values.is_given(key):
            yield key, "nothing in a live run, which begins at the committed offsets", found
    for key in ("from", "to", "offsets"):
        if mode is RunMode.REBUILD and values.is_given(key):
            yield key, "nothing in a rebuild, which reads the whole log", "a value"
    if values.is_given("into_new_table") and mode is not RunMode.REBUILD:
        yield "into_new_table", f"nothing but in a rebuild ({values.label('mode')} rebuild?)", "a value"
    if values.is_given("limit") and (mode in _READ_AGAIN or has_span):
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

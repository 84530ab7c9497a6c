"""The form of a run: what a person may ask of one run, in Airflow's form, in a run's conf, or on the command line.

Every fault of a form is found at once. A form gives :class:`RunOptions`; a form of defaults gives a plain live run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.offset_spans import parse_offset_spans
from kafka_ingest.core.record_time import parse_record_time
from kafka_ingest.core.run_options import OffsetSpan, RunMode, RunOptions, TimeSpan

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

#: Keys that also mean something for a run that Airflow's backfill made: its interval is the span.
BACKFILL_KEYS = frozenset({"reload_what_is_left", "replace_resolved", "reason"})

#: Airflow's OpenLineage provider puts this key into the conf of runs that a TriggerDagRunOperator starts
#: (``airflow/providers/standard/utils/openlineage.py``); it is no value of the form.
_NOT_OURS = frozenset({"openlineage"})


@dataclass
class _Form:
    """The values of a form while they are read; faults are collected, one text each."""

    given: Mapping[str, Any]
    zone: str
    faults: list[str] = field(default_factory=list)

    def fault(self, key: str, expected: str, found: object) -> None:
        """Notes a fault."""
        self.faults.append(f"{key}: expected {expected}; found {found}")

    def is_given(self, key: str) -> bool:
        """Whether a key holds something else than its default."""
        value = self.given.get(key)
        return (value.strip() if isinstance(value, str) else value) not in (DEFAULTS[key], None, "")

    def read(self, key: str, parse: Callable[[Any], Any]) -> Any:
        """Reads one value; its default where it is not given or has a fault."""
        if not self.is_given(key):
            return DEFAULTS[key]
        try:
            return parse(self.given[key])
        except ValueError as expected:
            self.fault(key, str(expected), repr(self.given[key]))
            return DEFAULTS[key]

    def time(self, key: str) -> int | None:
        """Reads a time."""
        value: int | None = self.read(key, lambda text: parse_record_time(_text(text), self.zone))
        return value


def run_options(form: Mapping[str, Any], *, zone: str, pipeline: str) -> RunOptions:
    """Gives the options that a form asks for.

    Args:
        form: Values by key; keys that are missing hold their defaults.
        zone: IANA time zone of times without an offset from UTC.
        pipeline: For the message.

    Raises:
        ConfigError: Lists every fault.
    """
    values = _Form(form, zone)
    _check_known_keys(values)
    mode = RunMode(values.read("mode", _mode))
    start_ms, end_ms = values.time("from"), values.time("to")
    offsets: tuple[OffsetSpan, ...] = values.read("offsets", lambda text: parse_offset_spans(_text(text))) or ()
    options = RunOptions(
        mode=mode,
        until_ms=end_ms if not _has_span(values) and mode is not RunMode.RELOAD else None,
        times=None if start_ms is None else TimeSpan(start_ms, end_ms),
        offsets=offsets,
        limit_offsets=values.read("limit", _positive),
        reload_what_is_left=values.read("reload_what_is_left", _flag),
        replace_resolved=values.read("replace_resolved", _flag),
        reason=values.read("reason", _text) or "",
    )
    if mode.value == values.given.get("mode", mode.value):
        _check_together(values, options)
    _require_no_faults(values, pipeline)
    return options


def backfill_options(form: Mapping[str, Any], span: TimeSpan, *, pipeline: str) -> RunOptions:
    """Gives the options of a run that Airflow's backfill made: a reload of the run's interval.

    Args:
        form: The backfill's conf; only :data:`BACKFILL_KEYS` may differ from their defaults.
        span: The run's data interval.
        pipeline: For the message.

    Raises:
        ConfigError: Lists every fault.
    """
    values = _Form(form, "UTC")
    _check_known_keys(values)
    for key in DEFAULTS:
        if key not in BACKFILL_KEYS and values.is_given(key):
            values.fault(key, "nothing in a backfill, which reloads the interval of each run", repr(form[key]))
    options = RunOptions(
        mode=RunMode.RELOAD,
        times=span,
        reload_what_is_left=values.read("reload_what_is_left", _flag),
        replace_resolved=values.read("replace_resolved", _flag),
        reason=values.read("reason", _text) or "",
    )
    _require_no_faults(values, pipeline)
    return options


def _has_span(values: _Form) -> bool:
    return values.is_given("from") or values.is_given("offsets")


def _check_known_keys(values: _Form) -> None:
    for key in sorted(set(values.given) - set(DEFAULTS) - _NOT_OURS):
        values.fault(key, f"one of the keys {', '.join(DEFAULTS)}", "an unknown key")


def _check_together(values: _Form, options: RunOptions) -> None:
    for key, expected, found in _faults_between_keys(values, options):
        values.fault(key, expected, found)


def _faults_between_keys(values: _Form, options: RunOptions) -> Iterator[tuple[str, str, str]]:
    is_reload, has_span = options.mode is RunMode.RELOAD, _has_span(values)
    if is_reload and not has_span:
        yield "from", "a time, or offsets: a reload needs a span", "neither"
    if is_reload and not values.is_given("reason"):
        yield "reason", "why the span is loaded again", "nothing"
    if values.is_given("offsets") and (values.is_given("from") or values.is_given("to")):
        yield "offsets", "either offsets or times", "both"
    if options.times and options.times.end_ms is not None and options.times.end_ms <= options.times.start_ms:
        yield "to", "a time after from", repr(values.given["to"])
    yield from _misplaced_keys(values, options.mode, has_span=has_span)


def _misplaced_keys(values: _Form, mode: RunMode, *, has_span: bool) -> Iterator[tuple[str, str, str]]:
    """Yields keys that mean nothing for such a run: they are faults, since whoever gave them expects something."""
    is_live = mode is RunMode.LIVE
    for key in ("from", "offsets"):
        if is_live and values.is_given(key):
            yield key, "nothing in a live run, which begins at the committed offsets", "a value (mode: reload?)"
    for key in ("reload_what_is_left", "replace_resolved"):
        if (is_live or (mode is RunMode.PLAN_ONLY and not has_span)) and values.is_given(key):
            yield key, "nothing without a span to reload", "a value"
    if values.is_given("limit") and (mode is RunMode.RELOAD or has_span):
        yield "limit", "nothing in a reload, which reads its whole span", "a value"


def _require_no_faults(values: _Form, pipeline: str) -> None:
    if values.faults:
        raise ConfigError(
            "the run asks for something that cannot be done",
            expected="values as the run's form describes them",
            found="\n".join(values.faults),
            next_command="start a new run with these values corrected; nothing was planned",
            pipeline=pipeline,
        )


def _mode(value: object) -> str:
    modes = [mode.value for mode in RunMode]
    if value not in modes:
        raise ValueError(f"one of {', '.join(modes)}")
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    return value.strip()


def _positive(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number, at least 1")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value

"""Values of a form, as Airflow's params, a run's conf or a command line give them; their faults are collected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kafka_ingest.core.record_time import parse_record_time

#: Airflow's OpenLineage provider puts this key into the conf of runs that a TriggerDagRunOperator starts
#: (``airflow/providers/standard/utils/openlineage.py``); it is no value of a form.
_NOT_OURS = frozenset({"openlineage"})

#: PostgreSQL keeps no greater one in a bigint; Airflow cannot store it, and fails the task without a word.
GREATEST_NUMBER = 2**63 - 1


@dataclass
class FormValues:
    """The values of a form while they are read.

    Attributes:
        given: What was filled in; a key that is missing holds its default.
        defaults: Every key of the form with its default.
        zone: IANA time zone of times without an offset from UTC.
        labels: What whoever fills it in sees in place of a key; a key without one is shown itself.
        faults: What does not fit, one text each.
    """

    given: Mapping[str, Any]
    defaults: Mapping[str, Any]
    zone: str
    labels: Mapping[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def fault(self, key: str, expected: str, found: object) -> None:
        """Note a fault, under the label of the key."""
        self.faults.append(f"{self.labels.get(key, key)}: expected {expected}; found {found}")

    def check_known_keys(self) -> None:
        """Notes a fault for each key that is not of the form."""
        for key in sorted(set(self.given) - set(self.defaults) - _NOT_OURS):
            self.fault(key, f"one of the keys {', '.join(self.defaults)}", "an unknown key")

    def is_given(self, key: str) -> bool:
        """Whether a key holds something else than its default; an empty text counts as nothing."""
        value = self.given.get(key)
        return (value.strip() if isinstance(value, str) else value) not in (self.defaults[key], None, "")

    def read(self, key: str, parse: Callable[[Any], Any]) -> Any:
        """Reads one value; its default where it is not given or has a fault."""
        if not self.is_given(key):
            return self.defaults[key]
        try:
            return parse(self.given[key])
        except ValueError as expected:
            self.fault(key, str(expected), repr(self.given[key]))
            return self.defaults[key]

    def time(self, key: str) -> int | None:
        """Reads a time, in ms since 1970 UTC."""
        value: int | None = self.read(key, lambda text: parse_record_time(a_text(text), self.zone))
        return value


def a_text(value: object) -> str:
    """Reads a text, without white space around it."""
    if not isinstance(value, str):
        raise ValueError("a text")
    return value.strip()


def a_flag(value: object) -> bool:
    """Reads true or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def a_positive_number(value: object) -> int:
    """Reads a whole number above 0."""
    return a_whole_number(value, at_least=1)


def a_whole_number(value: object, *, at_least: int | None = None) -> int:
    """Reads a whole number that PostgreSQL's bigint can hold."""
    least = -GREATEST_NUMBER - 1 if at_least is None else at_least
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= GREATEST_NUMBER:
        return value
    fits = "a whole number" + ("" if at_least is None else f", at least {at_least}")
    is_too_great = isinstance(value, int) and value > GREATEST_NUMBER
    raise ValueError(fits + (f", at most {GREATEST_NUMBER}" if is_too_great else ""))


def one_of(choices: type[StrEnum]) -> Callable[[object], str]:
    """Gives what reads one of the values of an enumeration."""
    values = [choice.value for choice in choices]

    def read(value: object) -> str:
        if value not in values:
            raise ValueError(f"one of {', '.join(values)}")
        return str(value)

    return read

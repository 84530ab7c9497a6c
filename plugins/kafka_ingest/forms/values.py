"""What both forms are made of: fields, the values that they take, and how what was filled in is read.

A form is told once, as a table of fields. Validation, Airflow's params (``operators/dags.py``) and the arguments of
commands (``cli/command.py``) are derived from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

#: PostgreSQL keeps no greater one in a bigint; Airflow cannot store it, and fails the task without a message.
GREATEST_NUMBER = 2**63 - 1

#: Airflow's OpenLineage provider puts this key into the conf of runs that a TriggerDagRunOperator starts
#: (``airflow/providers/standard/utils/openlineage.py``); it is no value of a form.
_NOT_OURS = frozenset({"openlineage"})

# ----------
# Values. Each reads what was filled in; its ValueError says what was expected.


@dataclass(frozen=True, slots=True)
class Text:
    """A text without white space around it; ``parse`` reads it further, given the time zone of the form."""

    default: ClassVar[None] = None
    parse: Callable[[str, str], Any] | None = None
    is_multiline: bool = False

    def read(self, value: object, zone: str) -> Any:
        """Read a text."""
        if not isinstance(value, str):
            raise ValueError("a text")
        return self.parse(value.strip(), zone) if self.parse else value.strip()


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number that PostgreSQL's bigint can hold."""

    at_least: int | None = None
    default: int | None = None

    def read(self, value: object, _zone: str) -> int:
        """Read a whole number."""
        least = -GREATEST_NUMBER - 1 if self.at_least is None else self.at_least
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= GREATEST_NUMBER:
            return value
        fits = "a whole number" + ("" if self.at_least is None else f", at least {self.at_least}")
        is_too_great = isinstance(value, int) and value > GREATEST_NUMBER
        raise ValueError(fits + (f", at most {GREATEST_NUMBER}" if is_too_great else ""))


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    default: ClassVar[bool] = False

    def read(self, value: object, _zone: str) -> bool:
        """Read true or false."""
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several texts.

    Attributes:
        texts: What Airflow shows for each, in order.
        default: Which it is where nobody chooses.
        nothing: What Airflow shows for none of them, where the field starts empty.
    """

    texts: Mapping[str, str]
    default: str | None = None
    nothing: str = ""

    def read(self, value: object, _zone: str) -> str:
        """Read one of the texts."""
        if value not in list(self.texts):
            raise ValueError(f"one of {', '.join(self.texts)}")
        return str(value)


Value: TypeAlias = Text | Number | Flag | Choice

# ----------
# What people list, one a line.


def lines_of(text: str) -> Iterator[tuple[int, list[str]]]:
    """Return the words of each line with its number, from 1 on; empty lines count for nothing."""
    return ((number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def is_number(text: str, greatest: int = GREATEST_NUMBER) -> bool:
    """Whether a text is a whole number from 0 to the greatest."""
    # The length first: Python converts no text of more than 4,300 digits.
    return len(text) <= len(str(greatest)) and text.isascii() and text.isdigit() and int(text) <= greatest


# ----------
# Fields.


@dataclass(frozen=True, slots=True)
class Option:
    """The argument of a command that fills a field in.

    Attributes:
        name: The flag, or the field's key where it is an argument without a flag.
        help: What ``--help`` says.
        metavar: What stands for its value there, where that does not follow from the field's value.
        settings: What argparse is told beyond what follows from the field's value (``cli/command.py``).
    """

    name: str
    help: str
    metavar: str | tuple[str, ...] = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form; in the table it stands under its key, which is its name in a run's conf.

    Attributes:
        label: What Airflow shows in place of the key.
        value: What it takes.
        help: What Airflow says below it, in Markdown; ``{zone}`` stands for the time zone of the form.
        option: The argument of a command that fills it in.
        section: Heading under which Airflow shows it, closed until somebody opens it.
    """

    label: str
    value: Value
    help: str
    option: Option | None = None
    section: str = ""

    @property
    def default(self) -> Any:
        """What it holds when nobody fills it in."""
        return self.value.default

    @property
    def filled_in(self) -> Any:
        """What Airflow's form holds from the start: nothing, where the default belongs to some kinds only."""
        starts_empty = isinstance(self.value, Text | Number) or (isinstance(self.value, Choice) and self.value.nothing)
        return None if starts_empty else self.default


# ----------
# A form that somebody filled in: in Airflow, in a run's conf, or on the command line.


@dataclass
class FormValues:
    """The values of a form while they are read.

    Attributes:
        given: What was filled in; a key that is missing holds its default. An empty text counts as nothing.
        fields: The form.
        zone: IANA time zone of times without an offset from UTC.
        labels: What whoever fills it in sees in place of a key, where that is not the field's label.
        faults: What does not fit, one text each.
    """

    given: Mapping[str, Any]
    fields: Mapping[str, Field]
    zone: str
    labels: Mapping[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def label(self, key: str) -> str:
        """Return what whoever fills the form in sees in place of a key; an unknown key is shown itself."""
        return self.labels.get(key) or (self.fields[key].label if key in self.fields else key)

    def fault(self, key: str, expected: str, found: object) -> None:
        """Note a fault, under the label of the key."""
        self.faults.append(f"{self.label(key)}: expected {expected}; found {found}")

    def check_known_keys(self) -> None:
        """Note a fault for each key that is not of the form."""
        for key in sorted(set(self.given) - set(self.fields) - _NOT_OURS):
            self.fault(key, f"one of the keys {', '.join(self.fields)}", "an unknown key")

    def is_given(self, key: str) -> bool:
        """Whether a key holds something else than its default; an empty text counts as nothing."""
        value = self.given.get(key)
        return (value.strip() if isinstance(value, str) else value) not in (self.fields[key].default, None, "")

    def read(self, key: str) -> Any:
        """Read one value; its default where it is not given or has a fault."""
        if not self.is_given(key):
            return self.fields[key].default
        try:
            return self.fields[key].value.read(self.given[key], self.zone)
        except ValueError as expected:
            self.fault(key, str(expected), repr(self.given[key]))
            return self.fields[key].default

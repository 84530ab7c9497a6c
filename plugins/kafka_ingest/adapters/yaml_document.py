"""YAML with the line of every value, duplicate keys refused, and no surprises in plain scalars.

PyYAML follows YAML 1.1, where ``no``, ``on`` and ``off`` are booleans, ``010`` is 8, ``12:30`` is 750 and ``1e3`` is
text (https://yaml.org/spec/1.1/). Here a plain scalar is a boolean, number or null only where YAML 1.2's core schema
and a reader agree at a glance; everything else, times included, stays the text that was written.

What one document can cost is bounded: its size and depth, and every value stands where it is used. An alias (``*``)
would let a few lines stand for billions of values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

#: Keys and list indexes from the root to a value.
Location = tuple[str | int, ...]

#: A pipeline of 1,500 columns, the most that are allowed, with long names and paths has about 300 kB; three times that.
MAX_BYTES = 1_000_000
#: The same pipeline has 14,000 of them; three times that. So many take 0.2 s and 12 MB (measured, two cores).
MAX_VALUES = 50_000
#: A pipeline file needs five levels. The parser's time grows with size times depth.
MAX_DEPTH = 20

_TAG = "tag:yaml.org,2002:"
# At most 31 digits: no setting needs more, and Python refuses to convert thousands of them.
_WHOLE = r"(?:0|[1-9](?:_?[0-9]){0,30})"
_SCALARS: dict[str, tuple[re.Pattern[str], str, Callable[[str], object]]] = {
    f"{_TAG}null": (re.compile(r"(?:~|null|Null|NULL|)\Z"), "~nN", lambda _: None),
    f"{_TAG}bool": (re.compile(r"(?:[Tt]rue|TRUE|[Ff]alse|FALSE)\Z"), "tTfF", lambda text: text.lower() == "true"),
    f"{_TAG}int": (re.compile(rf"[-+]?{_WHOLE}\Z"), "-+0123456789", int),
    f"{_TAG}float": (
        re.compile(rf"[-+]?(?:{_WHOLE}?\.[0-9]+|{_WHOLE}\.|{_WHOLE}(?=[eE]))(?:[eE][-+]?[0-9]+)?\Z"),
        "-+0123456789.",
        float,
    ),
    f"{_TAG}str": (re.compile(""), "", str),
}

# libyaml parses a pipeline file about ten times as fast; wheels of PyYAML bring it, a source build may not.
_FastestLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_FastestLoader):  # type: ignore[valid-type,misc]  # mypy cannot see through the choice above
    """PyYAML's parser with the scalar rules of this module."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's own shape


for _tag, (_pattern, _first, _) in _SCALARS.items():
    if _tag != f"{_TAG}str":
        # PyYAML looks a plain scalar's resolvers up by its first character; the empty scalar has the key "".
        _Loader.add_implicit_resolver(_tag, _pattern, [*_first, ""] if _tag == f"{_TAG}null" else list(_first))


@dataclass(frozen=True, slots=True)
class YamlFault:
    """A fault of the YAML itself: 1-based line, where in the document, and a sentence about it."""

    line: int
    location: Location
    text: str


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A YAML document as plain values.

    Attributes:
        data: Dicts, lists, texts, numbers, booleans and ``None``; ``None`` when the document is empty or cannot be
            parsed at all.
        lines: 1-based line of every key and list entry, by location; the root's is at ``()``.
        faults: Every fault of the YAML, by rising line.
        unreadable: Locations whose value could not be read and is ``None`` in ``data``.
    """

    data: object
    lines: Mapping[Location, int]
    faults: tuple[YamlFault, ...] = ()
    unreadable: frozenset[Location] = frozenset()

    def line_of(self, location: Location) -> int:
        """Gives the line of a value, or of its nearest parent that is in the file."""
        for length in range(len(location), -1, -1):
            if location[:length] in self.lines:
                return self.lines[location[:length]]
        return 1


def parse_yaml(content: bytes) -> YamlDocument:
    """Parses one document; never raises on its content: what is wrong is in ``faults``."""
    if len(content) > MAX_BYTES:
        return _broken(1, f"expected at most {MAX_BYTES:,} bytes; found more")
    text = ""
    try:
        text = content.decode("utf-8-sig")
        builder = _Builder(text)
        data = builder.build_document()
    except UnicodeDecodeError as error:
        return _broken(content.count(b"\n", 0, error.start) + 1, "expected UTF-8 text; found other bytes")
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        return _broken(line, "expected printable characters; found a control character")
    except yaml.MarkedYAMLError as error:
        return _syntax_fault(error, text)
    except _TooMuchError as too_much:
        return _broken(too_much.line, str(too_much))
    faults = tuple(sorted(builder.faults, key=lambda fault: fault.line))
    return YamlDocument(data, builder.lines, faults, frozenset(builder.unreadable))


def _syntax_fault(error: yaml.MarkedYAMLError, text: str) -> YamlDocument:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    if mark and "".join(text.split("\n")[mark.line : line])[mark.column :].startswith("\t"):
        return _broken(line, "expected spaces as indentation; found a tab")
    if sign := _unquoted_sign(error, text):
        return _broken(line, f"expected quotes around a text that begins with {sign}; found none: put it in quotes")
    problem = " ".join(part for part in (error.context, error.problem) if part)
    return _broken(line, f"expected valid YAML; found a syntax error: {problem}")


def _unquoted_sign(error: yaml.MarkedYAMLError, text: str) -> str | None:
    """Gives the sign at which the parser gave up, where YAML has a use of its own for it: @hourly, */5, {{ ... }}."""
    lines = text.split("\n")
    for mark in (error.problem_mark, error.context_mark):
        if mark and mark.line < len(lines):
            value = _VALUE.match(lines[mark.line])
            for rest in (lines[mark.line][mark.column :], value[1] if value else ""):
                if sign := next((sign for sign in _SIGNS if rest.startswith(sign)), None):
                    return sign
    return None


#: What cannot begin a plain text (https://yaml.org/spec/1.2.2/#example-invalid-use-of-reserved-indicators), and people
#: write all the same: presets, cron expressions, templates.
_SIGNS = ("@", "`", "%", "*", "&", "{{")
_VALUE = re.compile(r"\s*(?:- +)*(?:[^\s:#]+: +)?(.*)")


def _broken(line: int, text: str) -> YamlDocument:
    return YamlDocument(None, {(): 1}, (YamlFault(line, (), text),), frozenset({()}))


_OTHER_KEY = "expected a key that is text or a whole number; found another kind of key"


def _quotes(sign: str) -> str:
    return f"which is not supported: put a text that begins with {sign} in quotes"


class _TooMuchError(Exception):
    """A document that is not built to its end, since it would cost too much."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


class _Builder:
    """Turns the parser's events into values, and remembers where each stood."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Location, int] = {}
        self.faults: list[YamlFault] = []
        self.unreadable: set[Location] = set()
        self._text = text
        self._loader = _Loader(text)
        self._values = 0
        self._depth = 0

    def build_document(self) -> object:
        """Gives the value of the one document; ``None`` when there is none."""
        self._next()  # the stream begins
        if self._loader.check_event(yaml.StreamEndEvent):
            self.lines[()] = 1
            return None
        self._next()  # the document begins
        data = self._build(())
        self._next()  # the document ends
        if not self._loader.check_event(yaml.StreamEndEvent):
            mark = self._loader.get_event().start_mark
            raise yaml.MarkedYAMLError(problem="expected a single document; found another one", problem_mark=mark)
        return data

    def _next(self) -> Any:  # an event: its type information leaves most of it out
        event = self._loader.get_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            self._depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            self._depth -= 1
        if isinstance(event, yaml.NodeEvent):
            self._values += 1
        if self._depth > MAX_DEPTH:
            raise _TooMuchError(line, f"expected at most {MAX_DEPTH} levels of lists and mappings; found more")
        if self._values > MAX_VALUES:
            raise _TooMuchError(line, f"expected at most {MAX_VALUES:,} keys and values; found more")
        return event

    def _build(self, location: Location) -> object:
        """Gives the next value; ``None`` with a fault where it has none."""
        event = self._next()
        line = event.start_mark.line + 1
        self.lines.setdefault(location, line)
        if isinstance(event, yaml.AliasEvent):
            return self._nothing(location, f"expected a value; found the alias *{event.anchor}, {_quotes('*')}")
        if event.anchor is not None:
            text = f"expected a value; found the anchor &{event.anchor} before it, {_quotes('&')}"
            self.faults.append(YamlFault(line, location, text))
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, location)
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            self._skip_rest()
            return self._nothing(location, f"expected a mapping, a list or a plain value; found the tag {event.tag}")
        return self._mapping(location) if isinstance(event, yaml.MappingStartEvent) else self._list(location)

    def _tag(self, event: Any) -> str:
        if event.tag not in (None, "!"):
            return str(event.tag)
        return str(self._loader.resolve(yaml.ScalarNode, event.value, event.implicit))

    def _scalar(self, event: Any, location: Location) -> object:
        tag = self._tag(event)
        pattern, _, value_of = _SCALARS.get(tag, (None, "", str))
        if pattern is None or not pattern.match(event.value):
            return self._nothing(location, f"expected a plain value; found the tag {tag}")
        return value_of(event.value)

    def _list(self, location: Location) -> list[object]:
        entries: list[object] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            entries.append(self._build((*location, len(entries))))
        self._next()
        return entries

    def _mapping(self, location: Location) -> dict[str | int, object]:
        mapping: dict[str | int, object] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            event = self._next()
            line = event.start_mark.line + 1
            key, text = self._key(event)
            if key is not None and key in mapping:
                text = f"expected each key once; found it a second time (first on line {self.lines[(*location, key)]})"
                self.faults.append(YamlFault(line, (*location, key), text))
                self._skip()
            elif key is not None:
                self.lines[(*location, key)] = line
                mapping[key] = self._build((*location, key))
            else:
                self.faults.append(YamlFault(line, location, text))
                self._skip()
        self._next()
        return mapping

    def _key(self, event: Any) -> tuple[str | int | None, str]:
        """Gives a key, or ``None`` and what is wrong with it."""
        if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None:
            if isinstance(event, yaml.CollectionStartEvent):
                self._skip_rest()
            at = event.start_mark.index
            template = isinstance(event, yaml.MappingStartEvent) and self._text[max(0, at - 1) : at + 1] == "{{"
            return None, f"expected a value; found {{{{, {_quotes('{{')}" if template else _OTHER_KEY
        if event.value == "<<":
            return None, "expected keys written out; found a merge key (<<), which is not supported"
        tag = self._tag(event)
        if tag not in (f"{_TAG}str", f"{_TAG}int") or not _SCALARS[tag][0].match(event.value):
            return None, _OTHER_KEY
        return event.value if tag == f"{_TAG}str" else int(event.value), ""

    def _skip(self) -> None:
        """Passes over the next value."""
        if isinstance(self._next(), yaml.CollectionStartEvent):
            self._skip_rest()

    def _skip_rest(self) -> None:
        """Passes over the rest of the list or mapping that has just begun."""
        outside = self._depth - 1
        while self._depth > outside:
            self._next()

    def _nothing(self, location: Location, text: str) -> object:
        self.faults.append(YamlFault(self.lines[location], location, text))
        self.unreadable.add(location)
        return None

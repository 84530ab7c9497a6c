"""A pipeline file as YAML with line numbers, and its faults."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

# YAML with the line of every value, duplicate keys refused, and no surprises in plain scalars.
#
# PyYAML follows YAML 1.1, where ``no``, ``on`` and ``off`` are booleans, ``010`` is 8, ``12:30`` is 750 and ``1e3`` is
# text (https://yaml.org/spec/1.1/). Here a plain scalar is a boolean, number or null only where YAML 1.2's core schema
# and a reader agree at a glance; everything else, times included, stays the text that was written.
#
# What one document can cost is bounded: its size and depth, and every value stands where it is used. An alias (``*``)
# would let a few lines stand for billions of values.

#: Keys and list indexes from the root to a value.
Location = tuple[str | int, ...]

#: A pipeline of 1,500 columns, the most that are allowed, with long names and paths has about 300 kB; three times that.
MAX_BYTES = 1_000_000
#: The same pipeline has 14,000 of them; three times that. So many take 0.2 s and 12 MB (measured, two cores).
MAX_VALUES = 50_000
#: A pipeline file needs five levels. The parser's time grows with size times depth.
MAX_DEPTH = 20


class WrittenNumber(float):
    """A number with a point or an exponent that keeps every digit, as a default may need them.

    Attributes:
        json: The number as JSON spells it: without ``+`` and ``_``, with a digit on either side of a point.
    """

    def __init__(self, text: str) -> None:
        sign, digits = "-" * text.startswith("-"), text.replace("_", "").lstrip("+-")
        mantissa, mark, exponent = digits.partition("e" if "e" in digits else "E")
        whole, point, fraction = mantissa.partition(".")
        self.json = f"{sign}{whole or '0'}{point and '.'}{fraction or '0' * bool(point)}{mark}{exponent}"


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
        WrittenNumber,
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
        """Return the line of a value, or of its nearest parent that is in the file."""
        for length in range(len(location), -1, -1):
            if location[:length] in self.lines:
                return self.lines[location[:length]]
        return 1


def parse_yaml(content: bytes) -> YamlDocument:
    """Parse one document; never raise on its content: what is wrong is in ``faults``."""
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
    """Return the sign at which the parser gave up, where YAML has a use of its own for it: @hourly, */5, {{ ... }}."""
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
        """Return the value of the one document; ``None`` when there is none."""
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
        """Return the next value; ``None`` with a fault where it has none."""
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
        """Return a key, or ``None`` and what is wrong with it."""
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
        """Pass over the next value."""
        if isinstance(self._next(), yaml.CollectionStartEvent):
            self._skip_rest()

    def _skip_rest(self) -> None:
        """Pass over the rest of the list or mapping that has just begun."""
        outside = self._depth - 1
        while self._depth > outside:
            self._next()

    def _nothing(self, location: Location, text: str) -> object:
        self.faults.append(YamlFault(self.lines[location], location, text))
        self.unreadable.add(location)
        return None


# Faults of a pipeline file in plain words: what was expected, what was found, and never a secret.

# Spark's own rule for what it hides (spark.redaction.regex, Spark 4.2) and the same in other spellings.
_SECRET = re.compile(r"(?i)secret|passw|passphrase|token|access[._-]?key|private[._-]?key")
_URL_OR_ACCOUNT = re.compile(r"://|\S@")
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: where it is, what was expected there, and what was found."""

    location: Location
    expected: str
    found: str

    @property
    def text(self) -> str:
        """The fault as one sentence, without its place."""
        return f"expected {self.expected}; found {self.found}"


def may_be_secret(text: str) -> bool:
    """Return whether a text looks like a secret or the name of one."""
    return _SECRET.search(text) is not None


def key_text(location: Location) -> str:
    """Spells a location as a reader would: ``value.columns[2].type``; keys that hold a dot are quoted."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[\w-]+", part):
            text += f".{part}" if text else part
        else:
            text += f"['{part}']"
    return text


def describe(value: object) -> str:
    """Say what a value is, shortened, and without the text where it could be a secret."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the value {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return _describe_text(value)
    return "a list" if isinstance(value, list) else "a mapping"


def _describe_text(text: str) -> str:
    if not text:
        return "an empty text"
    if may_be_secret(text) or _URL_OR_ACCOUNT.search(text):
        return f"a text of {len(text)} characters that may hold a secret, so it is not shown"
    return f"the text {text!r}" if len(text) <= _SHOWN_CHARACTERS else f"the text {text[:_SHOWN_CHARACTERS]!r}..."


def model_faults(error: ValidationError, model: type[BaseModel]) -> Iterator[Fault]:
    """Yield the faults of a validation, in pydantic's order, which is that of the model's fields."""
    for detail in error.errors(include_url=False):
        location = _location(detail)
        if detail["type"] == "extra_forbidden":
            yield _unknown_key(location, model)
        elif detail["type"] == "missing":
            yield Fault(location, "a value, for this key is required", "nothing")
        else:
            yield Fault(location, _expected(detail), describe(detail["input"]))


def _location(detail: ErrorDetails) -> Location:
    # "<word>" and "<section>" name a branch of a union of the model, "[key]" a mapping's key: they are not in the file.
    return tuple(part for part in detail["loc"] if part not in ("<word>", "<section>", "[key]"))


# What pydantic's fault types mean, in words; the types: https://docs.pydantic.dev/latest/errors/validation_errors/
_EXPECTED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "string_type": lambda _: "a text",
    "int_type": lambda _: "a whole number",
    "int_from_float": lambda _: "a whole number",
    "float_type": lambda _: "a number",
    "finite_number": lambda _: "a finite number",
    "bool_type": lambda _: "true or false",
    "list_type": lambda _: "a list",
    "dict_type": lambda _: "a mapping of keys to values",
    "model_type": lambda _: "a mapping of keys to values",
    "invalid_key": lambda _: "a key that is text",
    "literal_error": lambda context: context["expected"].replace("'", ""),
    "greater_than": lambda context: f"a number greater than {context['gt']}",
    "greater_than_equal": lambda context: f"a number of at least {context['ge']}",
    "less_than_equal": lambda context: f"a number of at most {context['le']}",
    "too_short": lambda context: f"at least {context['min_length']} of them",
    "too_long": lambda context: f"at most {context['max_length']} of them",
    "string_too_short": lambda _: "a text that is not empty",
    "string_too_long": lambda context: f"a text of at most {context['max_length']} characters",
    "value_error": lambda context: str(context["error"]),
}


def _expected(detail: ErrorDetails) -> str:
    if detail["type"] == "string_type" and isinstance(detail["input"], int | float):
        return "a text (put it in quotes)"
    if detail["type"] == "int_type" and isinstance(detail["input"], str | float):
        return "a whole number, written with digits alone and without quotes"
    words = _EXPECTED.get(detail["type"])
    return words(detail.get("ctx", {})) if words else detail["msg"][:1].lower() + detail["msg"][1:]


def _unknown_key(location: Location, model: type[BaseModel]) -> Fault:
    known = list(keys_of(_section(location[:-1], model)))
    key = str(location[-1])
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the keys here are {', '.join(known)}"
    return Fault(location, f"a known key ({hint})", f"the unknown key {key}")


def _section(location: Location, model: type[BaseModel]) -> type[BaseModel]:
    """Return the model that describes the mapping at a location."""
    for part in location:
        if isinstance(part, str):
            model = next(models_in(keys_of(model)[part].annotation))
    return model


def keys_of(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """Return the fields of a model by their key in the file; a key that is a word of Python has another field name."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation names, however deep in lists and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)

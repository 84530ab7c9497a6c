"""YAML with the line of every value, duplicate keys refused, and no surprises in plain scalars.

PyYAML follows YAML 1.1, where ``no``, ``on`` and ``off`` are booleans, ``010`` is 8, ``12:30`` is 750 and ``1e3`` is
text (https://yaml.org/spec/1.1/). Here a plain scalar is a boolean, number or null only where YAML 1.2's core schema
and a reader agree at a glance; everything else, times included, stays the text that was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import yaml

#: Keys and list indexes from the root to a value.
Location = tuple[str | int, ...]

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
    try:
        text = content.decode("utf-8-sig")
        root = yaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError as error:
        return _broken(content.count(b"\n", 0, error.start) + 1, "expected UTF-8 text; found other bytes")
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        return _broken(line, "expected printable characters; found a control character")
    except yaml.MarkedYAMLError as error:
        return _syntax_fault(error, text)
    if root is None:
        return YamlDocument(None, {(): 1})
    builder = _Builder()
    data = builder.build(root, ())
    faults = tuple(sorted(builder.faults, key=lambda fault: fault.line))
    return YamlDocument(data, builder.lines, faults, frozenset(builder.unreadable))


def _syntax_fault(error: yaml.MarkedYAMLError, text: str) -> YamlDocument:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    if mark and "".join(text.split("\n")[mark.line : line])[mark.column :].startswith("\t"):
        return _broken(line, "expected spaces as indentation; found a tab")
    problem = " ".join(part for part in (error.context, error.problem) if part)
    return _broken(line, f"expected valid YAML; found a syntax error: {problem}")


def _broken(line: int, text: str) -> YamlDocument:
    return YamlDocument(None, {(): 1}, (YamlFault(line, (), text),), frozenset({()}))


class _Builder:
    """Turns PyYAML's nodes into values and remembers where each stood."""

    def __init__(self) -> None:
        self.lines: dict[Location, int] = {}
        self.faults: list[YamlFault] = []
        self.unreadable: set[Location] = set()
        self._open: set[int] = set()

    def build(self, node: yaml.Node, location: Location) -> object:
        """Gives the value of a node; ``None`` with a fault where it has none."""
        self.lines.setdefault(location, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, location)
        if id(node) in self._open:
            return self._nothing(location, "expected values; found an alias (*) of the value that it stands in")
        if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            return self._nothing(location, f"expected a mapping, a list or a plain value; found the tag {node.tag}")
        self._open.add(id(node))
        try:
            return self._mapping(node, location) if isinstance(node, yaml.MappingNode) else self._list(node, location)
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> object:
        pattern, _, value_of = _SCALARS.get(node.tag, (None, "", str))
        if pattern is None or not pattern.match(node.value):
            return self._nothing(location, f"expected a plain value; found the tag {node.tag}")
        return value_of(node.value)

    def _list(self, node: yaml.Node, location: Location) -> list[object]:
        return [self.build(entry, (*location, index)) for index, entry in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str | int, object]:
        mapping: dict[str | int, object] = {}
        for key, key_node, value_node in self._entries(node, location):
            here = (*location, key)
            line = key_node.start_mark.line + 1
            if key in mapping:
                text = f"expected each key once; found it a second time (first on line {self.lines[here]})"
                self.faults.append(YamlFault(line, here, text))
                continue
            self.lines[here] = line
            mapping[key] = self.build(value_node, here)
        return mapping

    def _entries(self, node: yaml.MappingNode, location: Location) -> Iterator[tuple[str | int, yaml.Node, yaml.Node]]:
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.value == "<<":
                text = "expected keys written out; found a merge key (<<), which is not supported"
                self.faults.append(YamlFault(line, location, text))
                continue
            key = _SCALARS[key_node.tag][2](key_node.value) if key_node.tag in (f"{_TAG}str", f"{_TAG}int") else None
            if isinstance(key, str | int):
                yield key, key_node, value_node
            else:
                text = "expected a key that is text or a whole number; found another kind of key"
                self.faults.append(YamlFault(line, location, text))

    def _nothing(self, location: Location, text: str) -> object:
        self.faults.append(YamlFault(self.lines[location], location, text))
        self.unreadable.add(location)
        return None

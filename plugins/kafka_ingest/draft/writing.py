"""A draft as the text of a pipeline file, with comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from kafka_ingest.draft.fields import Column, LeftOut, path_shown
from kafka_ingest.settings import REGISTRY_FORMATS, json_path_text

# What a draft says.


@dataclass(frozen=True, slots=True)
class Whole:
    """A value or key that is one column."""

    format: str
    column: str
    comments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A pipeline file before it is a text.

    Attributes:
        topic: The topic.
        pipeline: Name of the pipeline.
        kafka_connection: Connection of the topic.
        target: Schema and table.
        target_connection: Connection of the table.
        comments: What was looked at.
        registry: Connection of the schema registry; empty without one.
        value: The value as one column; ``None`` where it has ``columns``.
        columns_format: The format that the columns are of.
        columns: The typed columns, also those from the key. Beside ``value`` they are a comment.
        left_out: Members without a column.
        value_comments: About the columns in all.
        are_changes: Whether the columns are of change events.
        key: The key as one column.
        key_format: The registry's format of a key that columns read.
        key_comments: About keys without a column of their own.
        has_headers: Whether headers are stored.
        headers_comment: About headers.
        tombstones: What becomes of tombstones; empty where none was seen.
        tombstones_comment: About them.
    """

    topic: str
    pipeline: str
    kafka_connection: str
    target: str
    target_connection: str
    comments: tuple[str, ...] = ()
    registry: str = ""
    value: Whole | None = None
    columns_format: str = "json"
    columns: tuple[Column, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    value_comments: tuple[str, ...] = ()
    are_changes: bool = False
    key: Whole | None = None
    key_format: str = ""
    key_comments: tuple[str, ...] = ()
    has_headers: bool = False
    headers_comment: str = ""
    tombstones: str = ""
    tombstones_comment: str = ""
    reserved: frozenset[str] = field(default_factory=frozenset)

    @property
    def names_schemas(self) -> bool:
        """Whether the file reads values or keys with a registry's schemas."""
        return bool(self.key_format) or (self.value is None and self.columns_format in REGISTRY_FORMATS)


# Names.

_MOST_BYTES = 63  # NAMEDATALEN - 1
_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MOST_PIPELINE_CHARACTERS = 41


def column_name(label: Iterable[str], taken: set[str]) -> str:
    """Make a name of its own for a column, which needs no quotes in SQL unless it is a key word; it is taken then.

    Args:
        label: Its words, in any spelling.
        taken: Names that others have.
    """
    words = "_".join(_BOUNDARY.sub("_", part) for part in label)
    name = re.sub(r"[^\w]+", "_", words).lower().rstrip("_") or "column"
    name = f"_{name}" if name[0].isdigit() else name
    number, found = 1, _cut(name, _MOST_BYTES)
    while found in taken:
        number += 1
        end = f"_{number}"
        found = _cut(name, _MOST_BYTES - len(end)) + end
    taken.add(found)
    return found


def _cut(name: str, most_bytes: int) -> str:
    return name.encode()[:most_bytes].decode("utf-8", "ignore")


def pipeline_name(topic: str) -> str:
    """Make the name of a pipeline from that of its topic."""
    name = re.sub("[^a-z0-9]+", "_", topic.lower()).strip("_")[:_MOST_PIPELINE_CHARACTERS].rstrip("_")
    return name if name[:1].isalpha() else f"topic_{name}"[:_MOST_PIPELINE_CHARACTERS].rstrip("_")


# YAML.

_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_.$-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_ESCAPES = {'"': '\\"', "\\": "\\\\"}


def scalar(text: str) -> str:
    """Write a text as YAML, in quotes unless every reader takes it for the same text without them."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(map(_quoted, text)) + '"'


def _quoted(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character.isprintable() else f"\\U{ord(character):08x}"


_WIDTH = 116
_MOST_LEFT_OUT = 20


def text_of(draft: Draft) -> str:
    """Write the file. The same draft gives the same bytes."""
    taken = {*draft.reserved, *(["headers"] if draft.has_headers else []), *([draft.key.column] if draft.key else [])}
    parts = [
        _comments(draft.comments),
        [f"pipeline: {scalar(draft.pipeline)}", 'schedule: "@hourly"'],
        ["kafka:", f"  connection: {scalar(draft.kafka_connection)}", f"  topics: [{scalar(draft.topic)}]"],
        [f"  registry: {scalar(draft.registry)}"] if draft.names_schemas else [],
        _comments(["earliest loads all that the topic holds; latest begins after the first plan."]),
        ["first_run: earliest", "value:", *_value(draft, taken)],
        _key(draft),
        _comments([draft.headers_comment]),
        ["headers: {column: headers}"] if draft.has_headers else [],
        _comments([draft.tombstones_comment]),
        [f"tombstones: {draft.tombstones}"] if draft.tombstones else [],
        ["target:", f"  connection: {scalar(draft.target_connection)}", f"  table: {scalar(draft.target)}"],
        ["  create_table: true"],
    ]
    return "".join(f"{line}\n" for part in parts for line in part)


def _value(draft: Draft, taken: set[str]) -> Iterator[str]:
    yield from _comments(draft.value_comments, indent="  ")
    if draft.value:
        yield from _comments(draft.value.comments, indent="  ")
        yield f"  format: {draft.value.format}"
        yield f"  column: {scalar(draft.value.column)}"
        if draft.columns:
            is_named = draft.columns_format in REGISTRY_FORMATS
            what = "of those that a schema reads" if is_named else "of the JSON objects"
            yield from _comments([f"To make columns {what}, and dead letters of the rest, write instead:"])
            yield from _comments([f"(and under kafka, registry: {draft.registry})"] if is_named else [])
            yield from (f"# {line}" for line in _columns(draft, taken))
        return
    yield from _columns(draft, taken)


def _columns(draft: Draft, taken: set[str]) -> Iterator[str]:
    yield f"  format: {draft.columns_format}"
    yield "  columns:"
    for column in draft.columns:
        yield from _comments(column.comments, indent="    ")
        yield f"    - {_column(column, column_name(column.label, taken))}"
    yield from _comments(_left_out(draft.left_out), indent="    ")


def _column(column: Column, name: str) -> str:
    paths = [scalar(json_path_text(path)) for path in column.paths]
    entries = [f"name: {scalar(name)}", f"type: {scalar(column.type)}"]
    entries += ["from: key"] if column.from_key else []
    if column.paths != ((name,),):
        entries.append(f"path: {paths[0]}" if len(paths) == 1 else f"path: [{', '.join(paths)}]")
    entries += [f"as: {column.conversion}"] if column.conversion else []
    entries += [f"round: {column.rounding}"] if column.rounding else []
    return f"{{{', '.join(entries)}}}"


def _left_out(left_out: Sequence[LeftOut]) -> Iterator[str]:
    for member in left_out[:_MOST_LEFT_OUT]:
        yield f"left out: {path_shown(member.path)}: {member.why}"
    if len(left_out) > _MOST_LEFT_OUT:
        yield f"left out: {len(left_out) - _MOST_LEFT_OUT:,} more"


def _key(draft: Draft) -> Iterator[str]:
    yield from _comments(draft.key_comments)
    if draft.key_format:
        yield f"key: {{format: {draft.key_format}}}"
    if draft.key:
        yield from _comments(draft.key.comments)
        yield f"key: {{format: {draft.key.format}, column: {scalar(draft.key.column)}}}"


def _comments(lines: Iterable[str], *, indent: str = "") -> list[str]:
    """Write comments; long ones go on in the next line."""
    return [f"{indent}# {part}" for line in lines for part in wrap(line, _WIDTH, break_long_words=False)]

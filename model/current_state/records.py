"""Records, the log that holds them, and the fold: what the table must be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from model.current_state.rules import Deletes, Order, Pipeline, Rule

#: The text of a record whose text did not travel.
NOT_SENT = "not sent"


class Kind(Enum):
    """What a record is once it is decoded."""

    PUT = "put"
    TOMBSTONE = "tombstone"
    DELETE = "delete"  # an event that says so; in Debezium its tombstone follows
    UNREADABLE = "unreadable"  # a dead letter
    CHECK_FAILS = "CHECK fails"  # a dead letter, known only after it was staged
    FILTERED = "filtered"
    TRUNCATE = "truncate"
    TAKEN = "taken"  # by compaction, before it was read; only the fold knows such records


_DELETES = (Kind.TOMBSTONE, Kind.DELETE)


class Version(NamedTuple):
    """The identity of a record; compared, the order by offset."""

    generation: int
    partition: int
    offset: int

    def __str__(self) -> str:
        generation = f" of generation {self.generation}" if self.generation else ""
        return f"p{self.partition}@{self.offset}{generation}"


@dataclass(frozen=True, slots=True)
class Record:
    """A decoded record.

    Attributes:
        kind: What it is.
        key: Key of the target.
        value: Value of a column that always travels.
        text: Value of a column that may not travel; ``NOT_SENT`` where it did not.
        old_key: The key that the row had before, when the record is the second half of a key change.
    """

    kind: Kind
    key: str = ""
    value: int | None = None
    text: str | None = None
    old_key: str | None = None

    def __str__(self) -> str:
        shown = [f"={self.value}"] if self.value is not None else []
        shown += [f", text {self.text}"] if self.text is not None else []
        shown += [f", was {self.old_key}"] if self.old_key is not None else []
        return f"{self.kind.value} {self.key}{''.join(shown)}".strip()


@dataclass(frozen=True, slots=True)
class Produced:
    """A record in the log: how the first settings decode it, how the second ones do, and its time."""

    first: Record
    second: Record | None = None
    time: int = 0

    def under(self, settings: int) -> Record:
        """Return the record as the settings decode it."""
        return self.second if settings and self.second is not None else self.first

    def __str__(self) -> str:
        later = f" (new settings: {self.second})" if self.second is not None else ""
        return f"{self.first}{later}" + (f" at time {self.time}" if self.time else "")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of one generation of the topic."""

    number: int
    records: tuple[Produced, ...]
    generation: int = 0

    def version(self, offset: int) -> Version:
        """Return the version of a record."""
        return Version(self.generation, self.number, offset)


@dataclass(frozen=True)
class Log:
    """What was ever produced to the topic."""

    partitions: tuple[Partition, ...]

    @cached_property
    def records(self) -> dict[Version, Produced]:
        """Return every record by its version."""
        return {part.version(offset): one for part in self.partitions for offset, one in enumerate(part.records)}

    @cached_property
    def places(self) -> dict[tuple[int, int], int]:
        """Return where a partition stands in ``partitions``, by generation and number."""
        return {(part.generation, part.number): place for place, part in enumerate(self.partitions)}

    def rank(self, version: Version, pipeline: Pipeline) -> tuple[int, ...]:
        """Return what versions are compared by."""
        if pipeline.order is Order.TIME:
            return (self.records[version].time, *version)
        return version if pipeline.keeps(Rule.GENERATION_FIRST) else version[1:]

    def __str__(self) -> str:
        return "; ".join(
            f"p{part.number}{f' of generation {part.generation}' if part.generation else ''}: "
            + ", ".join(f"@{offset} {one}" for offset, one in enumerate(part.records))
            for part in self.partitions
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table."""

    version: Version
    value: int | None = None
    text: str | None = None
    is_deleted: bool = False

    def __str__(self) -> str:
        text = f", text {self.text}" if self.text is not None else ""
        return f"{self.value}{text} ({'deleted ' if self.is_deleted else ''}by {self.version})"


@dataclass(slots=True)
class Folded:
    """What a plain consumer has after it read the records in the order of their versions.

    Attributes:
        rows: Rows by key.
        removed: Versions of removed rows by key.
        dead: Dead letters.
        last_texts: The last text of each key, also of removed ones.
        unknown: Keys whose text was in a record that compaction took.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    removed: dict[str, Version] = field(default_factory=dict)
    dead: set[Version] = field(default_factory=set)
    last_texts: dict[str, str | None] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)


def is_delete(record: Record) -> bool:
    """Return whether the record deletes the row of its key."""
    return record.kind in _DELETES


def is_dead_letter(record: Record, pipeline: Pipeline) -> bool:
    """Return whether the record alone shows that it is a dead letter."""
    if pipeline.deletes is Deletes.DEAD_LETTER and is_delete(record):
        return True
    return record.kind in (Kind.UNREADABLE, Kind.CHECK_FAILS)


def is_change(record: Record, pipeline: Pipeline) -> bool:
    """Return whether the record puts or deletes a row."""
    return record.kind is Kind.PUT or (is_delete(record) and pipeline.deletes in (Deletes.REMOVE, Deletes.MARK))


def fold(changes: Iterable[tuple[Version, Record]], pipeline: Pipeline) -> Folded:
    """Return what records make of an empty table, one after the other; they come in the order of their versions."""
    folded = Folded()
    for version, record in changes:
        if is_dead_letter(record, pipeline):
            folded.dead.add(version)
        elif is_change(record, pipeline):
            _apply(folded, version, record, pipeline)
        elif record.kind is Kind.TAKEN:
            folded.unknown.add(record.key)
        elif record.kind is Kind.TRUNCATE and not pipeline.keeps(Rule.TRUNCATE_REMOVES_NOTHING):
            folded.rows.clear()
    return folded


def _apply(folded: Folded, version: Version, record: Record, pipeline: Pipeline) -> None:
    before = folded.rows.pop(record.key, None)
    if not is_delete(record):
        _put(folded, version, record, pipeline, before=before)
    elif pipeline.deletes is Deletes.REMOVE:
        folded.removed[record.key] = version
    else:
        keeps = before is not None and pipeline.order is Order.OFFSET
        value, text = (before.value, before.text) if keeps and before is not None else (None, None)
        folded.rows[record.key] = Row(version, value, text, is_deleted=True)


def _put(folded: Folded, version: Version, record: Record, pipeline: Pipeline, *, before: Row | None) -> None:
    text = record.text
    if text == NOT_SENT:
        is_known = before is not None and not before.is_deleted and record.key not in folded.unknown
        text = before.text if before is not None and is_known else None
        if record.old_key is not None and not pipeline.keeps(Rule.NO_VALUE_ACROSS_KEYS):
            text = folded.last_texts.get(record.old_key)
        if text is None:
            folded.dead.add(version)
            if before is not None:
                folded.rows[record.key] = before
            return
    folded.removed.pop(record.key, None)
    folded.unknown.discard(record.key)
    folded.rows[record.key] = Row(version, record.value, text)
    folded.last_texts[record.key] = text

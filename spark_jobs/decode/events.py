"""What each change event says was done: a row is written, a key is deleted, or there is nothing to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason, TruncateFound
from kafka_ingest.kafka.registry import VALUE_SCHEMA_HEADER
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSettings,
    ColumnSource,
    EnvelopeSettings,
    Truncate,
    json_path_text,
)
from spark_jobs.decode.documents import checked_document
from spark_jobs.decode.framed import FramedColumns, Schemas
from spark_jobs.decode.values import (
    ColumnPlan,
    DecodedBatch,
    DecodedPart,
    DecodeError,
    Rejected,
    described,
    excerpt,
    positions,
)

# What an event is, from its members alone: their values need not fit any column.

_ROW, _DELETE, _TRUNCATE, _MESSAGE = "row", "delete", "truncate", "message"
#: https://debezium.io/documentation/reference/3.6/connectors/postgresql.html#postgresql-events
_KINDS = {b'"c"': _ROW, b'"r"': _ROW, b'"u"': _ROW, b'"d"': _DELETE, b'"t"': _TRUNCATE, b'"m"': _MESSAGE}
#: ``op``, as JSON text, of events that are the first of their row: an insert, and a row that a snapshot has read.
INSERT_OPS = ('"c"', '"r"')
_TIMES = {"ts_ms", "ts_us", "ts_ns"}
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Events:
    """Tells what each document is: one of the kinds, or words for what it is instead; null where nobody can read it."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path

    def decode(self, values: pa.Array) -> DecodedPart:
        """Read a large_binary array of documents."""
        told = [None if document is None else self._told(document) for document in values.to_pylist()]
        return DecodedPart((pa.array(told, pa.string()),))

    def _told(self, document: bytes) -> str | None:
        try:
            raw = checked_document(document)
            members = _OBJECT.decode(raw)
            for key in self._path:
                raw = bytes(members.get(key, b"null"))
                members = _OBJECT.decode(raw)
        except DecodeError:
            return None
        except msgspec.ValidationError:
            return f"expected a change event at {json_path_text(self._path)}, found {described(raw)}"
        return _told_of(members)


def _told_of(members: Mapping[str, msgspec.Raw]) -> str:
    if "op" not in members:
        return f"expected a change event, which has op, found {_without_op(members)}"
    op = bytes(members["op"])
    kind = _KINDS.get(op)
    if kind is None:
        return f"expected a change event with the op c, r, u, d, t or m, found {described(op)}"
    after = bytes(members.get("after", b""))
    if kind == _ROW and after[:1] != b"{":
        return f"expected the row in after, as op is {op.decode()}, found {described(after) if after else 'nothing'}"
    return kind


def _without_op(members: Mapping[str, msgspec.Raw]) -> str:
    """Say what a record without ``op`` looks like."""
    if {"schema", "payload"} <= members.keys():
        return "JSON beside its schema: say value.with_schema: [value]"
    if "ddl" in members:
        return "a schema change (it has ddl), whose topic is none of rows"
    if {"status", "id"} <= members.keys():
        return "the beginning or end of a transaction (it has status and id), whose topic is none of rows"
    if members and members.keys() <= _TIMES:
        return "a heartbeat (it has nothing but its time), whose topic is none of rows"
    if "__deleted" in members or "__op" in members:
        return "the row of an unwrapped event: leave value.envelope out, and see docs/change-events.md"
    return f"the members {excerpt(', '.join(members)) or 'of an empty object'}"


# The events of a batch.


@dataclass(frozen=True, slots=True)
class Told:
    """What records with a value are that are no rows to write.

    Attributes:
        deletes: The deletes of their keys.
        counted: Records that are only counted.
        refused: Records that are no change event.
    """

    deletes: set[int] = field(default_factory=set)
    counted: set[int] = field(default_factory=set)
    refused: Sequence[Rejected] = ()

    @property
    def rows(self) -> set[int]:
        """All of them."""
        return self.deletes | self.counted | {row.row_index for row in self.refused}


class EventReader:
    """Tells what the events of an upsert pipeline are.

    The decoder of rows reads ``op`` beside the columns, and that tells it of most. The others are looked at once more,
    in their members alone: those that a column refuses, as of deletes without a row, those with another ``op``, and
    those that give NULL in every column, for they may have no row.

    Args:
        settings: The batch's frozen settings.
        envelope: Their envelope.
        schemas: Where the schemas of values come from; ``None`` for a format without a registry.
    """

    def __init__(self, settings: BatchSettings, envelope: EnvelopeSettings, schemas: Schemas | None) -> None:
        self._truncate = envelope.truncate
        after = (*envelope.path, "after")
        of_row = (c for c in settings.value.columns if c.source is ColumnSource.VALUE and c.default is None)
        self._of_row = [c.name for c in of_row if all(_leads_through(path, after) for path in (c.path, *c.other_paths))]
        self._events = _Events(envelope.path)
        self._framed: FramedColumns | None = None
        if schemas:
            plan = ColumnPlan("the event", parse_column_type("jsonb"))
            self._framed = FramedColumns([plan], self._events.decode, schemas, VALUE_SCHEMA_HEADER)

    def told(self, batch: pa.RecordBatch, puts: DecodedBatch, ops: pa.Array) -> Told:
        """Tell what records are that are no rows to write.

        Args:
            batch: Records.
            puts: Those with a value, decoded as if all were rows.
            ops: ``op`` of each of the rows, as JSON text.

        Raises:
            TruncateFound: One empties the source table, and the pipeline stops then.
        """
        rows = puts.row_index
        is_delete = pc.fill_null(pc.equal(ops, _text_of(_DELETE)), False)
        told = Told({rows[place] for place in positions(is_delete)})
        writes = pa.array([text.decode() for text, kind in _KINDS.items() if kind == _ROW])
        is_sure = pc.or_(is_delete, pc.and_(pc.is_in(ops, value_set=writes), self._has_row(puts.columns)))
        in_doubt = [rows[place] for place in positions(pc.invert(is_sure))]
        in_doubt = sorted((*in_doubt, *(row.row_index for row in puts.dead)))
        return self._looked_at(batch, in_doubt, told) if in_doubt else told

    def _has_row(self, columns: pa.RecordBatch) -> pa.Array:
        """Tell where a column of the row has a value."""
        has_row = pa.repeat(pa.scalar(False), columns.num_rows)
        for name in self._of_row:
            has_row = pc.or_(has_row, columns.column(name).is_valid())
        return has_row

    def _looked_at(self, batch: pa.RecordBatch, rows: Sequence[int], told: Told) -> Told:
        some = batch.take(pa.array(rows, pa.int64()))
        values, headers = some.column("value"), some.column("headers")
        part = self._framed.decode(values, headers) if self._framed else self._events.decode(values)
        counted, deletes, refused = set(told.counted), set(told.deletes), []
        for place, (row, kind) in enumerate(zip(rows, part.arrays[0].to_pylist(), strict=True)):
            if kind == _TRUNCATE and self._truncate is Truncate.STOP:
                raise _truncate_found(some, place)
            if kind in (_TRUNCATE, _MESSAGE):
                counted.add(row)
            elif kind == _DELETE:
                deletes.add(row)
            elif kind not in (_ROW, None):
                refused.append(Rejected(row, DeadLetterReason.WRONG_TYPE, f"the value: {kind}"))
        return Told(deletes, counted, refused)


def op_column(envelope: EnvelopeSettings, name: str) -> ColumnSettings:
    """Return the column that reads ``op``, for the decoder of rows."""
    return ColumnSettings(name, "jsonb", (*envelope.path, "op"))


def _text_of(kind: str) -> str:
    return next(text.decode() for text, of in _KINDS.items() if of == kind)


def _leads_through(path: tuple[str, ...], way: tuple[str, ...]) -> bool:
    return path[: len(way)] == way


def _truncate_found(batch: pa.RecordBatch, place: int) -> TruncateFound:
    topic, partition, offset = (batch.column(name)[place].as_py() for name in ("topic", "partition", "offset"))
    return TruncateFound(
        f"{topic}[{partition}] offset {offset} says that the source table was emptied",
        expected="no truncation under target.truncate: stop",
        found='an event with the op "t"; rows that were loaded before it would stay',
        next_command="see docs/runbook.md, section TruncateFound",
    )

"""Records of an upsert pipeline as changes of keys: a row, a delete, a dead letter, or only counted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.protocol.staging import NewField
from kafka_ingest.protocol.target import TargetShape, delete_settings
from kafka_ingest.settings import (
    REGISTRY_FORMATS,
    BatchSettings,
    ColumnSettings,
    Deletes,
    DeleteWhen,
    OrderBy,
    Unavailable,
    UpsertSettings,
)
from spark_jobs.decode.events import INSERT_OPS, EventReader, Told, op_column
from spark_jobs.decode.framed import Schemas
from spark_jobs.decode.record import NO_REGISTRY, RecordDecoder, schemas_of
from spark_jobs.decode.values import DecodedBatch, Rejected, positions, without_refused

#: The column that tells whether a record is a delete: the place of ``delete_when``, or the event's ``op``. It is not
#: printable, as no column of a pipeline file is.
_FLAG = "\x00delete"

_REFUSED = "the record: expected no delete, found {}, and this pipeline makes deletes dead letters"


class ChangeDecoder:
    """The decoder of one upsert pipeline's records; what :class:`RecordDecoder` is for others.

    A delete is a tombstone with a key, a record with a value that ``delete_when`` names, or a change event that says
    so. Of a delete only the columns of the key and of its version are read: its other fields may be missing, null or of
    another type. A record with neither key nor value says nothing of any key: it is counted.

    Args:
        settings: The batch's frozen settings.
        shape: The target's columns.
        batch_id: The batch, for the rows' metadata.
        registry: Configuration of the schema registry; empty for a pipeline without one.
    """

    def __init__(
        self, settings: BatchSettings, shape: TargetShape, *, batch_id: str, registry: Mapping[str, str] = NO_REGISTRY
    ) -> None:
        assert settings.upsert is not None  # noqa: S101 - who calls it has looked
        self._upsert: UpsertSettings = settings.upsert
        shape = _with_required_time(settings, shape)
        envelope = settings.upsert.envelope
        self._events = EventReader(settings, envelope, _schemas(settings, registry)) if envelope else None
        flag = _flag_column(settings.upsert.delete_when)
        puts = _with_columns(settings, (op_column(envelope, _FLAG),) if envelope else flag)
        deletes = _with_columns(delete_settings(settings), flag)
        self._is_null_written = envelope is not None and envelope.unavailable is Unavailable.WRITE_NULL
        self._refuse_null = {column.name for column in shape.columns if column.is_not_null}
        self._refuse_null |= {column.name for column in settings.value.columns if column.required}
        self._puts = RecordDecoder(puts, shape, batch_id=batch_id, registry=registry)
        self._deletes = RecordDecoder(deletes, shape, batch_id=batch_id, registry=registry)

    @property
    def new_fields(self) -> tuple[NewField, ...]:
        """What all rows so far held and no column reads."""
        return self._puts.new_fields

    def decode(self, batch: pa.RecordBatch, *, generation: int) -> DecodedBatch:
        """Decode a batch of one topic's records (``RECORD_SCHEMA``)."""
        values = batch.column("value")
        with_value = range(len(batch)) if not values.null_count else positions(values.is_valid())
        puts = self._finite(_at(with_value, self._puts.decode(_taken(batch, with_value), generation=generation)))
        told = self._told(batch, puts, generation)
        puts = self._put_apart(puts, told)
        keyed = batch.column("key").is_valid()
        tombstones = positions(pc.and_(values.is_null(), keyed)) if values.null_count else []
        unkeyed = positions(pc.and_(values.is_null(), pc.invert(keyed))) if values.null_count else []
        puts = _with_dead(_without(puts, told.rows), told.refused)
        rows = sorted((*tombstones, *told.deletes))
        counted = (*unkeyed, *told.counted)
        if self._upsert.deletes is Deletes.IGNORE:
            return replace(puts, tombstones=sorted((*counted, *rows)))
        puts = replace(puts, tombstones=sorted(counted))
        if self._upsert.deletes is Deletes.DEAD_LETTER:
            return _with_dead(puts, [self._refused_delete(row, is_named=row in told.deletes) for row in rows])
        return self._with_deletes(puts, batch, rows, generation)

    def _put_apart(self, puts: DecodedBatch, told: Told) -> DecodedBatch:
        """Put records apart with values that did not travel: only the publish knows what their keys had before.

        The insert of a row, whose key nobody had before, is a row or a dead letter at once.
        """
        apart = {row: of for row, of in puts.unavailable.items() if row not in told.rows}
        if not apart:
            return replace(puts, unavailable={})
        ops = puts.columns.column(_FLAG)
        inserts = {row for row, op in zip(puts.row_index, ops.to_pylist(), strict=True) if op in INSERT_OPS}
        as_null = {row for row, of in apart.items() if self._is_null_written and not self._refuse_null & {*of.columns}}
        refused = sorted((apart.keys() & inserts) - as_null)
        partial = {row: replace(of, may_be_null=row in as_null) for row, of in apart.items() if row not in inserts}
        dead = [Rejected(row, DeadLetterReason.VALUE_DID_NOT_TRAVEL, apart[row].detail) for row in refused]
        is_partial = pa.array([row in partial for row in puts.row_index], pa.bool_())
        puts = replace(
            puts,
            partial=puts.columns.filter(is_partial).drop_columns([_FLAG]),
            partial_index=[row for row in puts.row_index if row in partial],
            unavailable=partial,
        )
        return _with_dead(_left_out(puts, {*partial, *refused}), dead)

    def _told(self, batch: pa.RecordBatch, puts: DecodedBatch, generation: int) -> Told:
        if self._events:
            return self._events.told(batch, puts, puts.columns.column(_FLAG))
        return Told(self._named_deletes(batch, puts, generation))

    def _named_deletes(self, batch: pa.RecordBatch, puts: DecodedBatch, generation: int) -> set[int]:
        """Return the records with a value that ``delete_when`` names, also where other columns refuse them."""
        when = self._upsert.delete_when
        if when is None:
            return set()
        found = {puts.row_index[place] for place in _equal(puts.columns.column(_FLAG), when)}
        in_doubt = [row.row_index for row in puts.dead]
        if in_doubt:
            again = _at(in_doubt, self._deletes.decode(_taken(batch, in_doubt), generation=generation))
            found |= {again.row_index[place] for place in _equal(again.columns.column(_FLAG), when)}
        return found

    def _with_deletes(
        self, puts: DecodedBatch, batch: pa.RecordBatch, rows: Sequence[int], generation: int
    ) -> DecodedBatch:
        if not rows:
            return puts
        decoded = self._finite(_at(rows, self._deletes.decode(_taken(batch, rows), generation=generation)))
        decoded = _without(decoded, ())
        puts = replace(puts, deletes=decoded.columns, delete_index=decoded.row_index)
        return _with_dead(puts, decoded.dead)

    def _refused_delete(self, row: int, *, is_named: bool) -> Rejected:
        named = 'an event with the op "d"' if self._events else "a record that delete_when names"
        found = named if is_named else "a tombstone"
        return Rejected(row, DeadLetterReason.TOMBSTONE, _REFUSED.format(found))

    def _finite(self, decoded: DecodedBatch) -> DecodedBatch:
        """Refuse NaN and infinity in the order: one infinity would outdo every later record of its key."""
        name = self._upsert.order_column
        values = decoded.columns.column(name) if name else None
        if values is None or not pa.types.is_floating(values.type):
            return decoded
        places = positions(pc.invert(pc.is_finite(values)))
        detail = f'column "{name}", which orders the records: expected a finite number, found '
        refused = [
            Rejected(decoded.row_index[place], DeadLetterReason.OUT_OF_RANGE, f"{detail}{values[place].as_py()}")
            for place in places
        ]
        return without_refused(decoded, refused) if refused else decoded


def decoder_of(
    settings: BatchSettings, shape: TargetShape, *, batch_id: str, registry: Mapping[str, str] = NO_REGISTRY
) -> RecordDecoder | ChangeDecoder:
    """Return the decoder of a pipeline's records: every record a row, or a change of its key."""
    kind = ChangeDecoder if settings.upsert else RecordDecoder
    return kind(settings, shape, batch_id=batch_id, registry=registry)


def _schemas(settings: BatchSettings, registry: Mapping[str, str]) -> Schemas | None:
    value = settings.value
    return schemas_of(registry, value.format, value.subject) if value.format in REGISTRY_FORMATS else None


def _with_required_time(settings: BatchSettings, shape: TargetShape) -> TargetShape:
    """Require a record time where it orders the records."""
    if not settings.upsert or settings.upsert.order is not OrderBy.RECORD_TIME:
        return shape
    name = settings.metadata.timestamp
    return replace(shape, columns=tuple(replace(c, is_not_null=c.is_not_null or c.name == name) for c in shape.columns))


def _flag_column(when: DeleteWhen | None) -> tuple[ColumnSettings, ...]:
    return (ColumnSettings(_FLAG, "jsonb", when.path),) if when else ()


def _with_columns(settings: BatchSettings, more: tuple[ColumnSettings, ...]) -> BatchSettings:
    return replace(settings, value=replace(settings.value, columns=(*settings.value.columns, *more)))


def _taken(batch: pa.RecordBatch, rows: Sequence[int]) -> pa.RecordBatch:
    return batch if len(rows) == len(batch) else batch.take(pa.array(rows, pa.int64()))


def _at(rows: Sequence[int], decoded: DecodedBatch) -> DecodedBatch:
    """Return a part of a batch with the rows of the whole batch."""
    if isinstance(rows, range):
        return decoded
    return replace(
        decoded,
        row_index=[rows[index] for index in decoded.row_index],
        dead=[replace(row, row_index=rows[row.row_index]) for row in decoded.dead],
        unavailable={rows[index]: of for index, of in decoded.unavailable.items()},
    )


def _without(decoded: DecodedBatch, rows: set[int] | tuple[()]) -> DecodedBatch:
    """Leave out rows that are deletes, and the column that told so."""
    if _FLAG in decoded.columns.schema.names:
        decoded = replace(decoded, columns=decoded.columns.drop_columns([_FLAG]))
    dead = [_plainly_told(row) for row in decoded.dead if row.row_index not in rows]
    return _left_out(replace(decoded, dead=dead), {*rows})


def _left_out(decoded: DecodedBatch, rows: set[int]) -> DecodedBatch:
    """Leave these records out of the rows."""
    if not rows:
        return decoded
    stays = [index not in rows for index in decoded.row_index]
    row_index = [index for index in decoded.row_index if index not in rows]
    return replace(decoded, columns=decoded.columns.filter(pa.array(stays, pa.bool_())), row_index=row_index)


def _plainly_told(row: Rejected) -> Rejected:
    """Name what the file says instead of the column that tells of deletes, which no file has."""
    return replace(row, detail=row.detail.replace(f'column "{_FLAG}"', "delete_when"))


def _with_dead(decoded: DecodedBatch, more: Sequence[Rejected]) -> DecodedBatch:
    return replace(decoded, dead=sorted((*decoded.dead, *more), key=lambda row: row.row_index))


def _equal(texts: pa.Array, when: DeleteWhen) -> list[int]:
    """Return the positions of JSON texts that have the wanted value."""
    wanted = _value_of(when.equals)
    encoded = texts.dictionary_encode()
    equal = [text is not None and _value_of(text) == wanted for text in encoded.dictionary.to_pylist()]
    return [place for place, number in enumerate(encoded.indices.to_pylist()) if number is not None and equal[number]]


def _value_of(text: str) -> tuple[type, object]:
    """Return a JSON value so that only equal ones are equal: numbers by value, and no number is a boolean."""
    value = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    return type(value), value

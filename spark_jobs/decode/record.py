"""A record becomes a row: value, key, headers, metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.protocol.target import TargetShape, written_columns
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSource,
    Conversion,
    KeyFormat,
    MetadataColumns,
    Occurrence,
    Tombstones,
    ValueFormat,
)
from spark_jobs.decode.conversions import converted
from spark_jobs.decode.documents import checked_document, too_deep_rows
from spark_jobs.decode.json import JsonColumns, default_of, with_default
from spark_jobs.decode.texts import JsonbRule, TextRule, rule_for
from spark_jobs.decode.values import (
    RECORD_TIME,
    Characters,
    ColumnPlan,
    DecodedBatch,
    DecodedPart,
    DecodeError,
    Rejected,
    column_plans,
    excerpt,
    invalid_utf8_rows,
    key_plan,
    metadata_plan,
    positions,
    positions_containing,
    unsupported_text,
    with_rows_replaced,
)
from spark_jobs.records import TIME_TYPE_NAMES

# The headers of a record as one jsonb column.

_NO_HEADERS = b"[]"

#: Headers that are Python objects at the same time; each takes 300 bytes.
_BLOCK = 1_000


def _unreadable_headers(batch: pa.RecordBatch, plan: ColumnPlan) -> dict[int, DecodeError]:
    """Name a column that takes headers, for each record whose headers the client library could not read."""
    detail = "expected header names in UTF-8, found names that are not"
    decode_error = DecodeError(DeadLetterReason.UNREADABLE_HEADERS, detail).at(plan.place)
    return dict.fromkeys(positions(pc.invert(batch.column("headers_readable"))), decode_error)


class Headers:
    """Headers as a JSON array of ``{"key": name, "value": base64 or null}``, in order, with repeated names.

    A record without headers becomes ``[]``, never NULL. Headers that the client library could not read make the record
    a dead letter; a pipeline without a headers column does not read them.
    """

    def __init__(self, plan: ColumnPlan) -> None:
        self._plan = plan

    def decode(self, batch: pa.RecordBatch) -> DecodedPart:
        """Return the column for a batch of ``RECORD_SCHEMA``."""
        decode_errors = _unreadable_headers(batch, self._plan)
        headers = batch.column("headers")
        cells = [_NO_HEADERS] * len(headers)
        for row, pairs in _pairs_by_row(headers):
            cells[row] = _json(pairs)
        for row, name in _names_with_nul(headers):
            decode_errors.setdefault(row, unsupported_text(f"the header name {excerpt(name)}").at(self._plan.place))
        return DecodedPart((pa.array(cells, pa.string()),), decode_errors)


def _json(pairs: Iterator[tuple[str, bytes | None]]) -> bytes:
    # msgspec writes bytes as base64 (RFC 4648, with padding).
    text = bytearray()
    while block := [{"key": name, "value": value} for name, value in islice(pairs, _BLOCK)]:
        text += b"," + msgspec.json.encode(block)[1:-1]
    return b"[" + text[1:] + b"]"


def _pairs_by_row(headers: pa.Array) -> Iterator[tuple[int, Iterator[tuple[str, bytes | None]]]]:
    names_and_values = _pairs(headers.flatten())
    counts = pc.list_value_length(headers).drop_null().to_pylist()
    for row, count in zip(positions(headers.is_valid()), counts, strict=True):
        yield row, islice(names_and_values, count)


def _pairs(pairs: pa.Array) -> Iterator[tuple[str, bytes | None]]:
    names, values = pairs.field("name"), pairs.field("value")
    for block in range(0, len(pairs), _BLOCK):
        some = slice(block, block + _BLOCK)
        yield from zip(names[some].to_pylist(), values[some].to_pylist(), strict=True)


def _names_with_nul(headers: pa.Array) -> Iterator[tuple[int, str]]:
    names = headers.flatten().field("name")
    has_nul = pa.array(positions_containing(names, "\x00", sign=b"\x00"), pa.int64())
    if len(has_nul):
        yield from zip(
            pc.list_parent_indices(headers).take(has_nul).to_pylist(), names.take(has_nul).to_pylist(), strict=True
        )


# The columns that tell where a row came from.

#: 0001-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z, in ms since 1970: the years that every client can read.
FIRST_RECORD_TIME_MS, LAST_RECORD_TIME_MS = -62_135_596_800_000, 253_402_300_799_999


class Metadata:
    """Topic, generation, partition, offset, record time, time type (where wanted) and batch id, in that order.

    The record time is exact to the millisecond, in UTC; a record without a time has NULL.
    """

    def __init__(self, columns: MetadataColumns, shape: TargetShape, *, batch_id: str) -> None:
        self._batch_id = batch_id
        self._time = metadata_plan(columns.timestamp, "timestamptz", "the record time", shape)
        self._time_type: ColumnPlan | None = None
        if columns.timestamp_type:
            self._time_type = metadata_plan(columns.timestamp_type, "text", "the record time's type", shape)

    def decode(self, batch: pa.RecordBatch, *, generation: int) -> DecodedPart:
        """Return the columns for a batch of ``RECORD_SCHEMA``."""
        times = batch.column("timestamp_ms")
        decode_errors = self._time_decode_errors(times)
        arrays = [
            batch.column("topic"),
            pa.repeat(pa.scalar(generation, pa.int32()), len(batch)),
            batch.column("partition"),
            batch.column("offset"),
            _stored_times(times),
        ]
        if self._time_type:
            types = [TIME_TYPE_NAMES.get(number) for number in batch.column("timestamp_type").to_pylist()]
            arrays.append(pa.array(types, pa.string()))
            for row in positions(pc.is_null(arrays[-1])) if self._time_type.not_null else ():
                decode_errors.setdefault(row, self._time_type.null_error("a record without a time"))
        arrays.append(pa.repeat(pa.scalar(self._batch_id, pa.string()), len(batch)))
        return DecodedPart(tuple(arrays), decode_errors)

    def _time_decode_errors(self, times: pa.Array) -> dict[int, DecodeError]:
        decode_errors = {}
        for row in positions(pc.invert(has_storable_time(times))):
            detail = f"expected a record time in the years 1 to 9999, found {times[row]} ms since 1970"
            decode_errors[row] = DecodeError(DeadLetterReason.RECORD_TIME_OUT_OF_RANGE, detail).at(self._time.place)
        if self._time.not_null:
            decode_errors |= {
                row: self._time.null_error("a record without a time") for row in positions(pc.is_null(times))
            }
        return decode_errors


def has_storable_time(times: pa.Array) -> pa.Array:
    """Tell for each time, in ms since 1970, whether it lies in the years 1 to 9999; null stays null."""
    return pc.and_(pc.greater_equal(times, FIRST_RECORD_TIME_MS), pc.less_equal(times, LAST_RECORD_TIME_MS))


def _stored_times(times: pa.Array) -> pa.Array:
    return pc.if_else(has_storable_time(times), times, pa.scalar(None, pa.int64())).cast(RECORD_TIME)


# Formats in which a whole value or key is one column: bytes, text, or a JSON document.

_SYNTAX = msgspec.json.Decoder(msgspec.Raw)


class WholeBytes:
    """``raw``: the bytes untouched, also the empty ones."""

    def decode(self, values: pa.Array) -> DecodedPart:
        """Return the bytes."""
        return DecodedPart((values,))


class WholeText:
    """``text``: strict UTF-8, never with replacement characters.

    A column of another type, which a header may have, gets what a JSON string of these characters is.
    """

    def __init__(self, plan: ColumnPlan) -> None:
        self._plan = plan
        self._rule = converted(rule_for(plan.type), plan)

    def decode(self, values: pa.Array) -> DecodedPart:
        """Return the text, or the values that it names."""
        decode_errors = {row: self._not_utf8(values[row].as_py()) for row in invalid_utf8_rows(values)}
        texts = _without_rows(values, decode_errors).cast(pa.string())
        if isinstance(self._rule, TextRule):
            array, doubtful = texts, self._rule.doubtful(texts)
        else:
            array, doubtful = pa.nulls(len(texts), self._rule.arrow_type), positions(texts.is_valid())
        rows, cells = [], []
        for row in doubtful:
            try:
                cells.append(self._rule.exact(Characters(values[row].as_py())))
                rows.append(row)
            except DecodeError as decode_error:
                decode_errors[row] = decode_error.at(self._plan.place)
        return DecodedPart((with_rows_replaced(array, rows, pa.array(cells, array.type)),), decode_errors)

    def _not_utf8(self, value: bytes) -> DecodeError:
        detail = f"expected UTF-8, found {excerpt(value)}"
        return DecodeError(DeadLetterReason.NOT_UTF8, detail).at(self._plan.place)


class WholeJson:
    """``json``: one JSON document as jsonb. The bytes ``null`` are JSON null, not SQL NULL; no bytes are no JSON."""

    def __init__(self, plan: ColumnPlan) -> None:
        self._plan = plan
        self._rule = JsonbRule()

    def decode(self, values: pa.Array) -> DecodedPart:
        """Return the document's text."""
        invalid = invalid_utf8_rows(values)
        texts = _without_rows(values, invalid).cast(pa.string())
        doubtful = {*invalid, *self._rule.doubtful(texts), *_unreadable_rows(values)}
        decode_errors: dict[int, DecodeError] = {}
        rows, cells = [], []
        for row in sorted(doubtful):
            try:
                cells.append(self._rule.exact(checked_document(values[row].as_py())))
                rows.append(row)
            except DecodeError as decode_error:
                decode_errors[row] = decode_error.at(self._plan.place)
        return DecodedPart((with_rows_replaced(texts, rows, pa.array(cells, pa.string())),), decode_errors)


#: Decodes the bytes of one place, value or key: a null gives NULL in every column and no decode error.
PartDecoder = JsonColumns | WholeBytes | WholeText | WholeJson


def whole_part(value_format: ValueFormat | KeyFormat, plan: ColumnPlan) -> PartDecoder:
    """Return the decoder of a format that fills one column; ``json_columns`` is not one of them."""
    if value_format in (ValueFormat.RAW, KeyFormat.RAW):
        return WholeBytes()
    if value_format in (ValueFormat.TEXT, KeyFormat.TEXT):
        return WholeText(plan)
    return WholeJson(plan)


def _without_rows(values: pa.Array, rows: Iterable[int]) -> pa.Array:
    indices = sorted(rows)
    return with_rows_replaced(values, indices, pa.nulls(len(indices), values.type))


def _unreadable_rows(values: pa.Array) -> list[int]:
    rows = too_deep_rows(values)
    for row, document in enumerate(values.to_pylist()):
        if document is None:
            continue
        try:
            _SYNTAX.decode(document)
        except (msgspec.DecodeError, RecursionError):
            rows.append(row)
    return rows


# Typed columns that single headers fill.

#: Types and conversions that are read from a header's characters, as from a JSON string; all others from its JSON text.
_OF_CHARACTERS = frozenset(
    {
        *("text", "character varying", "uuid", "date", "time without time zone"),
        *("timestamp without time zone", "timestamp with time zone"),
        *(Conversion.NUMBER_TEXT, Conversion.JSON_TEXT, Conversion.HEX, Conversion.BASE64),
    }
)


class HeaderColumns:
    """Columns from headers: bytea takes their bytes, texts and times their characters, other types their JSON text.

    A header that a record does not have is missing; one with a null value is NULL, and so is JSON's null. Headers that
    the client library could not read make the record a dead letter.
    """

    def __init__(self, settings: BatchSettings, plans: Sequence[ColumnPlan]) -> None:
        columns = [column for column in settings.value.columns if column.source is ColumnSource.HEADER]
        self._columns = [(column, plan, _header_decoder(plan)) for column, plan in zip(columns, plans, strict=True)]

    def decode(self, batch: pa.RecordBatch) -> DecodedPart:
        """Return the columns for a batch of ``RECORD_SCHEMA``."""
        headers = batch.column("headers")
        pairs, rows = headers.flatten(), pc.list_parent_indices(headers)
        arrays: list[pa.Array] = []
        decode_errors = _unreadable_headers(batch, self._columns[0][1])
        for column, plan, decoder in self._columns:
            of_name = positions(pc.equal(pairs.field("name"), column.header))
            if column.occurrence is Occurrence.FIRST:
                of_name.reverse()  # of several the dict keeps the last
            kept = dict(zip(rows.take(pa.array(of_name, pa.int64())).to_pylist(), of_name, strict=True))
            found = pa.array(map(kept.get, range(len(batch))), pa.int64(), size=len(batch))
            part = _header_part(plan, decoder, pairs.field("value").take(found), positions(found.is_null()))
            arrays += part.arrays
            decode_errors = {**part.decode_errors, **decode_errors}
        return DecodedPart(tuple(arrays), decode_errors)


def _header_decoder(plan: ColumnPlan) -> PartDecoder:
    if plan.type.is_array:
        return JsonColumns([plan], place=plan.place)
    if plan.type.name == "bytea" and plan.conversion is None:
        return WholeBytes()
    if (plan.conversion or plan.type.name) in _OF_CHARACTERS:
        return WholeText(plan)
    return JsonColumns([plan], place=plan.place)


def _header_part(plan: ColumnPlan, decoder: PartDecoder, values: pa.Array, missing: list[int]) -> DecodedPart:
    part = decoder.decode(values.cast(pa.large_binary()))
    array = with_default(part.arrays[0], missing, default_of(plan))
    decode_errors = dict(part.decode_errors)
    if plan.refuses_null:
        absent = set(missing)
        for row in positions(pc.and_(values.is_null(), array.is_null())):
            decode_errors[row] = plan.null_error("nothing there" if row in absent else "null")
    return DecodedPart((array,), decode_errors)


# Kafka records into the target's columns: every record is a row, a dead letter, or a counted tombstone.


class RecordDecoder:
    """The decoder of one pipeline's ``RECORD_SCHEMA`` batches. Built once a task; keeps no state between batches.

    Strict: a value that is present is stored exactly or its record is a dead letter; nothing is rounded, truncated or
    turned into NULL. Of a record's faults one is reported: value before key, headers and record time, and by column
    order within the value.

    Args:
        settings: The batch's frozen settings.
        shape: The target's columns, which may be stricter about NULL than the settings.
        batch_id: The batch, for the rows' metadata.
    """

    def __init__(self, settings: BatchSettings, shape: TargetShape, *, batch_id: str) -> None:
        self._names = [column.name for column in written_columns(settings)]
        self._tombstones = settings.tombstones
        self._sources = [column.source for column in settings.value.columns]
        self._value_plans = column_plans(settings, shape, ColumnSource.VALUE)
        self._value = _value_part(settings, self._value_plans)
        self._key_plans = column_plans(settings, shape, ColumnSource.KEY)
        self._key_columns = JsonColumns(self._key_plans, place="the key") if self._key_plans else None
        header_plans = column_plans(settings, shape, ColumnSource.HEADER)
        self._header_columns = HeaderColumns(settings, header_plans) if header_plans else None
        self._key_plan = key_plan(settings, shape)
        self._key = whole_part(settings.key.format, self._key_plan) if settings.key and self._key_plan else None
        self._headers: Headers | None = None
        if settings.headers_column:
            self._headers = Headers(metadata_plan(settings.headers_column, "jsonb", "the headers", shape))
        self._metadata = Metadata(settings.metadata, shape, batch_id=batch_id)

    def decode(self, batch: pa.RecordBatch, *, generation: int) -> DecodedBatch:
        """Decode a batch of one topic's records.

        Args:
            batch: Records, one a row, in the schema ``RECORD_SCHEMA``; any number of rows.
            generation: Generation of the topic.
        """
        null_values = positions(batch.column("value").is_null())
        counted = null_values if self._tombstones is Tombstones.COUNT else []
        by_source, others = dict(self._column_parts(batch)), self._other_parts(batch, generation)
        decode_errors = self._tombstone_decode_errors(null_values)
        for part in (*by_source.values(), *others):
            decode_errors = {**part.decode_errors, **decode_errors}
        for row in counted:
            decode_errors.pop(row, None)
        left_out = {*decode_errors, *counted}
        kept = range(len(batch)) if not left_out else [row for row in range(len(batch)) if row not in left_out]
        arrays = [*self._in_order(by_source), *chain.from_iterable(part.arrays for part in others)]
        columns = pa.RecordBatch.from_arrays(arrays, self._names)
        dead = [Rejected(row, decode_errors[row].reason, decode_errors[row].detail) for row in sorted(decode_errors)]
        return DecodedBatch(columns.take(pa.array(kept, pa.int64())) if left_out else columns, kept, dead, counted)

    def _column_parts(self, batch: pa.RecordBatch) -> Iterator[tuple[ColumnSource, DecodedPart]]:
        yield ColumnSource.VALUE, self._value.decode(batch.column("value"))
        if self._key_columns:
            keys = batch.column("key")
            yield ColumnSource.KEY, _with_missing(self._key_columns.decode(keys), keys, self._key_plans)
        if self._header_columns:
            yield ColumnSource.HEADER, self._header_columns.decode(batch)

    def _in_order(self, by_source: Mapping[ColumnSource, DecodedPart]) -> list[pa.Array]:
        """Return the columns as the pipeline lists them, whatever fills them."""
        arrays = {source: iter(part.arrays) for source, part in by_source.items()}
        return [next(arrays[source]) for source in self._sources]

    def _other_parts(self, batch: pa.RecordBatch, generation: int) -> list[DecodedPart]:
        parts = []
        if self._key and self._key_plan:
            parts.append(_with_missing(self._key.decode(batch.column("key")), batch.column("key"), [self._key_plan]))
        if self._headers:
            parts.append(self._headers.decode(batch))
        return [*parts, self._metadata.decode(batch, generation=generation)]

    def _tombstone_decode_errors(self, rows: list[int]) -> dict[int, DecodeError]:
        if self._tombstones is Tombstones.DEAD_LETTER:
            detail = "the value: expected one, found a tombstone, which this pipeline makes a dead letter"
            decode_error = DecodeError(DeadLetterReason.TOMBSTONE, detail)
        elif self._tombstones is Tombstones.ROW and any(plan.refuses_null for plan in self._value_plans):
            plan = next(plan for plan in self._value_plans if plan.refuses_null)
            decode_error = plan.null_error("a tombstone (a null value)")
        else:
            return {}
        return dict.fromkeys(rows, decode_error)


def _with_missing(part: DecodedPart, keys: pa.Array, plans: Sequence[ColumnPlan]) -> DecodedPart:
    """Add the null keys whose records a column refuses."""
    plan = next((plan for plan in plans if plan.refuses_null), None)
    if plan is None or not keys.null_count:
        return part
    missing = {row: plan.null_error("a null key") for row in positions(keys.is_null())}
    return DecodedPart(part.arrays, {**part.decode_errors, **missing})


def _value_part(settings: BatchSettings, plans: Sequence[ColumnPlan]) -> PartDecoder:
    if settings.value.format is ValueFormat.JSON_COLUMNS:
        return JsonColumns(plans)
    return whole_part(settings.value.format, plans[0])

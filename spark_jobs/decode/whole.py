"""Whole pieces of a record as columns: a value or a key in one column, all headers in one, single headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSource,
    Conversion,
    KeyFormat,
    Occurrence,
    ValueFormat,
)
from spark_jobs.decode.conversions import converted
from spark_jobs.decode.documents import checked_document, too_deep_rows
from spark_jobs.decode.texts import JsonbRule, TextRule, default_of, rule_for
from spark_jobs.decode.values import (
    Characters,
    ColumnPlan,
    DecodedPart,
    DecodeError,
    PartDecoder,
    excerpt,
    invalid_utf8_rows,
    positions,
    positions_containing,
    unsupported_text,
    with_default,
    with_rows_replaced,
)

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

    Args:
        settings: The batch's frozen settings.
        plans: The columns.
        of_json: Makes the decoder of a column that is a whole JSON document.
    """

    def __init__(
        self, settings: BatchSettings, plans: Sequence[ColumnPlan], of_json: Callable[[ColumnPlan], PartDecoder]
    ) -> None:
        columns = [column for column in settings.value.columns if column.source is ColumnSource.HEADER]
        self._columns = [
            (column, plan, _header_decoder(plan) or of_json(plan)) for column, plan in zip(columns, plans, strict=True)
        ]

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


def _header_decoder(plan: ColumnPlan) -> PartDecoder | None:
    """Return the decoder of bytes or characters; ``None`` for a column of JSON."""
    if plan.type.is_array:
        return None
    if plan.type.name == "bytea" and plan.conversion is None:
        return WholeBytes()
    return WholeText(plan) if (plan.conversion or plan.type.name) in _OF_CHARACTERS else None


def _header_part(plan: ColumnPlan, decoder: PartDecoder, values: pa.Array, missing: list[int]) -> DecodedPart:
    part = decoder.decode(values.cast(pa.large_binary()))
    array = with_default(part.arrays[0], missing, default_of(plan))
    decode_errors = dict(part.decode_errors)
    if plan.refuses_null:
        absent = set(missing)
        for row in positions(pc.and_(values.is_null(), array.is_null())):
            decode_errors[row] = plan.null_error("nothing there" if row in absent else "null")
    return DecodedPart((array,), decode_errors)

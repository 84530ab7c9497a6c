"""Formats in which a whole value or key is one column: bytes, text, or a JSON document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec
import pyarrow as pa

from kafka_ingest.core.dead_letters import DeadLetterReason
from kafka_ingest.core.settings import KeyFormat, ValueFormat
from spark_jobs.decode.column_plan import ColumnPlan
from spark_jobs.decode.json_documents import checked_document, too_deep_rows
from spark_jobs.decode.jsonb import JsonbRule
from spark_jobs.decode.misfits import Misfit, excerpt
from spark_jobs.decode.parts import DecodedPart, invalid_utf8_rows, with_rows_replaced
from spark_jobs.decode.texts import TextRule

_SYNTAX = msgspec.json.Decoder(msgspec.Raw)


class PartDecoder(Protocol):
    """Decodes the bytes of one place, value or key."""

    def decode(self, values: pa.Array) -> DecodedPart:
        """Decodes a large_binary array; a null value gives NULL in every column and no misfit."""


class WholeBytes:
    """``raw``: the bytes untouched, also the empty ones."""

    def decode(self, values: pa.Array) -> DecodedPart:
        """Gives the bytes."""
        return DecodedPart((values,))


class WholeText:
    """``text``: strict UTF-8, never with replacement characters."""

    def __init__(self, plan: ColumnPlan) -> None:
        self._plan = plan
        self._rule = TextRule(plan.type.length)

    def decode(self, values: pa.Array) -> DecodedPart:
        """Gives the text."""
        misfits = {row: self._not_utf8(values[row].as_py()) for row in invalid_utf8_rows(values)}
        texts = _without_rows(values, misfits).cast(pa.string())
        for row in self._rule.doubtful(texts):
            try:
                text = texts[row].as_py()
                self._rule.check(text, text)
            except Misfit as misfit:
                misfits[row] = misfit.at(self._plan.place)
        return DecodedPart((texts,), misfits)

    def _not_utf8(self, value: bytes) -> Misfit:
        detail = f"expected UTF-8, found {excerpt(value)}"
        return Misfit(DeadLetterReason.NOT_UTF8, detail).at(self._plan.place)


class WholeJson:
    """``json``: one JSON document as jsonb. The bytes ``null`` are JSON null, not SQL NULL; no bytes are no JSON."""

    def __init__(self, plan: ColumnPlan) -> None:
        self._plan = plan
        self._rule = JsonbRule()

    def decode(self, values: pa.Array) -> DecodedPart:
        """Gives the document's text."""
        invalid = invalid_utf8_rows(values)
        texts = _without_rows(values, invalid).cast(pa.string())
        doubtful = {*invalid, *self._rule.doubtful(texts), *_unreadable_rows(values)}
        misfits: dict[int, Misfit] = {}
        rows, cells = [], []
        for row in sorted(doubtful):
            try:
                cells.append(self._rule.exact(checked_document(values[row].as_py())))
                rows.append(row)
            except Misfit as misfit:
                misfits[row] = misfit.at(self._plan.place)
        return DecodedPart((with_rows_replaced(texts, rows, pa.array(cells, pa.string())),), misfits)


def whole_part(value_format: ValueFormat | KeyFormat, plan: ColumnPlan) -> PartDecoder:
    """Gives the decoder of a format that fills one column; ``json_columns`` is none of them."""
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

"""The headers of a record as one jsonb column."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.core.dead_letters import DeadLetterReason
from spark_jobs.decode.column_plan import ColumnPlan
from spark_jobs.decode.json_values import positions, positions_containing
from spark_jobs.decode.misfits import Misfit, excerpt, unsupported_text
from spark_jobs.decode.parts import DecodedPart

_NO_HEADERS = b"[]"

#: Headers that are Python objects at once; each takes 300 bytes.
_BLOCK = 1_000


class Headers:
    """Writes headers as a JSON array of ``{"key": name, "value": base64 or null}``, in order, repeated names included.

    A record without headers gives ``[]``, never NULL. Headers that the client library could not read make the record a
    dead letter; a pipeline without a headers column does not look at them.
    """

    def __init__(self, plan: ColumnPlan) -> None:
        self._plan = plan

    def decode(self, batch: pa.RecordBatch) -> DecodedPart:
        """Gives the column for a batch of ``RECORD_SCHEMA``."""
        misfits = {row: self._unreadable() for row in positions(pc.invert(batch.column("headers_readable")))}
        headers = batch.column("headers")
        cells = [_NO_HEADERS] * len(headers)
        for row, pairs in _pairs_by_row(headers):
            cells[row] = _json(pairs)
        for row, name in _names_with_nul(headers):
            misfits.setdefault(row, unsupported_text(f"the header name {excerpt(name)}").at(self._plan.place))
        return DecodedPart((pa.array(cells, pa.string()),), misfits)

    def _unreadable(self) -> Misfit:
        detail = "expected header names in UTF-8, found names that are not"
        return Misfit(DeadLetterReason.UNREADABLE_HEADERS, detail).at(self._plan.place)


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

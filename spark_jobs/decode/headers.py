"""The headers of a record as one jsonb column."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.core.dead_letters import DeadLetterReason
from spark_jobs.decode.column_plan import ColumnPlan
from spark_jobs.decode.json_values import positions
from spark_jobs.decode.misfits import Misfit, excerpt, unsupported_text
from spark_jobs.decode.parts import DecodedPart

_NO_HEADERS = "[]"


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
            # msgspec writes bytes as base64 (RFC 4648, with padding).
            cells[row] = msgspec.json.encode([{"key": name, "value": value} for name, value in pairs]).decode()
            bad_name = next((name for name, _ in pairs if "\x00" in name), None)
            if bad_name is not None:
                misfits.setdefault(row, unsupported_text(f"the header name {excerpt(bad_name)}").at(self._plan.place))
        return DecodedPart((pa.array(cells, pa.string()),), misfits)

    def _unreadable(self) -> Misfit:
        detail = "expected header names in UTF-8, found names that are not"
        return Misfit(DeadLetterReason.UNREADABLE_HEADERS, detail).at(self._plan.place)


def _pairs_by_row(headers: pa.Array) -> Iterator[tuple[int, list[tuple[str, bytes | None]]]]:
    rows = positions(headers.is_valid())
    pairs = headers.flatten()
    names_and_values = zip(pairs.field("name").to_pylist(), pairs.field("value").to_pylist(), strict=True)
    for row, count in zip(rows, pc.list_value_length(headers).drop_null().to_pylist(), strict=True):
        yield row, list(islice(names_and_values, count))

"""Dead letters as staging stores them: original bytes, ordered headers, record time as it came."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.core.staging import Subrange
from spark_jobs.decode.decoded import DeadRow
from spark_jobs.records import CREATE_TIME, LOG_APPEND_TIME

#: Enough for a path and an excerpt; a detail is for a person.
MAX_DETAIL_CHARACTERS = 500

#: Types of the columns of :func:`dead_letter_rows` and of the two that tell the task; arrays are lists.
DEAD_LETTER_TYPES = (
    *("text", "integer", "integer", "bigint", "bigint", "text", "bytea", "bytea", "text[]", "bytea[]", "text", "text"),
    *("integer", "bigint"),
)

_RENAMED = "(a header name is stored with U+0000 as \\u0000) "
_RENAMED_ASCII = "(a header name is stored with all but ASCII as escapes) "

_TIME_TYPES = {CREATE_TIME: "create", LOG_APPEND_TIME: "log_append"}


def storable_text(text: str, *, is_ascii: bool = False) -> str:
    """Gives text that PostgreSQL can hold: U+0000 and lone surrogates, or all but ASCII, are written as escapes."""
    encoding = "ascii" if is_ascii else "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding).replace("\x00", "\\u0000")


def storable_detail(detail: str, *, is_ascii: bool = False) -> str:
    """Gives a detail that PostgreSQL can hold, cut to 500 characters."""
    return storable_text(detail, is_ascii=is_ascii)[:MAX_DETAIL_CHARACTERS]


def dead_letter_rows(
    records: pa.RecordBatch, dead: Sequence[DeadRow], subrange: Subrange, *, is_ascii: bool = False
) -> pa.RecordBatch:
    """Builds rows for the table of dead letters, in the order of ``dead``, without the columns that tell the task.

    Headers are empty arrays when the record has none, and NULL when the client library could not read them.
    PostgreSQL holds no U+0000, so a header name with it is written with an escape and the detail says so. A database
    in another encoding than UTF8 may hold less: every one holds ASCII.

    Args:
        records: Records as the reader gave them (``RECORD_SCHEMA``).
        dead: The records that do not fit; ``row_index`` counts in ``records``.
        subrange: Where the records come from.
        is_ascii: Write all but ASCII as escapes, in details and header names; key and value are bytes in any case.
    """
    count = len(dead)
    chosen = records.take(pa.array([row.row_index for row in dead], pa.int64()))
    names, values, renamed = _headers(chosen, is_ascii=is_ascii)
    note = _RENAMED_ASCII if is_ascii else _RENAMED
    return pa.RecordBatch.from_pydict(
        {
            "topic": chosen.column("topic"),
            "generation": pa.array([subrange.generation] * count, pa.int32()),
            "partition": chosen.column("partition"),
            "offset": chosen.column("offset"),
            "record_time_ms": chosen.column("timestamp_ms"),
            "record_time_type": _texts(_TIME_TYPES.get(kind) for kind in chosen.column("timestamp_type").to_pylist()),
            "key": chosen.column("key"),
            "value": chosen.column("value"),
            "header_names": names,
            "header_values": values,
            "reason": _texts(row.reason.value for row in dead),
            "detail": _texts(
                storable_detail((note if index in renamed else "") + row.detail, is_ascii=is_ascii)
                for index, row in enumerate(dead)
            ),
        }
    )


def _texts(values: object) -> pa.Array:
    return pa.array(values, pa.string())


def _headers(records: pa.RecordBatch, *, is_ascii: bool) -> tuple[pa.Array, pa.Array, set[int]]:
    """Gives names and values as lists, and the rows in which a name had to be written in another way.

    Lists and not objects: of many small headers those would take 50 x the bytes.
    """
    headers = records.column("headers")
    unreadable = pc.invert(records.column("headers_readable"))
    pairs, offsets = headers.values, headers.offsets
    original = pairs.field("name")
    stored = _ascii_names(original) if is_ascii else pc.replace_substring(original, "\x00", "\\u0000")
    listed = (pa.ListArray.from_arrays(offsets, part, mask=unreadable) for part in (stored, pairs.field("value")))
    renamed = pc.list_parent_indices(headers).filter(pc.not_equal(stored, original))
    return *listed, set(renamed.to_pylist())


def _ascii_names(names: pa.Array) -> pa.Array:
    return pa.array((storable_text(name, is_ascii=True) for name in names.to_pylist()), pa.string())

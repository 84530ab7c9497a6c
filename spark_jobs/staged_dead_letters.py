"""Dead letters as staging stores them: original bytes, ordered headers, record time as it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from kafka_ingest.core.staging import Subrange
from spark_jobs.copy_format import array_literal, bytea_array_literal
from spark_jobs.decode.decoded import DeadRow
from spark_jobs.records import CREATE_TIME, LOG_APPEND_TIME

#: Enough for a path and an excerpt; a detail is for a person.
MAX_DETAIL_CHARACTERS = 500

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
    headers = [
        _headers(listed, is_readable, is_ascii)
        for listed, is_readable in zip(
            chosen.column("headers").to_pylist(), chosen.column("headers_readable").to_pylist(), strict=True
        )
    ]
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
            "header_names": _texts(names for names, _, _ in headers),
            "header_values": _texts(values for _, values, _ in headers),
            "reason": _texts(row.reason.value for row in dead),
            "detail": _texts(
                storable_detail(note + row.detail, is_ascii=is_ascii)
                for row, (_, _, note) in zip(dead, headers, strict=True)
            ),
        }
    )


def _texts(values: object) -> pa.Array:
    return pa.array(values, pa.string())


def _headers(
    listed: Sequence[Mapping[str, str | bytes | None]] | None, is_readable: bool, is_ascii: bool
) -> tuple[str | None, str | None, str]:
    if not is_readable:
        return None, None, ""
    names = [str(header["name"]) for header in listed or ()]
    stored = [storable_text(name, is_ascii=is_ascii) for name in names]
    values = [value if isinstance(value := header["value"], bytes) else None for header in listed or ()]
    written = "all but ASCII as escapes" if is_ascii else "U+0000 as \\u0000"
    note = "" if stored == names else f"(a header name is stored with {written}) "
    return array_literal(stored), bytea_array_literal(values), note

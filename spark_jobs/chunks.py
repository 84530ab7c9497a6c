"""Cuts what a reader gives into chunks of the size that one COPY takes, whatever the size of the reader's batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

#: 10,000 records make the cost of a COPY and its savepoint small (2 µs a row, ``copy_binary.py``); 8 MB keep a
#: task's memory small when records are large.
MAX_RECORDS = 10_000
MAX_BYTES = 8 * 1024 * 1024


def chunks(
    batches: Iterable[pa.RecordBatch], *, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES
) -> Iterator[pa.RecordBatch]:
    """Joins small batches and cuts large ones; every record once, in the same order.

    A chunk holds at most ``max_records`` records and ``max_bytes`` bytes, except that a record larger than that is a
    chunk of its own. At most one chunk and one batch of the reader are in memory.
    """
    waiting: list[pa.RecordBatch] = []
    records = size = 0
    for piece in (piece for batch in batches for piece in _pieces(batch, max_records, max_bytes)):
        if waiting and (records + piece.num_rows > max_records or size + piece.nbytes > max_bytes):
            yield _joined(waiting)
            waiting, records, size = [], 0, 0
        waiting.append(piece)
        records, size = records + piece.num_rows, size + piece.nbytes
    if waiting:
        yield _joined(waiting)


def _pieces(batch: pa.RecordBatch, max_records: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    if batch.num_rows == 1 or (batch.num_rows <= max_records and batch.nbytes <= max_bytes):
        yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half), max_records, max_bytes)
    yield from _pieces(batch.slice(half), max_records, max_bytes)


def _joined(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(pieces) == 1:
        return pieces[0]
    return pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]

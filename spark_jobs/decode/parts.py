"""A part of a batch: the columns that come from one place (value, key, headers, metadata), at full length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from spark_jobs.decode.misfits import Misfit


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """Columns of one place.

    Attributes:
        arrays: One array a column, each as long as the input batch; what stands at a misfit's row means nothing.
        misfits: Why a row does not fit, by input row.
    """

    arrays: tuple[pa.Array, ...]
    misfits: Mapping[int, Misfit] = field(default_factory=dict)


def invalid_utf8_rows(values: pa.Array) -> list[int]:
    """Gives the rows of a large_binary array whose bytes are not UTF-8; null is fine.

    The whole array is checked in one pass; rows are looked at one by one only when that pass found a fault.
    """
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return [row for row, value in enumerate(values.to_pylist()) if value is not None and not _is_utf8(value)]
    return []


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def with_rows_replaced(array: pa.Array, rows: list[int], replacements: pa.Array) -> pa.Array:
    """Gives ``array`` with ``replacements[i]`` at ``rows[i]``; ``rows`` rise."""
    if not rows:
        return array
    order = list(range(len(array)))
    for place, row in enumerate(rows, start=len(array)):
        order[row] = place
    return pa.concat_arrays([array, replacements]).take(pa.array(order, pa.int64()))

"""The part of a batch that typed JSON columns give: the quick reading, and the exact reading of what it doubts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.column_plan import ColumnPlan
from spark_jobs.decode.decoded import arrow_type
from spark_jobs.decode.json_documents import too_deep_rows
from spark_jobs.decode.json_paths import ExactReader, path_tree
from spark_jobs.decode.json_quick import QuickReader
from spark_jobs.decode.json_values import positions
from spark_jobs.decode.misfits import Misfit
from spark_jobs.decode.parts import DecodedPart, invalid_utf8_rows, with_rows_replaced
from spark_jobs.decode.type_rules import rule_for
from spark_jobs.decode.value_rules import Cell, ValueRule

# Stands for a document that the quick reading must not see; its record is read in the exact way anyway.
_NOTHING = b"{}"


class JsonColumns:
    """Decodes JSON values into typed columns by JSON path.

    Args:
        plans: The columns, in their order.
        quick: Whether columns are read the quick way first; without it every record is read in the exact way, with
            the same outcome.
    """

    def __init__(self, plans: Sequence[ColumnPlan], *, quick: bool = True) -> None:
        self._plans = plans
        self._rules = [rule_for(plan.type) for plan in plans]
        self._types = [arrow_type(plan.type) for plan in plans]
        self._exact = ExactReader(plans, self._rules)
        self._quick = _quick_reader(plans, self._rules) if quick else None

    def decode(self, values: pa.Array) -> DecodedPart:
        """Decodes a large_binary array; a null value gives NULL in every column and no misfit."""
        if not values.null_count:
            return self._decode_present(values)
        rows = positions(values.is_valid())
        part = self._decode_present(values.drop_null())
        places: list[int | None] = [None] * len(values)
        for place, row in enumerate(rows):
            places[row] = place
        spread = pa.array(places, pa.int64())
        return DecodedPart(
            tuple(array.take(spread) for array in part.arrays),
            {rows[place]: misfit for place, misfit in part.misfits.items()},
        )

    def _decode_present(self, values: pa.Array) -> DecodedPart:
        documents = values.to_pylist()
        unreadable = [*invalid_utf8_rows(values), *too_deep_rows(values)]
        arrays, doubtful = self._read_quickly(documents, unreadable)
        misfits: dict[int, Misfit] = {}
        rows: list[int] = []
        records: list[list[Cell | None]] = []
        for row in doubtful:
            try:
                records.append(self._exact.read(documents[row]))
                rows.append(row)
            except Misfit as misfit:
                misfits[row] = misfit
        columns = zip(*records, strict=True) if records else ((),) * len(arrays)
        exact = [pa.array(column, of) for column, of in zip(columns, self._types, strict=True)]
        merged = (with_rows_replaced(array, rows, cells) for array, cells in zip(arrays, exact, strict=True))
        return DecodedPart(tuple(merged), misfits)

    def _read_quickly(self, documents: list[bytes], unreadable: list[int]) -> tuple[list[pa.Array], list[int]]:
        if self._quick is None:
            return [pa.nulls(len(documents), of) for of in self._types], list(range(len(documents)))
        readable = list(documents) if unreadable else documents
        for row in unreadable:
            readable[row] = _NOTHING
        sheet = self._quick.read(readable)
        sheet.doubtful.update(unreadable)
        arrays = []
        for plan, rule, cells in zip(self._plans, self._rules, sheet.columns, strict=True):
            column = rule.quick(cells)
            sheet.doubtful.update(column.doubtful)
            if plan.refuses_null and column.array.null_count:
                sheet.doubtful.update(positions(pc.is_null(column.array)))
            arrays.append(column.array)
        return arrays, sorted(sheet.doubtful)


def _quick_reader(plans: Sequence[ColumnPlan], rules: Sequence[ValueRule]) -> QuickReader | None:
    try:
        return QuickReader(path_tree(plans), rules)
    except ValueError:
        return None

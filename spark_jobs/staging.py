"""The staging table: write a chunk into it, and find the records that PostgreSQL refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg2
import pyarrow as pa
import pyarrow.compute as pc
from psycopg2 import errorcodes, sql

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason, TargetMismatch
from kafka_ingest.postgres.database import Identifiers, query_with_identifiers, run_query
from kafka_ingest.postgres.refusals import check_detail, is_bad_data, not_null_detail, raised_by, refusal, was_raised
from kafka_ingest.postgres.staging_tables import staging_table
from kafka_ingest.protocol.staging import Split, StageContext
from kafka_ingest.protocol.target import TargetShape
from spark_jobs.copy_format import CSV, CopyFormat, array_literal, binary_format
from spark_jobs.decode.fields import NotBinaryError
from spark_jobs.decode.values import DecodedBatch, Rejected
from spark_jobs.records import TIME_TYPE_NAMES

# Finds the rows of a chunk that the target's NOT NULLs and CHECKs refuse, and says why PostgreSQL refused a row.


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A constraint of the target, and what a dead letter says that it refuses."""

    is_violated: sql.Composable
    reason: DeadLetterReason
    detail: str


class Violations:
    """The rows of the session's chunk table that violate the target's constraints.

    Args:
        shape: The target's columns and CHECKs.
        offset_column: Column that identifies a row within a chunk.
    """

    def __init__(self, shape: TargetShape, offset_column: str) -> None:
        self._constraints = _constraints(shape)
        self._names = {
            "offset": sql.Identifier(offset_column),
            "constraints": sql.SQL(", ").join([constraint.is_violated for constraint in self._constraints]),
        }

    def find(self, cursor: Any) -> Sequence[tuple[int, _Constraint]]:
        """Return the offset of each violating row, rising, and the first constraint that refuses it.

        Reads the whole chunk table once.
        """
        if not self._constraints:
            return ()
        run_query(cursor, "chunk_violations", self._names)
        return [(offset, self._constraints[violated.index(True)]) for offset, violated in cursor.fetchall()]


def _constraints(shape: TargetShape) -> list[_Constraint]:
    """Return NOT NULLs, then CHECKs."""
    not_nulls = [
        _Constraint(
            sql.SQL("({} IS NULL)").format(sql.Identifier(column.name)),
            DeadLetterReason.NOT_NULL_VIOLATION,
            not_null_detail(column.name),
        )
        for column in shape.columns
        if column.is_not_null
    ]
    # A CHECK refuses a row only where it is false; NULL passes. The expression is the catalog's own text.
    return not_nulls + [
        _Constraint(
            sql.SQL("(({}) IS FALSE)").format(sql.SQL(check.expression)),
            DeadLetterReason.CHECK_VIOLATION,
            check_detail(check),
        )
        for check in shape.checks
    ]


# Dead letters as staging stores them: original bytes, ordered headers, record time as it came.

#: Enough for a path and an excerpt; a detail is for a person.
MAX_DETAIL_CHARACTERS = 500

#: Types of the columns of :func:`dead_letter_rows` and of the two that identify the task; arrays are lists.
DEAD_LETTER_TYPES = (
    *("text", "integer", "integer", "bigint", "bigint", "text", "bytea", "bytea", "text[]", "bytea[]", "text", "text"),
    *("integer", "bigint"),
)

_RENAMED = "(a header name is stored with U+0000 as \\u0000) "
_RENAMED_ASCII = "(a header name is stored with all but ASCII as escapes) "


def renaming_note(detail: str) -> str:
    """Return what the detail of a dead letter begins with where header names are not stored as they were, else ""."""
    return next((note for note in (_RENAMED, _RENAMED_ASCII) if detail.startswith(note)), "")


def storable_text(text: str, *, is_ascii: bool = False) -> str:
    """Return text that PostgreSQL can hold: U+0000 and lone surrogates, or all but ASCII, are written as escapes."""
    encoding = "ascii" if is_ascii else "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding).replace("\x00", "\\u0000")


def storable_detail(detail: str, *, is_ascii: bool = False) -> str:
    """Return a detail that PostgreSQL can hold, cut to 500 characters."""
    return storable_text(detail, is_ascii=is_ascii)[:MAX_DETAIL_CHARACTERS]


def dead_letter_rows(
    records: pa.RecordBatch, dead: Sequence[Rejected], split: Split, *, is_ascii: bool = False
) -> pa.RecordBatch:
    """Build rows for the table of dead letters, in the order of ``dead``, without the columns that identify the task.

    Headers are empty arrays when the record has none, and NULL when the client library could not read them.
    PostgreSQL holds no U+0000, so a header name with it is written with an escape, and the detail says so. A database
    in an encoding other than UTF8 may hold less: every encoding holds ASCII.

    Args:
        records: Records as the reader gave them (``RECORD_SCHEMA``).
        dead: The records that do not fit; ``row_index`` counts in ``records``.
        split: Where the records come from.
        is_ascii: Write all but ASCII as escapes, in details and header names; key and value are bytes in any case.
    """
    count = len(dead)
    chosen = records.take(pa.array([row.row_index for row in dead], pa.int64()))
    names, values, renamed = _headers(chosen, is_ascii=is_ascii)
    note = _RENAMED_ASCII if is_ascii else _RENAMED
    return pa.RecordBatch.from_pydict(
        {
            "topic": chosen.column("topic"),
            "generation": pa.array([split.generation] * count, pa.int32()),
            "partition": chosen.column("partition"),
            "offset": chosen.column("offset"),
            "record_time_ms": chosen.column("timestamp_ms"),
            "record_time_type": _texts(
                TIME_TYPE_NAMES.get(kind) for kind in chosen.column("timestamp_type").to_pylist()
            ),
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
    """Return names and values as lists, and the rows in which a name had to be written with escapes.

    Lists and not objects: for many small headers objects would take 50 x the bytes.
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


# Puts decoded rows and dead letters into the attempt's staging tables, within the task's one transaction.
#
# A chunk is copied into a table that has the target's NOT NULLs and CHECKs. PostgreSQL's answer then decides:
#
# * NOT NULL or CHECK violated: the chunk goes into a table without constraints, one SELECT names the rows that violate
#   them, the others are moved on;
# * another error of the data (SQLSTATE class 22, 23 or 54): the chunk is halved until single records remain;
# * an error that a function of the target raises: the chunk is halved, and the task stops at the record;
# * everything else is a fault of the database, never a dead letter.

_FOUND_BY_SELECT = {errorcodes.NOT_NULL_VIOLATION, errorcodes.CHECK_VIOLATION}

_COPY_BUFFER_BYTES = 1 << 16

#: Not as text: a record above 512 MB would be more than 1 GB of hexadecimal digits, which no field holds.
_DEAD_LETTER_FORMAT = binary_format(DEAD_LETTER_TYPES, arrays_are_lists=True) or CSV

#: Parts of the staging tables that decoded records go to.
_ROWS, _PARTIAL, _DELETES = "rows", "partial", "deletes"

_TAG_TYPES = {
    "stage_missing": "text[]",
    "stage_may_be_null": "boolean",
    "stage_task": "integer",
    "stage_attempt": "bigint",
}


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Rows with all columns of the staging table, and for each its index in the reader's chunk."""

    rows: pa.RecordBatch
    row_index: Sequence[int]

    def halves(self) -> tuple[_Chunk, _Chunk]:
        middle = len(self.row_index) // 2
        return (
            _Chunk(self.rows.slice(0, middle), self.row_index[:middle]),
            _Chunk(self.rows.slice(middle), self.row_index[middle:]),
        )


class StagingWriter:
    """The writer of one task attempt's rows and dead letters. Nothing is durable before the caller commits.

    psycopg2's errors pass through when they are faults of the database; wrap calls with ``database_faults``. An error
    that a function of the target raises is a ``TargetMismatch`` that names the record.

    Args:
        connection: Connection with the task's transaction open.
        stem: Stem of the names of the attempt's staging tables.
        context: The attempt's settings and the target's shape.
        stage_task: Index of the Spark task.
        stage_attempt: Spark's id of the task attempt.
    """

    def __init__(self, connection: Any, stem: str, context: StageContext, stage_task: int, stage_attempt: int) -> None:
        self._cursor = connection.cursor()
        self._reads_utf8 = connection.info.parameter_status("client_encoding") == "UTF8"
        self._tables = {part: staging_table(stem, part) for part in (_ROWS, _PARTIAL, _DELETES)}
        self._dead_letters, self._letters = staging_table(stem, "dead_letters"), staging_table(stem, "letters")
        self._counted = staging_table(stem, "counted")
        self._tag = (stage_task, stage_attempt)
        self._shape = context.target
        self._settings = context.settings
        self._batch_id = context.batch_id
        self._formats: dict[str, CopyFormat] = {}
        self._offset = context.settings.metadata.offset
        self._violations = Violations(context.target, self._offset)
        self._has_chunk_table = False

    def write(self, decoded: DecodedBatch) -> Sequence[Rejected]:
        """Stage the rows of one chunk of one partition, with rising offsets.

        Returns:
            The rows that the target's constraints or PostgreSQL itself refuse, by rising index; they are not staged.
        """
        if not decoded.columns.num_rows:
            return ()
        return tuple(self._stage(_Chunk(self._tagged(decoded.columns), decoded.row_index), _ROWS))

    def write_partial(self, records: pa.RecordBatch, decoded: DecodedBatch, split: Split) -> Sequence[Rejected]:
        """Stage the rows of one chunk with values that did not travel, as :meth:`write` stages rows.

        With each its bytes are staged: where nobody knows the values, it becomes a dead letter.

        Args:
            records: The chunk as the reader gave it.
            decoded: The same, decoded.
            split: Where the chunk comes from.
        """
        if decoded.partial is None or not decoded.partial_index:
            return ()
        apart = [decoded.unavailable[row] for row in decoded.partial_index]
        names = [array_literal(name.encode() for name in of.columns).decode() for of in apart]
        missing = pa.array(names, pa.string())
        may_be_null = pa.array([of.may_be_null for of in apart], pa.bool_())
        rows = decoded.partial.append_column("stage_missing", missing).append_column("stage_may_be_null", may_be_null)
        refused = tuple(self._stage(_Chunk(self._tagged(rows), decoded.partial_index), _PARTIAL))
        known = {row.row_index for row in refused}
        letters = [
            Rejected(row, DeadLetterReason.VALUE_DID_NOT_TRAVEL, decoded.unavailable[row].detail)
            for row in decoded.partial_index
            if row not in known
        ]
        self._write_dead_letters(self._letters, records, letters, split)
        return refused

    def write_deletes(self, decoded: DecodedBatch) -> Sequence[Rejected]:
        """Stage the deletes of one chunk, as :meth:`write` stages rows; return those that PostgreSQL refuses."""
        if decoded.deletes is None or not decoded.delete_index:
            return ()
        return tuple(self._stage(_Chunk(self._tagged(decoded.deletes), decoded.delete_index), _DELETES))

    def write_dead_letters(self, records: pa.RecordBatch, dead: Sequence[Rejected], split: Split) -> None:
        """Stage dead letters with their original bytes.

        Args:
            records: The chunk as the reader gave it.
            dead: Which of its records, and why.
            split: Where the chunk comes from.
        """
        self._write_dead_letters(self._dead_letters, records, dead, split)

    def _write_dead_letters(
        self, table: sql.Identifier, records: pa.RecordBatch, dead: Sequence[Rejected], split: Split
    ) -> None:
        if not dead:
            return

        def copy(*, is_ascii: bool) -> None:
            rows = self._tagged(dead_letter_rows(records, dead, split, is_ascii=is_ascii))
            self._copy(table, rows, _DEAD_LETTER_FORMAT if self._reads_utf8 else CSV)

        if self._refusal(lambda: copy(is_ascii=False)):
            # The database's encoding cannot hold a detail or the name of a header (22P05).
            copy(is_ascii=True)

    def write_counted(self, records: pa.RecordBatch, tombstones: Sequence[int], split: Split) -> None:
        """Stage the identities of records that are only counted, where the batch replaces what they were before.

        Args:
            records: The chunk as the reader gave it.
            tombstones: Which of its records are counted.
            split: Where the chunk comes from.
        """
        counted = records.select(["topic", "partition", "offset"]).take(pa.array(tombstones, pa.int64()))
        counted = counted.filter(pc.less(counted.column("offset"), split.replaced_to))
        if counted.num_rows:
            generation = pa.array([split.generation] * counted.num_rows, pa.int32())
            self._copy(self._counted, self._tagged(counted.append_column("generation", generation)))

    def _tagged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        task, attempt = self._tag
        return pa.RecordBatch.from_arrays(
            [
                *rows.columns,
                pa.repeat(pa.scalar(task, pa.int32()), rows.num_rows),
                pa.repeat(pa.scalar(attempt, pa.int64()), rows.num_rows),
            ],
            names=[*rows.schema.names, "stage_task", "stage_attempt"],
        )

    def _stage(self, chunk: _Chunk, part: str) -> Iterator[Rejected]:
        error = self._refusal(lambda: self._copy_chunk(self._tables[part], chunk.rows, part))
        if error is None:
            return
        if len(chunk.row_index) == 1:
            if was_raised(error):
                raise self._raised(error, chunk) from None
            yield Rejected(chunk.row_index[0], *refusal(error, self._shape.checks))
            return
        if part == _ROWS and error.pgcode in _FOUND_BY_SELECT:
            violating = self._stage_all_but_violating(chunk)
            if violating is not None:
                yield from violating
                return
        for half in chunk.halves():
            yield from self._stage(half, part)

    def _raised(self, error: psycopg2.Error, chunk: _Chunk) -> TargetMismatch:
        metadata, target = self._settings.metadata, self._settings.target
        names = (metadata.topic, metadata.partition, metadata.offset)
        topic, partition, offset = (chunk.rows.column(name)[0].as_py() for name in names)
        return TargetMismatch(
            f"a function of the target {target} raised an error for a record; nothing was published",
            expected="functions of CHECKs and generated columns that refuse a record by false or SQLSTATE class 22",
            found=f"{topic}[{partition}] offset {offset}: {raised_by(error)}",
            next_command="let the function give false for such a record, which makes it a dead letter, then clear"
            " load_batch; how to pass the record: docs/runbook.md, section TargetMismatch",
            batch_id=self._batch_id,
        )

    def _stage_all_but_violating(self, chunk: _Chunk) -> Sequence[Rejected] | None:
        """Stage the rows without a violation and return the others; ``None`` when the data also has another fault."""
        self._empty_chunk_table()
        found: list[Rejected] = []

        def move() -> None:
            self._copy_chunk(sql.Identifier("pg_temp", "kafka_ingest_chunk"), chunk.rows, _ROWS)
            index_of = dict(zip(chunk.rows.column(self._offset).to_pylist(), chunk.row_index, strict=True))
            violating = self._violations.find(self._cursor)
            found.extend(Rejected(index_of[offset], by.reason, by.detail) for offset, by in violating)
            names: Identifiers = {
                "rows": self._tables[_ROWS],
                "columns": _names(chunk.rows),
                "offset": sql.Identifier(self._offset),
                "refused": sql.Literal([offset for offset, _ in violating]),
            }
            run_query(self._cursor, "stage_valid_rows", names)

        return found if self._refusal(move) is None else None

    def _empty_chunk_table(self) -> None:
        if self._has_chunk_table:
            run_query(self._cursor, "empty_chunk_table")
            return
        run_query(self._cursor, "create_chunk_table", {"rows": self._tables[_ROWS]})
        for column in self._shape.columns:
            if column.is_not_null:
                run_query(self._cursor, "allow_chunk_nulls", {"column": sql.Identifier(column.name)})
        self._has_chunk_table = True

    def _copy_chunk(self, table: sql.Identifier, rows: pa.RecordBatch, part: str) -> None:
        """Copy a chunk into a staging table, or into the chunk table, which has the columns of that for rows."""
        if part not in self._formats:
            self._formats[part] = self._format_for(self._tables[part], rows.schema.names)
        try:
            self._copy(table, rows, self._formats[part])
        except NotBinaryError:  # nothing was sent; PostgreSQL says what is wrong with the text
            self._copy(table, rows)

    def _format_for(self, staging: sql.Identifier, names: Sequence[str]) -> CopyFormat:
        """Choose binary where the staging table's columns have exactly the decoded types, else CSV.

        The target's type may be a wider one, into which PostgreSQL reads the same text but not the same bytes. Text
        inside the binary format is read in the session's encoding (``pq_getmsgtext``): COPY's option does not count.
        """
        table = sql.Literal(staging.as_string(self._cursor.connection))
        run_query(self._cursor, "staging_column_types", {"rows": table})
        types = dict(self._cursor.fetchall())
        decoded = {**{column.name: column.type for column in self._shape.columns}, **_TAG_TYPES}
        if not self._reads_utf8 or any(types.get(name) != parse_column_type(decoded[name]).sql for name in names):
            return CSV
        return binary_format([types[name] for name in names]) or CSV

    def _copy(self, table: sql.Identifier, rows: pa.RecordBatch, copy_format: CopyFormat = CSV) -> None:
        data = copy_format.encode(rows)
        statement = query_with_identifiers(
            "queries/copy_into_staging",
            staging_table=table,
            columns=_names(rows),
            options=sql.SQL(copy_format.options),
        )
        self._cursor.copy_expert(statement, data, size=_COPY_BUFFER_BYTES)

    def _refusal(self, action: Callable[[], None]) -> psycopg2.Error | None:
        """Run an action in a savepoint; return its error, with the action undone, when some record is the cause."""
        self._cursor.execute("SAVEPOINT chunk")
        try:
            action()
        except psycopg2.Error as error:
            if not is_bad_data(error) and not was_raised(error):
                raise
            self._cursor.execute("ROLLBACK TO SAVEPOINT chunk")
            self._cursor.execute("RELEASE SAVEPOINT chunk")
            return error
        self._cursor.execute("RELEASE SAVEPOINT chunk")
        return None


def _names(rows: pa.RecordBatch) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, rows.schema.names))

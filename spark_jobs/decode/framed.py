"""Values and keys that name their schema in a registry: Avro, Protobuf and JSON Schema.

Each record is read with the schema that it was written with, so a batch may hold many. A schema turns its records into
JSON documents, which the columns read by path like any other; Avro and Protobuf give whole columns where they surely
can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.kafka.registry import (
    NUMBER_FRAME,
    RegisteredSchema,
    SchemaRegistry,
    UnusableSchema,
    frame_length,
    missing_package,
    schema_id_of,
)
from spark_jobs.decode.paths import PathNode, TypeOf, WatchedColumns
from spark_jobs.decode.values import (
    INFINITY_NUMBER,
    NAN_NUMBER,
    NEGATIVE_INFINITY_NUMBER,
    ColumnPlan,
    DecodedPart,
    DecodeError,
    QuickColumn,
    excerpt,
    positions,
)

#: Behind the end of every value (Arrow 26 fails on a slice without an end).
_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Schema:
    """How the records of a schema are read. A payload is what follows the schema's number or GUID.

    Attributes:
        documents: Returns each record as a JSON document, or why it is none; ``None`` where payloads are documents.
        quick_columns: Returns whole columns of a large_binary array without null, or ``None`` where records must be
            read as documents.
        may_have_others: Tells whether documents may have members that a tree does not have, where whole columns may be
            read; what is not sure may be.
        types: Returns, for each payload of a large_binary array, what tells the types of columns for the members of its
            document; ``None`` where a schema promises nothing.
    """

    documents: Callable[[Sequence[bytes]], Sequence[bytes | DecodeError]] | None = None
    quick_columns: Callable[[pa.Array, Sequence[ColumnPlan]], Sequence[QuickColumn] | None] | None = None
    may_have_others: Callable[[PathNode], bool] | None = None
    types: Callable[[pa.Array], Sequence[TypeOf]] | None = None


class Schemas:
    """The schemas of one format, each fetched and parsed once a process.

    Args:
        registry: Where they are.
        kind: The registry's name of the format.
        subject: The subject that they must be registered under, if any.
        opened: Parses one; ``UnusableSchema`` where it cannot.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        kind: str,
        subject: str | None,
        opened: Callable[[str, RegisteredSchema], Schema],
    ) -> None:
        self._registry = registry
        self._opened = opened
        self._kind = kind
        self._subject = subject
        self._known: dict[int | str, Schema | DecodeError] = {}

    def get(self, schema_id: int | str) -> Schema | DecodeError:
        """Return a schema, or why the records that name it are dead letters.

        Raises:
            RegistryUnavailable, ConfigError, SchemaMissing: The registry gives no answer about it.
        """
        if schema_id not in self._known:
            self._known[schema_id] = self._fetched(schema_id)
        return self._known[schema_id]

    def _fetched(self, schema_id: int | str) -> Schema | DecodeError:
        found = self._registry.schema(schema_id)
        if found.kind != self._kind:
            return _malformed(f"a schema of the kind {self._kind}", f"schema {schema_id} of the kind {found.kind}")
        if self._subject and not self._registry.is_registered(schema_id, self._subject):
            return _malformed(f"a schema of the subject {self._subject}", f"schema {schema_id}, which is none of it")
        try:
            return self._opened(self._kind, found)
        except ImportError as error:
            raise missing_package(error) from None
        except UnusableSchema as error:
            return _malformed("a schema that can be read", f"schema {schema_id}: {error}")


_NAMES = {NAN_NUMBER: "NaN", NEGATIVE_INFINITY_NUMBER: "-Infinity", INFINITY_NUMBER: "Infinity"}


def _readable(error: DecodeError) -> DecodeError:
    """Name NaN and the infinities, which documents spell as numbers, in a detail."""
    detail = error.detail
    for number, name in _NAMES.items():
        detail = detail.replace(number.decode(), name)
    return DecodeError(error.reason, detail)


def _malformed(expected: str, found: str) -> DecodeError:
    return DecodeError(DeadLetterReason.MALFORMED, f"expected {expected}, found {found}")


# Which schema a record names: in a header where its producer put it there, else in the first bytes.


@dataclass(frozen=True, slots=True)
class Named:
    """The records of a batch that name one schema.

    Attributes:
        rows: Their rows, rising.
        payloads: What follows the schema's number or GUID, large_binary.
    """

    rows: Sequence[int]
    payloads: pa.Array


class Frames:
    """The records of a batch by the schema that they name.

    Args:
        values: A large_binary array.
        named: The header that may name the schema, by row.
    """

    def __init__(self, values: pa.Array, named: Mapping[int, bytes]) -> None:
        self.by_schema: dict[int | str, Named] = {}
        self.unframed: dict[int, bytes] = {}
        if not values.null_count and not named and self._have_one_number(values):
            return
        for frame, (rows, payloads) in _groups(values.to_pylist(), named).items():
            schema_id = schema_id_of(frame)
            if schema_id is not None:
                self.by_schema[schema_id] = Named(rows, pa.array(payloads, pa.large_binary()))
            else:
                self.unframed |= {row: frame + rest for row, rest in zip(rows, payloads, strict=True)}

    def _have_one_number(self, values: pa.Array) -> bool:
        """Take the batch as one piece where all name the same schema, as most do: a quarter of the time."""
        frames = pc.binary_slice(values, 0, NUMBER_FRAME).unique()
        schema_id = schema_id_of(frames[0].as_py()) if len(frames) == 1 else None
        if not isinstance(schema_id, int):
            return False
        self.by_schema[schema_id] = Named(range(len(values)), pc.binary_slice(values, NUMBER_FRAME, _END))
        return True


def _groups(values: list[bytes | None], named: Mapping[int, bytes]) -> Mapping[bytes, tuple[list[int], list[bytes]]]:
    """Return rows and payloads by the bytes that name their schema; null values are left out."""
    groups: defaultdict[bytes, tuple[list[int], list[bytes]]] = defaultdict(lambda: ([], []))
    for row, value in enumerate(values):
        if value is None:
            continue
        header = named.get(row)
        framed = value if header is None else header
        length = frame_length(framed)
        rows, payloads = groups[framed[:length]]
        rows.append(row)
        # With the schema in a header the whole value is the payload; message indexes are in the header, too.
        payloads.append(value[length:] if header is None else header[length:] + value)
    return groups


def _named_in_headers(headers: pa.Array, name: str) -> dict[int, bytes]:
    """Return the value of each record's first header of a name."""
    pairs = headers.flatten()
    places = pa.array(positions(pc.equal(pairs.field("name"), name)), pa.int64())
    if not len(places):
        return {}
    rows = pc.list_parent_indices(headers).take(places).to_pylist()
    values = pairs.field("value").take(places).to_pylist()
    found: dict[int, bytes] = {}
    for row, value in zip(rows, values, strict=True):
        found.setdefault(row, value)
    return {row: value for row, value in found.items() if value is not None}


#: Rows of a batch, rising, and what stands in them.
_Piece = tuple[Sequence[int], pa.Array]


def _placed(pieces: Sequence[_Piece], others: pa.Array) -> pa.Array:
    """Put pieces in their rows; the other rows are those of ``others``."""
    if not pieces:
        return others
    if len(pieces[0][0]) == len(others):
        return pieces[0][1]
    order, end = list(range(len(others))), len(others)
    for rows, _ in pieces:
        for row in rows:
            order[row] = end
            end += 1
    return pa.concat_arrays([others, *(array for _, array in pieces)]).take(pa.array(order, pa.int64()))


def _documents(schema: Schema, named: Named) -> tuple[_Piece, Mapping[int, DecodeError]]:
    """Return the documents of the records that have one, and why the others have none, by row."""
    if schema.documents is None:
        return (named.rows, named.payloads), {}
    found = schema.documents(named.payloads.to_pylist())
    errors = {row: of for row, of in zip(named.rows, found, strict=True) if isinstance(of, DecodeError)}
    documents = [None if isinstance(of, DecodeError) else of for of in found]
    return (named.rows, pa.array(documents, pa.large_binary())), errors


class FramedColumns:
    """The decoder of columns from values, or keys, that name their schema.

    Args:
        plans: The columns, in their order.
        of_documents: Reads the columns of JSON documents.
        schemas: Where schemas come from.
        header: Name of the header that may name the schema.
        watched: Looks into documents for members that no column reads, if anything does.
    """

    def __init__(
        self,
        plans: Sequence[ColumnPlan],
        of_documents: Callable[[pa.Array], DecodedPart],
        schemas: Schemas,
        header: str,
        *,
        watched: WatchedColumns | None = None,
    ) -> None:
        self._watched = watched
        self._plans = plans
        self._of_documents = of_documents
        self._schemas = schemas
        self._header = header
        self._source = plans[0].source

    def decode(self, values: pa.Array, headers: pa.Array) -> DecodedPart:
        """Decode a large_binary array; a null value becomes NULL in every column, without a decode error.

        Raises:
            RegistryUnavailable, ConfigError, SchemaMissing: The registry gives no answer about a schema.
        """
        frames = Frames(values, _named_in_headers(headers, self._header))
        decode_errors = {row: self._unframed(value) for row, value in frames.unframed.items()}
        documents: list[_Piece] = []
        columns: list[Sequence[_Piece]] = []
        types: dict[int, TypeOf] = {}
        for schema_id, named in frames.by_schema.items():
            schema = self._schemas.get(schema_id)
            if isinstance(schema, DecodeError):
                decode_errors |= dict.fromkeys(named.rows, schema.at(self._source))
                continue
            left = self._read_quickly(schema, named, columns)
            if self._watched and schema.types:
                types.update(zip(left.rows, schema.types(left.payloads), strict=True))
            readable, errors = _documents(schema, left)
            documents.append(readable)
            decode_errors |= {row: error.at(self._source) for row, error in errors.items()}
        placed = _placed(documents, pa.nulls(len(values), pa.large_binary()))
        part = self._watched.decode(placed, types) if self._watched else self._of_documents(placed)
        decode_errors |= {row: _readable(error) for row, error in part.decode_errors.items()}
        arrays = (_placed([of[place] for of in columns], array) for place, array in enumerate(part.arrays))
        return DecodedPart(tuple(arrays), decode_errors, part.unavailable)

    def _read_quickly(self, schema: Schema, named: Named, columns: list[Sequence[_Piece]]) -> Named:
        """Add the rows that whole columns give, and return the records that must be read as documents."""
        if schema.quick_columns is None:
            return named
        if self._watched:
            kinds = schema.types(named.payloads) if schema.types and schema.may_have_others else ()
            if self._watched.may_meet_others(schema.may_have_others, set(kinds)):
                return named
        found = schema.quick_columns(named.payloads, self._plans)
        if found is None:
            return named
        doubtful = {place for column in found for place in column.doubtful}
        for plan, column in zip(self._plans, found, strict=True):
            # A missing value has a default, and null has not: only documents tell them apart.
            if (plan.refuses_null or plan.default is not None) and column.array.null_count:
                doubtful.update(positions(pc.is_null(column.array)))
        if not doubtful:
            columns.append([(named.rows, column.array) for column in found])
            return Named((), named.payloads[:0])
        sure = [place for place in range(len(named.rows)) if place not in doubtful]
        rows, places = [named.rows[place] for place in sure], pa.array(sure, pa.int64())
        columns.append([(rows, column.array.take(places)) for column in found])
        left = sorted(doubtful)
        return Named([named.rows[place] for place in left], named.payloads.take(pa.array(left, pa.int64())))

    def _unframed(self, value: bytes) -> DecodeError:
        expected = "a value that begins with its schema (a zero and four bytes), or a header that names it"
        found = excerpt(value) if value else "no bytes"
        return _malformed(expected, f"{found}{_hint(value)}").at(self._source)


def _hint(value: bytes) -> str:
    return "; it looks like JSON without a frame, which the format json reads" if value[:1] in (b"{", b"[") else ""

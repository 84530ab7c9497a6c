"""Rules of columns: what fits a type, what does not, and why."""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.column_types import ColumnType
from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.settings import Conversion, json_path_text

if TYPE_CHECKING:
    from spark_jobs.decode.fields import Fields

# Why a value does not fit: a reason of the closed list and words for a person.

# Enough to recognise a value; a detail never quotes more than 100 characters of payload.
_EXCERPT_CHARACTERS = 60


class DecodeError(Exception):
    """A value that its column cannot hold exactly.

    Args:
        reason: One reason of the closed list.
        detail: What was expected and what was found; :meth:`at` puts the place before it.
    """

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def at(self, place: str) -> DecodeError:
        """Return the same decode error with its place: ``column "amount" at $.amount``."""
        return type(self)(self.reason, f"{place}: {self.detail}")


class DidNotTravelError(DecodeError):
    """A placeholder where a value should be: the value is the one that its key had before."""


def wrong_type(expected: str, found: str) -> DecodeError:
    """Report a value of another type, or text that does not name a value of the type."""
    return DecodeError(DeadLetterReason.WRONG_TYPE, f"expected {expected}, found {found}")


def out_of_range(expected: str, found: str) -> DecodeError:
    """Report a number or time that the type cannot hold exactly."""
    return DecodeError(DeadLetterReason.OUT_OF_RANGE, f"expected {expected}, found {found}")


def unsupported_text(found: str) -> DecodeError:
    """Report text that PostgreSQL cannot hold."""
    expected = "text without U+0000 and without lone surrogates"
    return DecodeError(DeadLetterReason.UNSUPPORTED_TEXT, f"expected {expected}, found {found}")


def excerpt(payload: str | bytes) -> str:
    """Quote the beginning of a payload as it is in the record; only characters that do not print are escaped."""
    beginning = payload[: 4 * (_EXCERPT_CHARACTERS + 1)]  # UTF-8 takes four bytes a character at most
    text = beginning if isinstance(beginning, str) else beginning.decode("utf-8", "backslashreplace")
    more = "…" if len(text) > _EXCERPT_CHARACTERS else ""
    return printable(text[:_EXCERPT_CHARACTERS]) + more


def printable(text: str) -> str:
    """Escape each character that is not printable, such as a line break or one that turns the writing direction."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True)
class DidNotTravel:
    """What did not travel with a record that fits in all else: names of columns, and what a dead letter says of it.

    ``may_be_null``: the columns may be NULL where nothing tells what the key had before.
    """

    columns: tuple[str, ...]
    detail: str
    may_be_null: bool = False


# A part of a batch: the columns that come from one place (value, key, headers, metadata), at full length.


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """Columns of one place.

    Attributes:
        arrays: One array a column, each as long as the input batch; the value at a decode error's row means nothing.
        decode_errors: Why a row does not fit, by input row.
        unavailable: By input row, what did not travel; the columns are NULL there.
    """

    arrays: tuple[pa.Array, ...]
    decode_errors: Mapping[int, DecodeError] = field(default_factory=dict)
    unavailable: Mapping[int, DidNotTravel] = field(default_factory=dict)


class PartDecoder(Protocol):
    """A decoder of the bytes of one place: a null gives NULL in every column and no decode error."""

    def decode(self, values: pa.Array) -> DecodedPart:
        """Decode a large_binary array."""


def invalid_utf8_rows(values: pa.Array) -> list[int]:
    """Return the rows of a large_binary array whose bytes are not UTF-8; null is fine.

    The whole array is checked in one pass; single rows are checked only when that pass found a fault.
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
    """Return ``array`` with ``replacements[i]`` at ``rows[i]``; ``rows`` rise."""
    if not rows:
        return array
    order = list(range(len(array)))
    for place, row in enumerate(rows, start=len(array)):
        order[row] = place
    return pa.concat_arrays([array, replacements]).take(pa.array(order, pa.int64()))


def with_default(array: pa.Array, missing: list[int], default: Cell | None) -> pa.Array:
    """Return a column with the default, unless it is NULL, where values are missing; ``missing`` rises."""
    if default is None:
        return array
    return with_rows_replaced(array, missing, pa.array([default] * len(missing), array.type))


# What decoding gives: the columns of the records that fit, and what became of every other record.

#: Record times, which Kafka gives as numbers, are not made a text that COPY's format would have to read again.
RECORD_TIME = pa.timestamp("ms", tz="UTC")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that does not fit.

    Attributes:
        row_index: Index of the record in the input batch.
        reason: One reason of the closed list.
        detail: For a person: column, JSON path, what was expected and what was found. It quotes the payload only in
            escaped excerpts and never more than 100 characters of it.
    """

    row_index: int
    reason: DeadLetterReason
    detail: str


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """One input batch, decoded. Every input row is in exactly one of the parts.

    Attributes:
        columns: The records that fit, in input order: the columns of ``written_columns(settings)`` in that order,
            with the Arrow types of their rules; the record time is ``RECORD_TIME``.
        row_index: Input index of each row of ``columns``; rising.
        dead: Records that do not fit, by rising input index.
        tombstones: Input indices of null values, or of deletes, that are only counted; rising.
        deletes: The deletes of keys, in input order: the columns of ``written_columns(delete_settings(settings))``;
            ``None`` where there is none.
        delete_index: Input index of each row of ``deletes``; rising.
        partial: Records that fit but for values that did not travel, as ``columns``, with NULL for these values;
            ``None`` where there is none.
        partial_index: Input index of each row of ``partial``; rising.
        unavailable: What did not travel, by input index: of the rows of ``partial``, or of ``columns`` as long as they
            are not put apart.
    """

    columns: pa.RecordBatch
    row_index: Sequence[int]
    dead: Sequence[Rejected]
    tombstones: Sequence[int]
    deletes: pa.RecordBatch | None = None
    delete_index: Sequence[int] = ()
    partial: pa.RecordBatch | None = None
    partial_index: Sequence[int] = ()
    unavailable: Mapping[int, DidNotTravel] = field(default_factory=dict)


def without_refused(decoded: DecodedBatch, refused: Sequence[Rejected]) -> DecodedBatch:
    """Turn rows and deletes that the target refuses into dead letters; dead letters and tombstones stay what they are.

    Args:
        decoded: One input batch.
        refused: Its refused records, by rising input index.
    """
    known = {row.row_index: row for row in refused}
    indices = (*decoded.row_index, *decoded.partial_index, *decoded.delete_index)
    gone = [known[index] for index in indices if index in known]
    columns, row_index = _left(decoded.columns, decoded.row_index, known)
    deletes, delete_index = decoded.deletes, decoded.delete_index
    if deletes is not None:
        deletes, delete_index = _left(deletes, delete_index, known)
    partial, partial_index = decoded.partial, decoded.partial_index
    if partial is not None:
        partial, partial_index = _left(partial, partial_index, known)
    dead = sorted((*decoded.dead, *gone), key=lambda row: row.row_index)
    return DecodedBatch(
        columns, row_index, dead, decoded.tombstones, deletes, delete_index, partial, partial_index, decoded.unavailable
    )


def _left(
    columns: pa.RecordBatch, row_index: Sequence[int], refused: Mapping[int, Rejected]
) -> tuple[pa.RecordBatch, list[int]]:
    stays = [index not in refused for index in row_index]
    return columns.filter(pa.array(stays, pa.bool_())), [index for index in row_index if index not in refused]


# One JSON value as text: what kind it is, and the string or the array that it names.

#: What bytea's hex input begins with.
HEX_MARK = b"\\x"

#: JSON's own white space (RFC 8259, section 2).
WHITE_SPACE = b" \t\r\n"

#: Pattern of a JSON string. Possessive and unrolled: one pass, and no state for matched text (``re`` keeps 118 bytes
#: for each repetition that it may have to undo).
JSON_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'

_KINDS = {b"{": "an object", b"[": "an array", b'"': "the string", b"t": "the boolean", b"f": "the boolean", b"n": ""}
_STRING = msgspec.json.Decoder(str)
#: What NaN and the infinities of binary formats are in their documents: numbers that no finite value is spelled as.
NAN_NUMBER, INFINITY_NUMBER, NEGATIVE_INFINITY_NUMBER = b"7e99999999", b"8e99999999", b"-8e99999999"
#: A byte that no UTF-8 text contains.
_NO_UTF8 = b"\xff"


class Characters(bytes):
    """A text in UTF-8 that is no JSON: for a rule that reads JSON strings, what a string of these characters is."""

    __slots__ = ()


def described(raw: bytes) -> str:
    """Name the kind of a JSON value and quote its beginning, for the ``found`` of a detail."""
    if isinstance(raw, Characters):
        return f"the text {excerpt(raw)}"
    return f"{_KINDS.get(raw[:1], 'the number')} {excerpt(raw)}".lstrip()


def number_text(raw: bytes, expected: str) -> str:
    """Return a JSON number's own text.

    Raises:
        DecodeError: The value is no number.
    """
    if raw[:1] not in b"-0123456789":
        raise wrong_type(expected, described(raw))
    return raw.decode("ascii")


def string_value(raw: bytes, expected: str) -> str:
    """Return the characters that a JSON string stands for.

    Raises:
        DecodeError: The value is no string.
    """
    if isinstance(raw, Characters):
        return raw.decode()
    if raw[:1] != b'"':
        raise wrong_type(expected, described(raw))
    return _STRING.decode(raw)


def hex_bytes(data: bytes) -> bytes:
    r"""Write bytes as bytea's hex input, ``\x00ff``."""
    return HEX_MARK + binascii.hexlify(data)


def raw_texts(values: Sequence[msgspec.Raw | bytes | None]) -> pa.Array:
    """Return JSON values, which are valid UTF-8, as a string array; missing and JSON null become null."""
    if not values:
        return pa.array([], pa.string())
    joined = _NO_UTF8.join([b"null" if value is None else value for value in values])
    # Arrow splits them, which is quicker than one Python string a value.
    texts = pc.split_pattern(pa.array([joined], pa.large_binary()), _NO_UTF8).flatten().cast(pa.string())
    return pc.if_else(pc.equal(texts, "null"), pa.scalar(None, pa.string()), texts)


def positions_containing(texts: pa.Array, part: str, *, sign: bytes) -> list[int]:
    """Return the positions of the texts that contain ``part``; null is fine.

    Args:
        texts: A string array.
        part: What to look for.
        sign: One byte of ``part`` that is rare. All texts as one piece are searched for it first, which is 20 times
            faster than text by text.
    """
    return positions(pc.match_substring(texts, part)) if has_character(texts, sign) else []


def has_character(texts: pa.Array, character: bytes) -> bool:
    """Tell whether an ASCII character may be in one of a string array's texts; searches all of them as one piece."""
    characters = texts.buffers()[2]
    return characters is not None and character in characters.to_pybytes()


def positions(mask: pa.Array) -> list[int]:
    """Return the positions at which a boolean array is true; null counts as false."""
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found


# What every type's rule looks like: one exact way to read a value, and a quick way for whole columns.
#
# The exact way decides. The quick way may take only what it can prove to be the same; every value that it doubts is
# read again in the exact way, together with its record. So both accept and refuse the same records, with the same
# values.

#: A value as Arrow takes it, in its rule's Arrow type. Bytes in a text column are UTF-8.
Cell = bool | int | float | str | bytes


#: Bytes of the longest number that numeric holds, in two's complement.
MOST_DECIMAL_BYTES = 61_230


@dataclass(frozen=True, slots=True)
class QuickColumn:
    """A column read the quick way.

    Attributes:
        array: The values; null where the value is missing or null. At a doubtful position the value means nothing.
        doubtful: Positions to read again in the exact way.
    """

    array: pa.Array
    doubtful: Sequence[int] = field(default=())


class ValueRule(Protocol):
    """How JSON values become values of one column type, and what of it COPY takes."""

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the column.

        Booleans, integers, floats and bytea have their own. Everything else (numeric, text, varchar, dates and times,
        uuid, jsonb, and every array as an array literal) is ``pa.string()`` with PostgreSQL's input text.
        """

    @property
    def fields(self) -> Fields | None:
        """The function that writes the column for binary COPY (``copy_format.py``); ``None`` where text must do.

        It raises ``NotBinaryError`` or Arrow's errors for a text that names no value.
        """

    @property
    def quick_type(self) -> Any:
        """The type that msgspec decodes a field to before :meth:`quick`; None is always allowed beside it."""

    def exact(self, raw: bytes) -> Cell:
        """Read one JSON value that is not null, without white space around it.

        Raises:
            DecodeError: The type cannot hold the value exactly.
        """

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Read a column of values of ``quick_type``, or ``None`` where a value is missing or null."""


def read_each(rule: ValueRule, values: Sequence[msgspec.Raw | None]) -> QuickColumn:
    """Read a column one value at a time, in the exact way; what does not fit is in doubt."""
    cells: list[Cell | None] = []
    doubtful = []
    for position, value in enumerate(values):
        raw = b"null" if value is None else bytes(value)
        try:
            cells.append(None if raw == b"null" else rule.exact(raw))
        except DecodeError:
            cells.append(None)
            doubtful.append(position)
    return QuickColumn(pa.array(cells, rule.arrow_type), doubtful)


# What decoding knows of one column: its name, where its value stands, and whether NULL is allowed.


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One written column.

    Attributes:
        name: Name of the column.
        type: Its type.
        path: Keys from the root of a JSON value; empty for the root, and for columns that no JSON path fills.
        source: Where its value comes from, for details: ``the value``, ``the key``, ``the record time``.
        required: Whether the pipeline refuses NULL.
        not_null: Whether the target refuses NULL.
        conversion: What the value is written as; ``None`` for the usual spelling of the type.
        other_paths: Where else the value may stand: of all paths, the first that a record has counts.
        default: What a missing value becomes, as JSON text in the usual spelling of the type; ``None``: NULL.
        is_rounded: Whether times that are finer than microseconds are rounded to these.
        unavailable: What stands for a value that did not travel; ``None`` for columns of no change event.
        is_filled: Whether such a value may be the one that its key had before: the column is one of the row's own.
    """

    name: str
    type: ColumnType
    path: tuple[str, ...] = ()
    source: str = "the value"
    required: bool = False
    not_null: bool = False
    conversion: Conversion | None = None
    other_paths: tuple[tuple[str, ...], ...] = ()
    default: str | None = None
    is_rounded: bool = False
    unavailable: str | None = None
    is_filled: bool = False
    place: str = field(init=False)

    def __post_init__(self) -> None:
        where = " or ".join(map(json_path_text, self.paths)) if self.path or self.other_paths else self.source
        if where is not self.source and self.source != "the value":
            where = f"{where} of {self.source}"
        object.__setattr__(self, "place", f'column "{self.name}" from {where}')

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Every path, in the order in which they count."""
        return (self.path, *self.other_paths)

    @property
    def refuses_null(self) -> bool:
        """Whether a record without a value for this column is a dead letter."""
        return self.required or self.not_null

    def null_error(self, found: str) -> DecodeError:
        """Return why NULL does not fit; only for a column that refuses it."""
        if self.required:
            return DecodeError(DeadLetterReason.MISSING_REQUIRED, f"{self.place}: expected a value, found {found}")
        expected = "a value, as the column is NOT NULL in the target"
        return DecodeError(DeadLetterReason.NOT_NULL_VIOLATION, f"{self.place}: expected {expected}, found {found}")

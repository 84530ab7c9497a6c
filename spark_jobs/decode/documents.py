"""The bytes of a value or key as one JSON document: valid as a whole, also in the parts that no column reads."""

from __future__ import annotations

import re

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.errors import DeadLetterReason
from spark_jobs.decode.values import JSON_STRING, WHITE_SPACE, DecodeError, excerpt, positions

#: Deeper nesting is malformed. A fixed limit, so that it does not depend on an interpreter's stack: half of Python's
#: default recursion limit, and far below what PostgreSQL's own stack allows.
MAX_NESTING = 512

#: Each level takes an opening and a closing character, so shorter documents cannot be too deep.
SHORTEST_TOO_DEEP_BYTES = 2 * (MAX_NESTING + 1)

#: What stands in a document for a float that JSON has no number for. No other column takes them: they are numbers
#: beyond every limit.
NAN_NUMBER = b"7e99999999"
INFINITY_NUMBER = b"8e99999999"
NEGATIVE_INFINITY_NUMBER = b"-8e99999999"

#: Writes a value as JSON; a decimal with all its digits.
encode_document = msgspec.json.Encoder(decimal_format="number").encode

_SYNTAX = msgspec.json.Decoder(msgspec.Raw)
# Runs over bytes that were not checked yet, so a string without an end goes to the end of the document: a search that
# began again at each quote inside it would take hours for 1 MB.
_STRING_OR_BRACKET = re.compile(JSON_STRING[:-1] + rb'(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


class UnusableSchema(ValueError):
    """A registered schema that no record can be read with."""


def is_too_deep(document: bytes) -> bool:
    """Tell whether a document is nested deeper than ``MAX_NESTING``."""
    if document.count(b"[") + document.count(b"{") <= MAX_NESTING:
        return False
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(document):
        first = match[0][0]
        depth += (first in b"[{") - (first in b"]}")
        if depth > MAX_NESTING:
            return True
    return False


def too_deep_rows(documents: pa.Array) -> list[int]:
    """Return the rows of a large_binary array that hold a document nested too deeply; null is fine."""
    long_enough = positions(pc.greater_equal(pc.binary_length(documents), SHORTEST_TOO_DEEP_BYTES))
    return [row for row in long_enough if is_too_deep(documents[row].as_py())]


def checked_document(data: bytes) -> bytes:
    r"""Return a JSON document that every later step can read, without white space around it.

    A lone surrogate (``\ud800``) is grammatical JSON that names no text. It becomes ``\u0000`` here, which is just as
    unsupported, so it matters only where a column would hold it.

    Raises:
        DecodeError: The bytes are not UTF-8, not one JSON document, or nested too deeply.
    """
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte {data[error.start]:#04x} at position {error.start}"
        raise DecodeError(DeadLetterReason.NOT_UTF8, f"expected UTF-8, found {found}") from None
    if is_too_deep(data):
        raise DecodeError(DeadLetterReason.MALFORMED, f"expected JSON, found nesting deeper than {MAX_NESTING} levels")
    fault = _syntax_fault(data)
    if fault:
        changed = _without_lone_surrogates(data)
        if _syntax_fault(changed):
            found = f"{excerpt(data)} ({fault})" if data else "no bytes"
            raise DecodeError(DeadLetterReason.MALFORMED, f"expected JSON, found {found}{_hint(data)}")
        data = changed
    return data.strip(WHITE_SPACE)


def _without_lone_surrogates(data: bytes) -> bytes:
    changed = bytearray(data)  # the spellings have one length; a piece for each match would take 20 x the document
    for match in _SURROGATE.finditer(data):
        if match["lone"]:
            changed[match.start() : match.end()] = b"\\u0000"
    return bytes(changed)


def _syntax_fault(data: bytes) -> str:
    try:
        _SYNTAX.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        return str(error)
    return ""


def _hint(data: bytes) -> str:
    if data[:1] == b"\x00" and len(data) >= 5:
        number = int.from_bytes(data[1:5], "big")
        return (
            f"; it begins like a value framed by a schema registry (schema id {number}), which this format does not"
            " read: the format raw keeps such bytes untouched"
        )
    if data[:3] == b"\xef\xbb\xbf":
        return "; JSON begins without a byte order mark"
    return ""

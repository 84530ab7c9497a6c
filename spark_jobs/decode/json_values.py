"""One JSON value as text: what kind it is, and the string or the array that it names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.misfits import excerpt, wrong_type

#: JSON's own white space (RFC 8259, section 2).
WHITE_SPACE = b" \t\r\n"

#: Pattern of a JSON string. Possessive and unrolled: one pass, and no state for what is passed (``re`` keeps 118 bytes
#: for each repetition that it may have to take back).
JSON_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'

_KINDS = {b"{": "an object", b"[": "an array", b'"': "the string", b"t": "the boolean", b"f": "the boolean", b"n": ""}
_STRING = msgspec.json.Decoder(str)
#: A byte that no UTF-8 text contains.
_NO_UTF8 = b"\xff"


def described(raw: bytes) -> str:
    """Names the kind of a JSON value and quotes its beginning, for the ``found`` of a detail."""
    return f"{_KINDS.get(raw[:1], 'the number')} {excerpt(raw)}".lstrip()


def number_text(raw: bytes, expected: str) -> str:
    """Gives a JSON number's own text.

    Raises:
        Misfit: The value is no number.
    """
    if raw[:1] not in b"-0123456789":
        raise wrong_type(expected, described(raw))
    return raw.decode("ascii")


def string_value(raw: bytes, expected: str) -> str:
    """Gives the characters that a JSON string stands for.

    Raises:
        Misfit: The value is no string.
    """
    if raw[:1] != b'"':
        raise wrong_type(expected, described(raw))
    return _STRING.decode(raw)


def raw_texts(values: Sequence[msgspec.Raw | bytes | None]) -> pa.Array:
    """Gives JSON values, which are valid UTF-8, as a string array; missing and JSON null become null."""
    if not values:
        return pa.array([], pa.string())
    joined = _NO_UTF8.join([b"null" if value is None else value for value in values])
    # Taken apart by Arrow, which is quicker than one Python string a value.
    texts = pc.split_pattern(pa.array([joined], pa.large_binary()), _NO_UTF8).flatten().cast(pa.string())
    return pc.if_else(pc.equal(texts, "null"), pa.scalar(None, pa.string()), texts)


def positions_containing(texts: pa.Array, part: str, *, sign: bytes) -> list[int]:
    """Gives the positions of the texts that contain ``part``; null is fine.

    Args:
        texts: A string array.
        part: What to look for.
        sign: One byte of ``part`` that is rare. The texts are looked through for it as one piece first, which is 20
            times faster than text by text.
    """
    return positions(pc.match_substring(texts, part)) if has_character(texts, sign) else []


def has_character(texts: pa.Array, character: bytes) -> bool:
    """Whether an ASCII character may stand in one of a string array's texts. One look at all of them as one piece."""
    characters = texts.buffers()[2]
    return characters is not None and character in characters.to_pybytes()


def positions(mask: pa.Array) -> list[int]:
    """Gives the positions at which a boolean array is true; null counts as false."""
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found

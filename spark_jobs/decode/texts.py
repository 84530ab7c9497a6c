"""Rules for text, varchar(n), uuid and bytea: JSON strings only."""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.core.dead_letters import DeadLetterReason
from spark_jobs.decode.json_values import described, positions, positions_containing, string_value
from spark_jobs.decode.misfits import Misfit, excerpt, unsupported_text, wrong_type
from spark_jobs.decode.value_rules import QuickColumn

_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}")


class TextRule:
    """text and varchar(n): text as it is. U+0000 is unsupported; more than n characters are too long, spaces or not."""

    quick_type: Any = str | None

    def __init__(self, length: int | None = None) -> None:
        self._length = length

    def exact(self, raw: bytes) -> str:
        """Gives the string's characters."""
        text = string_value(raw, "a string")
        self.check(text, raw)
        return text

    def check(self, text: str, written: str | bytes) -> None:
        """Raises ``Misfit`` when PostgreSQL cannot hold all of a text; ``written`` is what stands in the record."""
        if "\x00" in text:
            raise unsupported_text(f"{excerpt(written)} (one is character {text.index(chr(0)) + 1})")
        if self._length is not None and len(text) > self._length:
            found = f"{excerpt(written)} ({len(text)} characters)"
            raise Misfit(DeadLetterReason.TOO_LONG, f"expected at most {self._length} characters, found {found}")

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Takes what msgspec decoded, checked as a column."""
        texts = pa.array(values, pa.string())
        return QuickColumn(texts, self.doubtful(texts))

    def doubtful(self, texts: pa.Array) -> list[int]:
        """Gives the positions of texts that :meth:`check` would refuse; null is fine."""
        doubtful = positions_containing(texts, "\x00", sign=b"\x00")
        if self._length is not None:
            doubtful += positions(pc.greater(pc.utf8_length(texts), self._length))
        return doubtful


class UuidRule:
    """uuid: 32 hexadecimal digits, with hyphens as 8-4-4-4-12 or without any."""

    quick_type: Any = str | None

    def exact(self, raw: bytes) -> str:
        """Gives the text as it is written."""
        text = string_value(raw, "a UUID")
        if not _UUID.fullmatch(text):
            raise wrong_type("a UUID", described(raw))
        return text

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Takes what has the form of a UUID."""
        texts = pa.array(values, pa.string())
        return QuickColumn(texts, positions(pc.invert(pc.match_substring_regex(texts, f"^(?:{_UUID.pattern})$"))))


class ByteaRule:
    """bytea: base64 of RFC 4648, section 4, with padding, as an encoder writes it (no white space, no spare bits)."""

    quick_type: Any = str | None

    def exact(self, raw: bytes) -> bytes:
        """Gives the bytes."""
        text = string_value(raw, "a base64 string")
        data = _base64(text)
        if data is None:
            raise wrong_type("a base64 string", described(raw))
        return data

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Decodes each value; what is no base64 is in doubt."""
        cells = [None if value is None else _base64(value) for value in values]
        pairs = zip(values, cells, strict=True)
        doubtful = [position for position, (value, cell) in enumerate(pairs) if cell is None and value is not None]
        return QuickColumn(pa.array(cells, pa.large_binary()), doubtful)


def _base64(text: str) -> bytes | None:
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # binascii.Error, or characters that are not ASCII
        return None
    return data if binascii.b2a_base64(data, newline=False).decode() == text else None

"""The rule of each column; in change events also values that did not travel, and decimals without their scale."""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.errors import DeadLetterReason
from spark_jobs.decode.conversions import converted
from spark_jobs.decode.numbers import NumericRule
from spark_jobs.decode.texts import ByteaRule, JsonbRule, TextRule, rule_for
from spark_jobs.decode.values import (
    Cell,
    ColumnPlan,
    DecodeError,
    DidNotTravelError,
    QuickColumn,
    ValueRule,
    described,
    excerpt,
    positions,
    raw_texts,
    read_each,
    wrong_type,
)


def column_rule(plan: ColumnPlan, *, of_binary: bool = False) -> ValueRule:
    """Return the rule of a column.

    Args:
        plan: The column.
        of_binary: Whether values come from a binary format.
    """
    rule = converted(rule_for(plan.type, of_binary=of_binary), plan)
    if plan.unavailable is None:
        return rule
    return EventRule(rule, plan, is_json=not of_binary)


class Placeholder:
    """What stands for a value that did not travel: the connector writes the same text in the form of each type.

    Text and documents: the text. bytea: its bytes, so base64 or hexadecimal digits. Arrays of text: a list of it; maps:
    an object of it; arrays of integers: its bytes as numbers (Debezium 3.6, ``tests/data/debezium``). Arrays of uuid:
    the name-based UUID of its bytes (``UnchangedToastedPlaceholder`` of Debezium's PostgreSQL connector).

    Args:
        text: The text, in characters that no JSON writer escapes.
    """

    def __init__(self, text: str) -> None:
        data = text.encode()
        encoded = binascii.b2a_base64(data, newline=False).decode()
        url_safe = encoded.replace("+", "-").replace("/", "_")
        self.texts = (text, encoded, url_safe, data.hex())
        #: What the texts are as base64: hexadecimal digits may be some, too.
        self.as_base64 = [found for found in map(_from_base64, self.texts) if found]
        named = str(UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3))
        self._lists = ([text], [named], [encoded], list(data))
        self._map = {text: text}
        numbers = r",\s*".join(map(str, data))
        self._signs = [sign.encode() for sign in (*self.texts, named)]
        self._numbers = re.compile(numbers.encode())
        #: Finds what may be the placeholder in the text of a JSON value.
        self.pattern = "|".join((*map(_quoted_pattern, (*self.texts, named)), numbers))

    def is_in(self, raw: bytes) -> bool:
        """Tell whether a JSON value is the placeholder, or an object that has it in it."""
        if not any(sign in raw for sign in self._signs) and not self._numbers.search(raw):
            return False
        try:
            return self._is(msgspec.json.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False

    def is_all_of(self, raw: bytes) -> bool:
        """Tell whether a JSON value with the placeholder in it is nothing else."""
        value = msgspec.json.decode(raw)
        return value == self._map if isinstance(value, dict) else True

    def _is(self, value: Any) -> bool:
        if isinstance(value, dict):
            return any(map(self._is, value.values()))
        return value in self.texts if isinstance(value, str) else value in self._lists


def _from_base64(text: str) -> bytes | None:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None


def _quoted_pattern(text: str) -> str:
    return "".join(f"\\{c}" if c in r"\.+*?()|[]{}^$" else c for c in text)


@cache
def _placeholder(text: str) -> Placeholder:
    return Placeholder(text)


_WAY_OUT = (
    "give the source table REPLICA IDENTITY FULL, or let the connector take an incremental snapshot of the key, with "
    "which the value travels"
)
_OF_STRINGS = "as: number_text reads the strings that decimal.handling.mode=string writes"
_SCALELESS = "it looks like a decimal without its scale, as decimal.handling.mode=precise writes it: set it to string"


def _is_scaleless(raw: bytes) -> bool:
    """Tell whether a JSON value is a decimal as bytes, or one with its scale beside it."""
    if raw[:1] == b"{":
        return b'"scale"' in raw
    return raw[:1] == b'"' and bool(_from_base64(raw.strip(b'"').decode()))


class EventRule:
    """A column of a change event: its type's rule, for values that travelled.

    In JSON a string is no number here without ``as: number_text``. A connector may write decimals as base64 of their
    digits without the scale, and some base64 reads like a number.

    Args:
        rule: The column's own.
        plan: The column, with a placeholder.
        is_json: Whether values come as JSON, and not from a binary format.
    """

    def __init__(self, rule: ValueRule, plan: ColumnPlan, *, is_json: bool) -> None:
        self.arrow_type = rule.arrow_type
        self.fields = rule.fields
        self.quick_type = rule.quick_type
        self._rule = rule
        self._is_json_decimal = is_json and plan.type.name == "numeric"
        self._takes_strings = not self._is_json_decimal or plan.conversion is not None
        self._placeholder = _placeholder(plan.unavailable or "")

    def exact(self, raw: bytes) -> Cell:
        """Read a value that travelled by the column's rule."""
        if self._placeholder.is_in(raw):
            found = f"{excerpt(raw)}, which stands for a value that was not changed and did not travel"
            detail = f"expected the value, found {found}; {_WAY_OUT}"
            kind = DidNotTravelError if self._placeholder.is_all_of(raw) else DecodeError
            raise kind(DeadLetterReason.VALUE_DID_NOT_TRAVEL, detail)
        if self._is_refused_string(raw):
            raise wrong_type("a JSON number", f"{described(raw)}; {_SCALELESS if _is_scaleless(raw) else _OF_STRINGS}")
        try:
            return self._rule.exact(raw)
        except DecodeError as error:
            if self._is_json_decimal and _is_scaleless(raw):
                raise DecodeError(error.reason, f"{error.detail}; {_SCALELESS}") from None
            raise

    def _is_refused_string(self, raw: bytes) -> bool:
        return not self._takes_strings and (raw[:1] == b'"' or (raw[:1] == b"[" and b'"' in raw))

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Read a column by its rule; what may be a placeholder is left to the exact way."""
        if self.quick_type is msgspec.Raw and not isinstance(self._rule, JsonbRule | NumericRule):
            return read_each(self, values)
        column = self._rule.quick(values)
        return QuickColumn(column.array, [*column.doubtful, *self._doubtful(column.array, values)])

    def _doubtful(self, array: pa.Array, values: Sequence[Any]) -> list[int]:
        """Return where the placeholder may be; other rules than these take it for no value of their type anyway."""
        if isinstance(self._rule, TextRule):
            return positions(pc.is_in(array, value_set=pa.array(self._placeholder.texts, array.type)))
        if isinstance(self._rule, JsonbRule):
            return positions(pc.match_substring_regex(array, self._placeholder.pattern))
        if isinstance(self._rule, ByteaRule):
            return positions(pc.is_in(array, value_set=pa.array(self._placeholder.as_base64, array.type)))
        if not self._takes_strings:
            return positions(pc.starts_with(raw_texts(values), '"'))
        return []

"""Payloads that cost most: what a broken producer, a cut-off log line or an attacker sends, in any size."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

#: Gives a JSON value, or what is none, of about so many bytes.
Hostile = Callable[[int], bytes]


def _repeated(part: bytes, *, begin: bytes = b"", end: bytes = b"", separator: bytes = b"") -> Hostile:
    def of_size(size: int) -> bytes:
        return begin + separator.join([part] * (size // len(part + separator))) + end

    return of_size


def _text(part: bytes, *, end: bytes = b'"') -> Hostile:
    return _repeated(part, begin=b'"', end=end)


def _array(element: bytes) -> Hostile:
    return _repeated(element, begin=b"[", end=b"]", separator=b",")


def _nested(opening: bytes, closing: bytes) -> Hostile:
    return lambda size: (
        opening * (size // (len(opening) + len(closing))) + closing * (size // (len(opening) + len(closing)))
    )


def _keys(size: int, key: Callable[[int], bytes], value: bytes = b"1") -> bytes:
    return b"{" + b",".join(b'"' + key(number) + b'":' + value for number in range(size // 10)) + b"}"


def _truncated_log_line(size: int) -> bytes:
    inner = json.dumps([{"event": "click", "user": f"u{number}", "tags": ["a", "b"]} for number in range(size // 40)])
    return json.dumps({"id": 1, "message": inner}).encode()[:size]


#: By name; each grows linearly with its argument.
HOSTILE: Mapping[str, Hostile] = {
    "a log line cut off": _truncated_log_line,
    "text": _text(b"x"),
    "text with one emoji": lambda size: b'"' + b"x" * size + "\U0001f600".encode() + b'"',
    "text without end": _text(b"x", end=b""),
    "brackets in text without end": lambda size: b"[" * 600 + b'"' + b"[" * size,
    "brackets in text": lambda size: b'"' + b"[" * size + b'"',
    "quotes": _repeated(b'"'),
    "escaped quotes": _text(rb"\""),
    "escaped quotes without end": _text(rb"\"", end=b""),
    "escaped backslashes": _text(rb"\\"),
    "backslashes, an odd number": lambda size: b'"' + b"\\" * (size // 2 * 2 + 1),
    "brackets, then backslashes": lambda size: b"[" * 600 + b'"' + b"\\" * (size // 2 * 2 + 1),
    "unicode escapes": _text(rb"\u00e9"),
    "escaped zeros": _text(rb"\u0000"),
    "escaped backslash u0000": _text(rb"\\u0000"),
    "lone surrogates": _text(rb"\ud800"),
    "escaped pairs": _text(rb"\ud83d\ude00"),
    "NUL bytes": _repeated(b"\x00"),
    "invalid UTF-8": _repeated(b"\xff"),
    "invalid UTF-8 in text": _text(b"\xc3\x28"),
    "continuation bytes": _text(b"\x80"),
    "white space": lambda size: b" " * size + b"1" + b"\n" * size,
    "opening brackets": _repeated(b"["),
    "opening braces": _repeated(b'{"a":'),
    "closing brackets": _repeated(b"]"),
    "nested arrays": _nested(b"[", b"]"),
    "nested objects": lambda size: b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
    "empty arrays": _array(b"[]"),
    "empty objects": _array(b"{}"),
    "digits": _repeated(b"7"),
    "zeros": _repeated(b"0"),
    "one and zeros": lambda size: b"1" + b"0" * size,
    "fraction of zeros": lambda size: b"0." + b"0" * size + b"1",
    "fraction of digits": lambda size: b"0." + b"7" * size,
    "zeros behind the point": lambda size: b"1." + b"0" * size,
    "exponent of zeros": lambda size: b"1e" + b"0" * size,
    "exponent of zeros that is none": lambda size: b"1e" + b"0" * size + b"x",
    "exponent of digits": lambda size: b"1e" + b"7" * size,
    "negative exponent of digits": lambda size: b"1e-" + b"7" * size,
    "digits in text": _text(b"7"),
    "zeros in text": _text(b"0"),
    "exponent in text": lambda size: b'"1e' + b"0" * size + b'x"',
    "points": _repeated(b"."),
    "signs": _repeated(b"-"),
    "signs in text": _text(b"+-"),
    "exponents": _repeated(b"1e"),
    "an array of digits": _array(b"1"),
    "an array of large powers of ten": _array(b"1e131071"),
    "an array of small powers of ten": _array(b"1e-16383"),
    "an array of empty texts": _array(b'""'),
    "an array of texts": _array(b'"a"'),
    "an array of quotes": _array(rb'"\""'),
    "an array of nulls": _array(b"null"),
    "an array of booleans": _array(b"true"),
    "an array of base64": _array(b'"AA=="'),
    "an array of dates": _array(b'"2026-11-28"'),
    "an array and a wrong end": lambda size: _array(b"1")(size)[:-1] + b',"x"]',
    "commas": _repeated(b","),
    "many keys": lambda size: _keys(size, lambda number: b"%06d" % number),
    "equal keys": lambda size: _keys(size, lambda _: b"b"),
    "equal keys of objects": lambda size: _keys(size, lambda _: b"b", b"{}"),
    "a long key": lambda size: b'{"' + b"k" * size + b'":1}',
    "escaped keys": lambda size: _keys(size, lambda _: rb"\u0062"),
    "a long date": lambda size: b'"' + b"9" * size + b'-01-01T00:00:00Z"',
    "a long fraction of a second": lambda size: b'"2026-01-01T00:00:00.' + b"0" * size + b'Z"',
    "a long fraction of a second that is none": lambda size: b'"2026-01-01T00:00:00.' + b"0" * size + b'Y"',
    "a long UUID": lambda size: b'"' + b"6d0f6e5c-" * (size // 9) + b'"',
    "base64": _text(b"AAAA"),
    "base64 with a wrong end": _text(b"AAAA", end=b'A"'),
    "padding": _text(b"="),
}

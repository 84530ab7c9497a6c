"""JSON paths of a pipeline file: from the root to one member, nothing that could match several places.

The spelling is that of RFC 9535, as far as it names members: ``$``, ``$.order.id``, ``$['a key with spaces']``.
"""

from __future__ import annotations

import re

#: No reader of JSON nests so deep. Paths are compared by all their beginnings, whose lengths add up to its square.
MAX_MEMBERS = 100

SUPPORTED_PATHS = (
    "a JSON path of members only: $, $.name (letters, digits, _) or $['any key']; "
    f"at most {MAX_MEMBERS} of them; no *, .., [0] or filters (take an array as a whole, into a jsonb column)"
)

_SHORT_NAME = r"[^\W\d]\w*"
_MEMBER = re.compile(
    rf"""\.(?P<short>{_SHORT_NAME})|\[(?P<quote>['"])(?P<quoted>(?:\\['"\\]|(?!(?P=quote))[^\\])*)(?P=quote)\]"""
)
_ESCAPE = re.compile(r"\\(.)")


def parse_json_path(text: str) -> tuple[str, ...]:
    r"""Gives the keys from the root to the member; no keys for ``$``, the whole value.

    Raises:
        ValueError: The text is no such path; the message says what is supported.
    """
    if not text.startswith("$"):
        raise ValueError(SUPPORTED_PATHS)
    keys: list[str] = []
    at = 1
    while at < len(text):
        member = _MEMBER.match(text, at)
        if member is None or len(keys) == MAX_MEMBERS:
            raise ValueError(SUPPORTED_PATHS)
        short = member["short"]
        keys.append(_ESCAPE.sub(r"\1", member["quoted"]) if short is None else short)
        at = member.end()
    return tuple(keys)


def json_path_text(keys: tuple[str, ...]) -> str:
    """Gives the shortest path that :func:`parse_json_path` reads as these keys."""
    return "$" + "".join(f".{key}" if re.fullmatch(_SHORT_NAME, key) else _quoted(key) for key in keys)


def _quoted(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"

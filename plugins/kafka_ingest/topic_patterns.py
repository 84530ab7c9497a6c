"""Topic patterns, matched in bounded time: everybody who may create topics chooses names that a plan matches.

Python's ``re`` backtracks: ``(a+)+$`` on a name of 40 letters takes days. A plan matches by RE2, whose time grows with
the length of a name, whatever the pattern (https://github.com/google/re2/wiki/WhyRE2); PyArrow brings it. Loading
PyArrow takes half a second, too long for a DAG file: it asks ``re`` where that is harmless, and else leaves the answer
to the plan.
"""

from __future__ import annotations

import re

from kafka_ingest.errors import ConfigError

#: A thousand characters list thirty names of usual length; RE2's time grows with them, too.
MAX_CHARACTERS = 1_000

_SYNTAX = (
    "a regular expression in the syntax of RE2, whose time is bounded: no look-ahead or look-behind, no references to "
    f"groups, no possessive repetition, no {{,n}}, no repetition above 999, at most {MAX_CHARACTERS} characters"
)
# Syntax that Python's re has, and that RE2 refuses or reads differently (https://github.com/google/re2/wiki/Syntax).
_NOT_RE2 = re.compile(r"\(\?(?!:|P<|[ims-]+[:)])|\\[1-9ZuU]|[*+?}]\+|\{,|[{,][0-9]{4}")
# Escaped characters and classes: nothing in them is part of the pattern's syntax.
_LITERAL = re.compile(r"\\[^1-9ZuU]|\[\^?\]?(?:[^\]\\]|\\.)*\]")
#: Steps for one name, about a millisecond.
_MAX_STEPS = 100_000
_NAME_CHARACTERS = 249


def check_topic_pattern(pattern: str) -> str:
    """Return the pattern.

    Raises:
        ValueError: RE2 cannot read it, or reads it differently from Python; the message says what was expected.
    """
    if not pattern:
        raise ValueError("a regular expression that a whole topic name can match")
    if len(pattern) > MAX_CHARACTERS or _NOT_RE2.search(_LITERAL.sub("x", pattern)):
        raise ValueError(_SYNTAX)
    try:
        re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise ValueError(f"a regular expression ({error})") from error
    return pattern


def quick_match(pattern: str, name: str) -> bool | None:
    """Tell whether a name matches as a whole; ``None`` where only the plan can tell.

    Without a repeated group, every repetition tries each end in the name, and every choice doubles what follows.
    """
    bare = _LITERAL.sub("x", pattern).replace("(?:", "(")
    steps = (_NAME_CHARACTERS + 1) ** len(re.findall(r"[*+{]", bare)) * 2 ** len(re.findall(r"[|?]", bare))
    if re.search(r"\)[*+{]", bare) or steps > _MAX_STEPS or len(name) > _NAME_CHARACTERS:
        return None
    try:
        return re.fullmatch(pattern, name) is not None
    except (re.error, RecursionError):
        return None


def matching_topics(pattern: str, names: list[str]) -> list[str]:
    """Return the names that match as a whole, in their order.

    Raises:
        ConfigError: RE2 refuses the pattern.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    candidates = pa.array(names, pa.string())
    try:
        pc.match_substring_regex(pa.array([""]), pattern=pattern)  # alone first: `a)(b` is sound only between brackets
        matches = pc.match_substring_regex(candidates, pattern=rf"\A(?:{pattern})\z")
    except pa.ArrowInvalid as error:
        raise ConfigError(
            "The topic pattern is not a regular expression",
            expected=_SYNTAX,
            found=f"{pattern!r}: {error}",
            next_command="correct kafka.pattern in the pipeline file, then: python -m kafka_ingest check-config",
        ) from error
    return list(candidates.filter(matches).to_pylist())

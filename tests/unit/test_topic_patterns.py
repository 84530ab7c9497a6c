"""Topic patterns: matched as a whole, in bounded time, and read alike by Python and by RE2."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.errors import ConfigError
from kafka_ingest.topic_patterns import check_topic_pattern, matching_topics, quick_match


def test_a_pattern_that_keeps_python_busy_for_ever_is_matched_at_once() -> None:
    names = ["a" * 248 + "-", "a" * 249]
    assert matching_topics("(a+)+$", names) == ["a" * 249]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*", "a*b*a*", "(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)a*a*"])
def test_a_pattern_that_may_take_for_ever_is_not_tried_while_files_are_read(pattern: str) -> None:
    assert quick_match(pattern, "aa-") is None


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("shop", []),
        (r"shop\..*", ["shop.a", "shop.b1"]),
        ("shop.a|other", ["shop.a", "other"]),
        (r"(?i)SHOP\.a", ["shop.a"]),
        (r"(shop\.)?(a|b[0-9]+)", ["shop.a", "shop.b1"]),
        ("[^.]+", ["other"]),
        ("", []),
    ],
)
def test_a_whole_name_must_match(pattern: str, matched: list[str]) -> None:
    names = ["shop.a", "shop.b1", "other"]
    assert matching_topics(pattern, names) == matched
    assert [name for name in names if quick_match(pattern, name)] == matched


@pytest.mark.parametrize(
    "pattern",
    [
        "(?!a)b",
        "a(?=b)",
        "(?<=a)b",
        "(?<!a)b",
        "(?>a)",
        r"(a)\1",
        "(?P<n>a)(?P=n)",
        "a*+",
        "a++",
        "a{2}+",
        "a{,3}",
        "a\\Z",
        "a{1,60000}{1,60000}",
        "a{1000}",
        "(?x)a",
        "a" * 1_001,
    ],
)
def test_what_only_python_knows_is_refused_in_the_file(pattern: str) -> None:
    with pytest.raises(ValueError, match="in the syntax of RE2"):
        check_topic_pattern(pattern)


@pytest.mark.parametrize(
    "pattern", [r"a\.\+b+", r"\\1", "[*+]+", "[(?!]b", "(?P<n>a)", "(?:a|b)", "(?s-i:a)", r"a\{,3", "[]+]+"]
)
def test_what_both_know_is_taken(pattern: str) -> None:
    assert check_topic_pattern(pattern) == pattern
    assert matching_topics(pattern, ["none of these"]) == []


@pytest.mark.parametrize("pattern", ["a)(b", "(a", "a{1,9999}", "(?!a)b"])
def test_a_pattern_that_re2_refuses_is_a_fault_of_configuration(pattern: str) -> None:
    with pytest.raises(ConfigError, match="not a regular expression") as caught:
        matching_topics(pattern, ["ab"])
    assert repr(pattern) in caught.value.found


_PIECES = [
    "a",
    "b",
    ".",
    r"\.",
    "[ab]",
    "[^a]",
    "(a|b)",
    "(?:ab)?",
    "a*",
    "b+",
    "a{2}",
    "a{1,2}",
    "a?",
    "|",
    "(?i:A)",
    "^",
    "$",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=5), st.lists(st.text("ab.A-", max_size=6), max_size=5))
def test_python_and_re2_select_the_same_names(pieces: list[str], names: list[str]) -> None:
    pattern = "".join(pieces)
    try:
        check_topic_pattern(pattern)
    except ValueError:
        return
    expected = [name for name in names if re.fullmatch(pattern, name)]
    assert matching_topics(pattern, names) == expected
    assert all(quick_match(pattern, name) in (None, name in expected) for name in names)

"""JSON paths name one member, whatever its key is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.settings import json_path_text, parse_json_path


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("$", ()),
        ("$.a", ("a",)),
        ("$.order.id_1", ("order", "id_1")),
        ("$['a key with spaces'].b", ("a key with spaces", "b")),
        ('$["it\'s"]', ("it's",)),
        (r"$['it\'s \\ \"']", ("it's \\ \"",)),
        ("$['']", ("",)),
        ("$['a.b']", ("a.b",)),
        ("$.größe", ("größe",)),
    ],
)
def test_a_path_of_members_gives_its_keys(path: str, keys: tuple[str, ...]) -> None:
    assert parse_json_path(path) == keys


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "a.b",
        "$.",
        "$a",
        "$..a",
        "$.*",
        "$[0]",
        "$.a[*]",
        "$[?(@.a)]",
        "$['a",
        "$['a']]",
        "$.a-b",
        "$.1",
        "$ .a",
        r"$['\n']",
    ],
)
def test_any_other_path_is_told_what_is_supported(path: str) -> None:
    with pytest.raises(ValueError, match=r"a JSON path of members only: \$, \$\.name"):
        parse_json_path(path)


@given(st.lists(st.text()).map(tuple))
def test_every_list_of_keys_can_be_written_and_read_back(keys: tuple[str, ...]) -> None:
    assert parse_json_path(json_path_text(keys)) == keys

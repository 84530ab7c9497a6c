"""YAML as pipeline files use it: lines are kept, plain scalars hold no surprises, every fault is found."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_ingest.pipeline_files.document import WrittenNumber, parse_yaml


def _value(text: str) -> Any:
    data = parse_yaml(f"a: {text}\n".encode()).data
    assert isinstance(data, dict)
    return data["a"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("False", False),
        ("010", "010"),
        ("0x1F", "0x1F"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("0", 0),
        ("-7", -7),
        ("2_000_000", 2_000_000),
        ("1__0", "1__0"),
        ("1e3", 1_000.0),
        ("-1.5e-3", -0.0015),
        (".5", 0.5),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("'7'", "7"),
        ("", None),
        ("~", None),
        ("null", None),
        ("!!str 7", "7"),
        ("9" * 40, "9" * 40),
    ],
)
def test_a_scalar_is_what_a_reader_takes_it_for(text: str, value: object) -> None:
    found = _value(text)
    assert found == value
    assert (float if isinstance(found, WrittenNumber) else type(found)) is type(value)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1.10", "1.10"), ("+1_000.50", "1000.50"), (".5", "0.5"), ("-.5", "-0.5"), ("1.", "1.0"), ("1.e3", "1.0e3"),
        ("1e3", "1e3"), ("-2.50E+3", "-2.50E+3"), ("0.12345678901234567", "0.12345678901234567"), ("1e999", "1e999"),
    ],
)  # fmt: skip
def test_a_number_with_a_point_keeps_every_digit(text: str, written: str) -> None:
    found = _value(text)
    assert isinstance(found, WrittenNumber)
    assert found.json == written


def test_every_key_and_entry_keeps_its_line() -> None:
    document = parse_yaml(b"# comment\na: 1\nb:\n  - x\n  - c: 2\n    d: 3\n")
    assert document.data == {"a": 1, "b": ["x", {"c": 2, "d": 3}]}
    assert document.lines == {
        (): 2,
        ("a",): 2,
        ("b",): 3,
        ("b", 0): 4,
        ("b", 1): 5,
        ("b", 1, "c"): 5,
        ("b", 1, "d"): 6,
    }
    assert document.line_of(("b", 1, "missing", "deeper")) == 5
    assert not document.faults


def test_a_key_given_twice_names_both_lines_and_keeps_the_first() -> None:
    document = parse_yaml(b"a: 1\nb: 2\na: 3\n")
    assert document.data == {"a": 1, "b": 2}
    assert [(f.line, f.location, f.text) for f in document.faults] == [
        (3, ("a",), "expected each key once; found it a second time (first on line 1)")
    ]


def test_an_alias_and_its_anchor_are_refused_each_on_its_line() -> None:
    document = parse_yaml(b"a: &x [1, 2]\nb:\n  c:\n    - *x\n")
    assert [(fault.line, fault.location) for fault in document.faults] == [(1, ("a",)), (4, ("b", "c", 0))]
    assert document.data == {"a": [1, 2], "b": {"c": [None]}}


def test_aliases_that_would_stand_for_ten_billion_values_stand_for_none() -> None:
    levels = [f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 10)]
    document = parse_yaml(("a0: &a0 [x]\n" + "".join(levels)).encode())
    assert document.data == {"a0": ["x"], **{f"a{level}": [None] * 10 for level in range(1, 10)}}


@pytest.mark.parametrize(
    ("content", "line", "limit"),
    [
        (b"a: 1\nb: '" + b"x" * 1_000_000 + b"'\n", 1, "1,000,000 bytes"),
        (b"a: [1,\n" + b"1," * 50_000 + b"1]\n", 2, "50,000 keys and values"),
        (b"\n".join(b"k%d: 1" % number for number in range(25_001)), 25_000, "50,000 keys and values"),
        (b"a:\n" + b"".join(b" " * level + b"- \n" for level in range(1, 22)), 21, "20 levels"),
        (b"a: 1\na: " + b"{a: " * 100_000, 2, "20 levels"),
        (b"- " * 100_000, 1, "20 levels"),
        (b"a: 1\n? " + b"[" * 900 + b"]" * 900, 2, "20 levels"),
    ],
)
def test_a_document_is_read_only_up_to_its_limits(content: bytes, line: int, limit: str) -> None:
    (fault,) = parse_yaml(content).faults
    assert fault.line == line
    assert fault.text.startswith(f"expected at most {limit}")


@pytest.mark.parametrize(
    ("value", "sign"),
    [
        ("@hourly", "@"),
        ("%a", "%"),
        ("`date`", "`"),
        ("*/5 * * * *", "*"),
        ("* * * * *", "*"),
        ("*x", "*"),
        ("& co", "&"),
        ("&co x", "&"),
        ("{{ ds }}", "{{"),
        ("{{ ds }}.orders", "{{"),
        ("[a, @hourly]", "@"),
    ],
)
def test_a_text_that_needs_quotes_is_told_so_on_its_line(value: str, sign: str) -> None:
    (fault,) = parse_yaml(f"a: 1\nb: {value}\n".encode()).faults
    assert fault.line == 2
    assert f"begins with {sign}" in fault.text
    assert "in quotes" in fault.text


@pytest.mark.parametrize(
    ("content", "line", "text"),
    [
        (b"a: [1\n", 2, "expected valid YAML; found a syntax error: while parsing a flow sequence did not find"),
        (b"a:\n\tb: 1\n", 2, "expected spaces as indentation; found a tab"),
        (b"a: 1\n---\nb: 2\n", 2, "expected valid YAML; found a syntax error: expected a single document"),
        (b"a: 1\nb: \x07\n", 2, "expected printable characters; found a control character"),
        (b"a: 1\nb: \xff\n", 2, "expected UTF-8 text; found other bytes"),
        (b"a: 1\nb: !!python/object:os.system x\n", 2, "expected a plain value; found the tag"),
        (b"a: 1\nb: !!set {x}\n", 2, "expected a mapping, a list or a plain value; found the tag"),
        (b"a: 1\nb:\n  <<: {x: 1}\n", 3, "expected keys written out; found a merge key (<<)"),
        (b"a: 1\n!!int x: 2\n", 2, "expected a key that is text or a whole number; found another kind of key"),
        (b"a: 1\n? [x]\n: 2\n", 2, "expected a key that is text or a whole number; found another kind of key"),
        (b"a: 1\n1.5: 2\n", 2, "expected a key that is text or a whole number; found another kind of key"),
        (b"a: 1\nb: !!int x\n", 2, "expected a plain value; found the tag"),
    ],
)
def test_a_fault_of_the_yaml_has_its_line_and_plain_words(content: bytes, line: int, text: str) -> None:
    (fault,) = parse_yaml(content).faults
    assert fault.line == line
    assert fault.text.startswith(text)


def test_faults_of_several_kinds_are_found_in_one_pass() -> None:
    document = parse_yaml(b"b: !x 1\na: 1\na: 2\n<<: 3\n")
    assert [fault.line for fault in document.faults] == [1, 3, 4]
    assert document.unreadable == {("b",)}


@pytest.mark.parametrize("content", [b"", b"# only a comment\n", b"---\n"])
def test_an_empty_document_is_nothing_without_a_fault(content: bytes) -> None:
    document = parse_yaml(content)
    assert document.data is None
    assert not document.faults


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    assert parse_yaml(b"\xef\xbb\xbfa: 1\r\nb: x\r\n").data == {"a": 1, "b": "x"}

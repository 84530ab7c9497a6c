"""Whatever a topic holds, the draft of its file passes check-config and loads the sample without a dead letter."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.draft.values import Number, Spelling, read_document, spells
from kafka_ingest.draft.writing import column_name, scalar
from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.kafka.sample import SampledRecord
from kafka_ingest.pipeline_files.document import parse_yaml
from spark_jobs.decode.values import ColumnPlan, DecodeError
from tests.decoding import document_of, read_columns, read_value
from tests.drafting import decoded, draft_text, sampled

#: Member names that are likely to meet, and such that are hard to write.
_NAMES = st.one_of(
    st.sampled_from(["id", "a", "b", "ts", "created_at", "Amount", "payload", "op", "after", "xmin", "kafka_offset"]),
    st.text(max_size=6),
    st.sampled_from(
        ["a.b", "it's", 'a"b', "back\\slash", "", " ", "ä" * 60, "x" * 101, "%", "#", "- ", "null", "\x85"]
    ),
)
_NUMBERS = st.one_of(
    st.integers(-5, 5).map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.integers(946_684_800, 4_102_444_800).flatmap(
        lambda s: st.sampled_from([1, 10**3, 10**6, 10**9]).map(lambda f: str(s * f))
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,5})?\Z"),
    st.sampled_from(["1e131072", "1e-16384", "0e99999999999", "-0", "-0.0", "1e400", "1e-400", "9223372036854775808"]),
).map(Number)
_TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["2026-01-31", "2026-02-30", "01:02:03", "24:00:00", "6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10"]),
    st.sampled_from(["0001-01-01T00:00:00+14:00", "2026-01-31T01:02:03Z", "2026-12-31T23:59:60Z", "2026-01-31T01:02Z"]),
    st.sampled_from(["2026-01-31 01:02:03.123456", "007", "+1", "12", "1.50", "1e3", "{}", "[1", '{"a": 1}', "AAAA"]),
    st.sampled_from(["00ff00ff00ff00ff", "c", "d", "\x00", "\ud800", "\U0001f600"]),
)
_SCALARS = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=4)),
    max_leaves=12,
)
#: Objects whose members are of one kind each, as most topics have them.
_REGULAR = st.dictionaries(
    _NAMES, st.sampled_from([_NUMBERS, _TEXTS, st.booleans(), st.integers(0, 9).map(Number)]), min_size=1, max_size=5
).flatmap(
    lambda members: st.lists(
        st.fixed_dictionaries({}, optional={n: st.one_of(st.none(), v) for n, v in members.items()}),
        min_size=1,
        max_size=6,
    )
)

_ROWS = st.one_of(st.none(), st.dictionaries(_NAMES, _SCALARS, max_size=3))
_CHANGES = st.fixed_dictionaries(
    {"op": st.sampled_from("crud"), "source": st.just({"lsn": Number("1")}), "ts_ms": st.just(Number("1795901222852"))},
    optional={"before": _ROWS, "after": _ROWS, "transaction": _VALUES},
).flatmap(lambda event: st.sampled_from([event, {"schema": {"type": "struct"}, "payload": event}]))

_SCHEMA_NAMES = st.sampled_from(
    ["io.debezium.time.Date", "io.debezium.time.NanoTimestamp", "io.debezium.time.MicroTimestamp", "x"]
)
_WITH_SCHEMA = st.tuples(_SCHEMA_NAMES, _NUMBERS).map(
    lambda drawn: {
        "schema": {"type": "struct", "fields": [{"field": "a", "name": drawn[0]}]},
        "payload": {"a": drawn[1]},
    }
)


def written(value: Any) -> str:
    """Write a value as JSON, numbers as they are."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{written(member)}" for name, member in value.items()) + "}"
    return json.dumps(value)


_PAYLOADS = st.one_of(
    st.none(),
    _VALUES.map(written).map(str.encode),
    st.binary(max_size=8),
    st.text(max_size=8).map(lambda t: t.encode("utf-8", "replace")),
)
_HEADERS = st.one_of(
    st.none(),
    st.lists(st.text(max_size=4).filter(lambda n: n.isprintable() or "\x00" in n), max_size=2).map(tuple),
    st.just(()),
)


@st.composite
def samples(draw: st.DrawFn) -> list[SampledRecord]:
    """Draw a sample: values of one kind, or of all kinds, each with a key and headers."""
    values = draw(
        st.one_of(
            st.lists(_CHANGES.map(written).map(str.encode), min_size=1, max_size=4),
            st.lists(_WITH_SCHEMA.map(written).map(str.encode), min_size=1, max_size=4),
            _REGULAR.map(lambda objects: [written(value).encode() for value in objects]),
            st.lists(st.dictionaries(_NAMES, _VALUES, max_size=4).map(written).map(str.encode), min_size=1, max_size=6),
            st.lists(_PAYLOADS, min_size=1, max_size=6),
        )
    )
    keys = draw(
        st.sampled_from(
            [st.none(), _PAYLOADS, st.dictionaries(_NAMES, _SCALARS, max_size=2).map(written).map(str.encode)]
        )
    )
    names = draw(st.sampled_from([st.just(()), _HEADERS]))
    return [
        sampled(value, offset=offset, key=draw(keys), header_names=draw(names)) for offset, value in enumerate(values)
    ]


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(samples())
def test_a_draft_loads_its_sample_without_a_dead_letter_and_a_second_one_is_equal(records: list[SampledRecord]) -> None:
    text = draft_text(records)
    assert decoded(text, records).dead == []
    assert draft_text(list(records)) == text


@given(
    st.one_of(
        _TEXTS,
        st.from_regex(
            r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]([0-9]{2}:){2}[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})?",
            fullmatch=True,
        ),
    )
)
def test_what_a_text_spells_is_what_the_job_reads(text: str) -> None:
    types = {
        Spelling.TIMESTAMPTZ: "timestamptz",
        Spelling.TIMESTAMP: "timestamp",
        Spelling.DATE: "date",
        Spelling.TIME: "time",
        Spelling.UUID: "uuid",
        Spelling.WHOLE: "bigint as number_text",
        Spelling.DECIMAL: "numeric",
        Spelling.HEX: "bytea as hex",
        Spelling.BASE64: "bytea as base64",
        Spelling.JSON: "text",
    }
    for spelling, type_name in types.items():
        if spells(spelling, text):
            assert not isinstance(read_value(type_name, json.dumps(text)), DeadLetterReason)
    finer = {
        Spelling.FINER_TIMESTAMPTZ: "timestamptz",
        Spelling.FINER_TIMESTAMP: "timestamp",
        Spelling.FINER_TIME: "time",
    }
    for spelling, type_name in finer.items():
        if spells(spelling, text):
            plan = ColumnPlan("a", parse_column_type(type_name), ("a",), is_rounded=True)
            [outcome] = read_columns([plan], document_of(json.dumps(text)))
            assert not isinstance(outcome, DecodeError)


def test_times_that_rounding_would_carry_out_of_their_type_are_no_times() -> None:
    assert spells(Spelling.FINER_TIME, "23:59:59.9999989")
    assert not spells(Spelling.FINER_TIME, "23:59:59.9999999")
    assert not spells(Spelling.FINER_TIMESTAMP, "9999-12-31T23:59:59.9999999")
    assert not spells(Spelling.FINER_TIMESTAMPTZ, "9999-12-31T22:59:59.9999999-01:00")


@given(st.one_of(st.binary(max_size=20), _VALUES.map(written).map(str.encode)))
def test_documents_are_those_that_the_job_reads(data: bytes) -> None:
    found = read_document(data)
    [outcome] = read_columns([ColumnPlan("a", parse_column_type("jsonb"))], data)
    if found is None:
        assert isinstance(outcome, DecodeError)
    elif found.is_plain:
        assert not isinstance(outcome, DecodeError)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_text_survives_the_file(text: str) -> None:
    for line in (f"key: {scalar(text)}", f"key: [{scalar(text)}]", f"key: {{name: {scalar(text)}}}"):
        document = parse_yaml(line.encode())
        assert document.faults == ()
        data = document.data
        assert isinstance(data, dict)
        assert data["key"] in (text, [text], {"name": text})


@given(
    st.lists(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80), max_size=3), max_size=8)
)
def test_names_of_columns_are_names_and_differ(labels: list[list[str]]) -> None:
    taken = {"id", "xmin"}
    names = [column_name(label, taken) for label in labels]
    assert len({*names, "id", "xmin"}) == len(names) + 2
    for name in names:
        assert 0 < len(name.encode()) <= 63
        assert name.isprintable()
